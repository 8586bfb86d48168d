"""What a question about a choice comes to: a bound, an answer, and what is left of the columns."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from eqsat.extract.choice.columns import Answer, Columns
from eqsat.extract.choice.relax import Relaxation
from eqsat.extract.ragged import Ints
from eqsat.model.deadline import OutOfTime, until
from eqsat.model.stopping import INTERRUPTED, WALL, Stop

OPEN = 1 << 62  # more than any goal is worth
Caps = Mapping[str, int]


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


@dataclass(frozen=True)
class Least:
    """What was asked for, at the least, in any order: `bound`, and what it is from (`proof`).

    status: optimal (`best` is worth no more) | infeasible (no answer keeps the caps, proven) | gap
    (all was searched) | why the search ended before. `places`: columns that answers within the caps
    hold that are worth at most `most`; `relaxed` is of these.
    """

    status: str
    bound: int = 0
    proof: str = "search"
    best: Answer | None = None
    places: Ints | None = None
    relaxed: Relaxation | None = None
    most: int = OPEN

    def within(self, cap: int) -> Ints | None:
        """Columns that answers worth at most so much hold; None: nothing is known."""
        if self.places is None or cap > self.most:
            return None
        return self.places if self.relaxed is None else self.places[self.relaxed.within(cap)]


@dataclass(frozen=True)
class Remainder:
    """What is left under some caps, with its relaxation."""

    places: Ints  # in the numbers of the whole choice
    choice: Columns
    relaxed: Relaxation
    most: int = OPEN  # what answers are worth that these columns hold

    @property
    def bound(self) -> int:
        return self.relaxed.bound
