"""Options as tables say the same as options one by one, on programs of every kind."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from plain_options import plain_options, plain_undominated
from tabulated import tabulated

from eqsat.extract.candidates import dominance
from eqsat.extract.candidates.dominance import undominated
from eqsat.extract.candidates.free import unordered
from eqsat.extract.candidates.freeoptions import FreeOptions
from eqsat.extract.candidates.plantimes import with_plan_times
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.candidates.table import OptionTable
from eqsat.extract.candidates.variants import Variant, Variants
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.groups.enumeration import enumerated
from eqsat.extract.ragged import Ragged, distinct
from eqsat.extract.solve.freerows import free_relaxation
from eqsat.extract.solve.linear import linear_goals
from eqsat.extract.solve.presolve import presolve
from eqsat.extract.solve.relax import relaxation
from eqsat.lang.programs import parse_program
from eqsat.lang.rulesets import load_rulesets
from eqsat.lang.targets import load_target
from eqsat.model.program import Program
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.saturate import saturate
from tests.test_fuzz import Maker

# a weight that may be turned in the run, read turned and as it is, and a result that others read
TWICE = """program m
input x: f32[64, 64]
weight w: f32[64, 64]
t = transpose(w, perm=[1, 0]) : f32[64, 64]
a = MATMUL
b = generic(a, t, loops=[64, 64], maps=[[d0, d1], [d0, d1]], body=add(x0, x1)) : f32[64, 64]
c = generic(b, loops=[64, 64], maps=[[d0, d1]], body=exp(x0)) : f32[64, 64]
return b, c, a
""".replace(
    "MATMUL",
    "generic(x, w, loops=[64, 64, 64], maps=[[d0, d2], [d2, d1]], body=mul(x0, x1), combine=add, "
    "rank=2) : f32[64, 64]",
)
GOALS = ("time", "memory", "dispatches", "relayout")
CASES = [(seed, name) for seed in (3, 4, 8, 11) for name in ("avx512-xla", "reference")]
CASES += [(-1, "reference"), (-1, "avx512")]


@cache
def variants_of(seed: int, name: str) -> Variants:
    program: Program = parse_program(TWICE) if seed < 0 else Maker(seed).program(6)
    target = load_target(name)
    space = Space(saturate(merge_elementwise(program), load_rulesets(["default"]), target))
    pool = Pool(Legality(space, target), False, frozenset(GOALS))
    costs = Costs(space, target)
    return Variants(pool, costs, enumerated(pool, costs).candidates, linear_goals(GOALS))


def objects(variants: Variants) -> tuple[Variant, ...]:
    table = with_times(variants)
    return table.variants(variants.space, range(len(table)))


def with_times(variants: Variants, size: int = 100) -> OptionTable:
    table = tabulated(variants, size=size)
    return with_plan_times(variants, table, np.arange(len(table)))


@pytest.mark.parametrize("case", CASES)
def test_a_table_holds_the_options_of_every_candidate(case: tuple[int, str]):
    variants = variants_of(*case)
    found = objects(variants)
    assert len(found) == len(set(found))
    assert set(found) == set(plain_options(variants))


def test_some_weights_are_kept_or_made_in_the_run():
    optional = variants_of(-1, "reference").pool.optional
    assert any(optional & v.resident for v in objects(variants_of(-1, "reference")))
    assert any(optional & v.reads for v in objects(variants_of(-1, "reference")))


def is_no_worse(a: Variant, b: Variant) -> bool:
    costs = [(a.adds[0], b.adds[0]), *zip(a.adds[2:], b.adds[2:], strict=True)]
    sides = [(a.reads, b.reads), (a.resident, b.resident), (a.exclusive, b.exclusive)]
    return (
        set(a.writes) == set(b.writes)
        and all(x <= y for x, y in costs)
        and all(x <= y for x, y in sides)
    )


@pytest.mark.parametrize("case", CASES)
def test_what_is_dropped_is_dominated_by_what_is_kept(case: tuple[int, str]):
    variants = variants_of(*case)
    options = objects(variants)
    found = undominated(with_times(variants))
    assert sorted([*found.kept.tolist(), *found.dropped.tolist()]) == list(range(len(options)))
    assert set(found.by.tolist()) <= set(found.kept.tolist())
    pairs = zip(found.by.tolist(), found.dropped.tolist(), strict=True)
    assert all(is_no_worse(options[i], options[k]) for i, k in pairs)
    assert len(found.kept) <= len(plain_undominated(list(options)))


@pytest.mark.parametrize("case", CASES)
def test_large_buckets_keep_what_small_ones_do(case: tuple[int, str], monkeypatch):
    table = tabulated(variants_of(*case))
    found = undominated(table)
    monkeypatch.setattr(dominance, "LARGE", 3)
    again = undominated(table)
    assert again.kept.tolist() == found.kept.tolist()
    pairs = [dict(zip(p.dropped.tolist(), p.by.tolist(), strict=True)) for p in (found, again)]
    assert pairs[0] == pairs[1]


def kinds(options: Sequence[Variant]) -> set[tuple[object, ...]]:
    return {(v.candidate.members, v.writes, v.reads, v.resident) for v in options}


@pytest.mark.parametrize("case", CASES)
def test_the_relaxation_is_as_tight_as_that_of_objects(case: tuple[int, str]):
    variants = variants_of(*case)
    table = with_times(variants, 50_000)
    kept = undominated(table).kept
    plain = table.variants(variants.space, kept.tolist())
    problem = unordered(variants, plain)
    useful = presolve(problem)
    free = FreeOptions.of(variants)
    assert kinds(free.objects()) <= kinds([plain[i] for i in useful])
    for weights in ({"time": 1}, {"time": 2, "dispatches": 3}):
        known = relaxation(problem.restricted(useful), weights)
        found = free_relaxation(free.problem, tuple(variants.goals), weights)
        assert known is not None and found is not None
        assert found.bound == known.bound
        most = free.problem.adds[:, 0].sum()
        capped = free_relaxation(free.problem, tuple(variants.goals), weights, {"time": most})
        assert capped is not None and capped.bound <= known.bound
    assert (
        free_relaxation(free.problem, tuple(variants.goals), {"dispatches": 1}, {"time": 0}) is None
    )


def test_rows_of_any_length():
    rows = Ragged.of([(4, 1), (), (2, 2, 0)])
    assert rows.counts.tolist() == [2, 0, 3]
    assert [r.tolist() for r in map(rows.distinct().__getitem__, range(3))] == [[1, 4], [], [0, 2]]
    assert rows.take(np.array([2, 0])).index.tolist() == [2, 2, 0, 4, 1]
    assert rows.turned(5)[2].tolist() == [2, 2]
    assert rows.any(rows.index == 2).tolist() == [False, False, True]
    assert rows.all(rows.index > 0).tolist() == [True, True, False]
    assert rows.sums(rows.index).tolist() == [5, 0, 4]
    assert rows.spread(Ragged.of([(7,), (), (), (), (8, 9)]))[0].tolist() == [8, 9]
    assert Ragged.stacked([rows, rows])[5].tolist() == [2, 2, 0]
    assert distinct(np.array([3, 1, 3])).tolist() == [1, 3]
