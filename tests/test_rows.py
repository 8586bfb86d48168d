"""`fusion.row_reductions`: softmax and layer norm as one dispatch, row by row."""

from __future__ import annotations

import jax
import pytest

import eqsat
from eqsat.lang.programs import parse_program
from eqsat.model.nest import Access
from eqsat.plan.estimate import FAR, one_by_one, shares_sets
from eqsat.schedule import faults

LOOPS = "loops=[12, 32], maps="
SOFTMAX = f"""
m = generic(x, {LOOPS}[[d0, d1]], body=x0, combine=max, rank=1)
e = generic(x, m, {LOOPS}[[d0, d1], [d0]], body=exp(sub(x0, x1)), rank=2)
s = generic(e, {LOOPS}[[d0, d1]], body=x0, combine=add, rank=1)
y = generic(e, s, {LOOPS}[[d0, d1], [d0]], body=div(x0, x1), rank=2)
"""
NORM = f"""
m = generic(x, {LOOPS}[[d0, d1]], body=x0, combine=add, rank=1)
k = generic(m, loops=[12, 1], maps=[[d0]], body=div(x0, 32.0), rank=2)
c = generic(x, k, {LOOPS}[[d0, d1], [d0, 0]], body=sub(x0, x1), rank=2)
v = generic(c, {LOOPS}[[d0, d1]], body=mul(x0, x0), combine=add, rank=1)
r = generic(v, loops=[12, 1], maps=[[d0]], body=rsqrt(add(x0, 0.001)), rank=2)
y = generic(c, r, {LOOPS}[[d0, d1], [d0, 0]], body=mul(x0, x1), rank=2)
"""
# the second sum runs over the other loop
CROSSED = f"""
a = generic(x, {LOOPS}[[d0, d1]], body=x0, combine=add, rank=1)
b = generic(x, a, {LOOPS}[[d0, d1], [d0]], body=sub(x0, x1), rank=2)
c = generic(b, loops=[32, 12], maps=[[d1, d0]], body=x0, combine=add, rank=1)
y = generic(b, c, {LOOPS}[[d0, d1], [d1]], body=sub(x0, x1), rank=2)
"""
# the reader has more elements than were reduced
OUTGROWN = """
a = generic(x, loops=[12, 32], maps=[[d0, d1]], body=x0, combine=add, rank=1)
y = generic(a, loops=[12, 64], maps=[[d0]], body=exp(x0), rank=2)
"""
THREE = SOFTMAX.replace("y =", "t =") + (
    f"z = generic(t, {LOOPS}[[d0, d1]], body=mul(x0, x0), combine=add, rank=1)\n"
    f"y = generic(t, z, {LOOPS}[[d0, d1], [d0]], body=sub(x0, x1), rank=2)\n"
)
BEHIND_A_MATMUL = "x = matmul(p, q)\n" + SOFTMAX


def program(body: str):
    leaves = "input p: f32[12, 48]\ninput q: f32[48, 32]" if "matmul" in body else ""
    return parse_program(f"program rows\n{leaves or 'input x: f32[12, 32]'}\n{body}return y\n")


def searched(body: str, row_reductions: int):
    settings = [f"fusion.row_reductions={row_reductions}", "fusion.multi_result=true"]
    return eqsat.optimize(
        program(body), target="reference", goals=["dispatches", "time"], settings=settings
    )


@pytest.mark.parametrize(
    ("body", "row_reductions", "dispatches"),
    [
        (SOFTMAX, 1, 3),
        (SOFTMAX, 2, 1),
        (NORM, 1, 3),
        (NORM, 2, 1),
        (CROSSED, 1, 3),
        (CROSSED, 8, 2),
        (OUTGROWN, 8, 2),
        (THREE, 2, 2),
        (THREE, 3, 1),
        (BEHIND_A_MATMUL, 2, 2),
    ],
    ids=lambda v: None if isinstance(v, int) else next(k for k, w in globals().items() if w is v),
)
def test_reductions_over_the_same_rows_share_a_dispatch(body, row_reductions, dispatches):
    run = searched(body, row_reductions)
    goal = run.summary()["goals"]["dispatches"]
    assert (goal["value"], goal["bound"]) == (dispatches, dispatches)
    assert run.verify(samples=1).ok


@pytest.mark.parametrize("body", [SOFTMAX, NORM, THREE])
def test_the_legality_checker_knows_rows(body):
    run = searched(body, 3)
    assert faults(run.schedule, run.target) == []
    without = eqsat.target("reference")
    found = faults(run.schedule, without)
    assert any("fusion.roots is 1" in f for f in found)
    assert any("more than once" in f for f in found)


@pytest.mark.parametrize(
    ("size", "step", "is_shared"),
    [
        (1024, 1024, True),  # all in one set of eight lines
        (1024, 512, True),
        (16, 512, False),  # two sets hold them
        (17, 512, True),
        (1024, 1000, False),
        (1024, 256, False),
    ],
)
def test_columns_a_page_apart_share_sets_of_the_caches(size, step, is_shared):
    assert shares_sets(4 * step, size) is is_shared


@pytest.mark.parametrize(
    ("step", "count", "want"),
    [
        (1, 40, (0, 0)),
        (1000, 40, (1, 0)),
        (256, 40, (FAR, 0)),
        (256, 32, (1, 0)),
        (1024, 9, (1, 1)),
    ],
)
def test_elements_one_by_one_cost_what_their_lines_do(step, count, want):
    assert one_by_one(Access(0, "f32", (step, 1)), 0, count) == want


def test_a_softmax_of_columns_a_page_apart_is_no_scattered_write():
    x = jax.ShapeDtypeStruct((1024, 64), "float32")
    plans = [
        d.plan.work
        for d in eqsat.optimize(
            lambda x: jax.nn.softmax(x.T, axis=0), x, target="avx512"
        ).schedule.dispatches
    ]
    assert sum(work.pages for work in plans) <= x.size / 16  # one a vector at most
