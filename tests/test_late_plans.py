"""Plans are made late, and for few options: floors are floors, and answers are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest

from eqsat.extract.candidates.freeoptions import FreeOptions
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.candidates.variants import Variants
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.dispatch.prices import UNASKED, Costs
from eqsat.extract.groups.enumeration import enumerated
from eqsat.extract.groups.grow import Candidate
from eqsat.extract.lateplans import LEAST, with_late_plans
from eqsat.extract.ragged import Ints
from eqsat.extract.solve.freerows import free_relaxation
from eqsat.extract.solve.linear import linear_goals
from eqsat.extract.solve.relax import Relaxation
from eqsat.extract.survivors import narrowed
from eqsat.lang.programs import parse_program
from eqsat.lang.rulesets import load_rulesets
from eqsat.lang.targets import load_target
from eqsat.model.program import Program
from eqsat.model.target import Target
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.saturate import saturate
from tests.test_fuzz import Maker

GOALS = ("time", "memory", "dispatches")
# rows of a table, parts of tensors, a softmax between two products, padding: what floors leave out
PARTS = """program m
input x: f32[64, 50]
input q: f32[4, 96, 32]
input k: f32[4, 96, 32]
input i: i32[40]
weight t: f32[300, 50]
weight w: f32[50, 70]
rows = gather(t, i, axis=0) : f32[40, 50]
both = concat(x, rows, axis=0) : f32[104, 50]
y = generic(both, w, loops=[104, 70, 50], maps=[[d0, d2], [d2, d1]], body=mul(x0, x1), \
combine=add, rank=2) : f32[104, 70]
z = generic(y, loops=[104, 70], maps=[[d0, d1]], body=exp(x0)) : f32[104, 70]
part = slice(z, start=[8, 0], limit=[40, 70], stride=[1, 1]) : f32[32, 70]
wide = pad(part, low=[0, 1], high=[0, 1], value=0.0) : f32[32, 72]
s = generic(q, k, loops=[4, 96, 96, 32], maps=[[d0, d1, d3], [d0, d2, d3]], body=mul(x0, x1), \
combine=add, rank=3) : f32[4, 96, 96]
e = generic(s, loops=[4, 96, 96], maps=[[d0, d1, d2]], body=exp(x0)) : f32[4, 96, 96]
total = generic(e, loops=[4, 96, 96], maps=[[d0, d1, d2]], body=x0, combine=add, rank=2) : \
f32[4, 96]
p = generic(e, total, loops=[4, 96, 96], maps=[[d0, d1, d2], [d0, d1]], body=div(x0, x1)) : \
f32[4, 96, 96]
o = generic(p, k, loops=[4, 96, 32, 96], maps=[[d0, d1, d3], [d0, d3, d2]], body=mul(x0, x1), \
combine=add, rank=3) : f32[4, 96, 32]
return wide, o
"""
CASES = [(seed, name) for seed in (-1, 3, 4, 8) for name in ("avx512", "avx2")]


@cache
def floored(seed: int, name: str) -> FreeOptions:
    program = parse_program(PARTS) if seed < 0 else Maker(seed).program(6)
    return floored_of(program, load_target(name))


def floored_of(program: Program, target: Target) -> FreeOptions:
    rules = load_rulesets(["default"]).without("algebra")  # parts are not cut
    space = Space(saturate(merge_elementwise(program), rules, target))
    pool = Pool(Legality(space, target), False, frozenset(GOALS))
    costs = Costs(space, target)
    found = enumerated(pool, costs).candidates
    assert {c.time_ps for c in found} == {UNASKED}
    return FreeOptions.floored(Variants(pool, costs, found, linear_goals(GOALS)))


def floored_times(program: Program, target: Target) -> tuple[Ints, Ints]:
    """Per option of a program: its floor, and its time."""
    free = floored_of(program, target)
    known = free.asked(np.arange(len(free)))
    assert known.is_asked.all() and len(known) == len(free)
    return free.problem.adds[:, 0], known.problem.adds[:, 0]


@pytest.mark.parametrize("case", CASES)
def test_no_plan_is_below_its_floor(case: tuple[int, str]):
    free = floored(*case)
    assert not free.is_asked.any()
    known = free.asked(np.arange(len(free)))
    assert known.is_asked.all() and len(known) == len(free)
    floors, times = free.problem.adds[:, 0], known.problem.adds[:, 0]
    assert (floors <= times).all()
    # floors of plans; some dispatches have none, and cost passes
    assert np.median(floors / times) > 0.12


@dataclass
class Look:
    """Finds nothing."""

    cap: int | None = None
    bounds: list[int] = field(default_factory=list)

    def near(self, free: FreeOptions, relaxed: Relaxation) -> None:
        assert free.is_asked[list(relaxed.support)].all()
        self.bounds.append(relaxed.bound)


@pytest.mark.parametrize("case", CASES)
def test_the_bound_is_that_of_all_plans(case: tuple[int, str]):
    free = floored(*case)
    goals = tuple(free.variants.goals)

    def relax(free: FreeOptions):
        return free_relaxation(free.problem, goals, {"time": 1})

    every, seen = relax(free.asked()), Look()
    few = with_late_plans(free, relax, seen)
    assert every is not None and few is not None and few.is_asked.all()
    again = relax(few)
    assert again is not None and again.bound == every.bound
    assert set(seen.bounds) <= {every.bound}
    assert seen.bounds or len(free) <= 2 * LEAST  # of so few all plans are made


def test_plans_of_few_options_are_made(monkeypatch: pytest.MonkeyPatch):
    free = floored(-1, "avx512")
    relaxed = free_relaxation(free.asked().problem, tuple(free.variants.goals), {"time": 1})
    assert relaxed is not None
    made: list[Candidate] = []
    wider_ps = Costs.wider_ps

    def counted(self: Costs, c: Candidate, extra: Sequence[int]) -> int:
        made.append(c)
        return wider_ps(self, c, extra)

    monkeypatch.setattr(Costs, "wider_ps", counted)
    best = relaxed.bound + relaxed.bound // 50
    found = narrowed(free.variants, {"time": 1}, {}, best, lambda options: None)
    assert found is not None and found.cap == best
    assert relaxed.bound <= found.bound <= best
    assert 0 < len(made) < len(free) * 4 // 5
    costs = free.variants.costs
    for v in found.options:
        writes = tuple(w for w in v.candidate.exposable if w in v.writes)
        every = (*writes, *v.candidate.writes)
        assert v.adds[0] == costs.group_ps(v.candidate.members, v.candidate.reads, every)
