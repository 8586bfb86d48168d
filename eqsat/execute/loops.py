"""`generic` as JAX: dot_general for contractions, convolutions, else broadcast and reduce.

Each operand is first projected: constants, strides and reversals become slices, so that every
remaining dim is either one loop or a window sum such as `2*d0 + d4`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from eqsat.execute.contractions import as_dot, as_strided
from eqsat.execute.convolution import NO_PADS, Pads, convolve, is_small, unpadded
from eqsat.execute.expressions import convert, evaluate_body_in_jax, evaluator
from eqsat.execute.operands import cast_factors, is_by_convolutions, is_by_products
from eqsat.model.affine import Affine, Map, affine
from eqsat.model.expr import Expr
from eqsat.model.generic import Generic
from eqsat.ops.generics.windows import bare_loops, fixed_at, indices, read_part, window_loops
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.programs import element_dtype

UNROLL_LIMIT = 128  # window positions written out one by one; more are gathered


def generic(
    g: Generic,
    operands: Sequence[Any],
    pads: Pads = NO_PADS,
    products: Collection[int] = (),
) -> list[Any]:
    """One array per yield, each of shape `g.result_shape`.

    pads: operands that are zeros around an array, which a convolution reads without them.
    products: operands that are results of contractions.
    """
    if math.prod(g.sizes) == 0:
        return [_empty(g, y.combine, y.dtype) for y in g.yields]
    if is_by_convolutions() and (stepped := as_strided(g, operands)) is not None:
        return [stepped]
    g, arrays = _project_all(_forwards(g), operands)
    windows = window_loops(g)
    few = bool(windows) and math.prod(g.sizes[d] for d in windows) <= UNROLL_LIMIT
    if is_by_products() and few and is_small(g):
        return [_as_places(g, arrays, windows)]
    if cast_factors(g) is not None:
        total = as_dot(g, arrays, products)
        # depthwise: a few slices, 20 to 40 times faster than XLA's grouped convolution on a CPU
        if total is None and not (few and windows == list(g.reductions)):
            total = convolve(*unpadded(g, arrays, operands, pads))
        if total is not None:
            return [total]
    if few:
        return _unrolled(g, arrays, windows)
    return _broadcast(g, arrays)


def _as_places(g: Generic, arrays: Sequence[Any], windows: list[int]) -> Any:
    """A convolution as the sum of a product per place of its filters."""
    parts: list[Any] = []
    for at in product(*(range(g.sizes[d]) for d in windows)):
        step = fixed_at(g, dict(zip(windows, at, strict=True)))
        parts.append(as_dot(*_project_all(_forwards(step), arrays), ()))
    return sum(parts[1:], parts[0])


def _empty(g: Generic, combine: str, dtype: str) -> Any:
    import jax.numpy as jnp

    start = scalar.neutral(combine, dtype) if combine else 0
    return jnp.full(g.result_shape, start, element_dtype(dtype))


# -- operands ------------------------------------------------------------------------------------


def _forwards(g: Generic) -> Generic:
    """The same generic without reductions that run backwards in whatever reads them.

    Elements are combined in an order that XLA chooses, so that no copy is needed for this one.
    """
    steps: dict[int, set[bool]] = {}
    for d, s in (t for m in g.maps for e in m for t in e.terms):
        steps.setdefault(d, set()).add(s < 0)
    back = {d for d in g.reductions if steps.get(d) == {True}}
    if not back:
        return g

    def turned(e: Affine) -> Affine:
        shift = sum(s * (g.sizes[d] - 1) for d, s in e.terms if d in back)
        terms = [(d, -s if d in back else s) for d, s in e.terms]
        return affine(terms, e.constant + shift)

    return replace(g, maps=tuple(tuple(map(turned, m)) for m in g.maps))


def _project_all(g: Generic, operands: Sequence[Any]) -> tuple[Generic, list[Any]]:
    """The same generic whose maps hold bare dims and window sums only."""
    arrays, maps = [], []
    for x, m in zip(operands, g.maps, strict=True):
        array, left = project(x, m, g.sizes)
        arrays.append(array)
        maps.append(left)
    shapes = tuple(tuple(int(d) for d in a.shape) for a in arrays)
    return replace(g, maps=tuple(maps), shapes=shapes), arrays


def project(x: Any, m: Map, sizes: Sequence[int]) -> tuple[Any, Map]:
    """Slice away constants, strides and reversals; extent-1 constants lose their dim."""
    from jax import lax

    part = read_part(m, sizes)
    start, limit, steps = (
        (list(ends) for ends in zip(*part.ranges, strict=True)) if m else ([],) * 3
    )
    stride, flip = list(map(abs, steps)), [axis for axis, s in enumerate(steps) if s < 0]
    if any(start) or list(x.shape) != limit or any(s != 1 for s in stride):
        x = lax.slice(x, start, limit, stride)
    x = lax.rev(x, flip) if flip else x
    if len(part.axes) < len(m):
        x = lax.squeeze(x, [axis for axis in range(len(m)) if axis not in part.axes])
    return x, part.map


# -- everything else -----------------------------------------------------------------------------


def _unrolled(g: Generic, arrays: Sequence[Any], windows: list[int]) -> list[Any]:
    """Fix the window loops at each of their positions and combine: every step is plain slices."""
    total: list[Any] | None = None
    for at in product(*(range(g.sizes[d]) for d in windows)):
        step = generic(fixed_at(g, dict(zip(windows, at, strict=True))), arrays)
        total = (
            step
            if total is None
            else [
                evaluate_body_in_jax(
                    Expr(y.combine, (Expr("arg", (), 0), Expr("arg", (), 1))), [a, b]
                )
                for y, a, b in zip(g.yields, total, step, strict=True)
            ]
        )
    assert total is not None
    return total


def _broadcast(g: Generic, arrays: Sequence[Any]) -> list[Any]:
    import jax.numpy as jnp

    order = _order(g)
    views = [_over_loops(x, m, g.sizes, order) for x, m in zip(arrays, g.maps, strict=True)]
    results, body = [], evaluator(views)
    reduced = tuple(i for i, d in enumerate(order) if d in g.reductions)
    left = [d for d in order if d not in g.reductions]
    for y in g.yields:
        value = convert(body(y.body), y.dtype)
        full = jnp.broadcast_to(value, [g.sizes[d] for d in order])
        if y.combine:
            total = reduce(full, y.combine, reduced)
            results.append(jnp.transpose(total, [left.index(d) for d in range(g.rank)]))
        else:
            results.append(full)
    return results


def _order(g: Generic) -> list[int]:
    """The loops in the order in which they are computed, result loops among reduced ones.

    What is reduced has the order of an operand that reads all loops: XLA:CPU would copy what it
    computes to lay it out another way. What is not reduced has the order of the result.
    """
    loops = list(range(len(g.sizes)))
    if not all(y.combine for y in g.yields):
        return loops
    read = [[e.dim for e in m if e.dim is not None] for m in g.maps]
    whole = [
        r for r, m in zip(read, g.maps, strict=True) if len(r) == len(m) and sorted(r) == loops
    ]
    return loops if loops in whole else next(iter(whole), loops)


def _over_loops(x: Any, m: Map, sizes: Sequence[int], order: Sequence[int]) -> Any:
    """The operand with one dim per loop in this order, extent 1 where it does not use the loop."""
    from jax import lax

    bare = bare_loops(m)
    if bare is None:  # diagonals and wide windows: rare, and slow
        bare, at = indices(m, sizes)
        x = x[tuple(at)]
    ordered = sorted(bare, key=list(order).index)
    if bare != ordered:
        x = lax.transpose(x, [bare.index(d) for d in ordered])
    return x.reshape([sizes[d] if d in ordered else 1 for d in order])


def reduce(x: Any, combine: str, axes: tuple[int, ...]) -> Any:
    """Combine over `axes` in the array's own element type."""
    import jax.numpy as jnp
    import numpy as np
    from jax import lax

    whole: dict[str, Any] = {"max": jnp.max, "min": jnp.min}
    if combine in whole:
        return whole[combine](x, axis=axes)
    if combine in ("add", "mul"):
        return (jnp.sum if combine == "add" else jnp.prod)(x, axis=axes, dtype=x.dtype)
    if x.dtype == np.bool_:
        return (jnp.all if combine == "and" else jnp.any)(x, axis=axes)
    start = np.asarray(0 if combine == "or" else -1).astype(x.dtype)
    return lax.reduce(x, start, lax.bitwise_and if combine == "and" else lax.bitwise_or, axes)
