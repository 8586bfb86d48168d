"""One HLO instruction → values of a program, by way of the JAX primitive that means the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from eqsat.frontends.hlo.text import (
    Computation,
    HloType,
    Instruction,
    check_convolution,
    dimension_numbers,
    window_of,
)
from eqsat.frontends.primitives import PRIMITIVES
from eqsat.frontends.values import Context, Tensor
from eqsat.frontends.views import view
from eqsat.frontends.windows import reduced
from eqsat.model.affine import affine, dim
from eqsat.model.diag import did_you_mean, fail
from eqsat.model.expr import arg, call
from eqsat.model.leaves import Leaf
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.iotas import weight_key
from eqsat.ops.meaning.programs import element_dtype
from eqsat.ops.programs.cutting import UNKNOWN

# opcode → primitive of the same operands
SAME = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "maximum": "max",
    "minimum": "min", "remainder": "rem", "power": "pow", "negate": "neg", "abs": "abs",
    "sign": "sign", "floor": "floor", "ceil": "ceil", "exponential": "exp",
    "exponential-minus-one": "expm1", "log": "log", "log-plus-one": "log1p", "tanh": "tanh",
    "sqrt": "sqrt", "rsqrt": "rsqrt", "cbrt": "cbrt", "cosine": "cos", "sine": "sin", "tan": "tan",
    "logistic": "logistic", "erf": "erf", "atan2": "atan2", "and": "and", "or": "or", "xor": "xor",
    "not": "not", "copy": "copy", "convert": "convert_element_type", "reshape": "reshape",
    "is-finite": "is_finite",
}  # fmt: skip
COMPARISONS = {"EQ": "eq", "NE": "ne", "LT": "lt", "LE": "le", "GT": "gt", "GE": "ge"}
COMBINES = {
    "add": "add", "maximum": "max", "minimum": "min", "multiply": "mul", "and": "and", "or": "or",
}  # fmt: skip
Computations = Mapping[str, Computation]


def lowered(ctx: Context, i: Instruction, xs: Sequence[Tensor], all_: Computations) -> Tensor:
    """The result of an instruction with one result; EqsatError E346 if it is not read."""
    make = _OWN.get(i.opcode)
    try:
        if make is not None:
            return make(ctx, i, xs, all_)
        if i.opcode in SAME:
            return _primitive(ctx, i, SAME[i.opcode], xs, {"dimensions": None})
    except (IndexError, KeyError, ValueError, TypeError) as e:
        raise fail("E345", f"`{i.opcode}` does not fit its operands: {e}", i.span) from None
    opcodes = [*SAME, *_OWN]
    raise fail("E346", f"`{i.opcode}` is not read", i.span, help=did_you_mean(i.opcode, opcodes))


def aval(t: HloType) -> Any:
    """A type as JAX's equations have it."""
    return SimpleNamespace(
        aval=SimpleNamespace(shape=t.tensor.shape, dtype=np.dtype(element_dtype(t.tensor.dtype)))
    )


def _primitive(
    ctx: Context, i: Instruction, name: str, xs: Sequence[Tensor], params: dict[str, Any]
) -> Tensor:
    out = aval(i.types[0])
    invars = [
        SimpleNamespace(aval=SimpleNamespace(shape=x.shape, dtype=np.dtype(element_dtype(x.dtype))))
        for x in xs
    ]
    primitive = SimpleNamespace(name=name)
    eqn = SimpleNamespace(primitive=primitive, params=params, invars=invars, outvars=[out])
    results = PRIMITIVES[name](ctx, eqn, xs) if name in PRIMITIVES else None
    if not results:
        raise fail("E346", f"this form of `{i.opcode}` is not read", i.span)
    (value,) = results
    wanted = i.types[0].tensor
    if value.shape != wanted.shape or value.dtype != wanted.dtype:
        actual = f"{value.dtype}{list(value.shape)}"
        raise fail("E345", f"`{i.opcode}` gives {actual}, and its type is {wanted}", i.span)
    return value


# ---- instructions that are written otherwise than JAX's primitives -------------------------------
def _broadcast(ctx: Context, i: Instruction, xs: Sequence[Tensor], _: Computations) -> Tensor:
    params = {"broadcast_dimensions": i.ints("dimensions")}
    return _primitive(ctx, i, "broadcast_in_dim", xs, params)


def _transpose(ctx: Context, i: Instruction, xs: Sequence[Tensor], _: Computations) -> Tensor:
    return _primitive(ctx, i, "transpose", xs, {"permutation": i.ints("dimensions")})


def _reverse(ctx: Context, i: Instruction, xs: Sequence[Tensor], _: Computations) -> Tensor:
    return _primitive(ctx, i, "rev", xs, {"dimensions": i.ints("dimensions")})


def _compare(ctx: Context, i: Instruction, xs: Sequence[Tensor], _: Computations) -> Tensor:
    return _primitive(ctx, i, COMPARISONS[i.attributes["direction"]], xs, {})


def _select(ctx: Context, i: Instruction, xs: Sequence[Tensor], _: Computations) -> Tensor:
    which, when_true, when_false = xs
    return _primitive(ctx, i, "select_n", (which, when_false, when_true), {})


def _clamp(ctx: Context, i: Instruction, xs: Sequence[Tensor], _: Computations) -> Tensor:
    low, x, high = xs
    body = call("min", call("max", arg(0), arg(1)), arg(2))
    return ctx.elementwise(body, (x, low, high), x.shape, x.dtype)


def _slice(ctx: Context, i: Instruction, xs: Sequence[Tensor], _: Computations) -> Tensor:
    ranges = re.findall(r"\[(\d+):(\d+)(?::(\d+))?\]", i.attributes["slice"])
    start, limit, strides = zip(*((int(a), int(b), int(k or 1)) for a, b, k in ranges), strict=True)
    params = {"start_indices": start, "limit_indices": limit, "strides": strides}
    return _primitive(ctx, i, "slice", xs, params)


def _pad(ctx: Context, i: Instruction, xs: Sequence[Tensor], _: Computations) -> Tensor:
    edges = [tuple(map(int, e.split("_"))) for e in i.attributes["padding"].split("x")]
    config = [(*e, 0)[:3] for e in edges]
    return _primitive(ctx, i, "pad", xs, {"padding_config": config})


def _concatenate(ctx: Context, i: Instruction, xs: Sequence[Tensor], _: Computations) -> Tensor:
    return _primitive(ctx, i, "concatenate", xs, {"dimension": i.ints("dimensions")[0]})


def _iota(ctx: Context, i: Instruction, xs: Sequence[Tensor], _: Computations) -> Tensor:
    return _primitive(ctx, i, "iota", (), {"dimension": i.ints("iota_dimension")[0]})


def _dot(ctx: Context, i: Instruction, xs: Sequence[Tensor], _: Computations) -> Tensor:
    sides = ("lhs", "rhs")
    contracting = tuple(i.ints(f"{side}_contracting_dims") for side in sides)
    batch = tuple(i.ints(f"{side}_batch_dims") for side in sides)
    params = {"dimension_numbers": (contracting, batch), "precision": _precision(i)}
    return _primitive(ctx, i, "dot_general", xs, params)


def _precision(i: Instruction) -> Any:
    """Of each operand, as JAX has it; None if the instruction does not say."""
    named = re.findall(r"\w+", i.attributes.get("operand_precision", ""))
    return tuple(SimpleNamespace(name=n) for n in named) or None


def _convolution(ctx: Context, i: Instruction, xs: Sequence[Tensor], _: Computations) -> Tensor:
    """Any labels of dims, strides, pads, dilations, groups and reversed windows."""
    image, kernel = xs
    numbers = dimension_numbers(i.attributes["dim_labels"])
    spatial = numbers.rhs_spec[2:]
    window = window_of(i, len(spatial))
    groups = tuple((i.ints(f"{kind}_group_count") or (1,))[0] for kind in ("feature", "batch"))
    shapes = image.shape, kernel.shape, i.types[0].tensor.shape
    check_convolution(window, numbers, groups, shapes)
    turned = {d for d, turns in zip(spatial, window.reversal, strict=True) if turns}
    index = [
        affine([(d, -1)], s - 1) if d in turned else dim(d) for d, s in enumerate(kernel.shape)
    ]
    params = {
        "dimension_numbers": numbers,
        "window_strides": window.stride,
        "padding": window.pad,
        "lhs_dilation": window.lhs_dilate,
        "rhs_dilation": window.rhs_dilate,
        "feature_group_count": groups[0],
        "batch_group_count": groups[1],
        "precision": _precision(i),
    }
    operands = image, view(kernel, kernel.shape, index)
    return _primitive(ctx, i, "conv_general_dilated", operands, params)


def _reduce(ctx: Context, i: Instruction, xs: Sequence[Tensor], all_: Computations) -> Tensor:
    """Of one operand, by one of our functions, from any start."""
    body = all_[i.called("to_apply")]
    combine = COMBINES.get(body.root.opcode)
    inner = [x for x in body.instructions if x.opcode != "parameter"]
    if len(xs) != 2 or combine is None or len(inner) != 1:
        raise fail("E346", "a reduction of several values, or by another function, is not read",
                   i.span)  # fmt: skip
    x, start = xs
    total = reduced(ctx, x, list(i.ints("dimensions")), combine)
    if start.is_constant and start.constant == scalar.neutral(combine, x.dtype):
        return total
    body_of = call(combine, arg(0), arg(1))
    return ctx.elementwise(body_of, [total, start], total.shape, total.dtype)


def _reduce_window(
    ctx: Context, i: Instruction, xs: Sequence[Tensor], all_: Computations
) -> Tensor:
    """Of one operand, by one of our functions, from its neutral element."""
    combine = COMBINES.get(all_[i.called("to_apply")].root.opcode)
    x, start = xs
    if not start.is_constant or combine not in ("add", "max", "min"):
        raise fail("E346", "windows of this function, or from another start, are not read", i.span)
    if start.constant != scalar.neutral(combine, x.dtype):
        raise fail("E346", "windows that start from another value are not read", i.span)
    window = window_of(i, len(x.shape))
    params = {
        "window_dimensions": window.size,
        "window_strides": window.stride,
        "base_dilation": window.lhs_dilate,
        "window_dilation": window.rhs_dilate,
        "padding": window.pad,
    }
    name = {"add": "reduce_window_sum"}.get(combine, f"reduce_window_{combine}")
    return _primitive(ctx, i, name, (x,), params)


def _constant(ctx: Context, i: Instruction, xs: Sequence[Tensor], _: Computations) -> Tensor:
    t = i.types[0].tensor
    text = i.argument
    if "..." in text:  # a weight whose values the text leaves out
        name = re.sub(r"\W", "_", i.name)
        return ctx.add("weight", (), Leaf(name, t, key=f"{UNKNOWN}{i.name}"))
    dtype = element_dtype(t.dtype)
    words = re.findall(r"[^\s{},]+", re.sub(r"/\*.*?\*/", "", text))
    numbers = [_number(w) for w in words]
    array = np.array(numbers, dtype).reshape(t.shape)
    if array.size and (array == array.flat[0]).all():
        return Tensor(t.shape, t.dtype, constant=array.flat[0].item())
    key = weight_key(array)
    ctx.weights[key] = array
    return ctx.add("weight", (), Leaf(f"const_{key[:8]}", t, key=key))


def _number(word: str) -> bool | int | float:
    if word in ("true", "false"):
        return word == "true"
    return int(word) if re.fullmatch(r"-?\d+", word) else float(word)


_OWN: dict[str, Callable[[Context, Instruction, Sequence[Tensor], Computations], Tensor]] = {
    "broadcast": _broadcast, "transpose": _transpose, "reverse": _reverse, "compare": _compare,
    "select": _select, "clamp": _clamp, "slice": _slice, "pad": _pad,
    "concatenate": _concatenate, "iota": _iota, "dot": _dot, "reduce": _reduce,
    "reduce-window": _reduce_window, "constant": _constant, "convolution": _convolution,
}  # fmt: skip
