"""The clock of a search, if it has one: a limit in seconds, or the deadline of the whole run."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

from eqsat.model.deadline import SATURATION_TIME

HANDING_OVER = 6e-5  # seconds a node takes from egglog's tables to an `EGraph`, measured, and some


@dataclass(frozen=True)
class Clock:
    """`until` is a `time.monotonic()`; `name` is why a search stops then."""

    until: float = math.inf
    name: str = SATURATION_TIME

    @classmethod
    def of(cls, seconds: float | None, deadline: float | None) -> Clock:
        """Whichever of a limit in seconds from now and a deadline comes first."""
        limit = math.inf if seconds is None else time.monotonic() + seconds
        share = math.inf if deadline is None else deadline
        return cls(limit, "seconds") if limit < share else cls(share)

    def halved(self) -> Clock:
        """One that gives up after half of the time that is left."""
        now = time.monotonic()
        return replace(self, until=now + (self.until - now) / 2)

    def over(self, nodes: int) -> str:
        """Why to stop now, with an e-graph of so many nodes still to be handed over; or ""."""
        if math.isinf(self.until):
            return ""
        return self.name if time.monotonic() + nodes * HANDING_OVER >= self.until else ""
