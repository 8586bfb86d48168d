"""Extraction without a solver: the cheapest way to write each buffer that one pass knows."""

from __future__ import annotations

import time

from eqsat.extract.candidates.assemble import Assembly, choices
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.choice.columns import Answer
from eqsat.extract.choice.greedy import greedy
from eqsat.extract.choice.linear import linear_goals
from eqsat.extract.choice.requests import check_requests, weigh
from eqsat.extract.diagnose import inadmissible
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.goals import Outcome
from eqsat.extract.least import SearchLimits
from eqsat.extract.memory.bestorder import in_best_order
from eqsat.extract.selected import selection_of
from eqsat.extract.session import Session, baseline_of, verify_selection
from eqsat.model import progress
from eqsat.model.cycles import uncollected
from eqsat.model.deadline import until
from eqsat.model.egraph import EGraph
from eqsat.model.selection import GREEDY, GoalRequest, Selection
from eqsat.model.stopping import Stop
from eqsat.model.target import Target

OWN = 0.3  # of the time limit, at most, for the input program
ENOUGH = 0.7  # of what is left then, to look for candidates


def extract_greedily(
    egraph: EGraph,
    target: Target,
    goals: tuple[GoalRequest, ...],
    *,
    time_limit: float = 60.0,
    seed: int = 0,
    stop: Stop | None = None,
) -> tuple[Selection, Selection | None]:
    """The greedy answer in its best order, and the baseline, which the solver finds as always.

    After extraction-gym's greedy-DAG extractor, over dispatches (`choice.greedy`). Nothing is
    proven, budgets are only checked, and the answer may be worse than the baseline. EqsatError:
    E410 if the greedy answers keep no budget, or there is none; E90x if the answer does not pass
    the checker.
    """
    check_requests(goals)
    start = time.monotonic()
    baseline = baseline_of(
        egraph, target, goals, time_limit=OWN * time_limit, seed=seed, stop=stop
    )  # fmt: skip
    progress.phase("candidates")
    now = time.monotonic()
    limits = SearchLimits(start + time_limit, seed, stop)
    linear = linear_goals(dict.fromkeys([*(g.name for g in goals), *dict(target.budget)]))
    asked = frozenset((*(g.name for g in goals), *dict(target.budget)))
    with uncollected():
        enough = now + ENOUGH * (limits.deadline - now)
        pool = Pool(Legality(Space(egraph, target.padding), target), False, asked)
        found = choices(pool, linear, enough=enough)
        assembly = found.assembled()
    progress.phase("greedy")
    reference = {} if baseline is None else {n: r.value for n, r in baseline.goals}
    with until(limits.deadline, stop):  # out of time, the answer is that of one-op dispatches
        best = _best(assembly, goals, dict(target.budget), reference)
    if best is None:
        session = Session(egraph, target, linear, assembly, None, baseline, seed, stop)
        raise inadmissible(session, False, limits.seconds)
    outcome = Outcome(GREEDY, best)
    took = time.monotonic() - start
    selection = selection_of(assembly, outcome, goals, took)
    verify_selection(egraph, target, selection, linear)
    return selection, baseline


def _best(
    assembly: Assembly,
    goals: tuple[GoalRequest, ...],
    budget: dict[str, int],
    reference: dict[str, int],
) -> Answer | None:
    """Of the greedy answers that keep the budgets the best one by the goals, or by their sum."""
    choice = assembly.choice
    found = greedy(choice, assembly.single_ops, goals[0].name)
    placed = [a for c in found if (a := in_best_order(choice, c)) and choice.keeps(a, budget)]
    if goals[0].weight is not None:
        weights = weigh(goals, reference)
        return min(placed, key=lambda a: choice.worth(a, weights), default=None)
    return min(placed, key=lambda a: [choice.value(g.name, a) for g in goals], default=None)
