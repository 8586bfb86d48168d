"""Which budgets exclude each other, and what each of them would have to be at the least."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from eqsat.extract.candidates.assemble import Assembly
from eqsat.extract.everyorder import MEMORY, EveryOrder
from eqsat.extract.ordered import Sequenced, in_best_order
from eqsat.extract.solve.anyorder import AnyOrder
from eqsat.extract.solve.fits import fitting, least_fitting
from eqsat.extract.solve.goals import Search
from eqsat.extract.solve.objective import Objective
from eqsat.extract.solve.outcome import at_places
from eqsat.model.deadline import OutOfTime

MANY = 10_000  # options: more are not searched for the sake of a message


@dataclass(frozen=True)
class Need:
    """What a goal needs at the least while others are held at their budgets, in any order.

    `is_exact`: some answer needs no more; else the value is a bound.
    """

    goal: str
    value: int
    is_exact: bool
    held: tuple[str, ...] = ()


@dataclass
class Budgets:
    """Questions about budgets that no choice keeps together; they end with the deadline."""

    assembly: Assembly
    every: EveryOrder
    budget: Mapping[str, int]
    deadline: float  # of time.monotonic()
    known: dict[tuple[str, tuple[str, ...]], Need | None] = field(default_factory=dict)

    def need(self, goal: str, held: tuple[str, ...] = ()) -> Need | None:
        """None if no choice keeps the budgets that are held, which is proven."""
        if (goal, held) not in self.known:
            with suppress(OutOfTime):
                self.known[goal, held] = self._asked(goal, held)
            self.known.setdefault((goal, held), Need(goal, 0, False, held))  # nobody knows
        return self.known[goal, held]

    def _asked(self, goal: str, held: tuple[str, ...]) -> Need | None:
        caps = {g: self.budget[g] for g in held}
        sums = {g: v for g, v in caps.items() if g != MEMORY}  # of which relaxations are quick
        search = replace(self.every.search, budget=sums)
        if goal == MEMORY:
            found = self._bytes(search, sums, held)
            if found is None or found.is_exact or len(search.problem.options) > MANY:
                return found
        if len(search.problem.options) > MANY:
            stage = search.stage({goal: 1}, caps, None)
            return stage and Need(goal, self._least(goal, stage.bound), False, held)
        asked = EveryOrder(self.every.free, search)
        found = asked.least({goal: 1}, caps, None, self.deadline - time.monotonic())
        if found.status == "proven":
            return None
        least = self._least(goal, found.bound)
        best = found.best if found.status == "better" else None
        if best is None or best.value(goal) > least:
            best = self._in_the_programs_order(goal, caps)
        return Need(goal, least, best is not None and best.value(goal) <= least, held)

    def _bytes(self, search: Search, sums: dict[str, int], held: tuple[str, ...]) -> Need | None:
        """The fewest bytes that anything fits into, and whether the fastest of that needs no more.

        None if no choice keeps the budgets that are held.
        """
        cap, unit = self.budget.get(MEMORY, 0), search.problem.byte_unit
        bound = self._least(MEMORY, 0)
        if MEMORY in self.budget and search.problem.roots and not search.fitting(cap):
            bound = max(bound, (cap // unit + 1) * unit)  # all peaks are multiples
        known = Need(MEMORY, bound, False, held)
        with suppress(OutOfTime):
            stage = search.stage({"time": 1}, sums, None)
            if stage is None:
                return None
            assert isinstance(stage.problem, AnyOrder)
            least = least_fitting(stage.problem, stage.problem.most_bytes)
            if least is None:
                return None
            known = Need(MEMORY, least, False, held)
            among = at_places(stage.kept, fitting(stage.problem, least))
            seconds = self.deadline - time.monotonic()
            found = search.minimise(Objective({"time": 1}, sums, among), None, seconds)
            best = None if found.answer is None else in_best_order(self.every.free, found.answer)
            is_exact = best is not None and best.peak_bytes <= least and best.keeps(sums)
            return replace(known, is_exact=is_exact)
        return known

    def _least(self, goal: str, bound: int) -> int:
        """No less than the relaxation says without the others."""
        if goal == MEMORY:
            return max(bound, self.every.search.least_bytes)
        relaxed = self.every.search.relaxation(goal)
        return bound if relaxed is None else max(bound, relaxed.bound)

    def _in_the_programs_order(self, goal: str, caps: dict[str, int]) -> Sequenced | None:
        """An answer whose peak is not a bound only."""
        search = replace(self.every.search, problem=self.assembly.problem, relaxed={})
        seconds = self.deadline - time.monotonic()
        found = search.minimise(Objective({goal: 1}, caps), None, seconds)
        best = None if found.answer is None else in_best_order(self.assembly, found.answer)
        return best if best is not None and best.keeps(caps) else None

    @cached_property
    def alone(self) -> dict[str, Need | None]:
        """Per budget: what any choice needs."""
        return {goal: self.need(goal) for goal in self.budget}

    @property
    def impossible(self) -> list[str]:
        """Budgets that no choice keeps, whatever the others."""
        return [g for g in self.budget if self.least(g) > self.budget[g]]

    def least(self, goal: str) -> int:
        """What any choice needs of a goal."""
        need = self.alone[goal]
        return 0 if need is None else need.value

    def conflict(self) -> tuple[Need, ...]:
        """Budgets of which no choice keeps all, and some choice all but any one, as far as known.

        Each with the least value that would do while all other budgets are held (where these
        exclude each other as well: those of the conflict). Nothing if it cannot be proven that
        there is such a conflict.
        """
        left = tuple(self.budget)
        for goal in self.budget:
            if goal in left and len(left) > 1:
                rest = tuple(g for g in left if g != goal)
                if self._exclude(rest):
                    left = rest
        if not self._exclude(left):
            return ()
        found = [self._relaxed(g, left) for g in left]
        return tuple(n for n in found if n is not None)

    def _relaxed(self, goal: str, conflict: tuple[str, ...]) -> Need | None:
        others = tuple(g for g in self.budget if g != goal)
        found = self.need(goal, others)
        if found is None and len(conflict) <= len(others):
            found = self.need(goal, tuple(g for g in conflict if g != goal))
        return found

    def _exclude(self, goals: tuple[str, ...]) -> bool:
        """Whether it is proven that no choice keeps all of these."""
        first, *others = goals
        found = self.need(first, tuple(others))
        return found is None or found.value > self.budget[first]
