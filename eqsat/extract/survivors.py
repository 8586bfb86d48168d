"""What is left of all options once the first goal is bounded without an order.

The linear relaxation of the problem without an order is a relaxation of every order's: its bound
holds in all of them, and an option whose reduced cost lifts it above a known answer is in no answer
as good as that one, whatever its order. A few per cent of the options survive; nothing else has to
be stated under an order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from eqsat.extract.candidates.free import unordered
from eqsat.extract.candidates.freeoptions import FreeOptions
from eqsat.extract.candidates.variants import Variant, Variants
from eqsat.extract.solve.freerows import free_relaxation
from eqsat.extract.solve.relax import MEMORY, Relaxation, relaxation
from eqsat.model.deadline import OutOfTime

# how far above the bound an answer is looked for, one after another, until one is as good
SPREADS = (0.0, 0.0005, 0.003, 0.02, 0.1)
Find = Callable[[tuple[Variant, ...]], int | None]


@dataclass(frozen=True)
class Survivors:
    """`options`: what answers within the caps and worth at most `cap` are made of, in any order.

    They have no moments yet (`Places.moments`). No answer within the caps is worth less than
    `bound`, and none that keeps the budgets needs less than `least_bytes`. Without a `cap` no
    answer is known, and the options are all that some answer may need. Of goals in one weighted sum
    `alone` says what each is at least in any answer that keeps the budgets, whatever the others.
    """

    options: tuple[Variant, ...]
    bound: int
    cap: int | None
    least_bytes: int
    alone: Mapping[str, int] = field(default_factory=dict)


def narrowed(
    variants: Variants,
    weights: Mapping[str, int],
    caps: Mapping[str, int],
    known: int | None,
    find: Find,
    loose: Callable[[int], int] = lambda value: value,
) -> Survivors | None:
    """Options that survive the relaxation of Σ weight · goal; None if no answer keeps the caps.

    known: what an answer that keeps the caps is worth, if there is one. find: looks among few
    options for an answer that keeps them, and tells what it is worth. loose: what an answer may be
    worth for the goals behind if the best one known is worth so much. OutOfTime if there is no time
    to state the problem.

    Sums over dispatches are relaxed first. What memory and kept weights add needs far more rows, so
    they are stated for what survives that; if there is no time for them, it is left out.
    """
    free = _within_memory(FreeOptions.of(variants), caps)
    if free is None:
        return None
    look, bound = _Look(find, known), 0
    alone = _alone(free, weights) if len(weights) > 1 else {}
    sums = {g: w for g, w in weights.items() if g in variants.goals}
    cap, least_bytes = None if known is None else loose(known), free.least_bytes
    if sums:
        relaxed = _of_sums(free, sums, weights, caps)
        if relaxed is None:
            return None
        look.near(free, relaxed)
        bound = relaxed.bound
        cap = None if look.best is None else loose(look.best)
        free = _within(free, relaxed, cap).presolved()
        if cap is not None and look.best is not None and look.best > bound:
            tighter = _of_sums(free, sums, weights, caps, circles=True)
            if tighter is not None:
                look.near(free, tighter)
                # what is worth more than the cap is not among the options any more
                bound, cap = max(bound, min(tighter.bound, cap)), loose(look.best)
                free = _within(free, tighter, cap).presolved()
    if len(sums) < len(weights) or not caps.keys() <= variants.goals.keys():
        relaxed = _of_all(free, weights, caps)
        if relaxed is not None:
            look.near(free, relaxed)
            bound = max(bound, relaxed.bound if cap is None else min(relaxed.bound, cap))
            cap = None if look.best is None else loose(look.best)
            free = _within(free, relaxed, cap)
    return Survivors(free.objects(), bound, cap, least_bytes, alone)


def _alone(free: FreeOptions, weights: Mapping[str, int]) -> dict[str, int]:
    """What each goal is at least, whatever the others."""
    goals, found = tuple(free.variants.goals), {MEMORY: free.least_bytes}
    for goal in weights.keys() & set(goals):
        relaxed = free_relaxation(free.problem, goals, {goal: 1})
        found |= {} if relaxed is None else {goal: relaxed.bound}
    return found


def _within_memory(free: FreeOptions, caps: Mapping[str, int]) -> FreeOptions | None:
    """Without options that a budget of memory does not hold; None if it holds no answer."""
    if MEMORY not in caps:
        return free
    small = np.flatnonzero(free.own_bytes <= caps[MEMORY])
    if len(small) < len(free):
        free = free.take(small).presolved()
    return None if free.least_bytes > caps[MEMORY] or not len(free) else free


def _of_sums(
    free: FreeOptions,
    sums: Mapping[str, int],
    weights: Mapping[str, int],
    caps: Mapping[str, int],
    *,
    circles: bool = False,
) -> Relaxation | None:
    """What sums over dispatches come to, and what memory is at least; None: nothing keeps the caps.

    Kept weights are at least none.
    """
    goals = free.variants.goals
    limits = {g: v for g, v in caps.items() if g in goals}
    found = free_relaxation(free.problem, tuple(goals), sums, limits, circles=circles)
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


def _within(free: FreeOptions, relaxed: Relaxation, cap: int | None) -> FreeOptions:
    """Options of answers worth at most so much."""
    return free if cap is None else free.take(np.array(relaxed.within(cap), dtype=np.int64))


@dataclass
class _Look:
    """The best answer known so far, and how others are found."""

    find: Find
    best: int | None

    def near(self, free: FreeOptions, relaxed: Relaxation) -> None:
        """Look for answers close to the bound, until one is as good as the options allow."""
        last = 0
        for spread in SPREADS:
            cap = int(relaxed.bound * (1 + spread))
            if self.best is not None and self.best <= cap:
                break
            near = np.array(relaxed.within(cap), dtype=np.int64)
            if len(near) > last:
                last = len(near)
                value = self.find(free.objects(near))
                if value is not None and (self.best is None or value < self.best):
                    self.best = value
