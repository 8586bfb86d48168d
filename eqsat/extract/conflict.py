"""Which budgets exclude each other, and what each of them would have to be at the least."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

from eqsat.extract.minimiser import Minimiser
from eqsat.model.deadline import OutOfTime

MANY = 10_000  # columns: more are not searched for the sake of a message


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
    """Questions about budgets that no choice keeps together."""

    asked: Minimiser
    budget: Mapping[str, int]
    known: dict[tuple[str, tuple[str, ...]], Need | None] = field(default_factory=dict)

    def need(self, goal: str, held: tuple[str, ...] = ()) -> Need | None:
        """None if no choice keeps the budgets that are held, which is proven."""
        if (goal, held) not in self.known:
            self.known[goal, held] = Need(goal, 0, False, held)  # nobody knows
            with suppress(OutOfTime):
                self.known[goal, held] = self._need(goal, held)
        return self.known[goal, held]

    def _need(self, goal: str, held: tuple[str, ...]) -> Need | None:
        caps = {g: self.budget[g] for g in held}
        is_look = len(self.asked.choice) > MANY
        found = self.asked.least({goal: 1}, caps, is_look=is_look)
        if found.status == "infeasible":
            return None
        least = max(found.bound, self.asked.least_alone(goal))
        best = None if found.best is None else self.asked.choice.value(goal, found.best)
        return Need(goal, least, best is not None and best <= least, held)

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
