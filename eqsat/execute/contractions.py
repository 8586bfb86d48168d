"""Contractions as `lax.dot_general`: which operand comes first, and what is transposed before it.

XLA:CPU multiplies rows of the first operand with columns of the second one quickly; a first operand
that is not summed over its inner dims it transposes 3 to 8 times slower than a pass of its own
does, and it folds transposes in front of a product and behind it into it, which makes such
operands. So these are passes of their own there, behind a barrier. Measured with jax 0.10.2 on one
core: f32[512, 512] and f32[512, 16] summed over their first dims take 739 us, and 90 with the
smaller one first and the result transposed.

Batches it computes as [batch, rows, k] by [batch, k, columns], and lays out what is not so: keys
f32[8192, 2, 64] take 730 us as columns, and 340 as rows, the result transposed behind it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.execute.operands import operand_types, to_loops
from eqsat.execute.platforms import TPU, is_by_convolutions, known_platform
from eqsat.execute.pointwise import as_pointwise, as_row, is_pointwise, is_row
from eqsat.execute.precision import dot_general
from eqsat.model.generic import Generic
from eqsat.ops.meaning.programs import element_dtype

LEAST_TURNED = 1 << 14  # elements: a pass over fewer takes as long as its launch
TURNED = 4  # times as long a pass takes if what is innermost changes

Loops = list[int]


@dataclass(frozen=True)
class _Order:
    """How a product of two operands is written.

    is_first_turned: the sum of the first operand goes to its inner dims in a pass of its own.
    is_result_apart: the transpose of the result is a pass of its own.
    """

    is_exchanged: bool
    is_first_turned: bool = False
    is_result_apart: bool = False


def as_dot(g: Generic, arrays: Sequence[Any], products: Collection[int]) -> Any | None:
    """The product of two operands; None if a loop is a window, a diagonal, or in one factor only.

    products: operands that are results of contractions.
    """
    from jax import lax

    sides = [[e.dim for e in m] for m in g.maps]
    if any(None in s or len(set(s)) != len(s) for s in sides):
        return None
    lhs, rhs = ([d for d in s if d is not None] for s in sides)
    if not (set(g.reductions) <= set(lhs) and set(g.reductions) <= set(rhs)):
        return None
    # XLA transposes what is summed in another order, of a product inside of it: 9 times slower
    k = [d for d in (rhs if 1 in products and 0 not in products else lhs) if d in g.reductions]
    a, b = operand_types(g, arrays)

    def written(order: _Order) -> Any:
        return lambda x, y: _written(g, lhs, rhs, k, order, x, y)

    anywhere, on_cpu = _Order(_is_exchanged(g, lhs, rhs)), _on_cpu(g, lhs, rhs)
    known = known_platform()
    if is_by_convolutions() and is_pointwise(g, lhs, rhs):
        return as_pointwise(g, lhs, rhs, a, b)
    if known == TPU and is_row(g, lhs, rhs):
        return as_row(g, lhs, rhs, a, b)
    if on_cpu is None or on_cpu == anywhere or known:
        return written(anywhere)(a, b)
    return lax.platform_dependent(a, b, cpu=written(on_cpu), default=written(anywhere))


def _written(g: Generic, lhs: Loops, rhs: Loops, k: Loops, order: _Order, a: Any, b: Any) -> Any:
    from jax import lax

    if order.is_exchanged:
        lhs, rhs, a, b = rhs, lhs, b, a
    batch = [d for d in lhs if d in rhs and d not in k]
    if order.is_first_turned:
        inner = [d for d in lhs if d not in k] + k
        a = lax.optimization_barrier(lax.transpose(a, [lhs.index(d) for d in inner]))
        lhs = inner
    numbers = (
        ([lhs.index(d) for d in k], [rhs.index(d) for d in k]),
        ([lhs.index(d) for d in batch], [rhs.index(d) for d in batch]),
    )
    total = dot_general(a, b, numbers, g.precision, element_dtype(g.yields[0].dtype))
    if order.is_result_apart:
        total = lax.optimization_barrier(total)
    made = [d for side in (lhs, rhs) for d in side if d not in batch + k]
    return to_loops(total, batch + made, g.result_shape)


def _is_exchanged(g: Generic, lhs: Loops, rhs: Loops) -> bool:
    """Whether the product of the exchanged operands comes out in the order of the result's loops.

    A product is written as batch, first, second. A vector comes in front of a matrix that is summed
    over its outer dims, which is twice as fast, and 8 times with a few rows.
    """
    first, last = _free(g, lhs, rhs), _free(g, rhs, lhs)
    if first and not last:
        return not _sums_inside(g, lhs, first)
    return bool(first and last) and max(last) < min(first)


def _on_cpu(g: Generic, lhs: Loops, rhs: Loops) -> _Order | None:
    """The order in which the fewest elements are transposed; None if it is a matter of few."""
    first, last = _free(g, lhs, rhs), _free(g, rhs, lhs)
    if not first or not last:
        return None
    if any(d in rhs and d not in g.reductions and g.sizes[d] > 1 for d in lhs):
        return _batched_on_cpu(g, lhs, rhs)
    found: list[tuple[int, _Order]] = []
    for is_exchanged, side, (one, other) in (
        (False, lhs, (first, last)),
        (True, rhs, (last, first)),
    ):
        is_turned, is_apart = not _sums_inside(g, side, one), one + other != sorted(one + other)
        moved = is_turned * _elements(g, side) + is_apart * _elements(g, first + last)
        found.append((moved, _Order(is_exchanged, is_turned, is_apart)))
    moved, order = min(found, key=lambda f: f[0])
    return order if moved >= LEAST_TURNED or order.is_exchanged else None


def _batched_on_cpu(g: Generic, lhs: Loops, rhs: Loops) -> _Order | None:
    """The order other than that of the result's loops, where it lays out far less."""
    usual = _is_exchanged(g, lhs, rhs)
    costs = {e: _laid_out(g, *((rhs, lhs) if e else (lhs, rhs))) for e in (usual, not usual)}
    gain = costs[usual] - costs[not usual]
    if gain < LEAST_TURNED or 2 * costs[not usual] > costs[usual]:
        return None
    return _Order(not usual, is_result_apart=True)


def _laid_out(g: Generic, lhs: Loops, rhs: Loops) -> int:
    """Elements that are moved to compute batches, those that are transposed counted `TURNED`."""
    k = [d for d in lhs if d in g.reductions]
    batch = [d for d in lhs if d in rhs and d not in k]
    rows, columns = ([d for d in s if d not in (*k, *batch)] for s in (lhs, rhs))
    made = [*batch, *rows, *columns]
    wanted = ((lhs, batch + rows + k), (rhs, batch + k + columns), (sorted(made), made))
    return sum(_moved(g, loops, order) for loops, order in wanted)


def _moved(g: Generic, loops: Loops, order: Loops) -> int:
    """Elements of what lies in one order of loops and is read in another."""
    lies, read = ([d for d in s if g.sizes[d] > 1] for s in (loops, order))
    if lies == read:
        return 0
    return _elements(g, loops) * (1 if lies[-1] == read[-1] else TURNED)


def _free(g: Generic, loops: Loops, others: Loops) -> Loops:
    """Large loops that only this operand has."""
    return [d for d in loops if d not in others and g.sizes[d] > 1]


def _sums_inside(g: Generic, loops: Loops, free: Loops) -> bool:
    """Whether the innermost large dim of an operand is summed."""
    large = [d for d in loops if g.sizes[d] > 1]
    return bool(large) and large[-1] not in free


def _elements(g: Generic, loops: Loops) -> int:
    return math.prod(g.sizes[d] for d in loops)
