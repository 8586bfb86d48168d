"""The least peak of memory in any order, mostly without a row of bytes.

What fits into fewer bytes than a known answer takes (`memory.fits`) is all that better answers
hold. If it is nothing, the known answer is proven. Else a few caps between what is known to be too
little and the known peak are tried: the fastest of what fits into one is put into its best order.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eqsat.extract.choice.columns import MEMORY, Answer
from eqsat.extract.choice.linear import TIE_BREAK
from eqsat.extract.choice.relax import relaxation
from eqsat.extract.memory.fits import Fits, least_fitting
from eqsat.extract.memory.peakrows import InAnyOrder
from eqsat.extract.ragged import Ints

if TYPE_CHECKING:
    from eqsat.extract.least import Asked, Least

MANY = 2_000  # columns: with more, a peak is not searched for that is hardly less
SOME = 200  # columns: with fewer, every byte of a peak is proven
CLOSE = 10_000  # less by more than one part of so many
NEAR = 1_000  # parts of a peak: it is not searched under an order for less than one of them
LOOKS = 1  # for an answer among what fits into few bytes, in vain
ROUNDS = 3  # of a better answer, then better columns under its order


def peak(asked: Asked, places: Ints) -> Least:
    """The least peak within the caps, of answers made of these columns."""

    of = asked.of
    if asked.best is None:
        first = of.least({"time": 1}, asked.caps, among=places, is_look=asked.is_look)
        if first.best is None:
            return first
        asked.offer(first.best)
    if of.quick:
        return asked.told("gap", places)
    asked.raise_to(of.fits.least_bytes, "search")
    unit = of.choice.byte_unit
    status = "gap"
    for _ in range(ROUNDS):
        assert asked.best is not None
        status, is_better = _settled(asked, places, unit)
        if not is_better or asked.is_met:
            break
        _descend(asked, places)
    return _told(asked, status, places)


def _descend(asked: Asked, places: Ints) -> None:
    """Better columns under the order of the best answer, if few are left that fit."""
    kept = np.intersect1d(places, asked.of.fits.within(asked.value - 1))
    assert asked.best is not None
    if len(kept) <= MANY:
        near = np.union1d(kept, asked.best.columns)
        asked.descend(near, least=asked.bound + asked.value // NEAR)


def _told(asked: Asked, status: str, places: Ints) -> Least:
    from eqsat.extract.least import Least

    if asked.is_met:
        status = "optimal"
    value = asked.value
    kept = np.intersect1d(places, asked.of.fits.within(value))
    return Least(status, min(asked.bound, value), "search", asked.best, kept)


def _settled(asked: Asked, places: Ints, unit: int) -> tuple[str, bool]:
    """How the question ended, and whether there is a better answer."""
    of, before = asked.of, asked.best
    if _is_least(asked):
        asked.raise_to(asked.value, "search")
        return "optimal", False
    asked.descend(places, least=asked.bound + asked.value // NEAR)
    _descend(asked, places)
    low = of.fits.least_bytes
    if of.own is not None:
        low = max(low, _fewest(asked, places) or 0)
    hunt = _Hunt(none=low - 1, hard=low - 1)
    while not (hunt.is_settled or _is_close(hunt.hard + 1, asked.value)):
        if time.monotonic() > asked.end:
            break
        _try(asked, hunt, places)
    asked.raise_to(-(-(hunt.none + 1) // unit) * unit, "search")
    if asked.best is not before or asked.is_met:
        return "gap", asked.best is not before
    is_told = _is_close(asked.bound, asked.value) and len(of.choice) >= SOME
    if is_told or not asked.proves or asked.is_look or len(places) >= MANY:
        return "gap", False
    status = asked.with_rows(places, asked.value - unit)
    if status == "infeasible":
        asked.raise_to(asked.value, "search")
    return ("optimal" if asked.is_met else "gap" if status == "better" else status), (
        asked.best is not before
    )


def _fewest(asked: Asked, places: Ints) -> int | None:
    """The fewest bytes that anything fits into, less than what is known; None: nothing does.

    What the input program's own columns fit into is tried first.
    """
    choice, own = asked.of.choice, asked.of.own
    assert own is not None
    few = choice.take(np.intersect1d(places, own))
    guess = least_fitting(Fits(few), few.most_bytes) if few.has_writers else None
    return least_fitting(Fits(choice.take(places)), asked.value, guess)


def _is_least(asked: Asked) -> bool:
    """Whether it is plain that no answer needs less, in any order."""
    fits, value = asked.of.fits, asked.value
    kept = fits.within(value - 1)
    if not len(kept):
        return len(asked.of.choice.facts.roots) > 0
    # a relaxation of equal blocks would be about answers in which these are alike
    if not asked.proves or fits.is_most(kept):
        return False
    small = Fits(asked.of.choice.take(kept))
    rows = InAnyOrder(small.facts, asked.caps, is_short=True)
    found = relaxation(small.choice, {MEMORY: 1}, asked.sums, rows)
    return found is not None and found.bound >= value


def _try(asked: Asked, hunt: _Hunt, places: Ints) -> None:
    """One cap more, the lowest first."""
    value, cap = asked.value, hunt.next_cap(asked.value)
    kept = np.intersect1d(places, asked.of.fits.within(cap))
    status, best = _look(asked, kept, cap) if len(kept) else ("infeasible", None)
    if status == "infeasible" and (not len(kept) or asked.proves):
        hunt.none = max(hunt.none, cap)
    asked.offer(best)
    if asked.value < value:
        hunt.looks = 0
    if best is None or best.peak_bytes > cap:
        hunt.hard = cap
        hunt.looks += status != "infeasible"


def _look(asked: Asked, kept: Ints, cap: int) -> tuple[str, Answer | None]:
    """How a look among these ended, and the answer of the least peak that it found."""
    status, best = "", None
    for goal in ("time", TIE_BREAK):
        found = asked.of.least(
            {goal: 1}, asked.sums, among=kept, seconds=asked.seconds, is_look=True
        )
        status = status or found.status
        there = found.best
        if there is not None and (best is None or there.peak_bytes < best.peak_bytes):
            best = there
        if best is None or best.peak_bytes <= cap:
            break
    return status, best


@dataclass
class _Hunt:
    """Caps: `none` is too little; nothing was found within `hard`."""

    none: int
    hard: int
    is_tried: bool = False
    looks: int = 0  # without a better answer since the last one

    @property
    def is_settled(self) -> bool:
        return self.looks >= LOOKS

    def next_cap(self, value: int) -> int:
        """What is tried next: first the least there may be."""
        first, self.is_tried = not self.is_tried, True
        return self.hard + 1 if first else (self.hard + value) // 2


def _is_close(least: int, value: int) -> bool:
    """Whether a peak is hardly less."""
    return least >= value - value // CLOSE
