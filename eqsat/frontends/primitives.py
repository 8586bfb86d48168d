"""JAX primitives → ops: a table from primitive name to a small function.

A function gets the context, the equation and its operands and returns one value per result, or
None if this form of the primitive is not modelled; the equation is then kept opaque.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from eqsat.frontends.values import Context, Value, dtype_name
from eqsat.frontends.windows import (
    conv_general_dilated,
    dot_general,
    reduce_window,
    reduction,
)
from eqsat.model.affine import Affine, affine, dim
from eqsat.model.expr import Expr, arg, call, cast, const, literal
from eqsat.model.movement import Move, Reshape, Transpose
from eqsat.ops.canonical import compose, identity
from eqsat.ops.scalar import FUNCTIONS

Lower = Callable[[Context, Any, Sequence[Value]], "list[Value] | None"]


def _result(eqn: Any) -> tuple[tuple[int, ...], str]:
    """Shape and element type of the first result."""
    aval = eqn.outvars[0].aval
    name = dtype_name(aval.dtype)
    assert name is not None  # foreign types never reach the table
    return tuple(int(d) for d in aval.shape), name


def _scalar(fn: str) -> Lower:
    def lower(ctx: Context, eqn: Any, xs: Sequence[Value]) -> list[Value] | None:
        shape, dtype = _result(eqn)
        body = call(fn, *(arg(i) for i in range(len(xs))))
        return [ctx.elementwise(body, xs, shape, dtype)]

    return lower


def _with_body(make: Callable[[Any], Expr | None]) -> Lower:
    """A primitive whose body depends on its parameters."""

    def lower(ctx: Context, eqn: Any, xs: Sequence[Value]) -> list[Value] | None:
        body = make(eqn)
        if body is None:
            return None
        shape, dtype = _result(eqn)
        return [ctx.elementwise(body, xs, shape, dtype)]

    return lower


def _integer_pow(eqn: Any) -> Expr | None:
    power = eqn.params["y"]
    dtype = eqn.outvars[0].aval.dtype
    one = 1 if dtype.kind in "iu" else 1.0
    if power == 0:
        return None  # a constant that would drop its operand's shape
    product = _power(arg(0), abs(power))
    return call("div", const(one), product) if power < 0 else product


def _power(x: Expr, n: int) -> Expr:
    """x^n by repeated squaring, as XLA expands it."""
    if n == 1:
        return x
    half = _power(x, n // 2)
    square = call("mul", half, half)
    return call("mul", square, x) if n % 2 else square


def _round(eqn: Any) -> Expr:
    even = int(eqn.params["rounding_method"]) == 1
    return call("round_even" if even else "round_away", arg(0))


def _pow(eqn: Any) -> Expr | None:
    base, _ = (v.aval.dtype for v in eqn.invars)
    return None if base.kind in "iub" else call("pow", arg(0), arg(1))


def _select_n(eqn: Any) -> Expr | None:
    if len(eqn.invars) != 3 or str(eqn.invars[0].aval.dtype) != "bool":
        return None
    return call("select", arg(0), arg(2), arg(1))


def _convert(ctx: Context, eqn: Any, xs: Sequence[Value]) -> list[Value] | None:
    shape, dtype = _result(eqn)
    if xs[0].dtype == dtype:
        return [xs[0]]
    return [ctx.elementwise(cast(arg(0), dtype), xs, shape, dtype)]


def _identity(ctx: Context, eqn: Any, xs: Sequence[Value]) -> list[Value] | None:
    return list(xs)


def _stop_gradient(ctx: Context, eqn: Any, xs: Sequence[Value]) -> list[Value] | None:
    ctx.custom_derivatives = True
    return list(xs)


def _view(value: Value, shape: tuple[int, ...], outer: Sequence[Affine]) -> Value:
    if value.is_constant:
        return Value(shape, value.dtype, constant=value.constant)
    return Value(shape, value.dtype, value.node, compose(value.map, outer))


def _broadcast_in_dim(ctx: Context, eqn: Any, xs: Sequence[Value]) -> list[Value] | None:
    if len(xs) != 1:
        return None
    shape, _ = _result(eqn)
    where = eqn.params["broadcast_dimensions"]
    same = [s == shape[d] for s, d in zip(xs[0].shape, where, strict=True)]
    outer = [dim(d) if k else affine([]) for d, k in zip(where, same, strict=True)]
    return [_view(xs[0], shape, outer)]


def _reshape(ctx: Context, eqn: Any, xs: Sequence[Value]) -> list[Value] | None:
    permuted = eqn.primitive.name == "reshape" and eqn.params.get("dimensions") is not None
    if len(xs) != 1 or permuted:
        return None
    shape, _ = _result(eqn)
    x = xs[0]
    wide = [i for i, s in enumerate(x.shape) if s != 1]
    places = [i for i, s in enumerate(shape) if s != 1]
    if x.is_constant or [x.shape[i] for i in wide] == [shape[i] for i in places]:
        at = dict(zip(wide, places, strict=False))
        return [
            _view(x, shape, [dim(at[i]) if i in at else affine([]) for i in range(len(x.shape))])
        ]
    node = ctx.materialise(x)
    return [ctx.add("reshape", (node,), Reshape(x.shape, shape))]


def _transpose(ctx: Context, eqn: Any, xs: Sequence[Value]) -> list[Value] | None:
    perm = tuple(int(p) for p in eqn.params["permutation"])
    shape, _ = _result(eqn)
    x = xs[0]
    if perm == tuple(range(len(perm))):
        return [x]
    moved = [p for p in perm if x.shape[p] != 1]
    if x.is_constant or moved == sorted(moved):  # only extent-1 dims move
        return [_view(x, shape, [dim(perm.index(i)) for i in range(len(perm))])]
    return [ctx.add("transpose", (ctx.materialise(x),), Transpose(x.shape, perm))]


def _rev(ctx: Context, eqn: Any, xs: Sequence[Value]) -> list[Value] | None:
    shape, _ = _result(eqn)
    flipped = set(eqn.params["dimensions"])
    outer = [
        affine([(d, -1)], s - 1) if d in flipped and s > 0 else dim(d) for d, s in enumerate(shape)
    ]
    return [_view(xs[0], shape, outer)]


def _pad(ctx: Context, eqn: Any, xs: Sequence[Value]) -> list[Value] | None:
    config = [tuple(int(v) for v in c) for c in eqn.params["padding_config"]]
    if not xs[1].is_constant or any(lo < 0 or hi < 0 or inner for lo, hi, inner in config):
        return None
    shape, _ = _result(eqn)
    if not any(lo or hi for lo, hi, _ in config):
        return [xs[0]]
    low, high = tuple(c[0] for c in config), tuple(c[1] for c in config)
    args = (low, high, literal(xs[1].constant))
    node = ctx.materialise(xs[0])
    return [ctx.add("pad", (node,), Move("pad", (xs[0].shape,), args, shape))]


def _slice(ctx: Context, eqn: Any, xs: Sequence[Value]) -> list[Value] | None:
    shape, _ = _result(eqn)
    start = tuple(int(v) for v in eqn.params["start_indices"])
    limit = tuple(int(v) for v in eqn.params["limit_indices"])
    stride = tuple(int(v) for v in eqn.params["strides"] or (1,) * len(start))
    return [_slice_node(ctx, xs[0], (start, limit, stride), shape)]


def _slice_node(
    ctx: Context, x: Value, bounds: tuple[tuple[int, ...], ...], shape: tuple[int, ...]
) -> Value:
    if x.is_constant:
        return Value(shape, x.dtype, constant=x.constant)
    if shape == x.shape:
        return x
    return ctx.add("slice", (ctx.materialise(x),), Move("slice", (x.shape,), bounds, shape))


def _dynamic_slice(ctx: Context, eqn: Any, xs: Sequence[Value]) -> list[Value] | None:
    """Constant indices only, clamped into range as XLA does."""
    x, *indices = xs
    if not indices or not all(i.is_constant for i in indices):
        return None
    sizes = tuple(int(v) for v in eqn.params["slice_sizes"])
    room = [s - n for s, n in zip(x.shape, sizes, strict=True)]
    start = tuple(min(max(int(i.constant), 0), r) for i, r in zip(indices, room, strict=True))
    limit = tuple(a + n for a, n in zip(start, sizes, strict=True))
    return [_slice_node(ctx, x, (start, limit, (1,) * len(start)), sizes)]


def _split(ctx: Context, eqn: Any, xs: Sequence[Value]) -> list[Value] | None:
    x, axis = xs[0], eqn.params["axis"]
    found, at = [], 0
    for size in eqn.params["sizes"]:
        start = tuple(at if d == axis else 0 for d in range(len(x.shape)))
        limit = tuple(at + size if d == axis else s for d, s in enumerate(x.shape))
        shape = tuple(b - a for a, b in zip(start, limit, strict=True))
        found.append(_slice_node(ctx, x, (start, limit, (1,) * len(start)), shape))
        at += size
    return found


def _concatenate(ctx: Context, eqn: Any, xs: Sequence[Value]) -> list[Value] | None:
    shape, _ = _result(eqn)
    if len(xs) == 1:
        return [xs[0]]
    nodes = [ctx.materialise(x) for x in xs]
    move = Move("concat", tuple(x.shape for x in xs), (int(eqn.params["dimension"]),), shape)
    return [ctx.add("concat", nodes, move)]


def _stack(ctx: Context, eqn: Any, xs: Sequence[Value]) -> list[Value] | None:
    shape, _ = _result(eqn)
    axis = int(eqn.params["axis"])
    piece = (*shape[:axis], 1, *shape[axis + 1 :])
    around = [dim(d) for d in range(len(shape)) if d != axis]
    nodes = [ctx.materialise(_view(x, piece, around)) for x in xs]
    if len(nodes) == 1:
        return [ctx.full(nodes[0])]
    return [ctx.add("concat", nodes, Move("concat", (piece,) * len(xs), (axis,), shape))]


def _unstack(ctx: Context, eqn: Any, xs: Sequence[Value]) -> list[Value] | None:
    x, axis = xs[0], int(eqn.params["axis"])
    shape, _ = _result(eqn)
    kept = [dim(d) for d in range(len(shape))]
    return [
        _view(x, shape, [*kept[:axis], affine([], at), *kept[axis:]]) for at in range(x.shape[axis])
    ]


def _tile(ctx: Context, eqn: Any, xs: Sequence[Value]) -> list[Value] | None:
    """Repeats: an outer loop per dim that the operand does not see, then a collapse."""
    shape, _ = _result(eqn)
    x = xs[0]
    if x.is_constant:
        return [_view(x, shape, [])]
    pairs = tuple(int(v) for s, r in zip(x.shape, eqn.params["reps"], strict=True) for v in (r, s))
    wide = ctx.materialise(_view(x, pairs, [dim(2 * d + 1) for d in range(len(x.shape))]))
    return [ctx.add("reshape", (wide,), Reshape(pairs, shape))]


def _iota(ctx: Context, eqn: Any, xs: Sequence[Value]) -> list[Value] | None:
    import numpy as np

    from eqsat.ops.meaning import element_dtype

    if xs:
        return None
    shape, dtype = _result(eqn)
    axis = eqn.params["dimension"]
    line = np.arange(shape[axis]).astype(element_dtype(dtype))
    value = ctx.weight(line, "iota")
    outer = [dim(axis)]
    return [Value(shape, dtype, value.node, compose(identity(1), outer))]


# a JAX primitive and a scalar function of one name mean the same, but for these
_FORMS = frozenset({"pow", "select", "round_even", "round_away"})
_PLAIN = {name: name for name in FUNCTIONS if name not in _FORMS} | {"add_any": "add"}
_SAME = (
    "copy", "optimization_barrier", "device_put", "sharding_constraint", "name",
    "mesh_cast", "reshard", "pvary",
)  # fmt: skip

PRIMITIVES: dict[str, Lower] = (
    {name: _scalar(fn) for name, fn in _PLAIN.items()}
    | dict.fromkeys(_SAME, _identity)
    | {
        "integer_pow": _with_body(_integer_pow),
        "square": _with_body(lambda eqn: call("mul", arg(0), arg(0))),
        "round": _with_body(_round),
        "pow": _with_body(_pow),
        "select_n": _with_body(_select_n),
        "convert_element_type": _convert,
        "stop_gradient": _stop_gradient,
        "broadcast_in_dim": _broadcast_in_dim,
        "reshape": _reshape,
        "squeeze": _reshape,
        "transpose": _transpose,
        "rev": _rev,
        "pad": _pad,
        "slice": _slice,
        "dynamic_slice": _dynamic_slice,
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
        "reduce_window_sum": reduce_window("add"),
        "reduce_window_max": reduce_window("max"),
        "reduce_window_min": reduce_window("min"),
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
