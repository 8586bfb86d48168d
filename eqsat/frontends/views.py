"""Movement of traced values: views where a map can say it, nodes where it cannot."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.frontends.values import Context, Tensor
from eqsat.model.affine import Affine, affine, dim
from eqsat.model.expr import literal
from eqsat.model.movement import Move, Reshape, Transpose
from eqsat.model.tensor import is_float
from eqsat.ops.generics.canonical import compose_maps
from eqsat.ops.registry import op_record

Shape = tuple[int, ...]
Edges = tuple[int, int, int]  # low, high, interior, as `lax.pad` has them


def view(value: Tensor, shape: Shape, outer: Sequence[Affine]) -> Tensor:
    """Element i of the result is `value[outer(i)]`."""
    if value.is_constant:
        return Tensor(shape, value.dtype, constant=value.constant)
    return Tensor(shape, value.dtype, value.node, compose_maps(value.map, outer))


def reshaped(ctx: Context, x: Tensor, shape: Shape) -> Tensor:
    """Row-major collapse and expand; only a view if extent-1 dims come and go."""
    if shape == x.shape:
        return x
    wide = [i for i, s in enumerate(x.shape) if s != 1]
    places = [i for i, s in enumerate(shape) if s != 1]
    if x.is_constant or [x.shape[i] for i in wide] == [shape[i] for i in places]:
        at = dict(zip(wide, places, strict=False))
        outer = [dim(at[i]) if i in at else affine([]) for i in range(len(x.shape))]
        return view(x, shape, outer)
    node = ctx.materialise(x)
    return ctx.add("reshape", (node,), Reshape(x.shape, shape))


def recorded(ctx: Context, op: str, *xs: Tensor, **values: object) -> Tensor:
    """An op whose attribute is what its record makes of these values."""
    attr = op_record(op).attribute([x.shape for x in xs], values)
    return ctx.add(op, [ctx.materialise(x) for x in xs], attr)


def transposed(ctx: Context, x: Tensor, perm: Sequence[int]) -> Tensor:
    """Result dim i is dim perm[i] of x."""
    perm = tuple(perm)
    if perm == tuple(range(len(perm))):
        return x
    shape = tuple(x.shape[p] for p in perm)
    moved = [p for p in perm if x.shape[p] != 1]
    if x.is_constant or moved == sorted(moved):  # only extent-1 dims move
        return view(x, shape, [dim(perm.index(i)) for i in range(len(perm))])
    return ctx.add("transpose", (ctx.materialise(x),), Transpose(x.shape, perm))


def sliced(
    ctx: Context, x: Tensor, start: Shape, limit: Shape, stride: Shape | None = None
) -> Tensor:
    """x[start:limit:stride] in every dim."""
    steps = stride or (1,) * len(start)
    shape = tuple(-(-(b - a) // k) for a, b, k in zip(start, limit, steps, strict=True))
    if x.is_constant:
        return Tensor(shape, x.dtype, constant=x.constant)
    if shape == x.shape:
        return x
    move = Move("slice", (x.shape,), (tuple(start), tuple(limit), tuple(steps)), shape)
    return ctx.add("slice", (ctx.materialise(x),), move)


def sliced_along(ctx: Context, x: Tensor, axis: int, start: int, limit: int) -> Tensor:
    """x[start:limit] in one dim."""
    low = tuple(start if d == axis else 0 for d in range(len(x.shape)))
    high = tuple(limit if d == axis else s for d, s in enumerate(x.shape))
    return sliced(ctx, x, low, high)


def concatenated(ctx: Context, xs: Sequence[Tensor], axis: int) -> Tensor:
    """Values side by side in one dim; empty ones are left out."""
    some = [x for x in xs if x.shape[axis]] or [xs[0]]
    if len(some) == 1:
        return some[0]
    first = some[0].shape
    shape = (*first[:axis], sum(x.shape[axis] for x in some), *first[axis + 1 :])
    nodes = [ctx.materialise(x) for x in some]
    return ctx.add("concat", nodes, Move("concat", tuple(x.shape for x in some), (axis,), shape))


def padded(ctx: Context, x: Tensor, edges: Sequence[Edges], value: bool | int | float) -> Tensor:
    """`lax.pad` with a constant: edges per dim, negative ones cut off, interior ones spread out."""
    x, around = _spread(ctx, x, edges, value)
    start = tuple(max(-low, 0) for low, _ in around)
    limit = tuple(s - max(-high, 0) for s, (_, high) in zip(x.shape, around, strict=True))
    if all(0 <= a <= b for a, b in zip(start, limit, strict=True)):
        return _grown(ctx, sliced(ctx, x, start, limit), around, value)
    # more is cut off on one side than there is: what the other side adds comes first
    grown = _grown(ctx, x, around, value)
    ends = [s - max(-high, 0) for s, (_, high) in zip(grown.shape, around, strict=True)]
    return sliced(ctx, grown, start, tuple(max(a, b) for a, b in zip(start, ends, strict=True)))


def _grown(
    ctx: Context, x: Tensor, around: Sequence[tuple[int, int]], value: bool | int | float
) -> Tensor:
    low, high = (tuple(max(e[i], 0) for e in around) for i in (0, 1))
    if not any(low) and not any(high):
        return x
    shape = tuple(s + a + b for s, a, b in zip(x.shape, low, high, strict=True))
    fitting = float(value) if is_float(x.dtype) else value
    move = Move("pad", (x.shape,), (low, high, literal(fitting)), shape)
    return ctx.add("pad", (ctx.materialise(x),), move)


def _spread(
    ctx: Context, x: Tensor, edges: Sequence[Edges], value: bool | int | float
) -> tuple[Tensor, list[tuple[int, int]]]:
    """x with its elements apart, and the edges that remain.

    A dim of extent s becomes s x 1, is padded to s x (1 + interior) and collapsed, which leaves
    `interior` elements too many at the end.
    """
    inner = [k if s else 0 for s, (_, _, k) in zip(x.shape, edges, strict=True)]
    around = [(low, high - k) for (low, high, _), k in zip(edges, inner, strict=True)]
    if not any(inner):
        return x, around
    split: list[int] = []
    ends: list[tuple[int, int]] = []
    for s, k in zip(x.shape, inner, strict=True):
        split += [s, 1] if k else [s]
        ends += [(0, 0), (0, k)] if k else [(0, 0)]
    apart = _grown(ctx, reshaped(ctx, x, tuple(split)), ends, value)
    whole = tuple(s * (k + 1) for s, k in zip(x.shape, inner, strict=True))
    return reshaped(ctx, apart, whole), around
