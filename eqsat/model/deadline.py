"""A deadline that holds for everything called below it, without being passed as an argument.

A search has hundreds of loops, any of which can be the long one. Each calls `tick()` once per
iteration; the owner of the deadline writes `with until(deadline):` and catches OutOfTime where a
known answer can be used instead. Scopes nest like Trio's cancel scopes: an inner one ends with its
outer one at the latest.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from eqsat.model.stopping import Stop


class OutOfTime(Exception):
    """The innermost deadline is over, or the search was asked to stop."""


@dataclass(frozen=True)
class _Scope:
    at: float = math.inf  # of time.monotonic()
    stop: Stop | None = None

    @property
    def is_over(self) -> bool:
        if self.stop is not None and self.stop.is_requested:
            return True
        return time.monotonic() >= self.at


_FOREVER = _Scope()
_SCOPE: ContextVar[_Scope] = ContextVar("deadline", default=_FOREVER)


@contextmanager
def until(deadline: float, stop: Stop | None = None) -> Iterator[None]:
    """`deadline` is of time.monotonic(); a request to stop ends the scope as well."""
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
    return math.inf if at == math.inf else max(at - time.monotonic(), 0.0)
