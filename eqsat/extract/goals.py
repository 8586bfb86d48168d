"""Goals over one problem: in order of priority or weighted, under budgets; value and bound each."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from fractions import Fraction

from eqsat.extract.cpsat import Request, solve
from eqsat.extract.problem import GOALS, Answer, ExtractionProblem
from eqsat.model.diag import fail
from eqsat.model.selection import GoalRequest, GoalResult

SCALE = 10_000  # steps a weighted goal of the size of its baseline is divided into


@dataclass(frozen=True)
class Outcome:
    """The best answer found; `status` optimal | wall | infeasible | unknown."""

    status: str
    answer: Answer | None = None
    bounds: dict[str, int] = field(default_factory=dict)

    def results(
        self, problem: ExtractionProblem, requests: tuple[GoalRequest, ...]
    ) -> tuple[tuple[str, GoalResult], ...]:
        """All goals, requested ones first; those not asked for have the trivial bound."""
        assert self.answer is not None
        values = problem.values(self.answer)
        names = dict.fromkeys([r.name for r in requests] + list(GOALS))
        found = []
        for n in names:
            bound = self.bounds.get(n, floor(problem, n))
            found.append((n, GoalResult(values[n], min(bound, values[n]))))
        return tuple(found)


def floor(problem: ExtractionProblem, goal: str) -> int:
    """A bound every answer keeps, without a search."""
    if goal == "memory":
        return problem.fixed_bytes
    return int(goal == "dispatches" and bool(problem.roots))


def check_requests(requests: tuple[GoalRequest, ...]) -> None:
    """EqsatError (E404) for unknown or repeated goals, or if only some have weights."""
    names = [r.name for r in requests]
    for n in names:
        if n not in GOALS:
            raise fail("E404", f"no goal named `{n}`", help=f"known: {', '.join(GOALS)}")
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


@dataclass(frozen=True)
class Search:
    """One problem with its budgets, clock and seed."""

    problem: ExtractionProblem
    budget: dict[str, int]
    deadline: float  # of time.monotonic()
    seed: int
    hints: tuple[Answer, ...] = ()

    def run(self, requests: tuple[GoalRequest, ...], reference: dict[str, int] | None) -> Outcome:
        """Minimise the goals; `reference` are the baseline's values, if there is one."""
        if requests[0].weight is not None:
            return self._weighted(requests, reference)
        return self._in_order(requests, reference or {})

    def best_hint(self, weights: dict[str, int], caps: dict[str, int]) -> Answer | None:
        """The best known answer that keeps the caps."""
        legal = [a for a in self.hints if self._keeps(a, caps)]
        return min(legal, key=lambda a: self._worth(a, weights), default=None)

    def _keeps(self, answer: Answer, caps: dict[str, int]) -> bool:
        return all(self.problem.value(g, answer) <= limit for g, limit in caps.items())

    def _worth(self, answer: Answer, weights: dict[str, int]) -> int:
        return sum(w * self.problem.value(g, answer) for g, w in weights.items())

    def minimise(
        self, weights: dict[str, int], caps: dict[str, int], seconds: float, start: Answer | None
    ) -> tuple[str, Answer | None, int]:
        """(status, answer, bound): `start` or the best hint is the answer if none is better."""
        hint = start if start is not None else self.best_hint(weights, caps)
        request = Request(weights, caps, hint)
        solution = solve(self.problem, request, time_limit=seconds, seed=self.seed)
        if solution.status == "infeasible":
            return "infeasible", None, 0
        if solution.answer is None:
            return ("wall" if hint is not None else "unknown"), hint, 0
        answer = self.problem.pruned(solution.answer)
        if (
            not self.problem.is_legal(solution.answer)
            or self._worth(answer, weights) > solution.value
        ):
            raise fail("E901", "the solver's answer breaks the extraction problem", exit_code=4)
        if solution.status == "optimal":
            return "optimal", answer, solution.bound
        if hint is not None and self._worth(hint, weights) < self._worth(answer, weights):
            answer = hint
        return "wall", answer, solution.bound

    def _in_order(self, requests: tuple[GoalRequest, ...], reference: dict[str, int]) -> Outcome:
        caps, bounds = dict(self.budget), {}
        answer: Answer | None = None
        stop = "optimal"
        for n, r in enumerate(requests):
            left = max(self.deadline - time.monotonic(), 0.1)
            share = left if n + 1 == len(requests) else left * 0.7
            status, found, bound = self.minimise({r.name: 1}, caps, share, answer)
            if found is None:
                return Outcome(status)
            stop = stop if status == "optimal" else "wall"
            answer = found
            value = self.problem.value(r.name, found)
            bounds[r.name] = max(bound, floor(self.problem, r.name))
            loose = value + int(value * Fraction(str(r.within)))
            limit = max(value, min(loose, reference.get(r.name, loose)))
            caps[r.name] = min(limit, caps.get(r.name, limit))
        return Outcome(stop, answer, bounds)

    def _weighted(
        self, requests: tuple[GoalRequest, ...], reference: dict[str, int] | None
    ) -> Outcome:
        if reference is None:
            hint = self.best_hint({requests[0].name: 1}, self.budget)
            reference = self.problem.values(hint) if hint is not None else {}
        weights = weigh(requests, reference)
        seconds = max(self.deadline - time.monotonic(), 0.1)
        status, answer, _ = self.minimise(weights, self.budget, seconds, None)
        if answer is None:
            return Outcome(status)
        bounds = {r.name: floor(self.problem, r.name) for r in requests}
        if len(requests) == 1 and status == "optimal":
            bounds[requests[0].name] = self.problem.value(requests[0].name, answer)
        return Outcome(status, answer, bounds)


def weigh(requests: tuple[GoalRequest, ...], reference: dict[str, int]) -> dict[str, int]:
    """Integer coefficients of Σ weight · goal / reference, to one part in `SCALE` or better."""
    shares = {r.name: Fraction(str(r.weight)) / max(reference.get(r.name, 1), 1) for r in requests}
    unit = min(shares.values())
    return {n: max(round(s / unit * SCALE), 1) for n, s in shares.items()}
