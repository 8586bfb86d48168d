"""Goals over one problem: in order of priority or weighted, under budgets; value and bound each."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil

from eqsat.extract.cpsat import Request, solve
from eqsat.extract.linear import ASKED, TIE_BREAK
from eqsat.extract.problem import GOALS, Answer, ExtractionProblem
from eqsat.extract.relax import TOLERANCE, Relaxation, relaxation
from eqsat.model.diag import fail
from eqsat.model.selection import GoalRequest, GoalResult
from eqsat.plugins import plugged_in

# how far above the relaxation's bound the best answer is looked for first
SPREADS = (0.001, 0.01, 0.1)
NEAR_WORK = 5.0  # deterministic time of that look, so that its answer never depends on the clock
SCALE = 10_000  # steps a weighted goal of the size of its baseline is divided into


@dataclass(frozen=True)
class Found:
    """One solve: status optimal | wall | infeasible | unknown, and the objective's bound."""

    status: str
    answer: Answer | None = None
    bound: int = 0


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
        names = dict.fromkeys([*(r.name for r in requests), *values])
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
    known = (*GOALS, *ASKED, *plugged_in("goals"))
    for n in names:
        if n not in known:
            raise fail("E404", f"no goal named `{n}`", help=f"known: {', '.join(known)}")
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
    relaxed: dict[str, Relaxation | None] = field(default_factory=dict)  # by goal, when asked for

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
        self, weights: dict[str, int], caps: dict[str, int], start: Answer | None, seconds: float
    ) -> Found:
        """The best answer within the caps; a hint is the answer if none better is found in time."""
        end = time.monotonic() + seconds
        hints = [a for a in (start, self.best_hint(weights, caps)) if a is not None]
        hint = min(hints, key=lambda a: self._worth(a, weights), default=None)
        # a later goal starts from an answer already, and its own relaxation knows no caps
        for spread in SPREADS if len(weights) == 1 and start is None else ():
            near = self._near(weights, caps, hint, spread)
            if near is None:
                break
            found = self._solve(near, weights, caps, None, end - time.monotonic(), NEAR_WORK)
            if found.answer is not None:
                hint = min(
                    hint or found.answer, found.answer, key=lambda a: self._worth(a, weights)
                )
                break
        if hint is not None and self._is_least(weights, hint):
            return Found("optimal", hint, self._worth(hint, weights))
        kept = self._kept(weights, caps, hint)
        if kept is None:
            return Found("infeasible")
        found = self._solve(kept, weights, caps, hint, end - time.monotonic())
        if found.status == "unknown" and hint is not None:
            return Found("wall", hint)
        if found.status == "wall" and hint is not None and found.answer is not None:
            best = min(found.answer, hint, key=lambda a: self._worth(a, weights))
            return Found("wall", best, found.bound)
        return found

    def _is_least(self, weights: dict[str, int], answer: Answer) -> bool:
        """Whether the relaxation alone proves that no answer is worth less."""
        if len(weights) != 1:
            return False
        (goal,) = weights
        value = self.problem.value(goal, answer)
        if value and goal in self.problem.linear:
            self._relaxed(goal)
        return value <= self._floor(goal)

    def _near(
        self, weights: dict[str, int], caps: dict[str, int], hint: Answer | None, spread: float
    ) -> tuple[int, ...] | None:
        """Options of answers within `spread` of the relaxation's bound; None if that is no gain.

        The best answer among these few is nearly always the best of all, and a close upper bound
        is what lets the relaxation drop the rest.
        """
        (goal,) = weights
        relaxed = self._relaxed(goal) if goal in self.problem.linear else None
        if relaxed is None:
            return None
        cap = int(relaxed.bound * (1 + spread))
        if hint is not None and self.problem.value(goal, hint) <= cap:
            return None
        kept = self._kept({}, caps, None)
        return None if kept is None else tuple(sorted(set(kept) & set(relaxed.within(cap))))

    def _relaxed(self, goal: str) -> Relaxation | None:
        if goal not in self.relaxed:
            self.relaxed[goal] = relaxation(self.problem, goal)
        return self.relaxed[goal]

    def _solve(
        self,
        kept: tuple[int, ...],
        weights: dict[str, int],
        caps: dict[str, int],
        hint: Answer | None,
        seconds: float,
        work: float | None = None,
    ) -> Found:
        """Solve the problem of some options; its answer in the numbers of the whole problem."""
        number = {i: n for n, i in enumerate(kept)}
        known = hint is not None and all(i in number for i in hint)
        own = tuple(number[i] for i in hint) if hint is not None and known else None
        small = self.problem.restricted(kept)
        request = Request(weights, caps, own)
        limit = max(seconds, 0.1)
        solution = solve(small, request, time_limit=limit, seed=self.seed, work_limit=work)
        if solution.answer is None:
            return Found(solution.status)
        answer = tuple(kept[i] for i in solution.answer)
        if not self.problem.is_legal(answer) or self._worth(answer, weights) > solution.value:
            raise fail("E901", "the solver's answer breaks the extraction problem", exit_code=4)
        status = "optimal" if solution.status == "optimal" else "wall"
        return Found(status, self.problem.pruned(answer), solution.bound)

    def _kept(
        self, weights: dict[str, int], caps: dict[str, int], hint: Answer | None
    ) -> tuple[int, ...] | None:
        """Options of answers no worse than the hint and within the caps; None: no such answer."""
        limits = {g: v for g, v in caps.items() if g in self.problem.linear}
        if len(weights) == 1 and hint is not None:
            (goal,) = weights
            if goal in self.problem.linear:
                value = self.problem.value(goal, hint)
                limits[goal] = min(value, limits.get(goal, value))
        kept = set(range(len(self.problem.options)))
        for goal, limit in limits.items():
            found = self._relaxed(goal)
            if found is None:
                return None
            kept &= set(found.within(limit))
        return tuple(sorted(kept))

    def _in_order(self, requests: tuple[GoalRequest, ...], reference: dict[str, int]) -> Outcome:
        caps, bounds = dict(self.budget), {}
        answer: Answer | None = None
        stop = "optimal"
        for n, r in enumerate(requests):
            left = max(self.deadline - time.monotonic(), 0.1)
            share = left if n + 1 == len(requests) else left * 0.7
            found = self.minimise({r.name: 1}, caps, answer, share)
            if found.answer is None:
                return Outcome(found.status)
            stop = stop if found.status == "optimal" else "wall"
            answer = found.answer
            value = self.problem.value(r.name, answer)
            bounds[r.name] = max(found.bound, self._floor(r.name))
            loose = value + int(value * Fraction(str(r.within)))
            limit = max(value, min(loose, reference.get(r.name, loose)))
            caps[r.name] = min(limit, caps.get(r.name, limit))
        if stop == "optimal" and answer is not None:
            answer = self._tidied(answer, requests, caps)
        return Outcome(stop, answer, bounds)

    def _tidied(
        self, answer: Answer, requests: tuple[GoalRequest, ...], caps: dict[str, int]
    ) -> Answer:
        """An answer of the same worth that converts least, if that can be proven in time."""
        exact = caps | {r.name: self.problem.value(r.name, answer) for r in requests}
        left = max(self.deadline - time.monotonic(), 0.1)
        found = self.minimise({TIE_BREAK: 1}, exact, answer, left)
        return found.answer if found.status == "optimal" and found.answer is not None else answer

    def _floor(self, goal: str) -> int:
        """A bound every answer keeps: the relaxation's if it was solved."""
        relaxed = self.relaxed.get(goal)
        if relaxed is None:
            return floor(self.problem, goal)
        return max(floor(self.problem, goal), ceil(relaxed.bound * (1 - TOLERANCE)))

    def _weighted(
        self, requests: tuple[GoalRequest, ...], reference: dict[str, int] | None
    ) -> Outcome:
        if reference is None:
            hint = self.best_hint({requests[0].name: 1}, self.budget)
            reference = self.problem.values(hint) if hint is not None else {}
        weights = weigh(requests, reference)
        seconds = max(self.deadline - time.monotonic(), 0.1)
        found = self.minimise(weights, self.budget, None, seconds)
        if found.answer is None:
            return Outcome(found.status)
        for r in requests:
            if r.name in self.problem.linear:
                self._relaxed(r.name)  # the bound of each goal alone
        bounds = {r.name: self._floor(r.name) for r in requests}
        if len(requests) == 1 and found.status == "optimal":
            bounds[requests[0].name] = self.problem.value(requests[0].name, found.answer)
        return Outcome(found.status, found.answer, bounds)


def weigh(requests: tuple[GoalRequest, ...], reference: dict[str, int]) -> dict[str, int]:
    """Integer coefficients of Σ weight · goal / reference, to one part in `SCALE` or better."""
    shares = {r.name: Fraction(str(r.weight)) / max(reference.get(r.name, 1), 1) for r in requests}
    unit = min(shares.values())
    return {n: max(round(s / unit * SCALE), 1) for n, s in shares.items()}
