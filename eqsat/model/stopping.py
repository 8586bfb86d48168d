"""A request to end a search early with the best answer so far, made by another thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

OUT_OF_MEMORY = "memory"  # the same for a machine that had no more of it
OTHER_SIZES = "sizes"  # of an answer that was searched at other sizes of the program's symbols
WALL = "wall"  # of a search that has one limit of time
# each phase of `optimize` has a share of the time limit: the phase whose share was used up
SATURATION_TIME = "saturation time"
CANDIDATE_TIME = "candidate time"
SEARCH_TIME = "search time"
ORDER_TIME = "order time"
INTERRUPTED = "interrupted"  # the word a search that was stopped gives as its stop reason


class Stop:
    """Passed from the code that may stop a search to the solver that has to end.

    The search sets `has_answer` as soon as it has an answer worth keeping; before that there is
    nothing to return, and the caller may end the process instead.
    """

    def __init__(self) -> None:
        self.has_answer = False
        self._requested = threading.Event()
        self._lock = threading.Lock()
        self._calls: list[Callable[[], None]] = []

    @property
    def is_requested(self) -> bool:
        return self._requested.is_set()

    def request(self) -> None:
        """End the search: no further solve starts, and the one that runs returns its best."""
        with self._lock:
            self._requested.set()
            calls = list(self._calls)
        for call in calls:
            call()

    @contextmanager
    def calls(self, end: Callable[[], None]) -> Iterator[None]:
        """While this lasts, `end` is called when a stop is requested (at once if it was)."""
        with self._lock:
            self._calls.append(end)
            late = self._requested.is_set()
        if late:
            end()
        try:
            yield
        finally:
            with self._lock:
                self._calls.remove(end)
