"""Memory first, or under a budget: what does not fit is never stated under an order.

A known answer says how many bytes are enough, and must-analysis (`solve.fits`) which options fit
into them, in any order. If none fit into less, the answer's peak is proven. The goal behind is then
relaxed without an order, among what fits: what lifts its bound above the best known answer goes,
too. What is left, a few options of a hundred, is the problem from then on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from eqsat.extract.candidates.assemble import Assembly, Choices
from eqsat.extract.candidates.free import unordered
from eqsat.extract.candidates.freeoptions import FreeOptions
from eqsat.extract.candidates.places import answer_places
from eqsat.extract.candidates.variants import Variant
from eqsat.extract.everyorder import EveryOrder
from eqsat.extract.ordered import Limits, Ordered, greedily, in_best_order
from eqsat.extract.solve.freerows import free_relaxation
from eqsat.extract.solve.freetable import presolved
from eqsat.extract.solve.relax import MEMORY
from eqsat.extract.solve.requests import limit
from eqsat.extract.survivors import SPREADS
from eqsat.model.cycles import uncollected
from eqsat.model.selection import GoalRequest, Group, Selection

SHARE = 0.4  # of the time there is, for the least peak in any order; and for one look for an answer
ROUNDS = 4  # of better answers


@dataclass(frozen=True)
class Known:
    """An answer, as groups in their order, and what it is worth by every goal."""

    values: Mapping[str, int]
    groups: Sequence[Group]

    @staticmethod
    def of(found: Ordered) -> Known:
        return Known(found.assembly.problem.values(found.answer), found.groups)

    def keeps(self, caps: Mapping[str, int]) -> bool:
        """Whether the answer is worth no more than this, goal by goal."""
        return all(self.values[g] <= cap for g, cap in caps.items())


@dataclass(frozen=True)
class Fitting:
    """Options that answers no worse than the best known one hold.

    `least` says per goal what no answer is below in any order, and what proves it.
    """

    options: tuple[Variant, ...]
    best: Known
    least: Mapping[str, tuple[int, str]]


@dataclass
class _Bytes:
    """One question about what fits; `best` is the best known answer, as groups in their order."""

    choices: Choices
    goals: tuple[GoalRequest, ...]
    budget: Mapping[str, int]
    limits: Limits
    reference: Mapping[str, int]
    best: Known
    least: dict[str, tuple[int, str]] = field(default_factory=dict)
    kept: tuple[int, ...] = ()  # options that the caps leave

    @cached_property
    def free(self) -> FreeOptions:
        """All that fit, one by one, into what the best known answer needs."""
        cap = self.budget.get(MEMORY)
        if self.goals[0].name == MEMORY:
            most = limit(self.goals[0], self.best.values[MEMORY], self.reference)
            cap = most if cap is None else min(most, cap)
        assert cap is not None
        free = FreeOptions.of(self.choices.variants)
        return free.take(np.flatnonzero(free.own_bytes <= cap)).presolved()

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
        return EveryOrder(assembly, self.limits.search(assembly, self.budget))

    def memory(self) -> bool:
        """The least peak in any order; whether it is proven, or else just bounded."""
        for _ in range(ROUNDS):
            value, seconds = self.best.values[MEMORY], self.limits.seconds * SHARE
            found = self.every.least({MEMORY: 1}, self.budget, value, seconds)
            self.least[MEMORY] = found.bound or value * (found.status == "proven"), found.proof
            if found.status != "better" or found.best is None:
                return found.status == "proven"
            self.best = Known.of(found.best)
        return False

    def sums(self, goal: str, request: GoalRequest, caps: dict[str, int]) -> None:
        """Leave out what only answers hold that are worse by this goal, under these caps."""
        free = self.free.take(np.array(self.kept, dtype=np.int64))
        useful = presolved(free.problem)
        problem, kept = free.problem.take(useful), np.array(self.kept)[useful]
        goals = tuple(self.choices.variants.goals)
        sums = {g: v for g, v in caps.items() if g in goals}
        relaxed = free_relaxation(problem, goals, {goal: 1}, sums)
        if relaxed is None:
            return
        last = 0
        for spread in SPREADS:
            cap = int(relaxed.bound * (1 + spread))
            near = relaxed.within(cap)
            if self.best.values[goal] <= cap:
                break
            if len(near) > last:
                last = len(near)
                self._look(goal, kept[list(near)].tolist(), caps)
        most = limit(request, self.best.values[goal], self.reference)
        self.kept = tuple(kept[list(relaxed.within(most))].tolist())
        self.least[goal] = relaxed.bound, "relaxation"

    def _look(self, goal: str, among: Sequence[int], caps: dict[str, int]) -> None:
        """For a better answer by this goal among a few options, under the best one's order."""
        there = self.among(among)
        sums = {g: v for g, v in caps.items() if g != MEMORY}  # rows of bytes are slow to relax
        search = self.limits.search(there, sums, *there.locate(self.best.groups))
        seconds = self.limits.seconds * SHARE
        found = search.tried({goal: 1}, dict(caps), None, seconds)
        better = None if found.answer is None else in_best_order(there, found.answer)
        if (
            better is not None
            and better.keeps(caps)
            and better.value(goal) < self.best.values[goal]
        ):
            self.best = Known.of(better)

    def among(self, kept: Sequence[int]) -> Assembly:
        """Some of the options, under the order of the best known answer."""
        pool = self.choices.variants.pool
        places = answer_places(pool.space, pool.held, self.best.groups)
        with uncollected():
            few = self.choices.among(tuple(self.options[i] for i in kept))
            return few.ordered(places)


def fitting(
    choices: Choices,
    goals: tuple[GoalRequest, ...],
    budget: Mapping[str, int],
    limits: Limits,
    baseline: Selection | None,
) -> Fitting | None:
    """Options that fit, without those that make the goal behind worse.

    None where no answer is known that keeps the budgets. OutOfTime if there is no time to state the
    problem without an order.
    """
    best = _known(choices, budget, baseline)
    if best is None:
        return None
    reference = {} if baseline is None else {n: r.value for n, r in baseline.goals}
    asked = _Bytes(choices, goals, budget, limits, reference, best)
    caps, behind = dict(budget), goals
    if goals[0].name == MEMORY:
        is_proven = asked.memory()
        most = limit(goals[0], asked.best.values[MEMORY], reference)
        caps[MEMORY] = min(most, caps.get(MEMORY, most))
        behind = goals[1:] if is_proven else ()
    asked.kept = asked.every.search.fitting(caps[MEMORY])
    if behind and behind[0].name in choices.variants.goals:
        asked.sums(behind[0].name, behind[0], caps)
    return Fitting(tuple(asked.options[i] for i in asked.kept), asked.best, asked.least)


def _known(choices: Choices, budget: Mapping[str, int], baseline: Selection | None) -> Known | None:
    """A known answer that keeps the budgets: the baseline, or of its own problem a greedy one."""
    if baseline is not None:
        known = [Known({n: r.value for n, r in baseline.goals}, baseline.groups)]
    else:
        with uncollected():
            assembly = choices.ordered()
        orders = (in_best_order(assembly, a) for a in greedily(assembly, MEMORY))
        known = [Known.of(o) for o in orders if o is not None]
    return min((k for k in known if k.keeps(budget)), key=lambda k: k.values[MEMORY], default=None)
