"""Columns as arrays say the same as columns one by one, on programs of every kind."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from drawnprograms import Maker
from plain_options import Variant, listed, plain_options, plain_undominated
from seeds import one_in
from tabulated import sources_of, tabulated, with_times

from eqsat.extract.candidates import tabulate
from eqsat.extract.candidates.sources import Sources, undominated
from eqsat.extract.candidates.tabulate import choice_of
from eqsat.extract.choice.legal import presolved
from eqsat.extract.choice.relax import relaxation
from eqsat.extract.ragged import Ragged, distinct
from eqsat.lang.programs import parse_program
from eqsat.model.program import Program

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
def sources(seed: int, name: str) -> Sources:
    program: Program = parse_program(TWICE) if seed < 0 else Maker(seed).program(6)
    return sources_of(program, name, GOALS)


@pytest.mark.parametrize("case", one_in(2, [(c,) for c in CASES]))
def test_a_choice_holds_the_columns_of_every_candidate(
    case: tuple[int, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tabulate, "PART", 100)
    found = listed(sources(*case), with_times(sources(*case)))
    assert len(found) == len(set(found))
    assert set(found) == set(plain_options(sources(*case)))


def test_some_weights_are_kept_or_made_in_the_run():
    some = sources(-1, "reference")
    optional, every = some.pool.optional, listed(some, tabulated(some))
    assert any(optional & v.resident for v in every)
    assert any(optional & v.reads for v in every)


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
    some = sources(*case)
    table = with_times(some)
    columns, found = listed(some, table), undominated(table, some.candidates)
    kept = [columns[i] for i in found.tolist()]
    dropped = [columns[i] for i in set(range(len(columns))).difference(found.tolist())]
    assert all(any(is_no_worse(k, d) for k in kept) for d in dropped)
    assert len(kept) <= len(plain_undominated(list(columns)))


def kinds(columns: Sequence[Variant]) -> set[tuple[object, ...]]:
    return {(v.candidate.members, v.writes, v.reads, v.resident) for v in columns}


@pytest.mark.parametrize("case", CASES)
def test_the_bound_of_what_is_left_is_that_of_all_columns(case: tuple[int, str]):
    """Dominated columns, and those that nobody needs, are in no better answer."""
    some = sources(*case)
    table, choice = with_times(some), choice_of(some)
    undropped = table.take(undominated(table, some.candidates))
    assert kinds(listed(some, choice)) <= kinds(listed(some, undropped))
    every = table.take(presolved(table))
    assert len(choice) <= len(every) <= len(table)
    for weights in ({"time": 1}, {"time": 2, "dispatches": 3}):
        known, found = relaxation(every, weights), relaxation(choice, weights)
        assert known is not None and found is not None
        assert found.bound == known.bound
        most = int(choice.adds[:, 0].sum())
        capped = relaxation(choice, weights, {"time": most})
        assert capped is not None and capped.bound <= known.bound
    assert relaxation(choice, {"dispatches": 1}, {"time": 0}) is None


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
