"""Prices beyond what floating point tells exactly are searched and proven as all others are."""

from __future__ import annotations

from dataclasses import replace

from graphs import chain, diamond, reference

from eqsat.extract import extract
from eqsat.extract.solve.cpsat import Effort, Request, solve
from eqsat.extract.solve.problem import ExtractionProblem, Option
from eqsat.model.selection import GoalRequest
from eqsat.model.target import Fusion, Memory

SLOW = (Memory("ram", 1 << 40, 1e-3),)  # a byte takes 1,000 s: 10^15 ps


def test_a_search_in_units_of_days() -> None:
    goals = (GoalRequest("time"), GoalRequest("dispatches"))
    for graph in (chain(6), diamond()):
        quick = reference(Fusion(members=3, multi_result=True))
        slow = replace(quick, memory=SLOW)
        found, _ = extract(graph, slow, goals)
        assert found.goal("time").value > 1 << 56
        assert found.goal("time").gap == 0
        assert found.groups == tuple(
            replace(g, time_ps=f.time_ps)
            for g, f in zip(extract(graph, quick, goals)[0].groups, found.groups, strict=True)
        )


def test_the_solver_tells_exact_values() -> None:
    """Two ways to write a buffer, one picosecond apart."""
    day = (1 << 56) + 1

    def option(time_ps: int) -> Option:
        return Option(0, (time_ps, 0, 1, 0), (), (), (0,), ())

    linear = ("time", "ties", "dispatches", "relayout")
    problem = ExtractionProblem((option(day + 1), option(day)), {0: 4}, (0,), 0, ((0, 1),), linear)
    found = solve(problem, Request({"time": 1}, {}), Effort(10.0, 0))
    assert found.status == "optimal"
    assert found.answer == (1,)
    assert found.value == found.bound == day
