"""XLA's HLO after optimization → the program it computes, cut into dispatches as XLA cut it.

Each instruction of the entry computation is a dispatch: a fusion with all it computes, or one op.
What lies in memory between them is named as it lies there: of a value whose layout is not row by
row that is its transpose, and a `bitcast` is another shape of the same bytes. One instruction
becomes values by way of the JAX primitive that means the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np

from eqsat.frontends.primitives import PRIMITIVES
from eqsat.frontends.values import Context, Tensor, reshaped, transposed, view
from eqsat.frontends.windows import reduced
from eqsat.lang.hlotext import (
    Computation,
    HloModule,
    HloType,
    Instruction,
    check_convolution,
    dimension_numbers,
    parse_hlo,
    window_of,
)
from eqsat.model.affine import affine, dim
from eqsat.model.compiled import CutProgram
from eqsat.model.diag import did_you_mean, fail
from eqsat.model.expr import arg, call
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Reshape
from eqsat.model.program import Builder
from eqsat.model.tensor import TensorType
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.programs import element_dtype, weight_key
from eqsat.ops.movement.lists import inverse
from eqsat.ops.programs.cutting import UNKNOWN, Cutter

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
    """Precision of each operand, as JAX has it; None if the instruction does not say."""
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
    """Reduction of one operand, by one of our functions, from any start."""
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
    """Windowed reduction of one operand, by one of our functions, from its neutral element."""
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
    numbers = [_scalar_value(w) for w in words]
    array = np.array(numbers, dtype).reshape(t.shape)
    if array.size and (array == array.flat[0]).all():
        return Tensor(t.shape, t.dtype, constant=array.flat[0].item())
    key = weight_key(array)
    ctx.weights[key] = array
    return ctx.add("weight", (), Leaf(f"const_{key[:8]}", t, key=key))


def _scalar_value(word: str) -> bool | int | float:
    if word in ("true", "false"):
        return word == "true"
    return int(word) if re.fullmatch(r"-?\d+", word) else float(word)


_OWN: dict[str, Callable[[Context, Instruction, Sequence[Tensor], Computations], Tensor]] = {
    "broadcast": _broadcast, "transpose": _transpose, "reverse": _reverse, "compare": _compare,
    "select": _select, "clamp": _clamp, "slice": _slice, "pad": _pad,
    "concatenate": _concatenate, "iota": _iota, "dot": _dot, "reduce": _reduce,
    "reduce-window": _reduce_window, "constant": _constant, "convolution": _convolution,
}  # fmt: skip


SOURCE = "XLA"
MOST_CALLS = 64  # computations that call each other
Part = TypeVar("Part")


def read_hlo(text: str, file: str) -> CutProgram:
    """EqsatError E345 if this is not the text of an HLO module, E346 for what is not read."""
    module = parse_hlo(text, file)
    for computation in module.computations.values():
        for i in computation.instructions:
            _ = i.types  # refused here where programs have no such type, even if nothing reads it
    return _Reader(module, Cutter(module.name)).read()


@dataclass(frozen=True)
class _Held:
    """A value in memory: the node of its bytes, row by row in the order they lie."""

    node: int
    type: HloType


_Values = tuple[_Held | Tensor, ...]  # the parts of a tuple; a scalar that is known has no bytes


@dataclass
class _Reader:
    module: HloModule
    cutter: Cutter
    depth: int = MOST_CALLS

    def read(self) -> CutProgram:
        entry = self.module.computations[self.module.entry]
        parameters = [i for i in entry.instructions if i.opcode == "parameter"]
        names = Context(self.cutter.builder)
        env: dict[str, _Values] = {
            i.name: (self._argument(i, names),) for i in sorted(parameters, key=_number)
        }
        if sorted(map(_number, parameters)) != list(range(len(parameters))):
            raise fail("E345", "parameters are not numbered from 0 on", entry.instructions[0].span)
        for i in entry.instructions:
            if i.opcode != "parameter":
                env[i.name] = self._entry(i, self._operands(i, env))
        results = [self._result(v, entry.root) for v in env[entry.root.name]]
        return self.cutter.cut(results, SOURCE)

    def _argument(self, i: Instruction, names: Context) -> _Held:
        (t,) = i.types
        if not t.is_plain:
            raise fail("E346", "an argument that does not lie row by row is not read", i.span)
        label = i.attributes.get("metadata", "").partition('op_name="')[2].partition('"')[0]
        name = names.name(label or i.name.rpartition(".")[0] or i.name)
        leaf = Leaf(name, t.tensor, _number(i))
        return _Held(self.cutter.builder.append("input", (), leaf), t)

    def _operands(self, i: Instruction, env: dict[str, _Values]) -> list[_Values]:
        missing = [o for o in i.operands if o not in env]
        if missing:
            raise fail("E345", f"`{missing[0]}` is read before it is computed", i.span)
        return [env[o] for o in i.operands]

    def _entry(self, i: Instruction, xs: Sequence[_Values]) -> _Values:
        """An instruction of the entry computation: a dispatch, or none."""
        flat = [v for x in xs for v in x]
        if i.opcode == "tuple":
            return tuple(flat)
        if i.opcode == "get-tuple-element":
            return (_part(i, xs[0] if xs else ()),)
        if i.opcode == "call":
            return self._called(i, xs)
        if i.opcode == "bitcast" and flat and isinstance(flat[0], _Held):
            return (self._bitcast(i, flat[0]),)
        return self._dispatch(i, flat)

    def _dispatch(self, i: Instruction, xs: Sequence[_Held | Tensor]) -> _Values:
        """The results of an instruction, as a program of its own."""
        ctx = Context(Builder(i.name))
        held = [x for x in xs if isinstance(x, _Held)]
        leaves = {
            h.node: ctx.builder.append(
                "input", (), Leaf(f"r{n}", self.cutter.builder.type(h.node), n)
            )
            for n, h in enumerate({h.node: h for h in held}.values())
        }
        values = [
            x if isinstance(x, Tensor)
            else transposed(ctx, ctx.full(leaves[x.node]), inverse(x.type.order))
            for x in xs
        ]  # fmt: skip
        outputs = self._computed(ctx, i, values, MOST_CALLS)
        if all(v.is_constant for v in outputs):
            return outputs
        if len(outputs) != len(i.types):
            raise fail("E345", "it gives another number of values than its type says", i.span)
        pairs = zip(outputs, i.types, strict=True)
        results = [ctx.materialise(transposed(ctx, v, t.order)) for v, t in pairs]
        program = ctx.builder.build(results)
        self.cutter.weights.update(ctx.weights)
        nodes = self.cutter.add(i.name, i.at, program, tuple(leaves))
        return tuple(_Held(n, t) for n, t in zip(nodes, i.types, strict=True))

    def _called(self, i: Instruction, xs: Sequence[_Values]) -> _Values:
        """A call of the entry computation: its instructions are dispatches."""
        if self.depth == 0:
            raise fail("E345", "computations call each other too deeply", i.span)
        self.depth -= 1
        body = self._computation(i, "to_apply")
        env: dict[str, _Values] = {}
        for inner in body.instructions:
            if inner.opcode == "parameter":
                env[inner.name] = _at(inner, xs)
            else:
                env[inner.name] = self._entry(inner, self._operands(inner, env))
        self.depth += 1
        return env[body.root.name]

    def _computed(
        self, ctx: Context, i: Instruction, xs: Sequence[Tensor], depth: int
    ) -> tuple[Tensor, ...]:
        """The results of an instruction, all of a fusion's; layouts inside of it move nothing."""
        if i.opcode not in ("fusion", "call"):
            return (lowered(ctx, i, xs, self.module.computations),)
        if depth == 0:
            raise fail("E345", "computations call each other too deeply", i.span)
        body = self._computation(i, "calls" if i.opcode == "fusion" else "to_apply")
        env: dict[str, tuple[Tensor, ...]] = {}
        for inner in body.instructions:
            if inner.opcode == "parameter":
                env[inner.name] = (_at(inner, xs),)
                continue
            missing = [o for o in inner.operands if o not in env]
            if missing:
                raise fail("E345", f"`{missing[0]}` is read before it is computed", inner.span)
            operands = [v for o in inner.operands for v in env[o]]
            if inner.opcode == "tuple":
                env[inner.name] = tuple(operands)
            elif inner.opcode == "get-tuple-element":
                env[inner.name] = (_part(inner, operands),)
            elif inner.opcode == "bitcast":
                env[inner.name] = (_reinterpreted(ctx, inner, body, operands),)
            else:
                env[inner.name] = self._computed(ctx, inner, operands, depth - 1)
        return env[body.root.name]

    def _computation(self, i: Instruction, key: str) -> Computation:
        computation = self.module.computations.get(i.called(key))
        if computation is None or not computation.instructions:
            raise fail("E345", f"there is no computation `{i.called(key)}`", i.span)
        return computation

    # ---- bytes and what they mean ------------------------------------------------------------
    def _bitcast(self, i: Instruction, v: _Held) -> _Held:
        """The same bytes as another shape, in another order of dims."""
        (t,) = i.types
        shape = tuple(t.tensor.shape[d] for d in t.order)
        held = self.cutter.builder.type(v.node)
        _check_bytes(i, held, t.tensor)
        if held.shape == shape:
            return _Held(v.node, t)
        view = self.cutter.builder.add("reshape", (v.node,), Reshape(held.shape, shape))
        return _Held(view, t)

    def _result(self, v: _Held | Tensor, root: Instruction) -> int:
        if isinstance(v, Tensor):
            return Context(self.cutter.builder).materialise(v)
        if not v.type.is_plain:
            raise fail("E346", "a result that does not lie row by row is not read", root.span)
        return v.node


def _number(parameter: Instruction) -> int:
    if not parameter.argument.isdecimal():
        raise fail("E345", "a parameter has a number", parameter.span)
    return int(parameter.argument)


def _part(i: Instruction, parts: Sequence[Part]) -> Part:
    """The part of a tuple that an instruction names."""
    index = i.ints("index")
    if len(index) != 1 or not 0 <= index[0] < len(parts):
        raise fail("E345", "there is no such part of a tuple", i.span)
    return parts[index[0]]


def _at(parameter: Instruction, xs: Sequence[Part]) -> Part:
    if _number(parameter) >= len(xs):
        raise fail("E345", "there is no such operand", parameter.span)
    return xs[_number(parameter)]


def _reinterpreted(
    ctx: Context, i: Instruction, body: Computation, operands: Sequence[Tensor]
) -> Tensor:
    """A bitcast inside of a fusion: by the layouts of both its sides."""
    if len(operands) != 1:
        raise fail("E345", "`bitcast` has one operand", i.span)
    source = next(o.types[0] for o in body.instructions if o.name == i.operands[0])
    (t,) = i.types
    _check_bytes(i, source.tensor, t.tensor)
    lying = transposed(ctx, operands[0], source.order)
    shape = tuple(t.tensor.shape[d] for d in t.order)
    return transposed(ctx, reshaped(ctx, lying, shape), inverse(t.order))


def _check_bytes(i: Instruction, source: TensorType, to: TensorType) -> None:
    if source.size != to.size or source.dtype != to.dtype:
        raise fail("E345", f"`bitcast` of {source} to {to}: other bytes", i.span)
