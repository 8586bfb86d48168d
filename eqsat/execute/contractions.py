"""Contractions as `lax.dot_general`, or as a convolution of one place where XLA makes more of that.

XLA:CPU multiplies rows of the first operand with columns of the second one quickly; a first operand
that is not summed over its inner dims it transposes 3 to 8 times slower than a pass of its own
does, and it folds transposes in front of a product and behind it into it, which makes such
operands. So these are passes of their own there, behind a barrier. Measured with jax 0.10.2 on one
core: f32[512, 512] and f32[512, 16] summed over their first dims take 739 us, and 90 with the
smaller one first and the result transposed.

Batches it computes as [batch, rows, k] by [batch, k, columns], and lays out what is not so: keys
f32[8192, 2, 64] take 730 us as columns, and 340 as rows, the result transposed behind it.

XLA for TPUs makes the rows of a product one dim. Values lie in tiles of their two inner dims there,
so this is a pass over the data where a dim of the tile is among them: f32[1, 64, 28, 28] takes it
in front of a product over its 64 channels and behind it. As a convolution the dims stay. Four
ResNet bottlenecks (NCHW) are 43,890 cycles on a TPU v5e by XLA's estimate so, and 71,058 with
products for the convolutions of 1 x 1.

A product of one row it computes with vector units, by a multiplication and a sum over a matrix;
as a convolution with the matrix units, as it does from two rows on. f32[50257, 768] by a vector
are 754,026 cycles so, and 398,273 as a convolution, of which 283,000 are the bytes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from eqsat.execute.expressions import (
    TPU,
    cast_factors,
    dot_general,
    is_by_convolutions,
    known_platform,
    level,
    operand_types,
    to_loops,
)
from eqsat.model.affine import Map
from eqsat.model.generic import Generic
from eqsat.model.tensor import ALGORITHMS
from eqsat.ops.meaning.programs import element_dtype

# ---- as a convolution of one place ---------------------------------------------------------------
Loops = list[int]
NO_STEPS: Mapping[int, int] = MappingProxyType({})
SUBLANES = 8  # rows of a tile of the smallest elements that a TPU computes with
LEAST_MATRIX = 1 << 17  # elements: 256 x 256 by a vector is 3,908 cycles so, 3,202 as a product


def is_pointwise(g: Generic, lhs: Loops, rhs: Loops) -> bool:
    """Whether a product is better written so on a TPU.

    One dim is summed, one operand is a matrix, and the other one has rows of several dims that are
    no one dim as they lie.
    """
    if len(g.reductions) != 1 or set(lhs) & set(rhs) != set(g.reductions):
        return False
    image, kernel = (lhs, rhs) if len(lhs) > len(rhs) else (rhs, lhs)
    rows = [d for d in image if d not in g.reductions]
    if (
        len(kernel) != 2
        or len([d for d in rows if g.sizes[d] > 1]) < 2
        or g.precision in ALGORITHMS
    ):
        return False
    return image[-1] not in g.reductions or g.sizes[rows[-1]] % SUBLANES != 0


def as_pointwise(
    g: Generic, lhs: Loops, rhs: Loops, a: Any, b: Any, steps: Mapping[int, int] = NO_STEPS
) -> Any:
    """The product over all loops of the result, in their order; of what `is_pointwise` takes.

    steps: of loops that read an operand's dim in steps other than 1.
    """
    from jax import lax

    image, kernel, x, w = (lhs, rhs, a, b) if len(lhs) > len(rhs) else (rhs, lhs, b, a)
    (k,) = g.reductions
    batch, *spatial = (d for d in image if d != k)
    output = next(d for d in kernel if d != k)
    result = sorted([batch, output, *spatial])
    places = tuple(range(2, 2 + len(spatial)))
    numbers = lax.ConvDimensionNumbers(
        tuple(image.index(d) for d in (batch, k, *spatial)),
        (kernel.index(output), kernel.index(k), *places),
        tuple(result.index(d) for d in (batch, output, *spatial)),
    )
    total = lax.conv_general_dilated(
        x, w.reshape(w.shape + (1,) * len(spatial)), [steps.get(d, 1) for d in spatial], "VALID",
        dimension_numbers=numbers, precision=level(g.precision),
        preferred_element_type=element_dtype(g.yields[0].dtype),
    )  # fmt: skip
    return total.reshape(g.result_shape)


def is_row(g: Generic, lhs: Loops, rhs: Loops) -> bool:
    """Whether a product of one row and a matrix is better written so: a large one of floats."""
    if len(g.reductions) != 1 or g.precision in ALGORITHMS or not _is_float(g):
        return False
    row, matrix = _row_and_matrix(g, lhs, rhs)
    elements = math.prod(g.sizes[d] for d in matrix)
    return row == list(g.reductions) and len(matrix) == 2 and elements >= LEAST_MATRIX


def _row_and_matrix(g: Generic, lhs: Loops, rhs: Loops) -> tuple[Loops, Loops]:
    """The loops of both, the shorter ones first, without those of extent 1 that are not summed."""
    left, right = ([d for d in s if g.sizes[d] > 1 or d in g.reductions] for s in (lhs, rhs))
    return (left, right) if len(left) <= len(right) else (right, left)


def _is_float(g: Generic) -> bool:
    import jax.numpy as jnp

    return jnp.issubdtype(element_dtype(g.yields[0].dtype), jnp.floating)


def as_row(g: Generic, lhs: Loops, rhs: Loops, a: Any, b: Any) -> Any:
    """The product over all loops of the result, of what `is_row` takes."""
    from jax import lax

    (k,) = g.reductions
    row, matrix = _row_and_matrix(g, lhs, rhs)
    x, w = (a, b) if a.size == g.sizes[k] and b.size > a.size else (b, a)
    output = next(d for d in matrix if d != k)
    width = 2  # the dim of the one place
    numbers = lax.ConvDimensionNumbers(
        (0, 2, 1), (matrix.index(output), matrix.index(k), width), (0, 2, 1)
    )
    total = lax.conv_general_dilated(
        x.reshape(1, 1, g.sizes[row[0]]), w.reshape([*(g.sizes[d] for d in matrix), 1]), [1],
        "VALID", dimension_numbers=numbers, precision=level(g.precision),
        preferred_element_type=element_dtype(g.yields[0].dtype),
    )  # fmt: skip
    return total.reshape(g.result_shape)


def as_strided(g: Generic, operands: Sequence[Any]) -> Any | None:
    """The product whose operand with several rows is read in steps, such as a shortcut of a ResNet.

    None if it is no such product. Cut out first, that operand would be laid out anew.
    """
    if cast_factors(g) is None:
        return None
    image = 0 if len(map_loops_in_order(g.maps[0])) > len(map_loops_in_order(g.maps[1])) else 1
    filters = map_loops_in_order(g.maps[1 - image])
    read = _in_steps(g, image, operands[image].shape)
    taken = math.prod(g.sizes[d] for d in filters)
    if read is None or math.prod(operands[1 - image].shape) != taken:
        return None
    rows, steps = read
    sides = (rows, filters) if image == 0 else (filters, rows)
    first = next((d for d in rows if d not in g.reductions), None)
    if not is_pointwise(g, *sides) or {*g.reductions, first} & steps.keys():
        return None
    arrays = list(operands)
    arrays[1 - image] = arrays[1 - image].reshape([g.sizes[d] for d in filters])
    a, b = operand_types(g, arrays)
    return as_pointwise(g, *sides, a, b, steps)


def map_loops_in_order(m: Map) -> Loops:
    """The loops that name a dim each; dims that are read at one place name none."""
    return [e.terms[0][0] for e in m if len(e.terms) == 1]


def _in_steps(
    g: Generic, operand: int, shape: Sequence[int]
) -> tuple[Loops, dict[int, int]] | None:
    """The loop of every dim, and steps other than 1; None if it is read in another way."""
    rows: Loops = []
    steps: dict[int, int] = {}
    for e, n in zip(g.maps[operand], shape, strict=True):
        if len(e.terms) != 1 or e.constant or e.terms[0][1] < 1:
            return None
        d, step = e.terms[0]
        if -(-n // step) != g.sizes[d]:
            return None
        rows.append(d)
        if step > 1:
            steps[d] = step
    return (rows, steps) if steps else None


LEAST_TURNED = 1 << 14  # elements: a pass over fewer takes as long as its launch
TURNED = 4  # times as long a pass takes if what is innermost changes


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
    platform = known_platform()
    if is_by_convolutions() and is_pointwise(g, lhs, rhs):
        return as_pointwise(g, lhs, rhs, a, b)
    if platform == TPU and is_row(g, lhs, rhs):
        return as_row(g, lhs, rhs, a, b)
    if on_cpu is None or on_cpu == anywhere or platform:
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
    free = [d for side in (lhs, rhs) for d in side if d not in batch + k]
    return to_loops(total, batch + free, g.result_shape)


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
    orders: list[tuple[int, _Order]] = []
    for is_exchanged, side, (one, other) in (
        (False, lhs, (first, last)),
        (True, rhs, (last, first)),
    ):
        is_turned, is_apart = not _sums_inside(g, side, one), one + other != sorted(one + other)
        moved = is_turned * _elements(g, side) + is_apart * _elements(g, first + last)
        orders.append((moved, _Order(is_exchanged, is_turned, is_apart)))
    moved, order = min(orders, key=lambda f: f[0])
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
    result = [*batch, *rows, *columns]
    wanted = ((lhs, batch + rows + k), (rhs, batch + k + columns), (sorted(result), result))
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
