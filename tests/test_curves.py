"""Blocks of a contraction along curves: every block once, less fetched again, the same results."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from contracted import AVX2, matmul, operands
from fuzz import guarded
from runnable import needs

import eqsat
from eqsat.execute.kernels.kernel import generate
from eqsat.lang.programs import parse_program
from eqsat.plan import contraction
from eqsat.plan.blocks import LEAST_LINES
from eqsat.plan.contraction import Tiling
from eqsat.plan.curves import HILBERT, MORTON, ORDERS, ROWS, reuses, visits
from eqsat.plan.plancheck import plan_faults
from eqsat.plan.planner import plan
from eqsat.plan.tiling import tilings
from eqsat.plan.updates import nest_in_place

SMALL = replace(AVX2, caches=(4 << 10, 32 << 10, 64 << 10))  # of which a small product is too much
M, K, N = 200, 100, 264  # tails of tiles and of panels
GRIDS = [(1, 1), (1, 9), (2, 2), (5, 7), (8, 8), (13, 4), (3, 100), (64, 17)]


@pytest.mark.parametrize(("rows", "columns"), GRIDS)
@pytest.mark.parametrize("order", ORDERS)
def test_every_block_is_visited_once(order: str, rows: int, columns: int):
    assert sorted(visits(order, rows, columns)) == [*range(rows * columns)]


@pytest.mark.parametrize(("rows", "columns"), GRIDS)
def test_hilberts_curve_goes_from_block_to_neighbour(rows: int, columns: int):
    cells = [divmod(x, columns) for x in visits(HILBERT, rows, columns)]
    steps = [max(abs(a - c), abs(b - d)) for (a, b), (c, d) in pairwise(cells)]
    assert all(s == 1 for s in steps)


def test_small_curves_are_as_written():
    assert tuple(visits(ROWS, 2, 2)) == (0, 1, 2, 3)
    assert visits(MORTON, 4, 4) == (0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15)
    assert visits(HILBERT, 4, 4) in (
        (0, 1, 5, 4, 8, 12, 13, 9, 10, 14, 15, 11, 7, 6, 2, 3),
        (0, 4, 5, 1, 2, 3, 7, 6, 10, 11, 15, 14, 13, 9, 8, 12),
    )


@pytest.mark.parametrize("order", ORDERS)
def test_what_lies_between_two_uses_is_what_was_visited(order: str):
    """Against sets of what was visited, use by use."""
    rows, columns = 6, 11
    cells = [divmod(x, columns) for x in visits(order, rows, columns)]
    for side, found in enumerate(reuses(order, rows, columns)):
        between = []
        for t, cell in enumerate(cells):
            before = [i for i in range(t) if cells[i][side] == cell[side]]
            if before:
                between.append([len({x[s] for x in cells[before[-1] : t]}) for s in (0, 1)])
        assert sum(r.uses for r in found) == len(between) == rows * columns - (rows, columns)[side]
        for s, counted in enumerate((lambda r: r.rows, lambda r: r.columns)):
            assert sum(r.uses * counted(r) for r in found) == pytest.approx(
                sum(b[s] for b in between)
            )


def far(chosen: Tiling, cache: int) -> float:
    """Bytes that are fetched again from behind a cache."""
    return sum(nbytes for between, nbytes in chosen.work.streams if between > cache)


def orders(**form: str) -> dict[str, Tiling]:
    found = [c for c in tilings(matmul(M, K, N, **form), SMALL) if c.order != ROWS]
    return {c.order: c for c in found}


def test_a_curve_is_planned_where_it_fetches_less_and_told():
    nest = matmul(M, K, N)
    by_order = orders()
    chosen = plan(nest, SMALL)
    assert isinstance(chosen, Tiling)
    assert chosen in by_order.values()
    assert f"blocks in {chosen.order.title()} order" in chosen.to_text()
    in_rows = next(
        c for c in tilings(nest, SMALL)
        if c.order == ROWS and c.changed(order=chosen.order, work=chosen.work) == chosen
    )  # fmt: skip
    assert far(chosen, SMALL.caches[-1]) < 0.8 * far(in_rows, SMALL.caches[-1])
    assert Tiling.from_json(chosen.to_json()) == chosen


def test_no_curve_where_the_last_cache_holds_both_factors_or_blocks_are_few():
    assert {c.order for c in tilings(matmul(M, K, N), AVX2)} == {ROWS}
    few = tilings(matmul(12, 20 * K, N), SMALL)  # of rows
    assert {c.order for c in few} == {ROWS}
    assert LEAST_LINES > 1


@pytest.mark.parametrize("order", [MORTON, HILBERT])
@pytest.mark.parametrize("k", [K, 3 * K])  # blocks of the reduction
def test_kernels_along_curves_compute_the_same(order: str, k: int):
    needs(SMALL)
    nest = matmul(M, k, N, bias=True)
    x, y, inputs = operands(np.random.default_rng(0), M, k, N, bias=True)
    chosen = next(c for c in tilings(nest, SMALL) if c.order == order)
    assert (chosen.k_blocks > 1) == (k > K)
    assert not [*plan_faults(nest, chosen)]
    results = [
        guarded.run(generate(nest, p, SMALL, "kernel"), SMALL, inputs, [((M, N), np.float32)])[0]
        for p in (chosen, chosen.changed(order=ROWS))
    ]
    assert results[0].tobytes() == results[1].tobytes()
    expected = x.astype(np.float64) @ y + inputs[2]
    assert np.abs(results[0] - expected).max() < 1e-4


def test_orders_that_leave_blocks_out_are_refused(monkeypatch: pytest.MonkeyPatch):
    nest, chosen = matmul(M, K, N), orders()[HILBERT]
    unknown = chosen.changed(order="spiral")
    assert any("its order" in f for f in plan_faults(nest, unknown))
    for wrong in (lambda v: (*v[:-1], v[0]), lambda v: (*v, v[0]), lambda v: v[1:]):
        monkeypatch.setattr(contraction, "visits", lambda *x, w=wrong: w(visits(*x)))
        assert any("its order" in f for f in plan_faults(nest, chosen))


PACKED = """
program packed
input a: f32[4, 2, 5, 8, 6]
input b: f32[3, 2, 2, 8, 16]
y = generic(a, b, loops=[4, 5, 6, 3, 2, 16, 2, 8], rank=6, body=mul(x0, x1), combine=add,
  maps=[[d0, d6, d1, d7, d2], [d3, d6, d4, d7, d5]])
return y
"""


def test_packs_of_packs_are_read_where_they_lie():
    """Both operands in blocks, these in panels: [M/30, K/8, 5, 8, 6] and [N/32, K/8, 2, 8, 16]."""
    program = parse_program(PACKED)
    run = eqsat.optimize(eqsat.Source(program), target="avx2", rules=())
    assert run.schedule is not None
    (dispatch,) = run.schedule.dispatches
    chosen = dispatch.plan
    assert isinstance(chosen, Tiling)
    assert chosen.copied == (False, False)
    assert chosen.rows == 6
    assert nest_in_place(run.schedule, dispatch).sizes[chosen.row_loops[0]] == 6  # a packed tile's
    needs(AVX2)
    assert run.verify().ok
