"""Questions about one choice: what an objective is at least within caps, in any order.

And the time that there is for them: how it is divided, and what each step did with its share.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from eqsat.extract.choice.columns import MEMORY, Answer, Barred, Columns
from eqsat.extract.choice.relax import OPEN, Caps, Least, Relaxation, relaxation
from eqsat.extract.memory.bestorder import in_best_order, in_some_order
from eqsat.extract.memory.fits import Fits
from eqsat.extract.minimisation import Minimisation
from eqsat.extract.ragged import Ints
from eqsat.model.deadline import INTERRUPTED, OUT_OF_MEMORY, WALL, OutOfTime, Stop, tick, until


@dataclass(frozen=True)
class Shares:
    """How time is divided: a step gets at most this part of what is left when it begins.

    A step that ends before leaves the rest to those behind it. `*_seconds` are there whatever is
    left.
    """

    # an extraction
    check: float = 0.05  # of the whole limit, kept for checking the answer
    all_rules: float = 0.7  # of the limit, where a contained rule set may have to be searched alone
    own_candidates: float = 0.15  # of the input program
    baseline: float = 0.3
    packing: float = 0.6  # the baseline's dispatches in other layouts
    candidates: float = 0.5  # stating the choice takes about as long again
    stating: float = 0.85  # candidates, the choice, and what the first goal leaves of it
    relaxing: float = 0.75  # of that: then an answer near the last relaxation is looked for
    goal: float = 0.7  # a goal with others behind it
    # questions about an answer
    asking: float = 0.85  # in the rest, what ties and what is near is told apart
    near: float = 0.25  # one question about programs near the best one

    own_seconds: float = 2.0  # where the input program may be the only answer within a budget
    least_seconds: float = 1.0  # floors, messages and questions: without them nothing is told
    message_seconds: float = 10.0  # what budgets would have to be, at most


SHARES = Shares()


_LOG = logging.getLogger("eqsat.shares")


@dataclass
class TimedStep:
    """One step with its share of the time; `outcome` is said by whoever knows it."""

    name: str
    deadline: float
    outcome: str = "ended"
    begin: float = field(default_factory=time.monotonic)

    def tell(self) -> None:
        """Log what it was given, took and came to."""
        given, took = self.deadline - self.begin, time.monotonic() - self.begin
        _LOG.info("%s: %.3f s of %.3f s, %s", self.name, took, given, self.outcome)


@dataclass(frozen=True)
class SearchLimits:
    """When to stop looking, and for what seed; it divides the time, and says what steps did."""

    deadline: float  # of time.monotonic()
    seed: int
    stop: Stop | None = None

    @property
    def seconds(self) -> float:
        """What is left; nothing if the search was asked to stop."""
        asked = self.stop is not None and self.stop.is_requested
        return 0.0 if asked else max(self.deadline - time.monotonic(), 0.0)

    def share(self, part: float, least: float = 0.0) -> float:
        """When so much of what is left now will be over, or so many seconds at the least."""
        return time.monotonic() + max(part * max(self.deadline - time.monotonic(), 0.0), least)

    @contextmanager
    def step(self, name: str, part: float, least: float = 0.0) -> Iterator[TimedStep]:
        """Under the deadline of its share; logged in the end."""
        told = TimedStep(name, self.share(part, least))
        try:
            with until(told.deadline, self.stop):
                yield told
        except OutOfTime:
            told.outcome = "out of time"
            raise
        finally:
            told.tell()

    @property
    def ended(self) -> str:
        """Why a search within these limits ended early."""
        return INTERRUPTED if self.stop is not None and self.stop.is_requested else WALL


# ---- questions about one choice -----------------------------------------------------------------
@dataclass
class Minimiser:
    """Questions about one choice.

    orders: whether bytes are asked about, so that each answer gets the order of least peak. known:
    per goal a bound in any order that is known already, and what proved it. quick: of a large input
    program, of whose peak nobody asks a proof. tells_fewest: whether to tell the fewest bytes that
    anything fits into, whatever that costs (`leastpeak`). is_ended_by_gaps: whether a goal with a
    gap, and those behind it, are asked again of all blocks of a program of equal ones.
    """

    choice: Columns
    limits: SearchLimits
    orders: bool = True
    quick: bool = False
    proven: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    tells_fewest: bool = False
    is_ended_by_gaps: bool = False
    cuts: list[Barred] = field(default_factory=list)  # circles
    alone: dict[str, Relaxation | None] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)  # all that were found
    some_fits: dict[bytes, Fits] = field(default_factory=dict)  # of columns, by their places
    fitted: dict[int, Ints] = field(default_factory=dict)  # per cap of bytes: columns that fit

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

    def fitting(self, places: Ints, cap: int) -> Ints | None:
        """Of these the columns that answers of at most `cap` bytes may hold; None: no answer.

        Of columns that fit into a cap nobody asks again whether they do.
        """
        if cap in self.fitted and np.isin(places, self.fitted[cap]).all():
            return places
        fits = self.fits_among(places)
        self.fitted[cap] = places[fits.within(cap)]
        return None if fits.excludes(cap) else self.fitted[cap]

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
            incumbent = asked.best or best
            if incumbent is None:
                raise
            return Least(OUT_OF_MEMORY, asked.bound, best=incumbent, places=among)

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
        answer = (in_best_order if self.orders else in_some_order)(self.choice, columns)
        if answer is not None:
            self.answers.append(answer)
        return answer

    def small(self, places: Ints) -> Columns:
        """The choice among these, without the circles that are known."""
        if not self.cuts:
            return self.choice.take(places)
        return replace(self.choice, barred=(*self.choice.barred, *self.cuts)).take(places)
