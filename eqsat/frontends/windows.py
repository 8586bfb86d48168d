"""Primitives with reduction loops → generics: dot_general, reductions, pooling and running sums.

Running sums and their kin, and the places of extremes, are comparisons with 0, 1, … in the body.
The precision that a jaxpr's contraction names has its name in a program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eqsat.frontends.indexing import line
from eqsat.frontends.values import Context, Tensor, dtype_name
from eqsat.frontends.views import padded, reshaped, sliced_along, view
from eqsat.model.affine import Affine, affine, dim
from eqsat.model.expr import Expr, arg, call, cast, const
from eqsat.model.generic import Yield
from eqsat.model.precision import DEFAULT, LEVELS, algorithm_name, most_accurate
from eqsat.model.tensor import DTYPES, is_float
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.scalar import integer_range, neutral


# ---- precision -----------------------------------------------------------------------------------
def precision_of(given: Any) -> str | None:
    """The name of the parameter `precision` of `dot_general` and `conv_general_dilated`.

    Of two precisions, one per operand, the more accurate one. None for a `jax.lax.DotAlgorithm`
    that is no preset: a program has no name for it.
    """
    from jax import lax

    if given is None:
        return DEFAULT
    if isinstance(given, lax.DotAlgorithmPreset):
        return given.name.lower()
    if isinstance(given, lax.DotAlgorithm):
        return _preset(given)
    return most_accurate(p.name.lower() for p in given)


def _preset(given: Any) -> str | None:
    """The preset with these fields; parts are counted by products, as in the presets."""
    types = (given.lhs_precision_type, given.rhs_precision_type, given.accumulation_type)
    lhs, rhs, accumulator = (dtype_name(np.dtype(t)) for t in types)
    if None in (lhs, rhs, accumulator):
        return None
    if (given.lhs_component_count, given.rhs_component_count) != (1, 1):
        return None
    fast = bool(given.allow_imprecise_accumulation)
    return algorithm_name(lhs, rhs, accumulator, given.num_primitive_operations, fast)


def matmul_precision(name: str) -> Any:
    """A context in which JAX's products that name no precision have this one."""
    import jax

    return jax.default_matmul_precision(name if name in LEVELS else name.upper())


# ---- reductions ----------------------------------------------------------------------------------
Operand = tuple[Tensor, Sequence[Affine]]
Lower = Callable[[Context, Any, Sequence[Tensor]], "list[Tensor] | None"]


def _product(lhs: str, rhs: str, accumulator: str) -> Expr:
    factors = [
        arg(i) if dtype == accumulator else cast(arg(i), accumulator)
        for i, dtype in enumerate((lhs, rhs))
    ]
    return call("mul", *factors)


def contract(
    ctx: Context,
    sizes: Sequence[int],
    rank: int,
    operands: Sequence[Operand],
    dtype: str,
    given: Any,
) -> list[Tensor] | None:
    """A sum of products of the precision given; None for bools, and for one without a name.

    16- and 8-bit floats are summed in f32 and cast at the end.
    """
    precision = precision_of(given)
    if precision is None or any(v.dtype == "bool" for v, _ in operands):
        return None
    small = is_float(dtype) and DTYPES[dtype][0] < 32
    accumulator = "f32" if small else dtype
    solid = [(ctx.full(ctx.materialise(v)) if v.is_constant else v, m) for v, m in operands]
    body = _product(solid[0][0].dtype, solid[1][0].dtype, accumulator)
    combine = "add" if len(sizes) > rank else ""
    total = ctx.generic(sizes, range(rank), solid, Yield(body, accumulator, combine), precision)
    if accumulator == dtype:
        return [total]
    return [ctx.elementwise(cast(arg(0), dtype), [total], total.shape, dtype)]


def dot_general(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
    """Any batch and contracting dims; loops: batch, lhs free, rhs free, contracting."""
    (lhs_k, rhs_k), (lhs_batch, rhs_batch) = eqn.params["dimension_numbers"]
    shape = tuple(int(d) for d in eqn.outvars[0].aval.shape)
    lhs, rhs = xs
    lhs_loop = {int(d): at for at, d in enumerate(lhs_batch)}
    rhs_loop = {int(d): at for at, d in enumerate(rhs_batch)}
    at = len(lhs_batch)
    for loops, taken, x in ((lhs_loop, lhs_k, lhs), (rhs_loop, rhs_k, rhs)):
        for d in range(len(x.shape)):
            if d not in loops and d not in taken:
                loops[d] = at
                at += 1
    for i, (a, b) in enumerate(zip(lhs_k, rhs_k, strict=True)):
        lhs_loop[int(a)] = rhs_loop[int(b)] = at + i
    sizes = [*shape, *(lhs.shape[d] for d in lhs_k)]
    operands = [
        (lhs, [dim(lhs_loop[d]) for d in range(len(lhs.shape))]),
        (rhs, [dim(rhs_loop[d]) for d in range(len(rhs.shape))]),
    ]
    dtype = dtype_name(eqn.outvars[0].aval.dtype)
    if dtype is None:
        return None
    return contract(ctx, sizes, len(shape), operands, dtype, eqn.params["precision"])


def reduction(combine: str) -> Lower:
    """reduce_sum and its kin: kept dims are the result's loops, reduced dims follow."""

    def lower(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
        return [reduced(ctx, xs[0], [int(a) for a in eqn.params["axes"]], combine)]

    return lower


def reduced(ctx: Context, x: Tensor, axes: list[int], combine: str) -> Tensor:
    """x without these axes."""
    if not axes:
        return x
    rest = [d for d in range(len(x.shape)) if d not in axes]
    loop = {d: at for at, d in enumerate(rest + axes)}
    sizes = [x.shape[d] for d in rest + axes]
    operands = [(x, [dim(loop[d]) for d in range(len(x.shape))])]
    return ctx.generic(sizes, range(len(rest)), operands, Yield(arg(0), x.dtype, combine))


def reduce_window(combine: str) -> Lower:
    """Pooling: windows wider than 1 become reduction loops; padding holds the neutral element."""

    def lower(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
        return [_pooled(ctx, eqn, xs[0], combine)]

    return lower


def _pooled(ctx: Context, eqn: Any, x: Tensor, combine: str) -> Tensor:
    p = eqn.params
    spread = [int(d) - 1 for d in p["base_dilation"]]
    edges = [(int(a), int(b), k) for (a, b), k in zip(p["padding"], spread, strict=True)]
    x = padded(ctx, x, edges, scalar.neutral(combine, x.dtype))
    shape = tuple(int(d) for d in eqn.outvars[0].aval.shape)
    sizes, exprs = list(shape), []
    for d, width in enumerate(p["window_dimensions"]):
        terms = [(d, int(p["window_strides"][d]))]
        if width > 1:
            terms.append((len(sizes), int(p["window_dilation"][d])))
            sizes.append(int(width))
        exprs.append(affine(terms))
    result = Yield(arg(0), x.dtype, combine if len(sizes) > len(shape) else "")
    return ctx.generic(sizes, range(len(shape)), [(x, exprs)], result)


def general_reduce_window(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
    """`reduce_window` of one operand whose function is one of ours, from any start."""
    combine = _combiner(eqn.params["jaxpr"])
    if len(xs) != 2 or combine is None:
        return None
    return [_from_start(ctx, _pooled(ctx, eqn, xs[0], combine), xs[1], combine)]


def general_reduce(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
    """`reduce` of one operand whose function is one of ours, from any start."""
    combine = _combiner(eqn.params["jaxpr"])
    if len(xs) != 2 or combine is None:
        return None
    x, axes = xs[0], [int(d) for d in eqn.params["dimensions"]]
    return [_from_start(ctx, reduced(ctx, x, axes, combine), xs[1], combine)]


def _combiner(jaxpr: Any) -> str | None:
    """The combine function a jaxpr of two scalars is, None if it is another or several."""
    inner = jaxpr.jaxpr if hasattr(jaxpr, "jaxpr") else jaxpr
    combiners = {"add", "mul", "max", "min", "and", "or"}
    if len(inner.eqns) != 1 or inner.eqns[0].primitive.name not in combiners:
        return None
    eqn = inner.eqns[0]
    direct = list(eqn.outvars) == list(inner.outvars) and set(eqn.invars) == set(inner.invars)
    return eqn.primitive.name if direct and len(inner.invars) == 2 else None


def _from_start(ctx: Context, x: Tensor, start: Tensor, combine: str) -> Tensor:
    """The start is one more element; nothing to do if it is the neutral one."""
    if start.is_constant and start.constant == scalar.neutral(combine, x.dtype):
        return x
    return ctx.elementwise(call(combine, arg(0), arg(1)), [x, start], x.shape, x.dtype)


# ---- running sums and places of extremes ---------------------------------------------------------
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
    within = _inside(ctx, apart, axis + 1, combine, reverse)
    totals = _running(ctx, reduced(ctx, apart, [axis + 1], combine), axis, combine, reverse)
    low, high = (-1, 1) if reverse else (1, -1)  # of the blocks before it
    before = padded(ctx, totals, _edges(totals, axis, low, high), start)
    outer = [dim(d if d <= axis else d + 1) for d in range(len(before.shape))]
    both = [within, view(before, within.shape, outer)]
    joined = ctx.elementwise(call(combine, arg(0), arg(1)), both, within.shape, x.dtype)
    return sliced_along(ctx, reshaped(ctx, joined, x.shape), axis, 0, size)


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
    itself = (x, [dim(loop[d]) for d in range(rank)])
    operands = [
        itself,
        (reduced(ctx, x, [axis], combine), [dim(d) for d in range(rank - 1)]),
        (line(ctx, size, dtype), [dim(rank - 1)]),
    ]
    is_it = call("eq", arg(0), arg(1))
    if is_float(x.dtype):  # counted, as XLA's maximum of numbers and NaNs may be a number
        is_nan = call("ne", arg(0), arg(0))
        one = Yield(call("select", is_nan, const(1), const(0)), "i32", "max")
        nans = ctx.generic(sizes, range(rank - 1), [itself], one)
        operands.append((nans, [dim(d) for d in range(rank - 1)]))
        is_it = call("select", call("gt", arg(3), const(0)), is_nan, is_it)
    body = call("select", is_it, arg(2), const(size - 1))
    return ctx.generic(sizes, range(rank - 1), operands, Yield(body, dtype, "min"))
