"""The best program that keeps a value in one of some layouts, with its price."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from eqsat.extract.ask.counterfactual import Counterfactuals, counterfactuals
from eqsat.extract.choice.linear import linear_goals
from eqsat.extract.goals import Outcome
from eqsat.extract.memory.bestorder import in_best_order
from eqsat.extract.selected import selection_of
from eqsat.extract.session import verify_selection
from eqsat.model.deadline import OutOfTime, until
from eqsat.model.egraph import EGraph
from eqsat.model.price import AT_LEAST, Price, Question
from eqsat.model.selection import GoalRequest, Selection
from eqsat.model.target import Target

STATING = 0.4  # of the time, at most, to look for candidates
PRICING = 0.8  # of what is left, for prices; the rest is for programs with few other dispatches


@dataclass(frozen=True)
class Forced:
    """What a question costs, and the best program found that makes its choice, if any was."""

    question: Question
    price: Price
    selection: Selection | None


def forced(
    egraph: EGraph,
    target: Target,
    goals: tuple[GoalRequest, ...],
    chosen: Selection,
    baseline: Selection | None,
    questions: Sequence[Question],
    *,
    seconds: float,
    seed: int = 0,
) -> list[Forced]:
    """Each question's price and program, within so many seconds for all of them."""
    begin = time.monotonic()
    try:
        with until(begin + seconds):
            sides = egraph, target, goals, chosen, baseline, seed
            found = counterfactuals(*sides, enough=begin + STATING * seconds)
            left = begin + seconds - time.monotonic()
            prices = found.prices(questions, PRICING * left)
            best = min(range(len(prices)), key=lambda i: prices[i].key)
            _come_near(found, questions[best], begin + seconds - time.monotonic())
    except OutOfTime:
        nothing = Price(goals[0].name, AT_LEAST)
        return [Forced(q, nothing, None) for q in questions]
    return [Forced(q, p, _program(found, q, p)) for q, p in zip(questions, prices, strict=True)]


def _come_near(found: Counterfactuals, question: Question, seconds: float) -> None:
    """Look for a program of the price that has few other dispatches than the chosen one."""
    task = found.task(question)
    worth = found.known(task)
    if worth is not None and found.has_sum:
        found.solve(task, worth, seconds, nearest=True)


def _program(found: Counterfactuals, question: Question, price: Price) -> Selection | None:
    """The best known answer that makes the choice, as a checked selection."""
    answer = found.best_making(found.task(question)) if price.delta is not None else None
    if answer is None:
        return None
    space = found.assembly.pool.space
    ordered = in_best_order(found.choice, answer.columns)
    made = selection_of(found.assembly, Outcome("gap", ordered), found.goals, 0.0)
    if found.assembly.cuts:
        made = replace(made, stop="cut")
    asked = dict.fromkeys([*(g.name for g in found.goals), *found.budget])
    target = found.assembly.pool.legality.target
    verify_selection(space.egraph, target, made, linear_goals(asked))
    return made
