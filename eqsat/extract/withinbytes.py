"""Sums over dispatches at the least within a cap of bytes, in any order, without rows of bytes.

What bytes rule out, they rule out option by option (`solve.fits`). Among what is left a sum is
minimised as if there were no bytes. That bounds every answer within the cap, whatever its order;
and the answer found nearly always has an order that keeps the cap, which is the proof. Rows of what
is live when would take most of the time, and are rarely needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from eqsat.extract.candidates.assemble import Assembly, Choices
from eqsat.extract.candidates.free import unordered
from eqsat.extract.candidates.freeoptions import FreeOptions
from eqsat.extract.candidates.variants import Variant
from eqsat.extract.everyorder import EveryOrder
from eqsat.extract.ordered import SearchLimits, Sequenced, in_best_order
from eqsat.extract.ragged import Ints
from eqsat.extract.solve.fits import fitting
from eqsat.extract.solve.freerows import free_relaxation
from eqsat.extract.solve.freetable import presolved
from eqsat.extract.solve.linear import TIE_BREAK
from eqsat.extract.solve.objective import Objective
from eqsat.extract.solve.outcome import Minimum
from eqsat.extract.solve.problem import Answer
from eqsat.extract.solve.relax import MEMORY, Relaxation
from eqsat.extract.survivors import SPREADS
from eqsat.model.cycles import uncollected
from eqsat.model.selection import Group

OPEN = 1 << 62  # more than any goal is worth
FEW = 6_000  # options: so many are searched at once, and not those near the bound first
ROUNDS, ENOUGH = 4, 0.75  # of options left out; if more of them are left, it is not worth its time
SHARE = 0.4  # of the time there is, for one search


@dataclass(frozen=True)
class KnownAnswer:
    """An answer, as groups in their order, and what it is worth by every goal."""

    values: Mapping[str, int]
    groups: Sequence[Group]

    @staticmethod
    def of(found: Sequenced) -> KnownAnswer:
        values = found.assembly.problem.values(found.answer)
        return KnownAnswer(values | {TIE_BREAK: found.value(TIE_BREAK)}, found.groups)

    def value(self, goal: str) -> int:
        return self.values.get(goal, OPEN)

    def keeps(self, caps: Mapping[str, int]) -> bool:
        """Whether the answer is worth no more than this, goal by goal."""
        return all(self.value(g) <= cap for g, cap in caps.items())


@dataclass(frozen=True)
class LeastSum:
    """A sum is at least `bound` in any order; what proves it; the best answer known.

    `cap` is what it may be at most. `within` says what answers hold that are worth so much at most.
    """

    goal: str
    cap: int
    bound: int
    proof: str
    best: KnownAnswer | None
    options: Ints
    relaxed: Relaxation

    @property
    def is_met(self) -> bool:
        """Whether the best answer known is as good as any."""
        return self.best is not None and self.best.value(self.goal) <= self.bound

    @property
    def is_infeasible(self) -> bool:
        """Whether no answer keeps the caps, which is proven."""
        return self.bound > self.cap

    @property
    def worth(self) -> int:
        """What an answer that is looked for is worth at most."""
        return self.cap if self.best is None else min(self.cap, self.best.value(self.goal) - 1)

    def within(self, cap: int) -> Ints:
        return self.options[list(self.relaxed.within(cap))]


@dataclass
class WithinBytes:
    """Questions about all options, or those that fit into `most` bytes one by one, in any order."""

    choices: Choices
    limits: SearchLimits
    most: int = OPEN
    # answers in their best order, and what was asked of all options
    found: dict[Answer, Sequenced | None] = field(default_factory=dict)
    sums: dict[str, LeastSum | None] = field(default_factory=dict)

    @cached_property
    def free(self) -> FreeOptions:
        free = FreeOptions.floored(self.choices.variants)
        small = np.flatnonzero(free.own_bytes <= self.most)
        return (free if len(small) == len(free) else free.take(small).presolved()).asked()

    def cut(self, most: int) -> None:
        """From now on about options that fit into so many bytes, if nothing was asked so far."""
        if "free" not in self.__dict__:
            self.most = most

    @cached_property
    def options(self) -> tuple[Variant, ...]:
        return self.free.objects()

    @cached_property
    def every(self) -> EveryOrder:
        with uncollected():
            variants, found = self.choices.variants, self.options
            free = unordered(variants, found)
        candidates = tuple(v.candidate for v in found)
        sides = self.choices.removed, self.choices.cuts, variants
        assembly = Assembly(variants.pool, free, candidates, *sides)
        return EveryOrder(assembly, self.limits.search(assembly, {}))

    @property
    def goals(self) -> tuple[str, ...]:
        """Sums over dispatches."""
        return tuple(self.choices.variants.goals)

    def fitting(self, cap: int, among: Ints | None = None) -> Ints:
        """Options that answers of at most so many bytes may hold; none if there is no answer."""
        problem = self.every.search.problem
        if among is None:
            return np.array(self.every.search.fitting(cap), dtype=np.int64)
        small = problem.restricted(tuple(among.tolist()))
        return among[list(fitting(small, cap))]  # type: ignore[arg-type]

    def alone(self, goal: str) -> LeastSum | None:
        """The sum's relaxation, whatever the other goals; None if there is no answer."""
        if goal not in self.sums:
            every = np.arange(len(self.free), dtype=np.int64)
            relaxed = self._relaxed(goal, {}, every)
            self.sums[goal] = relaxed and LeastSum(
                goal, OPEN, relaxed.bound, "relaxation", None, every, relaxed
            )
        return self.sums[goal]

    def least(
        self, goal: str, caps: Mapping[str, int], among: Ints, known: KnownAnswer | None
    ) -> LeastSum | None:
        """The sum at the least within the caps, in any order; None: nothing is known.

        among: options that answers within the caps hold. known: the best answer known so far that
        keeps them.
        """
        useful = presolved(self.free.problem.take(among))
        among = among[useful]
        relaxed = self._relaxed(goal, caps, among)
        if relaxed is None:
            return None
        cap = caps.get(goal, OPEN)
        found = LeastSum(goal, cap, relaxed.bound, "relaxation", known, among, relaxed)
        for near in (*self._near(found), OPEN):
            if not found.is_met and found.bound <= min(near, found.worth):
                found = self._searched(found, caps, min(near, found.worth))
        return found

    def _relaxed(self, goal: str, caps: Mapping[str, int], among: Ints) -> Relaxation | None:
        sums = {g: v for g, v in caps.items() if g in self.goals and g != goal}
        table = self.free.problem.take(among)
        found = free_relaxation(table, self.goals, {goal: 1}, sums)
        # no solution is no proof where sums round
        return found or (free_relaxation(table, self.goals, {goal: 1}) if sums else None)

    def _near(self, found: LeastSum) -> list[int]:
        """How much answers are worth that are looked for first, if there are many options."""
        if len(found.relaxed.within(found.worth)) <= FEW:
            return []
        return [int(found.relaxed.bound * (1 + s)) for s in SPREADS]

    def _searched(self, found: LeastSum, caps: Mapping[str, int], worth: int) -> LeastSum:
        """The result of a search among the options of answers with at most this value."""
        goal = found.goal
        near, solved = self._solved(goal, caps, found.within(worth), worth)
        bound = worth + 1 if solved.status == "infeasible" else min(solved.bound, worth + 1)
        if bound > found.bound:
            found = replace(found, bound=bound, proof="search")
        best = None if solved.answer is None else self.in_order(solved.answer)
        if best is not None and not best.keeps(caps):
            best = self._tied(goal, caps, near, best.value(goal))
        if best is None or not best.keeps(caps):
            return found
        if found.best is None or best.value(goal) < found.best.value(goal):
            found = replace(found, best=KnownAnswer.of(best))
        return found

    def _solved(
        self, goal: str, caps: Mapping[str, int], near: Ints, worth: int
    ) -> tuple[Ints, Minimum]:
        """The best answer of these options by the sum, bytes aside; and what is left of them.

        What does not fit lifts the bound, and what the bound rules out leaves others no room.
        """
        none = np.zeros(0, dtype=np.int64), Minimum("infeasible")
        needs_some = bool(self.every.search.problem.roots)
        for _ in range(ROUNDS if MEMORY in caps else 0):
            before = len(near)
            near = self.fitting(caps[MEMORY], near)
            relaxed = self._relaxed(goal, caps, near) if len(near) else None
            if relaxed is None or relaxed.bound > worth:
                return none if needs_some else (near, Minimum("unknown"))
            near = near[list(relaxed.within(worth))]
            if len(near) > ENOUGH * before:
                break
        if not len(near) and needs_some:
            return none
        return near, self._minimised(goal, caps, near)

    def _minimised(self, goal: str, caps: Mapping[str, int], among: Ints) -> Minimum:
        sums = {g: v for g, v in caps.items() if g in self.goals and g != goal}
        seconds = self.limits.seconds * SHARE
        return self.every.search.minimise(
            Objective({goal: 1}, sums, tuple(among.tolist())), None, seconds
        )

    def _tied(
        self, goal: str, caps: Mapping[str, int], among: Ints, value: int
    ) -> Sequenced | None:
        """Of the answers worth so much one that converts least: it keeps little beside."""
        found = self._minimised(TIE_BREAK, {**caps, goal: value}, among)
        return None if found.answer is None else self.in_order(found.answer)

    def in_order(self, answer: Answer) -> Sequenced | None:
        """An answer of the problem without an order in its best one; None if it has none."""
        if answer not in self.found:
            self.found[answer] = in_best_order(self.every.free, answer)
        return self.found[answer]
