"""Goals of one search, as they are asked for: in order of priority or as one weighted sum.

Each gets a value and a bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from eqsat.extract.choice.columns import GOALS, KEPT, MEMORY, Answer, Columns
from eqsat.extract.choice.linear import ASKED, TIE_BREAK
from eqsat.extract.choice.relax import Least
from eqsat.extract.memory.bestorder import in_best_order
from eqsat.extract.minimiser import SHARES, Minimiser
from eqsat.extract.ragged import Ints
from eqsat.model import progress
from eqsat.model.deadline import WALL
from eqsat.model.diag import fail
from eqsat.model.selection import GoalRequest, GoalResult
from eqsat.plugins import plugged_in

DONE = ("optimal", "gap")


@dataclass(frozen=True)
class Outcome:
    """The best answer found; `status` as that of the question that ended worst."""

    status: str
    answer: Answer | None = None
    bounds: dict[str, int] = field(default_factory=dict)
    proofs: dict[str, str] = field(default_factory=dict)  # per goal whose bound is met
    late: str = ""  # the first goal whose question time ended

    def results(
        self, choice: Columns, requests: tuple[GoalRequest, ...]
    ) -> tuple[tuple[str, GoalResult], ...]:
        """All goals, requested ones first; those not asked for have the trivial bound."""
        assert self.answer is not None
        values = choice.values(self.answer)
        names = dict.fromkeys([*(r.name for r in requests), *values])
        results = []
        for n in names:
            bound = min(self.bounds.get(n, choice.floor(n)), values[n])
            proof = self.proofs.get(n, "") if bound == values[n] else ""
            results.append((n, GoalResult(values[n], bound, proof)))
        return tuple(results)


def minimise(
    asked: Minimiser,
    requests: tuple[GoalRequest, ...],
    budget: Mapping[str, int],
    *,
    reference: Mapping[str, int] | None = None,
    best: Answer | None = None,
    is_cut: bool = False,
) -> Outcome:
    """The goals minimised within the budget.

    reference: the baseline's values, if there are any. best: a known answer that keeps the budget.
    is_cut: candidates were left out, so no bound is reported while the search runs.
    """
    if requests[0].weight is not None:
        return _by_weights(asked, requests, budget, reference, best)
    return _by_priority(asked, requests, budget, reference or {}, best, is_cut)


def _by_priority(
    asked: Minimiser,
    requests: tuple[GoalRequest, ...],
    budget: Mapping[str, int],
    reference: Mapping[str, int],
    best: Answer | None,
    is_cut: bool,
) -> Outcome:
    """One goal after another, each held at its value, or within its tolerance, from then on."""
    bounds, proofs, caps = dict[str, int](), dict[str, str](), dict(budget)
    among: Ints | None = None
    status, late = "optimal", ""
    for n, r in enumerate(requests):
        if r.name == MEMORY or n == 0:
            progress.phase("order" if r.name == MEMORY else "search")
        part = SHARES.goal if n + 1 < len(requests) else 1.0
        with asked.limits.step(r.name, part) as told:
            share = told.deadline - told.begin
            least = asked.least({r.name: 1}, caps, among=among, best=best, seconds=share)
            told.outcome = least.status
        if least.best is None:
            return Outcome(_worst(status, "unknown" if least.status == "gap" else least.status))
        best = least.best
        value = asked.choice.value(r.name, best)
        bounds[r.name], proofs[r.name] = max(least.bound, asked.choice.floor(r.name)), least.proof
        status = _worst(status, least.status if least.bound < value else "optimal")
        late = late or (r.name if status == WALL else "")
        progress.found(r.name, value, 0 if is_cut else least.bound)
        most = limit(r, value, reference)
        caps[r.name] = min(most, caps.get(r.name, most))
        within = least.within(caps[r.name])
        among = among if within is None else within
        if asked.is_ended_by_gaps and status == "gap":
            return Outcome(status, _ordered(asked, best), bounds, proofs)
    if status in DONE and best is not None and not asked.quick:
        best = _tidied(asked, best, requests, caps, among)
    return Outcome(status, best and _ordered(asked, best), bounds, proofs, late)


def _worst(one: str, other: str) -> str:
    """Why a search ended that asked two questions: a proof of both, a gap, or what cut it short."""
    return other if one == "optimal" or (one == "gap" and other not in DONE) else one


def _ordered(asked: Minimiser, answer: Answer) -> Answer:
    """In the order of least peak, which no question may have been about."""
    ordered = in_best_order(asked.choice, answer.columns)
    return answer if ordered is None or ordered.peak_bytes >= answer.peak_bytes else ordered


def _tidied(
    asked: Minimiser,
    answer: Answer,
    requests: tuple[GoalRequest, ...],
    caps: Mapping[str, int],
    among: Ints | None,
) -> Answer:
    """An answer of the same worth that converts least, if that can be proven in time."""
    exact = dict(caps) | {r.name: asked.choice.value(r.name, answer) for r in requests}
    least = asked.least({TIE_BREAK: 1}, exact, among=among, best=answer, is_look=True)
    return least.best if least.status == "optimal" and least.best is not None else answer


def _by_weights(
    asked: Minimiser,
    requests: tuple[GoalRequest, ...],
    budget: Mapping[str, int],
    reference: Mapping[str, int] | None,
    best: Answer | None,
) -> Outcome:
    """The weighted sum, by the reference's values if there are any; it alone is proven.

    Each goal's own bound is that of its relaxation, or what is known of it whatever the others.
    """
    progress.phase("search")
    names = [r.name for r in requests]
    if reference is None:
        first = asked.least({names[0]: 1}, budget, best=best, is_look=True).best
        reference = {} if first is None else asked.choice.values(first)
        best = first or best
    least: Least = asked.least(weigh(requests, dict(reference)), budget, best=best)
    if least.best is None:
        return Outcome("unknown" if least.status == "gap" else least.status)
    value = asked.choice.worth(least.best, weigh(requests, dict(reference)))
    status = "optimal" if least.bound >= value else least.status
    bounds = {n: asked.proven[n][0] if n in asked.proven else asked.least_alone(n) for n in names}
    best = _ordered(asked, least.best)
    return Outcome(status, best, bounds, dict.fromkeys(names, least.proof))


# ---- what is asked for ---------------------------------------------------------------------------
SCALE = 10_000  # steps a weighted goal of the size of its baseline is divided into


def check_requests(requests: tuple[GoalRequest, ...]) -> None:
    """EqsatError (E404) for unknown or repeated goals, or if only some have weights."""
    names = [r.name for r in requests]
    every_goal = (*GOALS, *KEPT, *ASKED, *plugged_in("goals"))
    for n in names:
        if n not in every_goal:
            raise fail("E404", f"no goal named `{n}`", help=f"known: {', '.join(every_goal)}")
    if not names or len(set(names)) < len(names):
        raise fail("E404", "name at least one goal, and each goal once")
    weighted = [r.weight is not None for r in requests]
    if any(weighted) and not all(weighted):
        raise fail(
            "E404",
            "some goals have a weight and some have none",
            help="give all goals a weight (`time:2 memory:1`), or none (in order of priority)",
        )
    if any(r.within < 0 or (r.weight is not None and r.weight <= 0) for r in requests):
        raise fail("E404", "weights are positive and `within` is not negative")


def limit(request: GoalRequest, value: int, reference: Mapping[str, int]) -> int:
    """What a goal is held to behind a search that found this value: within its tolerance.

    A tolerance never makes it worse than the baseline.
    """
    loose = value + int(value * Fraction(str(request.within)))
    return max(value, min(loose, reference.get(request.name, loose)))


def weigh(requests: tuple[GoalRequest, ...], reference: dict[str, int]) -> dict[str, int]:
    """Integer coefficients of Σ weight · goal / reference, to one part in `SCALE` or better."""
    shares = {r.name: Fraction(str(r.weight)) / max(reference.get(r.name, 1), 1) for r in requests}
    unit = min(shares.values())
    return {n: max(round(s / unit * SCALE), 1) for n, s in shares.items()}
