"""Several goals over one search: in order of priority, or as one weighted sum."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from eqsat.extract.solve.linear import TIE_BREAK
from eqsat.extract.solve.objective import Objective
from eqsat.extract.solve.outcome import Outcome, floor
from eqsat.extract.solve.problem import Answer
from eqsat.extract.solve.requests import limit, weigh
from eqsat.model import progress
from eqsat.model.selection import GoalRequest

if TYPE_CHECKING:
    from eqsat.extract.solve.goals import Search

OPEN = "open"  # a goal was minimised as far as is worth it before it is asked about in any order


def by_priority(
    search: Search,
    requests: tuple[GoalRequest, ...],
    reference: dict[str, int],
    caps: dict[str, int],
) -> Outcome:
    """One goal after another, each held at its value, or within its tolerance, from then on."""
    bounds, proofs, values = {}, {}, {}
    among: tuple[int, ...] | None = None
    answer: Answer | None = None
    stop = "optimal"
    for n, r in enumerate(requests):
        left = max(search.deadline - time.monotonic(), 0.1)
        share = left if n + 1 == len(requests) else left * 0.7
        found = search.tried(Objective({r.name: 1}, caps, among), answer, share)
        if found.answer is None:
            return Outcome(found.status)
        stop = found.status if stop == "optimal" or found.status not in ("optimal", OPEN) else stop
        answer = found.answer
        value = search.problem.value(r.name, answer)
        bounds[r.name] = max(found.bound, _floor(search, r.name))
        proofs[r.name] = found.proof
        values[r.name] = value
        progress.found(r.name, value)
        most = limit(r, value, reference)
        caps[r.name] = min(most, caps.get(r.name, most))
        among = found.stage.within(caps[r.name]) if found.stage else among
    if stop in ("optimal", OPEN) and answer is not None:
        answer = _tidied(search, answer, requests, caps, among)
    return Outcome(stop, answer, bounds, proofs, values)


def _tidied(
    search: Search,
    answer: Answer,
    requests: tuple[GoalRequest, ...],
    caps: dict[str, int],
    among: tuple[int, ...] | None,
) -> Answer:
    """An answer of the same worth that converts least, if that can be proven in time."""
    exact = caps | {r.name: search.problem.value(r.name, answer) for r in requests}
    left = max(search.deadline - time.monotonic(), 0.1)
    look = replace(search, is_look=True)
    found = look.minimise(Objective({TIE_BREAK: 1}, exact, among), answer, left)
    return found.answer if found.status == "optimal" and found.answer is not None else answer


def _floor(search: Search, goal: str) -> int:
    """A bound every answer keeps: the relaxation's if it was solved."""
    relaxed = search.relaxed.get(goal)
    least = floor(search.problem, goal)
    return least if relaxed is None else max(least, relaxed.bound)


def by_weights(
    search: Search, requests: tuple[GoalRequest, ...], reference: dict[str, int] | None
) -> Outcome:
    """The weighted sum, by the reference's values if there are any."""
    if reference is None:
        hint = search.best_hint({requests[0].name: 1}, search.budget)
        reference = search.problem.values(hint) if hint is not None else {}
    weights = weigh(requests, reference)
    seconds = max(search.deadline - time.monotonic(), 0.1)
    found = search.tried(Objective(weights, search.budget), None, seconds)
    if found.answer is None:
        return Outcome(found.status)
    return Outcome(found.status, found.answer, weights=weights)
