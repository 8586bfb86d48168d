"""The least peak of memory in any order, mostly without a row of bytes.

What fits into fewer bytes than a known answer takes (`memory.fits`) is all that better answers
hold. If it is nothing, the known answer is proven. Else a few caps between what is known to be too
little and the known peak are tried: of what fits into one, what converts least is put into its best
order, then the fastest.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from eqsat.extract.choice.columns import MEMORY, Answer
from eqsat.extract.choice.linear import TIE_BREAK
from eqsat.extract.choice.must import presolved
from eqsat.extract.choice.relax import relaxation
from eqsat.extract.memory.fits import Fits, least_fitting
from eqsat.extract.memory.peakrows import InAnyOrder
from eqsat.extract.ragged import Ints
from eqsat.model.stopping import INTERRUPTED, WALL

if TYPE_CHECKING:
    from eqsat.extract.least import Least
    from eqsat.extract.minimisation import Minimisation

FEW = 200  # columns: with fewer, every byte of a peak is proven


def peak(asked: Minimisation, places: Ints) -> Least:
    """The least peak within the caps, of answers made of these columns."""
    of = asked.of
    if asked.best is None:
        first = of.least({"time": 1}, asked.caps, among=places, is_look=asked.is_look)
        if first.best is None:
            return first
        asked.offer(first.best)
    if of.quick:
        return asked.told("gap", places)
    places = places[presolved(of.choice.take(places))]
    question = _Peak(asked, places, of.fits_among(places))
    status = question.settled()
    kept = places[question.fits.within(asked.value)]
    of.has_fitted(kept, asked.value)
    return replace(asked.told(status, kept), proof="search", most=asked.value)


@dataclass
class _Peak:
    """The question about these columns; `fits` is of them alone."""

    asked: Minimisation
    places: Ints
    fits: Fits

    def settled(self) -> str:
        """How the question ended; what is found is the best answer of `asked`."""
        asked, status = self.asked, "gap"
        low = self.fits.least_bytes
        asked.raise_to(low, "search")
        for n in range(3):
            value = asked.value
            if self._is_least():
                asked.raise_to(value, "search")
                break
            self._hunt(low)
            if n == 0 and asked.of.own is not None and not asked.is_met:
                low = max(low, self._fewest() or 0)
                self._hunt(low)
            if asked.value == value or asked.is_met:
                break
        if not asked.is_met and self._may_ask_rows():
            status = asked.with_rows(self.places, asked.value - self.fits.choice.byte_unit)
            if status == "infeasible":
                asked.raise_to(asked.value, "search")
        return status if status in ("optimal", WALL, INTERRUPTED) else "gap"

    def _may_ask_rows(self) -> bool:
        """Whether rows of bytes are worth it: of a small choice, or one that is not nearly told."""
        asked = self.asked
        is_told = _is_close(asked.bound, asked.value) and len(asked.of.choice) >= FEW
        # with more columns, a peak is not searched for that is hardly less
        return asked.proves and not (is_told or asked.is_look or len(self.places) >= 2_000)

    def _fewest(self) -> int | None:
        """The fewest bytes that anything fits into; what the input program's own columns fit into
        is tried first."""
        own_columns = self.asked.of.own
        assert own_columns is not None
        own = np.flatnonzero(np.isin(self.places, own_columns))
        few = self.fits.choice.take(own)
        guess = least_fitting(Fits(few), few.most_bytes) if few.has_writers else None
        return least_fitting(self.fits, self.asked.value, guess)

    def _is_least(self) -> bool:
        """Whether it is plain that no answer needs less, in any order."""
        kept = self.fits.within(self.asked.value - 1)
        if not len(kept):
            return len(self.fits.choice.facts.roots) > 0
        # a relaxation of equal blocks would be about answers in which these are alike
        if not self.asked.proves or self.fits.is_most(kept):
            return False
        small = Fits(self.fits.choice.take(kept))
        rows = InAnyOrder(small.facts, self.asked.caps, is_short=True)
        found = relaxation(small.choice, {MEMORY: 1}, self.asked.sums, rows)
        return found is not None and found.bound >= self.asked.value

    def _hunt(self, low: int) -> None:
        """Caps between what is known to be too little and the best peak."""
        asked, unit = self.asked, self.fits.choice.byte_unit
        hunt = _Caps(none=low - 1, hard=low - 1)
        while not (hunt.is_settled or _is_close(hunt.hard + 1, asked.value)):
            if time.monotonic() > asked.end:
                break
            self._try(hunt)
        asked.raise_to(-(-(hunt.none + 1) // unit) * unit, "search")

    def _try(self, hunt: _Caps) -> None:
        """One cap more, the lowest first."""
        asked = self.asked
        value, cap = asked.value, hunt.next_cap(asked.value)
        kept = self.places[self.fits.within(cap)]
        status, best = self._look(kept, cap) if len(kept) else ("infeasible", None)
        if status == "infeasible" and (not len(kept) or asked.proves):
            hunt.none = max(hunt.none, cap)
        asked.offer(best)
        if asked.value < value:
            hunt.looks = 0
        if best is None or best.peak_bytes > cap:
            hunt.hard = cap
            hunt.looks += status != "infeasible"

    def _look(self, kept: Ints, cap: int) -> tuple[str, Answer | None]:
        """How a look among these ended, and the answer of the least peak that it found."""
        asked, status, best = self.asked, "", None
        for goal in (TIE_BREAK, "time"):
            sides = {"among": kept, "seconds": asked.seconds, "is_look": True}
            found = asked.of.least({goal: 1}, asked.sums, **sides)
            status = status or found.status
            there = found.best
            if there is not None and (best is None or there.peak_bytes < best.peak_bytes):
                best = there
            if best is None or best.peak_bytes <= cap:
                break
        return status, best


@dataclass
class _Caps:
    """Caps: `none` is too little; nothing was found within `hard`."""

    none: int
    hard: int
    is_tried: bool = False
    looks: int = 0  # without a better answer since the last one

    @property
    def is_settled(self) -> bool:
        return self.looks >= 1

    def next_cap(self, value: int) -> int:
        """What is tried next: first the least there may be."""
        first, self.is_tried = not self.is_tried, True
        return self.hard + 1 if first else (self.hard + value) // 2


def _is_close(least: int, value: int) -> bool:
    """Whether a peak is hardly less: by less than a ten-thousandth."""
    return least >= value - value // 10_000
