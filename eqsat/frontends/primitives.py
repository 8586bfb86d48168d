"""JAX primitives → ops: a table from primitive name to a small function.

Scalar functions have the names of `FUNCTIONS`, and other front ends name the same entries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from eqsat.frontends.indexing import dynamic_slice, gather, line
from eqsat.frontends.updates import dynamic_update_slice, scatter
from eqsat.frontends.values import (
    Context,
    Tensor,
    concatenated,
    dtype_name,
    padded,
    reshaped,
    sliced,
    sliced_along,
    transposed,
    view,
)
from eqsat.frontends.windows import (
    conv_general_dilated,
    dot_general,
    extreme_place,
    general_reduce,
    general_reduce_window,
    reduce_window,
    reduction,
    running,
)
from eqsat.model.affine import affine, dim
from eqsat.model.expr import Expr, arg, call, cast, const
from eqsat.model.movement import Reshape
from eqsat.model.tensor import is_float
from eqsat.ops.meaning.scalar import FUNCTIONS

# names that do not say which of several functions is meant, or that take operands otherwise
_FORMS = frozenset({"pow", "select", "round_even", "round_away"})
SAME_NAME = tuple(name for name in FUNCTIONS if name not in _FORMS)


def integer_power(x: Expr, n: int, is_float: bool) -> Expr:
    """x^n; one over it for a negative n."""
    one = const(1.0 if is_float else 1)
    if n == 0:
        return one
    product = power(x, abs(n))
    return call("div", one, product) if n < 0 else product


def power(x: Expr, n: int) -> Expr:
    """x^n for n > 0, by repeated squaring, as XLA expands it."""
    if n == 1:
        return x
    half = power(x, n // 2)
    square = call("mul", half, half)
    return call("mul", square, x) if n % 2 else square


Lower = Callable[[Context, Any, Sequence[Tensor]], "list[Tensor] | None"]


def _result(eqn: Any) -> tuple[tuple[int, ...], str]:
    """Shape and element type of the first result."""
    aval = eqn.outvars[0].aval
    name = dtype_name(aval.dtype)
    assert name is not None  # foreign types never reach the table
    return tuple(int(d) for d in aval.shape), name


@cache
def _applied(fn: str, operands: int) -> Expr:
    """The function of that many operands in order."""
    return call(fn, *(arg(i) for i in range(operands)))


def _scalar(fn: str) -> Lower:
    def lower(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
        shape, dtype = _result(eqn)
        return [ctx.elementwise(_applied(fn, len(xs)), xs, shape, dtype)]

    return lower


def _with_body(make: Callable[[Any], Expr | None]) -> Lower:
    """A primitive whose body depends on its parameters."""

    def lower(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
        body = make(eqn)
        if body is None:
            return None
        shape, dtype = _result(eqn)
        return [ctx.elementwise(body, xs, shape, dtype)]

    return lower


def _integer_pow(eqn: Any) -> Expr:
    is_float = eqn.outvars[0].aval.dtype.kind not in "iu"
    return integer_power(arg(0), int(eqn.params["y"]), is_float)


def _round(eqn: Any) -> Expr:
    even = int(eqn.params["rounding_method"]) == 1
    return call("round_even" if even else "round_away", arg(0))


def _pow(eqn: Any) -> Expr | None:
    base, _ = (v.aval.dtype for v in eqn.invars)
    return None if base.kind in "iub" else call("pow", arg(0), arg(1))


def _select_n(eqn: Any) -> Expr:
    """The first case for false or 0, the next for true or 1, and so on."""
    cases = len(eqn.invars) - 1
    if str(eqn.invars[0].aval.dtype) == "bool":
        return call("select", arg(0), arg(2), arg(1)) if cases > 1 else arg(1)
    chain = arg(cases)
    for case in reversed(range(cases - 1)):
        chain = call("select", call("eq", arg(0), const(case)), arg(case + 1), chain)
    return chain


# exponent and mantissa bits of the narrower types
_PRECISIONS = {(5, 10): "f16", (8, 7): "bf16", (8, 23): "f32", (11, 52): "f64"}


def _reduce_precision(eqn: Any) -> Expr | None:
    """Cast there and back where a type has this precision; the same one changes nothing."""
    dtype = dtype_name(eqn.outvars[0].aval.dtype)
    narrow = _PRECISIONS.get((eqn.params["exponent_bits"], eqn.params["mantissa_bits"]))
    if narrow is None or dtype is None:
        return None
    return arg(0) if narrow == dtype else cast(cast(arg(0), narrow), dtype)


def _convert(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
    shape, dtype = _result(eqn)
    if xs[0].dtype == dtype:
        return [xs[0]]
    return [ctx.elementwise(cast(arg(0), dtype), xs, shape, dtype)]


def _identity(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
    return list(xs)


def _stop_gradient(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
    ctx.custom_derivatives = True
    return list(xs)


def _broadcast_in_dim(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
    if len(xs) != 1:
        return None
    shape, _ = _result(eqn)
    where = eqn.params["broadcast_dimensions"]
    same = [s == shape[d] for s, d in zip(xs[0].shape, where, strict=True)]
    outer = [dim(d) if k else affine([]) for d, k in zip(where, same, strict=True)]
    return [view(xs[0], shape, outer)]


def _reshape(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
    permuted = eqn.primitive.name == "reshape" and eqn.params.get("dimensions") is not None
    if len(xs) != 1 or permuted:
        return None
    return [reshaped(ctx, xs[0], _result(eqn)[0])]


def _transpose(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
    return [transposed(ctx, xs[0], [int(p) for p in eqn.params["permutation"]])]


def _rev(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
    shape, _ = _result(eqn)
    flipped = set(eqn.params["dimensions"])
    outer = [
        affine([(d, -1)], s - 1) if d in flipped and s > 0 else dim(d) for d, s in enumerate(shape)
    ]
    return [view(xs[0], shape, outer)]


def _pad(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
    x, value = xs
    edges = [(int(low), int(high), int(k)) for low, high, k in eqn.params["padding_config"]]
    if value.is_constant:
        return [padded(ctx, x, edges, value.constant)]
    if any(low < 0 or high < 0 or k for low, high, k in edges):
        return None
    for d, (low, high, _) in enumerate(edges):
        x = concatenated(ctx, [_line(value, x, d, low), x, _line(value, x, d, high)], d)
    return [x]


def _line(value: Tensor, like: Tensor, axis: int, extent: int) -> Tensor:
    """A scalar repeated to the shape of `like`, but for one extent."""
    shape = tuple(extent if d == axis else s for d, s in enumerate(like.shape))
    return view(value, shape, [])


def _slice(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
    start, limit = (
        tuple(int(v) for v in eqn.params[k]) for k in ("start_indices", "limit_indices")
    )
    strides = eqn.params["strides"]
    return [sliced(ctx, xs[0], start, limit, strides and tuple(int(v) for v in strides))]


def _split(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
    x, axis, at = xs[0], int(eqn.params["axis"]), 0
    parts = []
    for size in eqn.params["sizes"]:
        parts.append(sliced_along(ctx, x, axis, at, at + int(size)))
        at += int(size)
    return parts


def _concatenate(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
    return [concatenated(ctx, xs, int(eqn.params["dimension"]))]


def _stack(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
    shape, _ = _result(eqn)
    axis = int(eqn.params["axis"])
    piece = (*shape[:axis], 1, *shape[axis + 1 :])
    around = [dim(d) for d in range(len(shape)) if d != axis]
    return [concatenated(ctx, [view(x, piece, around) for x in xs], axis)]


def _unstack(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
    x, axis = xs[0], int(eqn.params["axis"])
    shape, _ = _result(eqn)
    dims = [dim(d) for d in range(len(shape))]
    return [
        view(x, shape, [*dims[:axis], affine([], at), *dims[axis:]]) for at in range(x.shape[axis])
    ]


def _tile(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
    """Repeats: an outer loop per dim that the operand does not see, then a collapse."""
    shape, _ = _result(eqn)
    x = xs[0]
    if x.is_constant:
        return [view(x, shape, [])]
    pairs = tuple(int(v) for s, r in zip(x.shape, eqn.params["reps"], strict=True) for v in (r, s))
    wide = ctx.materialise(view(x, pairs, [dim(2 * d + 1) for d in range(len(x.shape))]))
    return [ctx.add("reshape", (wide,), Reshape(pairs, shape))]


def _iota(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
    if xs:
        return None
    shape, dtype = _result(eqn)
    axis = int(eqn.params["dimension"])
    if shape[axis] == 1:
        return [Tensor(shape, dtype, constant=0.0 if is_float(dtype) else 0)]
    return [view(line(ctx, shape[axis], dtype), shape, [dim(axis)])]


_PLAIN = {name: name for name in SAME_NAME} | {"add_any": "add"}
_SAME = (
    "copy", "optimization_barrier", "device_put", "sharding_constraint", "name",
    "mesh_cast", "reshard", "pvary",
)  # fmt: skip

PRIMITIVES: dict[str, Lower] = (
    {name: _scalar(fn) for name, fn in _PLAIN.items()}
    | dict.fromkeys(_SAME, _identity)
    | {
        "integer_pow": _with_body(_integer_pow),
        "square": _with_body(lambda eqn: power(arg(0), 2)),
        "round": _with_body(_round),
        "pow": _with_body(_pow),
        "select_n": _with_body(_select_n),
        "reduce_precision": _with_body(_reduce_precision),
        "convert_element_type": _convert,
        "stop_gradient": _stop_gradient,
        "broadcast_in_dim": _broadcast_in_dim,
        "reshape": _reshape,
        "squeeze": _reshape,
        "transpose": _transpose,
        "rev": _rev,
        "pad": _pad,
        "slice": _slice,
        "dynamic_slice": dynamic_slice,
        "dynamic_update_slice": dynamic_update_slice,
        "gather": gather,
        "scatter": scatter(""),
        "scatter-add": scatter("add"),
        "scatter-mul": scatter("mul"),
        "scatter-min": scatter("min"),
        "scatter-max": scatter("max"),
        "split": _split,
        "concatenate": _concatenate,
        "stack": _stack,
        "unstack": _unstack,
        "tile": _tile,
        "iota": _iota,
        "dot_general": dot_general,
        "conv_general_dilated": conv_general_dilated,
        "reduce_sum": reduction("add"),
        "reduce_max": reduction("max"),
        "reduce_min": reduction("min"),
        "reduce_prod": reduction("mul"),
        "reduce_and": reduction("and"),
        "reduce_or": reduction("or"),
        "argmax": extreme_place("max"),
        "argmin": extreme_place("min"),
        "cumsum": running("add"),
        "cumprod": running("mul"),
        "reduce_window_sum": reduce_window("add"),
        "reduce_window_max": reduce_window("max"),
        "reduce_window_min": reduce_window("min"),
        "reduce_window": general_reduce_window,
        "reduce": general_reduce,
    }
)
# primitives that only call a jaxpr, and the parameter that holds it
CALLS = {
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "call": "call_jaxpr",
    "remat2": "jaxpr",
    "composite": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}
