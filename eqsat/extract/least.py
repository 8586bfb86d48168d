"""What a question about a choice comes to: a bound, an answer, and what is left of the columns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from eqsat.extract.choice.columns import Answer, Columns
from eqsat.extract.choice.relax import Relaxation
from eqsat.extract.ragged import Ints
from eqsat.model.stopping import INTERRUPTED, WALL, Stop

OPEN = 1 << 62  # more than any goal is worth
Caps = Mapping[str, int]
Under = Callable[[Answer], tuple[Columns, Ints]]


@dataclass(frozen=True)
class SearchLimits:
    """When to stop looking, and for what seed."""

    deadline: float  # of time.monotonic()
    seed: int
    stop: Stop | None = None

    @property
    def seconds(self) -> float:
        """What is left; nothing if the search was asked to stop."""
        asked = self.stop is not None and self.stop.is_requested
        return 0.0 if asked else max(self.deadline - time.monotonic(), 0.0)

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
