"""What a search for the best answer comes to: of one solve, and of all goals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from eqsat.extract.solve.problem import Answer, ExtractionProblem
from eqsat.extract.solve.relax import Relaxation
from eqsat.model.selection import GoalRequest, GoalResult

SMALL, CLOSE, NEARLY = 1_000, 0.001, 0.5  # see `Restriction.is_nearly_all`


@dataclass(frozen=True)
class Restriction:
    """The options that answers within the caps may hold, as a problem of their own."""

    kept: tuple[int, ...]  # in the numbers of the whole problem
    problem: ExtractionProblem
    relaxed: Relaxation

    @property
    def bound(self) -> int:
        return self.relaxed.bound

    def within(self, cap: int) -> tuple[int, ...]:
        """Options that answers worth at most `cap` may hold, in the numbers of the whole."""
        return at_places(self.kept, self.relaxed.within(cap))

    def is_nearly_all(self, few: tuple[int, ...], worth: int) -> bool:
        """Whether a look among these takes as long as among all that may be better than an answer.

        It proves less, and does not find much where the answer is close to the bound.
        """
        if len(few) <= SMALL or worth > self.bound * (1 + CLOSE):
            return False
        return len(few) > NEARLY * len(self.within(worth))


def at_places(kept: tuple[int, ...], places: Iterable[int]) -> tuple[int, ...]:
    """These places of what is kept."""
    return tuple(kept[i] for i in places)


@dataclass(frozen=True)
class Minimum:
    """One solve: optimal | wall | interrupted | memory | infeasible | unknown, and its bound.

    `proof` says what the bound is from: `relaxation` (of the whole program, met by the answer) or
    `search`. `stage` is where it was looked for.
    """

    status: str
    answer: Answer | None = None
    bound: int = 0
    proof: str = "search"
    stage: Restriction | None = None


@dataclass(frozen=True)
class Outcome:
    """The best answer found; `status` as that of the solve that ended worst."""

    status: str
    answer: Answer | None = None
    bounds: dict[str, int] = field(default_factory=dict)
    proofs: dict[str, str] = field(default_factory=dict)  # per goal whose bound is met
    values: dict[str, int] = field(default_factory=dict)  # what goals in order were minimised to
    weights: dict[str, int] = field(default_factory=dict)  # of goals in one sum

    def results(
        self, problem: ExtractionProblem, requests: tuple[GoalRequest, ...]
    ) -> tuple[tuple[str, GoalResult], ...]:
        """All goals, requested ones first; those not asked for have the trivial bound."""
        assert self.answer is not None
        values = problem.values(self.answer)
        names = dict.fromkeys([*(r.name for r in requests), *values])
        found = []
        for n in names:
            bound = min(self.bounds.get(n, floor(problem, n)), values[n])
            proof = self.proofs.get(n, "") if bound == values[n] else ""
            found.append((n, GoalResult(values[n], bound, proof)))
        return tuple(found)


def floor(problem: ExtractionProblem, goal: str) -> int:
    """A bound every answer keeps, without a search."""
    if goal == "memory":
        return problem.fixed_bytes
    if goal in problem.kept:
        return max(r.base for r in problem.kept[goal])
    return int(goal == "dispatches" and bool(problem.roots))
