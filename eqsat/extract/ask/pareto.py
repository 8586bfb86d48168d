"""A session's trade-offs between goals, each as a checked selection.

Questions are asked in any order of the dispatches, so what is proven holds in every one; an
answer's own peak is that of the best order found for it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy as np

from eqsat.extract.ask.front import OPEN, Reply, Tradeoffs, Vector, find_tradeoffs
from eqsat.extract.choice.columns import Answer
from eqsat.extract.goals import Outcome
from eqsat.extract.least import Least
from eqsat.extract.minimiser import Minimiser
from eqsat.extract.ragged import Ints
from eqsat.extract.session import Session
from eqsat.model.selection import GoalRequest, Selection
from eqsat.model.stopping import INTERRUPTED

FIRST, NEXT = 0.6, 0.5  # of what is left, for the first goal of a question, and for others


@dataclass
class _Asker:
    """Asks one session; answers are where the next search starts, and proofs are kept."""

    session: Session
    asked: Minimiser
    goals: tuple[str, ...]  # in the order of the numbers of a vector
    known: dict[tuple[str, tuple[tuple[str, int], ...]], Least] = field(default_factory=dict)

    def values(self, answer: Answer) -> Vector:
        return tuple(self.asked.choice.value(g, answer) for g in self.goals)

    def __call__(self, priority: Vector, caps: Vector, seconds: float) -> Reply:
        stop = self.session.stop
        if stop is not None and stop.is_requested:
            return Reply(INTERRUPTED)
        goals, end = self.goals, time.monotonic() + seconds
        limits = dict(self.session.target.budget)
        limits |= {g: c for g, c in zip(goals, caps, strict=True) if c < OPEN}
        among = self._among(limits)
        if among is None:
            return Reply("infeasible")
        status, bounds, best = "optimal", [0] * len(goals), None
        for n, k in enumerate(priority):
            share = FIRST if n == 0 else NEXT if n + 1 < len(priority) else 1.0
            left = max(end - time.monotonic(), 0.1) * share
            found = self._least(goals[k], limits, among, left)
            if found.status == "infeasible":
                return Reply("infeasible") if best is None else self._reply("wall", best, bounds)
            if found.best is None:
                return Reply("unknown")
            best, bounds[k] = found.best, found.bound
            value = self.values(best)[k]
            if value > found.bound:
                status = "wall"
            limits[goals[k]] = value
            within = found.within(value)
            among = among if within is None else within
        assert best is not None
        return self._reply(status, best, bounds)

    def _least(self, goal: str, limits: dict[str, int], among: Ints, seconds: float) -> Least:
        question = goal, tuple(sorted(limits.items()))
        if question not in self.known:
            best = self._best(goal, limits)
            found = self.asked.least({goal: 1}, limits, among=among, best=best, seconds=seconds)
            if found.status not in ("optimal", "infeasible"):
                return found
            self.known[question] = found
        return self.known[question]

    def _among(self, limits: dict[str, int]) -> Ints | None:
        """Columns of answers within the limits, judged one by one; None: there is no answer."""
        asked = self.asked
        found = asked.every
        for goal, cap in limits.items():
            if goal in asked.choice.facts.linear:
                alone = asked.relaxed_alone(goal)
                if alone is None or alone.bound > cap:
                    return None
                found = np.intersect1d(found, alone.within(cap))
        return found

    def _best(self, goal: str, limits: dict[str, int]) -> Answer | None:
        """The best answer of all that keep the limits."""
        choice, k = self.asked.choice, self.goals.index(goal)
        kept = [a for a in self.asked.answers if choice.keeps(a, limits)]
        return min(kept, key=lambda a: (self.values(a)[k], self.values(a)), default=None)

    def _reply(self, status: str, best: Answer, bounds: list[int]) -> Reply:
        values = self.values(best)
        return Reply(status, values, tuple(map(min, bounds, values)))

    def answer(self, values: Vector) -> Answer:
        return next(a for a in self.asked.answers if self.values(a) == values)


def front_of(
    session: Session, goals: tuple[str, ...], *, points: int, seconds: float
) -> tuple[Tradeoffs, tuple[Selection, ...]]:
    """The trade-offs of these goals found within so many seconds, and a selection for each.

    A selection's bounds are those of its trade-off: what a goal is at least, in whatever order,
    while no other goal is worse. Budgets of the target hold for all of them. Where candidates were
    cut, nothing is proven and no front is complete.
    """
    start = time.monotonic()
    ask = _Asker(session, replace(session.questions(seconds), own=session.own_columns), goals)
    if session.best is not None:
        ask.asked.ordered(session.best.columns)
    budget = dict(session.target.budget)
    known = [ask.values(a) for a in ask.asked.answers if ask.asked.choice.keeps(a, budget)]
    caps = tuple(budget.get(g, OPEN) for g in goals)
    floors = tuple(session.assembly.choice.floor(g) for g in goals)
    deadline = start + seconds
    found = find_tradeoffs(ask, caps, floors, points=points, deadline=deadline, known=known)
    if session.assembly.cuts:
        stop = "cut" if found.stop == "complete" else found.stop
        exist = int(bool(found.found))
        found = replace(found, at_least=exist, complete=False, stop=stop)
    requests = tuple(GoalRequest(g) for g in goals)
    selections = []
    for t in found.found:
        bounds: dict[str, int] = dict(zip(goals, t.bounds, strict=True))
        outcome = Outcome("optimal" if t.is_proven else "wall", ask.answer(t.values), bounds)
        selections.append(session.selection(outcome, requests, time.monotonic() - start))
    return found, tuple(selections)
