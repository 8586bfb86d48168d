"""Questions about one choice: what an objective is at least within caps, in any order."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from eqsat.extract.choice.columns import MEMORY, Answer, Barred, Columns
from eqsat.extract.choice.relax import Relaxation, relaxation
from eqsat.extract.least import OPEN, Caps, Least, SearchLimits
from eqsat.extract.memory.bestorder import in_best_order, in_some_order
from eqsat.extract.memory.fits import Fits
from eqsat.extract.minimisation import Minimisation
from eqsat.extract.ragged import Ints
from eqsat.model.deadline import OutOfTime, tick, until
from eqsat.model.stopping import OUT_OF_MEMORY


@dataclass
class Minimiser:
    """Questions about one choice.

    orders: whether bytes are asked about, so that each answer gets the order of least peak. known:
    per goal a bound in any order that is known already, and what proved it. quick: of a large input
    program, of whose peak nobody asks a proof. tells_fewest: whether to tell the fewest bytes that
    anything fits into, whatever that costs (`leastpeak`).
    """

    choice: Columns
    limits: SearchLimits
    orders: bool = True
    quick: bool = False
    known: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    tells_fewest: bool = False
    cuts: list[Barred] = field(default_factory=list)  # circles
    alone: dict[str, Relaxation | None] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)  # all that were found
    some_fits: dict[bytes, Fits] = field(default_factory=dict)  # of columns, by their places

    @cached_property
    def fits(self) -> Fits:
        return Fits(self.choice)

    @cached_property
    def every(self) -> Ints:
        return np.arange(len(self.choice))

    def fits_among(self, places: Ints) -> Fits:
        """What must-analysis says of the bytes of these columns alone."""
        key = places.tobytes()
        if key not in self.some_fits:
            whole = len(places) == len(self.choice)
            self.some_fits[key] = self.fits if whole else Fits(self.choice.take(places))
        return self.some_fits[key]

    def has_fitted(self, places: Ints, cap: int) -> None:
        """These are what fits into the cap, so that nobody asks again."""
        whole = {cap: np.arange(len(places))}
        self.some_fits[places.tobytes()] = Fits(self.choice.take(places), whole)

    def fitting(self, places: Ints, cap: int) -> Ints:
        """Of these the columns that answers of at most `cap` bytes may hold; none: no answer."""
        return places[self.fits_among(places).within(cap)]

    @property
    def is_about_alike(self) -> bool:
        """Whether a solver is told that equal blocks are alike, so that it proves nothing."""
        return self.choice.facts.blocks is not None

    # ---- entry ---------------------------------------------------------------------------------
    def least(
        self,
        weights: dict[str, int],
        caps: Caps,
        *,
        among: Ints | None = None,
        best: Answer | None = None,
        most: int = OPEN,
        seconds: float | None = None,
        is_look: bool = False,
    ) -> Least:
        """The least Σ weight · goal of answers within the caps.

        among: columns that these hold, if that is known. best: the best one known that keeps the
        caps. most: what an answer may be worth; if the relaxation says that none is worth so
        little, there is none. is_look: a good answer will do; the search ends after so much work,
        not by a clock.
        """
        end = self.limits.deadline if seconds is None else time.monotonic() + seconds
        places = self.every if among is None else among
        best = best if best is not None and self.choice.keeps(best, caps) else None
        end = min(end, self.limits.deadline)
        asked = Minimisation(self, weights, dict(caps), end, is_look, most)
        try:
            with until(asked.end, self.limits.stop):
                tick()
                return asked.answered(places, best)
        except OutOfTime:
            return Least(self.limits.ended, asked.bound, best=asked.best or best, places=among)
        except MemoryError:
            known = asked.best or best
            if known is None:
                raise
            return Least(OUT_OF_MEMORY, asked.bound, best=known, places=among)

    def relaxed_alone(self, goal: str) -> Relaxation | None:
        """The relaxation of a sum without any caps; None if there is no answer at all."""
        if goal not in self.alone:
            self.alone[goal] = relaxation(self.choice, {goal: 1})
        return self.alone[goal]

    def least_alone(self, goal: str) -> int:
        """A proven lower bound of a goal, whatever the others."""
        if goal == MEMORY:
            return self.fits.least_bytes
        if goal in self.choice.facts.linear:
            relaxed = self.relaxed_alone(goal)
            return 0 if relaxed is None else relaxed.bound
        return self.choice.floor(goal)

    # ---- answers -------------------------------------------------------------------------------
    def ordered(self, columns: tuple[int, ...]) -> Answer | None:
        """Columns in an order; None if they have none."""
        found = (in_best_order if self.orders else in_some_order)(self.choice, columns)
        if found is not None:
            self.answers.append(found)
        return found

    def small(self, places: Ints) -> Columns:
        """The choice among these, without the circles that are known."""
        if not self.cuts:
            return self.choice.take(places)
        return replace(self.choice, barred=(*self.choice.barred, *self.cuts)).take(places)
