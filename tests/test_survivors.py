"""What the first goal leaves: a true bound, and every column of a best answer."""

from __future__ import annotations

from functools import cache

import pytest
from problems import questions
from seeds import one_in
from tabulated import sources_of

from eqsat.extract.candidates.assemble import Assembly, Choices
from eqsat.extract.choice.columns import Answer, Columns
from eqsat.extract.choice.legal import plain_columns
from eqsat.extract.memory.bestorder import in_best_order
from eqsat.extract.minimiser import SearchLimits, weigh
from eqsat.extract.reducedcosts import Incumbent, Narrowed, fix_by_reduced_cost
from eqsat.model.deadline import elapsed
from eqsat.model.selection import GoalRequest
from tests.test_every_order import ONE, spelled

TIME, MEMORY, COUNT = (GoalRequest(n) for n in ("time", "memory", "dispatches"))
ASKED = [(TIME,), (COUNT,), (MEMORY,), (GoalRequest("time", 3.0), GoalRequest("memory", 1.0))]


@cache
def found(target: str = "avx512-xla") -> tuple[Choices, Assembly]:
    choices = Choices(sources_of(spelled(ONE), target), (), ())
    return choices, choices.assembled()


def narrowed(
    goals: tuple[GoalRequest, ...], budget: dict[str, int], known: list[Incumbent]
) -> Narrowed:
    return fix_by_reduced_cost(found()[0], goals, budget, SearchLimits(elapsed() + 60, 0), known)


def least(choice: Columns, weights: dict[str, int], best: Answer | None = None) -> int:
    """What the best answer in any order is worth."""
    asked = questions(choice, elapsed() + 60).least(weights, {}, best=best)
    assert asked.status == "optimal" and asked.best is not None
    return choice.worth(asked.best, weights)


@pytest.mark.parametrize("goals", one_in(2, [(a,) for a in ASKED]))
def test_what_is_left_holds_a_best_answer_and_nothing_is_below_the_bound(
    goals: tuple[GoalRequest, ...],
):
    whole = found()[1]
    columns = plain_columns(whole.choice, whole.single_ops)
    assert columns is not None
    answer = in_best_order(whole.choice, columns)
    assert answer is not None
    known = Incumbent.of(whole, answer)
    is_weighted = goals[0].weight is not None
    weights = weigh(goals, dict(known.values)) if is_weighted else {goals[0].name: 1}
    found_best = questions(whole.choice).least(weights, {}).best
    assert found_best is not None
    both = [known, Incumbent.of(whole, found_best)]
    best, left = least(whole.choice, weights), narrowed(goals, {}, both)
    few = left.assembly.choice
    assert len(few) < len(whole.choice) or is_weighted
    assert least(few, weights, left.best) == best
    for goal, (bound, _) in left.least.items():
        assert bound <= (best if not is_weighted else least(whole.choice, {goal: 1}))
    assert left.best is None or few.worth(left.best, weights) >= best


def test_without_a_known_answer_one_is_looked_for_near_the_bound():
    best = least(found()[1].choice, {"time": 1})
    strict = narrowed((TIME,), {}, [])
    loose = narrowed((GoalRequest("time", within=1.0),), {}, [])
    for left in (strict, loose):
        assert left.best is not None
        assert left.assembly.choice.value("time", left.best) >= best
        assert left.least["time"][0] <= best
    assert len(strict.assembly.choice) < len(loose.assembly.choice)


def test_what_no_answer_keeps_is_told():
    left = narrowed((TIME,), {"dispatches": 1}, [])
    assert left.best is None
    asked = questions(left.assembly.choice).least({"time": 1}, {"dispatches": 1})
    assert asked.status == "infeasible"
    by_bytes = narrowed((TIME,), {"memory": 1_000}, [])
    assert by_bytes.is_refused and len(by_bytes.assembly.choice)
