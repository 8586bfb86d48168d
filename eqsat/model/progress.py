"""Progress of a search, reported to a listener: its phase, the best value and its bound.

Phases call `phase("candidates")` and `found("time", value, bound)`, as they call `tick()` for the
deadline, whether there is a listener or not; `with heard(progress):` sets one. Reported values are
always those of an answer that the search could return, and reported bounds hold for every answer in
every order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import astuple, dataclass, field
from typing import Any

from eqsat.model.deadline import elapsed
from eqsat.model.selection import GoalResult

LIMITED = ("saturate", "extract", "schedule", "mesh")  # the phases that a time limit covers


@dataclass(frozen=True)
class Point:
    """The value and bound known after so many seconds; a phase that begins has no goal."""

    seconds: float
    phase: str
    goal: str = ""
    value: int | None = None
    bound: int | None = None


@dataclass(frozen=True)
class Curve:
    """The course of a search: when each phase began, and how values and bounds came closer.

    Its seconds are those of a clock, so no two searches have the same one.
    """

    points: tuple[Point, ...] = ()

    def to_json(self) -> dict[str, Any]:
        columns = list(Point.__dataclass_fields__)
        return {"format": 1, "columns": columns, "points": [list(astuple(p)) for p in self.points]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Curve:
        return cls(tuple(Point(*p) for p in data["points"]))


@dataclass
class Progress:
    """One search while it runs; `listen` is called whenever something new is known.

    goal: the first one, "" if all have weights, as no single value is minimised then. budget: upper
    bounds that an answer has to keep. limit: of the search, in seconds.
    """

    goal: str = ""
    budget: Mapping[str, int] = field(default_factory=dict)
    limit: float | None = None
    listen: Callable[[Progress], None] = lambda _: None
    begin: float = field(default_factory=elapsed)
    phase: str = ""
    points: list[Point] = field(default_factory=list)
    results: dict[str, GoalResult | None] = field(default_factory=dict)  # bound 0: none is known
    bounds: dict[str, int] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)  # phases that ended, and what they came to

    @property
    def seconds(self) -> float:
        """How long the search has been running, on its clock."""
        return elapsed() - self.begin

    @property
    def curve(self) -> Curve:
        return Curve(tuple(self.points))

    @property
    def best(self) -> GoalResult | None:
        """The first goal's best value with what bounds it, if there is an answer."""
        return self.results.get(self.goal)

    def enter(self, phase: str) -> None:
        if phase != self.phase:
            self.phase = phase
            self._add(Point(round(self.seconds, 6), phase))

    def found(self, goal: str, value: int | None, bound: int | None) -> None:
        """A better value or bound of the first goal; those of other goals are not reported."""
        if goal != self.goal:
            return
        before = self.results.get(goal)
        values = (value, None if before is None else before.value)
        value = min((v for v in values if v is not None), default=None)
        least = max(bound or 0, self.bounds.get(goal, 0))
        now = None if value is None else GoalResult(value, min(least, value))
        if now != before or least > self.bounds.get(goal, 0):
            self.results[goal], self.bounds[goal] = now, least
            self._tell(goal, value, least)

    def settle(self, goals: Mapping[str, GoalResult]) -> None:
        """The final value and bound, whatever was reported before."""
        for goal, result in goals.items():
            self.results[goal], self.bounds[goal] = result, result.bound
            self._tell(goal, result.value, result.bound)

    def _tell(self, goal: str, value: int | None, bound: int) -> None:
        self._add(Point(round(self.seconds, 6), self.phase, goal, value, bound or None))

    def _add(self, point: Point) -> None:
        self.points.append(point)
        self.listen(self)


_HEARD: ContextVar[Progress | None] = ContextVar("progress", default=None)


@contextmanager
def heard(progress: Progress | None) -> Iterator[None]:
    """Reports inside go to this progress; with None they go nowhere."""
    token = _HEARD.set(progress)
    try:
        yield
    finally:
        _HEARD.reset(token)


def listener() -> Progress | None:
    """The listener, if any; for code that would have to compute what it reports."""
    return _HEARD.get()


def phase(name: str) -> None:
    """Report that a phase begins."""
    progress = _HEARD.get()
    if progress is not None:
        progress.enter(name)


def found(goal: str, value: int | None = None, bound: int | None = None) -> None:
    """Report the value of an answer, or a proven lower bound in every order."""
    progress = _HEARD.get()
    if progress is not None:
        progress.found(goal, value, bound)


def ended(name: str, line: str) -> None:
    """Note that a phase ended, with the line that tells what it came to; told with other news."""
    progress = _HEARD.get()
    if progress is not None:
        progress.ended[name] = line


def settle(goals: Mapping[str, GoalResult]) -> None:
    """Report the final value and bound."""
    progress = _HEARD.get()
    if progress is not None:
        progress.settle(goals)


@contextmanager
def timed(seconds: dict[str, float | None], phase: str) -> Iterator[None]:
    """Add what the block takes to the seconds of a phase.

    If a limit covers it: to `cpu` as well, and to `counted` what the limit counts of it.
    """
    wall, cpu, counted = time.perf_counter(), time.process_time(), elapsed()
    try:
        yield
    finally:
        seconds[phase] = (seconds.get(phase) or 0.0) + time.perf_counter() - wall
        if phase in LIMITED:
            seconds["cpu"] = (seconds.get("cpu") or 0.0) + time.process_time() - cpu
            seconds["counted"] = (seconds.get("counted") or 0.0) + elapsed() - counted
