"""Plans are made late, and for few options: floors are floors, and answers are the same."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from drawnprograms import Maker
from problems import questions
from tabulated import sources_in

from eqsat.extract.candidates.assemble import Assembly, Choices
from eqsat.extract.candidates.sources import Sources, with_plan_times
from eqsat.extract.candidates.space import Space
from eqsat.extract.candidates.tabulate import choice_of
from eqsat.extract.choice.columns import Columns
from eqsat.extract.choice.relax import relaxation
from eqsat.extract.dispatch.prices import UNASKED, Costs
from eqsat.extract.groups.grow import Candidate
from eqsat.extract.minimiser import SearchLimits
from eqsat.extract.ragged import Ints
from eqsat.extract.reducedcosts import Incumbent, Narrowed, fix_by_reduced_cost
from eqsat.lang.programs import parse_program
from eqsat.lang.rulesets import load_rulesets
from eqsat.lang.targets import load_target
from eqsat.model.deadline import elapsed
from eqsat.model.program import Program
from eqsat.model.selection import GoalRequest
from eqsat.model.target import Target
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.saturate import saturate

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
def sources(seed: int, name: str) -> Sources:
    program = parse_program(PARTS) if seed < 0 else Maker(seed).program(6)
    return sources_of(program, load_target(name))


def sources_of(program: Program, target: Target) -> Sources:
    rules = load_rulesets(["default"]).without("algebra")  # parts are not cut
    space = Space(saturate(merge_elementwise(program), rules, target))
    found = sources_in(space, target)
    assert {c.time_ps for c in found.candidates.candidates} == {UNASKED}
    return found


def with_all(sources: Sources, floored: Columns) -> Columns:
    """The same columns with the times of all plans."""
    known = with_plan_times(sources, floored, np.arange(len(floored)))
    assert known.is_asked.all() and len(known) == len(floored)
    return known


def floored_times(program: Program, target: Target) -> tuple[Ints, Ints]:
    """Per column of a program: its floor, and its time."""
    found = sources_of(program, target)
    floored = choice_of(found, floored=True)
    return floored.adds[:, 0], with_all(found, floored).adds[:, 0]


@pytest.mark.parametrize("case", CASES)
def test_no_plan_is_below_its_floor(case: tuple[int, str]):
    floored = choice_of(sources(*case), floored=True)
    assert not floored.is_asked.any()
    floors, times = floored.adds[:, 0], with_all(sources(*case), floored).adds[:, 0]
    assert (floors <= times).all()
    # floors of plans; some dispatches have none, and cost passes
    assert np.median(floors / times) > 0.12


def narrowed(sources: Sources, *known: Incumbent) -> Narrowed:
    """By time, whatever the other goals."""
    limits = SearchLimits(elapsed() + 300, 0)
    return fix_by_reduced_cost(Choices(sources, (), ()), (GoalRequest("time"),), {}, limits, known)


@pytest.mark.parametrize("case", CASES)
def test_the_bound_is_that_of_all_plans(case: tuple[int, str]):
    """And what is left out for a floor is in no best answer."""
    every = choice_of(sources(*case))
    relaxed, found = relaxation(every, {"time": 1}), narrowed(sources(*case))
    assert relaxed is not None and every.is_asked.all()
    few = found.assembly.choice
    assert few.is_asked.all() and len(few) <= len(choice_of(sources(*case), floored=True))
    assert found.least["time"] == (relaxed.bound, "relaxation")
    best = questions(every).least({"time": 1}, {})
    assert best.status == "optimal" and found.best is not None
    again = questions(few).least({"time": 1}, {}, best=found.best)
    assert (again.status, again.bound) == ("optimal", best.bound)


def test_plans_of_few_columns_are_made(monkeypatch: pytest.MonkeyPatch):
    some = sources_of(parse_program(PARTS), load_target("avx512"))
    floored, every = choice_of(some, floored=True), choice_of(some)
    best = questions(every).least({"time": 1}, {}).best
    assert best is not None
    known = Incumbent.of(Assembly(some, every, (), ()), best)
    made: set[tuple[Candidate, tuple[int, ...]]] = set()
    wider_ps = Costs.wider_ps

    def counted(self: Costs, c: Candidate, extra: Sequence[int]) -> int:
        made.add((c, tuple(extra)))
        return wider_ps(self, c, extra)

    monkeypatch.setattr(Costs, "wider_ps", counted)
    found = narrowed(some, known).assembly
    assert 64 < len(made) < len(floored) * 4 // 5  # more than one relaxation asks for
    choice = found.choice
    for column, written in enumerate(choice.writes.tuples):
        c = found.candidate(column)
        writes = tuple(w for w in c.exposable if some.space.buffer[w] in written)
        every = (*writes, *c.writes)
        assert choice.adds[column, 0] == some.costs.group_ps(c.members, c.reads, every)
