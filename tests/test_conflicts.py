"""Budgets that exclude each other: E410 names them, and the least of each that would do."""

from __future__ import annotations

from functools import cache

import pytest

import eqsat
from eqsat.extract.diagnose import Budgets
from eqsat.extract.session import prepare
from eqsat.lang.programs import load_program
from eqsat.model.diag import EqsatError
from eqsat.model.program import Program
from eqsat.model.selection import GoalRequest

FORCED = ["tiles_forced=true"]


@pytest.fixture(scope="module")
def tied() -> Program:
    """A table that is gathered from and multiplied by: kept twice, or packed in every run."""
    return load_program("experiments/programs/tied_table.eqs")


@cache
def least(source: Program, *goals: str) -> dict[str, int]:
    run = eqsat.optimize(source, target="avx512-xla", settings=FORCED, goals=goals)
    assert run.selection is not None and run.selection.stop == "optimal"
    return {n: r.value for n, r in run.selection.goals}


def refused(source: Program, **budget: int) -> str:
    with pytest.raises(EqsatError) as e:
        eqsat.optimize(source, target="avx512-xla", settings=FORCED, budget=budget)
    (found,) = e.value.diagnostics
    assert found.code == "E410" and e.value.exit_code == 3
    return found.message


def test_two_budgets_that_exclude_each_other_say_what_each_would_have_to_be(tied: Program):
    fast, small = least(tied, "time", "memory"), least(tied, "memory", "time")
    assert fast["time"] < small["time"] and small["memory"] < fast["memory"]
    limit = (fast["time"] + small["time"]) // 2
    message = refused(tied, memory=small["memory"], time=limit)
    assert "(proven)" in message
    assert "the budgets memory and time exclude each other" in message
    within = f"with time <= {limit / 1e6:,.3f} us"
    assert f"{within} the least memory is {fast['memory']:,} bytes" in message
    within = f"with memory <= {small['memory']:,} bytes"
    assert f"{within} the least time is {small['time'] / 1e6:,.3f} us" in message
    # each of them does
    for budget in (
        {"memory": fast["memory"], "time": limit},
        {"memory": small["memory"], "time": small["time"]},
    ):
        run = eqsat.optimize(tied, target="avx512-xla", settings=FORCED, budget=budget)
        assert run.selection is not None
        assert all(run.selection.goal(g).value <= most for g, most in budget.items())


@pytest.mark.slow  # 5 s
def test_budgets_that_are_no_part_of_a_conflict_are_held_and_not_named(tied: Program):
    fast, small = least(tied, "time", "memory"), least(tied, "memory", "time")
    message = refused(tied, memory=small["memory"], time=fast["time"], dispatches=9)
    assert "the budgets memory and time exclude each other" in message
    assert f"dispatches <= 9 dispatches and time <= {fast['time'] / 1e6:,.3f} us" in message
    tight = refused(tied, memory=small["memory"], time=fast["time"], dispatches=fast["dispatches"])
    assert "alone not enough" in tight


def test_a_budget_below_what_any_choice_needs_is_told_with_the_others_held(tied: Program):
    fast, small = least(tied, "time", "memory"), least(tied, "memory", "time")
    message = refused(tied, memory=small["memory"] - 1, time=fast["time"])
    assert "exclude each other" not in message
    assert f"the least memory any choice needs is {small['memory']:,} bytes" in message
    assert f"the least memory is {fast['memory']:,} bytes" in message


def test_without_time_nothing_is_claimed(tied: Program):
    run = eqsat.optimize(tied, target="avx512-xla", settings=FORCED, stop_after="egraph")
    assert run.egraph is not None
    session = prepare(run.egraph, run.target, (GoalRequest("time"),))
    budgets = Budgets(session.questions(0.0), {"memory": 1 << 40, "time": 1 << 40})
    assert not any(need.is_exact for need in budgets.alone.values() if need is not None)
    assert budgets.impossible == []
    assert budgets.conflict() == ()
