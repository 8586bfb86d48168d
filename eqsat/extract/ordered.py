"""An answer in an order of its own, and the limits of a search for one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eqsat.extract.candidates.assemble import Assembly
from eqsat.extract.order import best_order, graph_of
from eqsat.extract.solve.goals import Search
from eqsat.extract.solve.greedy import greedy
from eqsat.extract.solve.problem import Answer
from eqsat.model.selection import Group
from eqsat.model.stopping import INTERRUPTED, Stop


@dataclass(frozen=True)
class Sequenced:
    """An answer, in the numbers of a problem under its own order.

    `least_bytes`: no order of these dispatches needs less, if that is known.
    """

    assembly: Assembly
    answer: Answer
    least_bytes: int = 0

    @property
    def peak_bytes(self) -> int:
        return self.assembly.problem.peak_bytes(self.answer)

    @property
    def groups(self) -> tuple[Group, ...]:
        return self.assembly.groups(self.answer)

    def value(self, goal: str) -> int:
        return self.assembly.problem.value(goal, self.answer)

    def worth(self, weights: Mapping[str, int]) -> int:
        return self.assembly.problem.worth(self.answer, weights)

    def keeps(self, caps: Mapping[str, int]) -> bool:
        """Whether the answer is worth no more than this, goal by goal."""
        return all(self.value(g) <= limit for g, limit in caps.items())


@dataclass(frozen=True)
class SearchLimits:
    """When to stop looking, and for what seed."""

    deadline: float  # of time.monotonic()
    seed: int
    stop: Stop | None = None

    @property
    def seconds(self) -> float:
        """What is left; nothing if the search was asked to stop."""
        asked = self.stop is not None and self.stop.is_requested
        return 0.0 if asked else max(self.deadline - time.monotonic(), 0.0)

    @property
    def ended(self) -> str:
        """Why a search within these limits ended early."""
        return INTERRUPTED if self.stop is not None and self.stop.is_requested else "wall"

    def search(self, assembly: Assembly, budget: Mapping[str, int], *hints: Answer) -> Search:
        known = assembly.problem, dict(budget), self.deadline, self.seed, hints
        return Search(*known, stop=self.stop, free=assembly.free)


def in_best_order(assembly: Assembly, answer: Answer) -> Sequenced | None:
    """The answer under the best order found for its dispatches, in a problem of its own.

    It is left where it is if the order it has is as good. None if it has no order, which can only
    be in a problem without steps.
    """
    problem = assembly.problem
    try:
        best = best_order(graph_of(problem, answer))
    except ValueError:
        return None
    if problem.is_ordered and best.peak_bytes >= problem.peak_bytes(answer):
        return Sequenced(assembly, answer, best.bound_bytes)
    own = assembly.alone([answer[i] for i in best.order])
    return Sequenced(own, tuple(range(len(answer))), best.bound_bytes)


def under(assembly: Assembly, groups: Sequence[Group]) -> Sequenced | None:
    """The whole problem under the order of these groups, and they as its answer."""
    own = assembly.reordered(groups)
    return next((Sequenced(own, answer) for answer in own.locate(groups)), None)


def greedily(assembly: Assembly, goal: str) -> tuple[Answer, ...]:
    """Greedy answers, without regard to budgets."""
    kinds = assembly.pool.space.kinds
    singles = frozenset(
        i
        for i, c in enumerate(assembly.candidates)
        if sum(kinds[m] not in ("leaf", "view") for m in c.members) <= 1
        and len(assembly.problem.options[i].writes) == len(c.writes)
    )
    return greedy(assembly.problem, singles, goal)
