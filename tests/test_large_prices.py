"""Prices beyond what floating point tells exactly are searched and proven as all others are."""

from __future__ import annotations

from dataclasses import replace

from graphs import chain, diamond, reference
from problems import Column, choice_of, questions, solved

from eqsat.extract import extract
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

    columns = [Column((time_ps, 0, 1, 0), (), (0,)) for time_ps in (day + 1, day)]
    linear = ("time", "ties", "dispatches", "relayout")
    choice = choice_of(columns, {0: 4}, (0,), linear=linear)
    found = solved(choice, {"time": 1})
    assert (found.status, found.columns, found.bound) == ("optimal", (1,), day)
    best = questions(choice).least({"time": 1}, {})
    assert best.best is not None
    assert (best.status, best.best.columns, best.bound) == ("optimal", (1,), day)
