"""Resources of a search: its clock, deadlines, requests to stop, CP-SAT's workers, the collector.

A search has hundreds of loops, any of which can be the long one. Each calls `tick()` once per
iteration; the owner of the deadline writes `with until(deadline):` and catches OutOfTime where a
known answer can be used instead. Scopes nest like Trio's cancel scopes: an inner one ends with its
outer one at the latest. A request to stop, with the best answer so far, is made by another thread.
"""

from __future__ import annotations

import gc
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

# ---- the clock -----------------------------------------------------------------------------------
WAITING = 5  # seconds in which the process waits that count as one
FRESH_SECONDS = 1e-3  # for so long a reading of the clock is good
LOOK_SECONDS = 0.05  # between looks at the clock while a solver runs that cannot look itself


class _Clock:
    """CPU seconds of this process, all threads together; of seconds in which it waits a fifth."""

    def __init__(self) -> None:
        self._last = 0.0, time.monotonic(), time.process_time()

    def elapsed(self) -> float:
        seconds, last_wall, last_cpu = self._last
        wall = time.monotonic()
        if wall - last_wall < FRESH_SECONDS:  # loops ask a million times; the system's call is slow
            return seconds
        cpu = time.process_time()
        seconds += max(cpu - last_cpu, (wall - last_wall) / WAITING)
        self._last = seconds, wall, cpu  # of two threads at once one stays, which loses nothing
        return seconds


_CLOCK = _Clock()


def elapsed() -> float:
    """Seconds on the clock of searches: CPU seconds of this process.

    On a busy machine a search so gets the work that it gets on an idle one, and ends later; as
    seconds of waiting count a fifth, after five times its limit at the latest.
    """
    return _CLOCK.elapsed()


# ---- a request to stop ---------------------------------------------------------------------------
OUT_OF_MEMORY = "memory"  # the same for a machine that had no more of it
OTHER_SIZES = "sizes"  # of an answer that was searched at other sizes of the program's symbols
OUT_OF_TIME = "time"  # of a search that has one limit of time
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
        self._calls: list[Callable[[], object]] = []

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
    def calls(self, end: Callable[[], object]) -> Iterator[None]:
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


class OutOfTime(Exception):
    """The innermost deadline is over, or the search was asked to stop."""


@dataclass(frozen=True)
class _Scope:
    at: float = math.inf  # of `elapsed`
    stop: Stop | None = None

    @property
    def is_over(self) -> bool:
        if self.stop is not None and self.stop.is_requested:
            return True
        return elapsed() >= self.at


_FOREVER = _Scope()
_SCOPE: ContextVar[_Scope] = ContextVar("deadline", default=_FOREVER)


@contextmanager
def until(deadline: float, stop: Stop | None = None) -> Iterator[None]:
    """`deadline` is of `elapsed`; a request to stop ends the scope as well."""
    outer = _SCOPE.get()
    token = _SCOPE.set(_Scope(min(outer.at, deadline), stop or outer.stop))
    try:
        yield
    finally:
        _SCOPE.reset(token)


@contextmanager
def whatever_it_takes() -> Iterator[None]:
    """Lifts the deadline, for the little work without which there is no answer, and for checks."""
    token = _SCOPE.set(_FOREVER)
    try:
        yield
    finally:
        _SCOPE.reset(token)


def tick() -> None:
    """OutOfTime if the time is over; called in every loop that may be long."""
    scope = _SCOPE.get()
    if scope is not _FOREVER and scope.is_over:
        raise OutOfTime


def is_over() -> bool:
    """Whether the time is over, for loops that return what they have."""
    return _SCOPE.get().is_over


def seconds_left() -> float:
    """Seconds until the deadline; infinite outside of any."""
    at = _SCOPE.get().at
    return math.inf if at == math.inf else max(at - elapsed(), 0.0)


# what makes layout graphs prove: a strong linear relaxation, and workers that use it; the
# default portfolio for few workers overrides the linearisation level
SUBSOLVERS = ("max_lp", "core", "quick_restart")
LEAST_SECONDS = 0.5  # of a solve: CP-SAT 9.15 was seen to abort when time ran out while it loaded


class _Ends:
    """Solves under way with their deadlines, and one thread that ends them, while there are any."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ends: dict[object, tuple[float, Callable[[], object]]] = {}
        self._is_watched = False

    @contextmanager
    def at(self, deadline: float, end: Callable[[], object]) -> Iterator[None]:
        key = object()
        with self._changed:
            self._ends[key] = deadline, end
            if not self._is_watched:
                self._is_watched = True
                threading.Thread(target=self._watch, name="eqsat-deadlines", daemon=True).start()
        try:
            yield
        finally:
            with self._changed:
                self._ends.pop(key, None)

    def _watch(self) -> None:
        with self._changed:
            while self._ends:
                at = elapsed()
                for key in [k for k, (deadline, _) in self._ends.items() if at >= deadline]:
                    self._ends.pop(key)[1]()
                self._changed.wait(LOOK_SECONDS)
            self._is_watched = False


_ENDS = _Ends()


@contextmanager
def ending(end: Callable[[], object], seconds: float, stop: Stop | None = None) -> Iterator[None]:
    """A solve that knows no clock but the wall's: `end` is called when its time is over.

    From another thread, so many seconds of `elapsed` from now or when a stop is requested.
    """
    asked = (stop or Stop()).calls(end)
    with asked, nullcontext() if seconds == math.inf else _ENDS.at(elapsed() + seconds, end):
        yield


@contextmanager
def limited(
    solver: Any, seconds: float, seed: int, stop: Stop | None = None, work: float | None = None
) -> Iterator[None]:
    """When a CP-SAT solve inside ends without a proof; `work` is CP-SAT's deterministic time."""
    parameters, seconds = solver.parameters, max(seconds, LEAST_SECONDS)
    parameters.max_time_in_seconds = WAITING * seconds  # its time is that of the wall
    if work is not None:
        parameters.max_deterministic_time = work
    parameters.random_seed = seed
    parameters.linearization_level = 2
    # this part of the presolve of 9.15 removes answers, the best ones too (google/or-tools#5293)
    parameters.presolve_inclusion_work_limit = 0
    with ending(solver.stop_search, seconds, stop):
        yield


def set_workers(parameters: Any) -> None:
    """The portfolio, its workers interleaved instead of racing."""
    parameters.num_workers = len(SUBSOLVERS)
    parameters.subsolvers.extend(SUBSOLVERS)
    parameters.interleave_search = True  # the same answer on every run that ends by proof


@contextmanager
def gc_paused() -> Iterator[None]:
    """Switches the collector of cycles off: none are made, and it would walk all that JAX holds.

    A third of the time to read 20,000 equations. What is not in a cycle is freed as ever.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
