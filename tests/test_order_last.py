"""What is left out before there is an order is in no answer: a whole search finds no better one."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from seeds import one_in

from eqsat.extract import check, extract
from eqsat.extract import session as sessions
from eqsat.extract.ask.front import front_of
from eqsat.extract.candidates.assemble import Choices
from eqsat.extract.reducedcosts import _all_of
from eqsat.extract.session import prepare
from eqsat.lang.rulesets import load_rulesets
from eqsat.lang.targets import load_target
from eqsat.model.diag import EqsatError
from eqsat.model.egraph import EGraph
from eqsat.model.selection import GoalRequest
from eqsat.model.target import Target
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.saturate import saturate
from tests.test_every_order import ONE, spelled

TIME, MEMORY, COUNT = (GoalRequest(n) for n in ("time", "memory", "dispatches"))
ASKED = {
    "time": ((TIME, MEMORY, COUNT), {}),
    "dispatches": ((COUNT, TIME), {}),
    "within": ((GoalRequest("time", within=0.05), COUNT, MEMORY), {}),
    "weights": ((GoalRequest("time", 1.0), GoalRequest("dispatches", 2.0)), {}),
    "weights of bytes": ((GoalRequest("time", 1.0), GoalRequest("memory", 1.0)), {}),
    "budget": ((TIME, MEMORY), {"dispatches": 6}),
    "memory": ((MEMORY, TIME, COUNT), {}),
    "memory within": (
        (GoalRequest("memory", within=0.2), GoalRequest("time", within=0.1), COUNT),
        {},
    ),
}


@cache
def asked(budget: tuple[tuple[str, int], ...]) -> tuple[EGraph, Target]:
    target = load_target("avx512-xla")
    program = merge_elementwise(spelled(ONE))
    return saturate(program, load_rulesets(["default"]), target), replace(target, budget=budget)


@pytest.mark.parametrize("name", one_in(8, ASKED))
def test_a_whole_search_finds_the_same_values(name: str, monkeypatch: pytest.MonkeyPatch):
    goals, budget = ASKED[name]
    egraph, target = asked(tuple(budget.items()))
    few, baseline = extract(egraph, target, goals)
    assert check(egraph, target, few) == []
    small = prepare(egraph, target, goals)
    monkeypatch.setattr(
        sessions,
        "fix_by_reduced_cost",
        lambda choices, _, budget, __, incumbents: _all_of(choices, incumbents, budget),
    )
    whole, other = extract(egraph, target, goals)
    every = prepare(egraph, target, goals)
    assert len(small.assembly.choice) < len(every.assembly.choice)
    assert small.best is not None and not every.least
    assert few.stop == whole.stop == "optimal"
    assert (baseline is None) == (other is None)
    weights = [g.weight or 0 for g in goals]
    if any(weights):
        assert worth(few, goals, baseline) == pytest.approx(worth(whole, goals, baseline))
    else:
        found = [few.goal(g.name) for g in goals]
        assert [(g.value, g.bound) for g in found] == [
            (whole.goal(g.name).value, whole.goal(g.name).bound) for g in goals
        ]
    for g in goals:  # a goal in a sum is bounded whatever the others
        assert few.goal(g.name).bound <= min(few.goal(g.name).value, whole.goal(g.name).value)
    if baseline is not None and other is not None:
        first = goals[0].name
        assert baseline.goal(first).value == other.goal(first).value


def test_a_budget_of_bytes_is_kept_or_refused_with_the_least_there_is():
    egraph, target = asked(())
    best, _ = extract(egraph, target, (MEMORY, TIME))
    least = best.goal("memory").value
    assert best.goal("memory").bound == least
    tight = replace(target, budget=(("memory", least),))
    found, _ = extract(egraph, tight, (TIME, MEMORY))
    assert [found.goal(g) for g in ("time", "memory")] == [best.goal(g) for g in ("time", "memory")]
    less = replace(target, budget=(("memory", least - 1),))
    assert prepare(egraph, less, (TIME, MEMORY)).is_refused
    with pytest.raises(EqsatError, match=rf"\(proven\).* any choice needs is {least:,} bytes"):
        extract(egraph, less, (TIME, MEMORY))


def test_the_ends_of_a_front_are_what_is_found_by_priority():
    egraph, target = asked(())
    session = prepare(egraph, target, (TIME, MEMORY, COUNT), whole=True)
    names = ("time", "memory", "dispatches")
    front, points = front_of(session, names, points=8, seconds=60.0)
    assert front.complete
    assert all(check(egraph, target, p) == [] for p in points)
    values = [t.values for t in front.tradeoffs]
    for k, first in enumerate((TIME, MEMORY, COUNT)):
        best, _ = extract(egraph, target, (first,))
        assert best.stop == "optimal"
        assert best.goal(names[k]).value == min(v[k] for v in values)


def worth(found, goals, baseline) -> float:
    return sum(g.weight * found.goal(g.name).value / baseline.goal(g.name).value for g in goals)


def test_nothing_is_left_out_for_questions_about_worse_answers():
    egraph, target = asked(())
    whole = prepare(egraph, target, (TIME, MEMORY), whole=True)
    assert not whole.least and not whole.is_refused
    some = Choices(whole.assembly.sources, (), ()).assembled()
    assert len(whole.assembly.choice) == len(some.choice)
