"""Products of which one operand has several dims of rows, or one row → a convolution of one place.

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
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from eqsat.execute.operands import cast_factors, operand_types
from eqsat.execute.precision import level
from eqsat.model.affine import Map
from eqsat.model.generic import Generic
from eqsat.model.precision import ALGORITHMS
from eqsat.ops.meaning.programs import element_dtype

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
    made = next(d for d in kernel if d != k)
    result = sorted([batch, made, *spatial])
    places = tuple(range(2, 2 + len(spatial)))
    numbers = lax.ConvDimensionNumbers(
        tuple(image.index(d) for d in (batch, k, *spatial)),
        (kernel.index(made), kernel.index(k), *places),
        tuple(result.index(d) for d in (batch, made, *spatial)),
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
    made = next(d for d in matrix if d != k)
    width = 2  # the dim of the one place
    numbers = lax.ConvDimensionNumbers(
        (0, 2, 1), (matrix.index(made), matrix.index(k), width), (0, 2, 1)
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
