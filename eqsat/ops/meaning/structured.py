"""NumPy meaning of `generic`: every operand is a strided view over the loops, then one body.

What comes in is a `Generic` and its operands in held form (float64, integers in their own type),
what goes out is one array per result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from eqsat.model.affine import Affine, Map, map_loops
from eqsat.model.expr import Expr
from eqsat.model.generic import Generic
from eqsat.model.tensor import is_float
from eqsat.ops.meaning import scalar

Array = np.ndarray[Any, Any]
Bodies = Callable[[Sequence[Expr], Sequence[Array]], list[Array]]
DOMAIN_LIMIT = 2**27  # elements of one broadcast iteration domain; larger ones are halved

_REDUCE: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}


def strided_view(x: Array, m: Map, sizes: Sequence[int]) -> Array:
    """The operand over the loops, without a copy; extent 1 where the map names no loop."""
    strides, extents = [0] * len(sizes), [1] * len(sizes)
    for axis, e in enumerate(m):
        for loop, s in e.terms:
            strides[loop] += s * x.strides[axis]
            extents[loop] = sizes[loop]
    start = x[tuple(slice(e.constant, None) for e in m)]
    return np.lib.stride_tricks.as_strided(start, extents, strides, writeable=False)


def evaluate_generic(
    g: Generic,
    operands: Sequence[Array],
    limit: int = DOMAIN_LIMIT,
    bodies: Bodies = scalar.evaluate_all,
) -> list[Array]:
    """One array per yield, in held form; loops are halved until `limit` elements suffice.

    bodies: evaluates expressions on operands that broadcast against one another.
    """
    if math.prod(g.sizes) == 0:
        return [_empty(g, y.combine, y.dtype) for y in g.yields]
    factors = product_factors(g)
    if factors is not None and _operand_elements(g) <= limit:
        return [_matmul(g, factors, operands, bodies)]
    if math.prod(g.sizes) > limit:
        return _halves(g, operands, limit, bodies)
    views = [strided_view(x, m, g.sizes) for x, m in zip(operands, g.maps, strict=True)]
    values = bodies([y.body for y in g.yields], views)
    return [_reduce(g, v, y.combine, y.dtype) for y, v in zip(g.yields, values, strict=True)]


def _empty(g: Generic, combine: str, dtype: str) -> Array:
    start = scalar.neutral(combine, dtype) if combine else 0
    return np.full(g.result_shape, start, scalar.held_dtype(dtype))


def _reduce(g: Generic, value: Array, combine: str, dtype: str) -> Array:
    value = scalar.hold(value, dtype)
    full = np.broadcast_to(value, g.sizes)
    if not combine:
        return full
    axes = tuple(g.reductions)
    with np.errstate(all="ignore"):
        total = _REDUCE[combine].reduce(full, axis=axes, dtype=value.dtype)
    return scalar.hold(total, dtype)


def _halves(g: Generic, operands: Sequence[Array], limit: int, bodies: Bodies) -> list[Array]:
    """Cut the widest loop in two, result loops first, and put the parts together."""
    parallel = range(g.rank) if max(g.sizes[: g.rank], default=1) > 1 else range(0)
    loop = max(parallel or g.reductions, key=lambda d: g.sizes[d])
    half = g.sizes[loop] // 2
    low = evaluate_generic(_part(g, loop, 0, half), operands, limit, bodies)
    high = evaluate_generic(_part(g, loop, half, g.sizes[loop]), operands, limit, bodies)
    if loop < g.rank:
        return [np.concatenate(pair, axis=loop) for pair in zip(low, high, strict=True)]
    with np.errstate(all="ignore"):
        return [
            scalar.hold(_REDUCE[y.combine](a, b), y.dtype)
            for y, a, b in zip(g.yields, low, high, strict=True)
        ]


def _part(g: Generic, loop: int, start: int, stop: int) -> Generic:
    sizes = tuple(stop - start if d == loop else s for d, s in enumerate(g.sizes))
    maps = tuple(tuple(_shift(e, loop, start) for e in m) for m in g.maps)
    return replace(g, sizes=sizes, maps=maps)


def _shift(e: Affine, loop: int, start: int) -> Affine:
    return Affine(e.terms, e.constant + start * dict(e.terms).get(loop, 0))


def product_factors(g: Generic) -> tuple[Expr, Expr] | None:
    """The factors (of operand 0, of operand 1) if this is a sum of products, else None."""
    if len(g.maps) != 2 or len(g.yields) != 1 or g.combine != "add":
        return None
    body, dtype = g.body, g.yields[0].dtype
    while body.fn == "cast" and is_float(body.value) and is_float(dtype):
        body = body.args[0]  # float casts do not round here; integer ones cut, and stay
    if body.fn != "mul":
        return None
    factors = sorted(body.args, key=lambda a: a.operands())
    if [a.operands() for a in factors] != [(0,), (1,)]:
        return None
    return factors[0], factors[1]


def _operand_elements(g: Generic) -> int:
    return max(math.prod(g.sizes[d] for d in map_loops(m)) for m in g.maps)


def _matmul(
    g: Generic, factors: tuple[Expr, Expr], operands: Sequence[Array], bodies: Bodies
) -> Array:
    """A sum of products as a batched matrix product, so that the reference is fast."""
    dtype = scalar.held_dtype(g.yields[0].dtype)
    views = [strided_view(x, m, g.sizes) for x, m in zip(operands, g.maps, strict=True)]
    lhs = np.asarray(bodies(factors[:1], views)[0], dtype)
    rhs = np.asarray(bodies(factors[1:], views)[0], dtype)
    in_lhs, in_rhs = (map_loops(m) for m in g.maps)
    reduced = set(g.reductions)
    lhs = _sum_own(lhs, reduced & in_lhs - in_rhs)
    rhs = _sum_own(rhs, reduced & in_rhs - in_lhs)
    batch, k = sorted(in_lhs & in_rhs - reduced), sorted(in_lhs & in_rhs & reduced)
    m, n = sorted(in_lhs - in_rhs - reduced), sorted(in_rhs - in_lhs - reduced)
    with np.errstate(all="ignore"):
        total = np.matmul(_flatten(lhs, g, batch, m, k), _flatten(rhs, g, batch, k, n))
        repeats = math.prod(g.sizes[d] for d in reduced - in_lhs - in_rhs)
        total = total * dtype.type(repeats) if repeats != 1 else total
    order = batch + m + n
    rest = [d for d in range(g.rank) if d not in order]
    shaped = total.reshape([g.sizes[d] for d in order] + [1] * len(rest))
    placed = shaped.transpose([(order + rest).index(d) for d in range(g.rank)])
    return scalar.hold(np.broadcast_to(placed, g.result_shape), g.yields[0].dtype)


def _sum_own(x: Array, loops: set[int]) -> Array:
    """Sum over reductions the other factor does not see."""
    with np.errstate(all="ignore"):
        return x.sum(axis=tuple(sorted(loops)), keepdims=True, dtype=x.dtype) if loops else x


def _flatten(x: Array, g: Generic, *groups: list[int]) -> Array:
    used = [d for group in groups for d in group]
    rest = [d for d in range(len(g.sizes)) if d not in used]
    shape = [math.prod(g.sizes[d] for d in group) for group in groups]
    return x.transpose(used + rest).reshape(shape)
