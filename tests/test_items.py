"""Work items of a plan: two cores get equally many, where a dispatch is worth two cores."""

from __future__ import annotations

import numpy as np
import pytest
from contracted import AVX512, convolution, matmul
from rowblocked import computed, drawn
from runnable import needs

from eqsat.lang.programs import parse_program
from eqsat.model.nest import Nest
from eqsat.plan.planner import plan
from eqsat.plan.stages import MANY_ITEMS, even_blocks


def norm(rows: int, width: int) -> str:
    """Rows less their sums, in front of a product."""
    return f"""
program norm
input x: f32[{rows}, {width}]
input w: f32[{width}, {width}]
a = generic(x, loops=[{rows}, {width}], maps=[[d0, d1]], body=x0, combine=add, rank=1)
n = generic(x, a, loops=[{rows}, {width}], maps=[[d0, d1], [d0]], body=sub(x0, x1), rank=2)
y = matmul(n, w)
return y
"""


@pytest.mark.parametrize("each", [1, 2, 3, 5])
def test_blocks_are_a_little_smaller_at_most(each: int) -> None:
    for parts in range(1, 50):
        for size in range(1, parts + 1):
            found = even_blocks(parts, size, each)
            items = each * -(-parts // found)
            assert 1 <= found <= size
            assert -(-parts // found) <= -(-parts // size) + 2
            assert found == size or items % 2 == 0 or items >= MANY_ITEMS


@pytest.mark.parametrize(("rows", "width", "items"), [(300, 256, 2), (301, 192, 2), (13, 37, 1)])
def test_rows_that_share_a_factor_are_two_items(rows: int, width: int, items: int) -> None:
    needs(AVX512)
    program = parse_program(norm(rows, width))
    (found,), (expected,), chosen = computed(program, drawn(program))
    assert chosen.items == items
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize(
    "nest", [matmul(3136, 384, 96), matmul(784, 768, 192), convolution(56, 64, 64, 3)]
)
def test_contractions_have_even_items(nest: Nest) -> None:
    items = plan(nest, AVX512).items
    assert items > 1
    assert items % 2 == 0 or items >= MANY_ITEMS
