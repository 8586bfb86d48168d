"""How long the phases of a run took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def timed(seconds: dict[str, float | None], phase: str) -> Iterator[None]:
    """Add what the block takes to the seconds of a phase."""
    begin = time.perf_counter()
    try:
        yield
    finally:
        seconds[phase] = (seconds.get(phase) or 0.0) + time.perf_counter() - begin
