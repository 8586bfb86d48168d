"""Running sums and their kin, and the places of extremes → generics: comparisons with 0, 1, … are
their loop nests, so that they fuse, have a price and become kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from eqsat.frontends.indexing import line
from eqsat.frontends.values import Context, Tensor, dtype_name
from eqsat.frontends.views import padded, reshaped, sliced_along, view
from eqsat.frontends.windows import reduced
from eqsat.model.affine import dim
from eqsat.model.expr import arg, call, const
from eqsat.model.generic import Yield
from eqsat.model.tensor import is_float
from eqsat.ops.meaning.scalar import integer_range, neutral

Lower = Callable[[Context, Any, Sequence[Tensor]], "list[Tensor] | None"]
BLOCK = 16  # elements that one step reads for each of its results; lanes of a vector of f32


def running(combine: str) -> Lower:
    """cumsum and cumprod: within blocks, then over the blocks, so n elements take n · BLOCK steps.

    Sums of blocks round less than one sum after the other. Not of bools.
    """

    def lower(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
        (x,), axis = xs, int(eqn.params["axis"])
        if x.dtype == "bool" or type(x.shape[axis]) is not int or 0 in x.shape:
            return None
        return [_running(ctx, x, axis, combine, bool(eqn.params["reverse"]))]

    return lower


def _running(ctx: Context, x: Tensor, axis: int, combine: str, reverse: bool) -> Tensor:
    size = x.shape[axis]
    if size <= 2 * BLOCK:
        return _inside(ctx, x, axis, combine, reverse)
    start = neutral(combine, x.dtype)
    blocks = -(-size // BLOCK)
    x = padded(ctx, x, _edges(x, axis, 0, blocks * BLOCK - size), start)
    apart = reshaped(ctx, x, (*x.shape[:axis], blocks, BLOCK, *x.shape[axis + 1 :]))
    own = _inside(ctx, apart, axis + 1, combine, reverse)
    totals = _running(ctx, reduced(ctx, apart, [axis + 1], combine), axis, combine, reverse)
    low, high = (-1, 1) if reverse else (1, -1)  # of the blocks before it
    before = padded(ctx, totals, _edges(totals, axis, low, high), start)
    outer = [dim(d if d <= axis else d + 1) for d in range(len(before.shape))]
    both = [own, view(before, own.shape, outer)]
    found = ctx.elementwise(call(combine, arg(0), arg(1)), both, own.shape, x.dtype)
    return sliced_along(ctx, reshaped(ctx, found, x.shape), axis, 0, size)


def _edges(x: Tensor, axis: int, low: int, high: int) -> list[tuple[int, int, int]]:
    return [(low, high, 0) if d == axis else (0, 0, 0) for d in range(len(x.shape))]


def _inside(ctx: Context, x: Tensor, axis: int, combine: str, reverse: bool) -> Tensor:
    """For each place of a dim: all elements up to there (from there on), combined."""
    rank, size = len(x.shape), x.shape[axis]
    places = line(ctx, size)
    counted = call("le", *((arg(2), arg(1)) if reverse else (arg(1), arg(2))))
    body = call("select", counted, arg(0), const(neutral(combine, x.dtype)))
    operands = [
        (x, [dim(rank if d == axis else d) for d in range(rank)]),
        (places, [dim(rank)]),
        (places, [dim(axis)]),
    ]
    result = Yield(body, x.dtype, combine)
    return ctx.generic([*x.shape, size], range(rank), operands, result)


def extreme_place(combine: str) -> Lower:
    """argmax and argmin: the first place of the extreme, or of a NaN. Not of bools."""

    def lower(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
        (x,), axes = xs, [int(a) for a in eqn.params["axes"]]
        dtype = dtype_name(eqn.outvars[0].aval.dtype)
        size = x.shape[axes[0]]
        if len(axes) != 1 or x.dtype == "bool" or dtype is None or type(size) is not int:
            return None
        if 0 in x.shape or is_float(dtype) or size - 1 > integer_range(dtype)[1]:
            return None
        return [_place(ctx, x, axes[0], combine, dtype)]

    return lower


def _place(ctx: Context, x: Tensor, axis: int, combine: str, dtype: str) -> Tensor:
    rank, size = len(x.shape), x.shape[axis]
    loop = {d: at for at, d in enumerate([*(d for d in range(rank) if d != axis), axis])}
    sizes = [*(s for d, s in enumerate(x.shape) if d != axis), size]
    own = (x, [dim(loop[d]) for d in range(rank)])
    operands = [
        own,
        (reduced(ctx, x, [axis], combine), [dim(d) for d in range(rank - 1)]),
        (line(ctx, size, dtype), [dim(rank - 1)]),
    ]
    is_it = call("eq", arg(0), arg(1))
    if is_float(x.dtype):  # counted, as XLA's maximum of numbers and NaNs may be a number
        is_nan = call("ne", arg(0), arg(0))
        one = Yield(call("select", is_nan, const(1), const(0)), "i32", "max")
        nans = ctx.generic(sizes, range(rank - 1), [own], one)
        operands.append((nans, [dim(d) for d in range(rank - 1)]))
        is_it = call("select", call("gt", arg(3), const(0)), is_nan, is_it)
    body = call("select", is_it, arg(2), const(size - 1))
    return ctx.generic(sizes, range(rank - 1), operands, Yield(body, dtype, "min"))
