"""What is left of all options once the first goal is bounded without an order.

The linear relaxation of the problem without an order is a relaxation of every order's: its bound
holds in all of them, and an option whose reduced cost lifts it above a known answer is in no answer
as good as that one, whatever its order. A few per cent of the options survive; nothing else has to
be stated under an order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from eqsat.extract.candidates.free import unordered
from eqsat.extract.candidates.freeoptions import FreeOptions
from eqsat.extract.candidates.tabulate import option_table
from eqsat.extract.candidates.variants import Variant, Variants
from eqsat.extract.lateplans import with_late_plans
from eqsat.extract.ragged import distinct
from eqsat.extract.solve.freerows import free_relaxation
from eqsat.extract.solve.relax import MEMORY, Relaxation, relaxation
from eqsat.model.deadline import OutOfTime, until

# how far above the bound an answer is looked for, one after another, until one is as good
SPREADS = (0.0, 0.0005, 0.003, 0.02, 0.1)
MOST = 20_000  # options that such a look may have: among more it takes longer than a relaxation
Find = Callable[[tuple[Variant, ...]], int | None]
Relax = Callable[[FreeOptions], Relaxation | None]


@dataclass(frozen=True)
class Survivors:
    """`options`: what answers within the caps and worth at most `cap` are made of, in any order.

    They have no moments yet (`Timetable.moments`). No answer within the caps is worth less than
    `bound`. Without a `cap` no answer is known, and the options are all that some answer may need.
    Of goals in one weighted sum `alone` says what each is at least in any answer that keeps the
    budgets, whatever the others; of goals in order, what those behind are at least.
    """

    options: tuple[Variant, ...]
    bound: int
    cap: int | None
    alone: Mapping[str, int] = field(default_factory=dict)


def narrowed(
    variants: Variants,
    weights: Mapping[str, int],
    caps: Mapping[str, int],
    known: int | None,
    find: Find,
    later: Collection[str] = (),
    loose: Callable[[int], int] = lambda value: value,
    enough: float = math.inf,
) -> Survivors | None:
    """Options that survive the relaxation of Σ weight · goal; None if no answer keeps the caps.

    known: what an answer that keeps the caps is worth, if there is one. find: looks among few
    options for an answer that keeps them, and returns its value. loose: what an answer may be worth
    for the goals behind if the best one known is worth so much. enough: when (of time.monotonic())
    no further relaxation is begun. OutOfTime if that was too soon; then an answer was looked for
    near the last one there was.
    """
    look = _Look(find, known, loose)
    try:
        with until(enough):
            return _narrowed(variants, weights, caps, later, look)
    except OutOfTime:
        look.at_last()
        raise


def _narrowed(
    variants: Variants,
    weights: Mapping[str, int],
    caps: Mapping[str, int],
    later: Collection[str],
    look: _Look,
) -> Survivors | None:
    """Sums over dispatches are relaxed first.

    What memory and kept weights add needs far more rows, so they are stated for what survives that;
    if there is no time for them, it is left out.
    """
    sums = {g: w for g, w in weights.items() if g in variants.goals}
    is_sum = len(weights) == 1 and weights.keys() <= variants.goals.keys()
    free, bound = FreeOptions.made(variants, option_table(variants, floored=is_sum)), 0
    alone = _alone(free, weights) if len(weights) > 1 else {}
    if sums and (look.best is None or look.best > bound):

        def relax(few: FreeOptions) -> Relaxation | None:
            return _of_sums(few, sums, weights, caps)

        every = with_late_plans(free, look.noting(relax), look)
        if every is None:
            return None
        free = every
        relaxed = _of_sums(free, sums, weights, caps)
        if relaxed is None:
            return None
        free, bound = look.beside(free, relaxed, bound)
        free = free.presolved()
    if len(sums) < len(weights) or not caps.keys() <= variants.goals.keys():
        relaxed = _of_all(free, weights, caps)
        if relaxed is not None:
            free, bound = look.beside(free, relaxed, bound)
    if free.problem.blocks is not None:
        alone |= _behind(free, weights, later, look.cap)
    return Survivors(free.objects(), bound, look.cap, alone)


def _behind(
    free: FreeOptions, weights: Mapping[str, int], later: Collection[str], cap: int | None
) -> dict[str, int]:
    """What goals behind the first one are at least, also where equal blocks differ."""
    goals, found = tuple(free.variants.goals), dict[str, int]()
    limits = {} if cap is None else {g: cap for g in weights}
    for goal in (g for g in later if g in goals):
        relaxed = free_relaxation(free.problem, goals, {goal: 1}, limits)
        found |= {} if relaxed is None else {goal: relaxed.bound}
    return found


def _alone(free: FreeOptions, weights: Mapping[str, int]) -> dict[str, int]:
    """What each goal is at least, whatever the others."""
    goals, found = tuple(free.variants.goals), {MEMORY: free.least_bytes}
    for goal in weights.keys() & set(goals):
        relaxed = free_relaxation(free.problem, goals, {goal: 1})
        found |= {} if relaxed is None else {goal: relaxed.bound}
    return found


def _of_sums(
    free: FreeOptions,
    sums: Mapping[str, int],
    weights: Mapping[str, int],
    caps: Mapping[str, int],
) -> Relaxation | None:
    """What sums over dispatches come to, and what memory is at least; None: nothing keeps the caps.

    Kept weights are at least none.
    """
    goals = free.variants.goals
    limits = {g: v for g, v in caps.items() if g in goals}
    found = free_relaxation(free.problem, tuple(goals), sums, limits)
    if found is None or len(sums) == len(weights):
        return found
    least = weights.get(MEMORY, 0) * free.least_bytes
    return replace(found, least=found.least + least, unit=1)


def _of_all(
    free: FreeOptions, weights: Mapping[str, int], caps: Mapping[str, int]
) -> Relaxation | None:
    """With the rows of memory and kept weights; nothing if there is no time for them.

    Nor if they have no solution: that is no proof where sums round.
    """
    with suppress(OutOfTime):
        return relaxation(unordered(free.variants, free.objects()), weights, caps)
    return None


@dataclass
class _Look:
    """The best answer known so far, and how others are found."""

    find: Find
    best: int | None
    loose: Callable[[int], int]
    last: tuple[FreeOptions, Relaxation] | None = None  # what was relaxed, and what came of it

    @property
    def cap(self) -> int | None:
        """What an answer may be worth; None if none is known."""
        return None if self.best is None else self.loose(self.best)

    def beside(self, free: FreeOptions, relaxed: Relaxation, bound: int) -> tuple[FreeOptions, int]:
        """Options of answers that may be as good, and a proven lower bound of these.

        What is worth more than the cap that was known is not among the options any more.
        """
        cap = self.cap
        self.near(free, relaxed)
        bound = max(bound, relaxed.bound if cap is None else min(relaxed.bound, cap))
        return free.within(relaxed, self.cap), bound

    def noting(self, relax: Relax) -> Relax:
        """The same, keeping the last one for `at_last`, unless the deadline ended it."""

        def relaxed(free: FreeOptions) -> Relaxation | None:
            found = relax(free)
            if found is not None and found.support:
                self.last = free, found
            return found

        return relaxed

    def at_last(self) -> None:
        """Look for an answer near the last relaxation, where there is no time for another one.

        Dispatches of one op each are looked at as well, so that there is an answer.
        """
        if self.last is None:
            return
        free, relaxed = self.last
        near = np.array(relaxed.within(relaxed.bound), dtype=np.int64)
        value = self.find(free.objects(distinct(np.concatenate([near, free.single_ops]))))
        if value is not None and (self.best is None or value < self.best):
            self.best = value

    def near(self, free: FreeOptions, relaxed: Relaxation) -> None:
        """Look for answers close to the bound, until one is as good as the options allow."""
        last = 0
        for spread in SPREADS:
            cap = int(relaxed.bound * (1 + spread))
            if self.best is not None and self.best <= cap:
                break
            near = np.array(relaxed.within(cap), dtype=np.int64)
            if len(near) > MOST:
                break
            if len(near) > last:
                last = len(near)
                value = self.find(free.objects(near))
                if value is not None and (self.best is None or value < self.best):
                    self.best = value
