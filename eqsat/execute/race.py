"""Two functions of the same arguments, timed in turns: which is quicker, and by how much."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eqsat.execute.timing import interval

SECONDS = 0.5  # for all calls of both, unless `LEAST` rounds take longer; 0: there is no race
BATCH_SECONDS = 0.001  # of one side in one round
LEAST, ENOUGH, MOST = 3, 10, 150  # rounds: of calls that are slow, before it may end early, at most
LONG = 1.0  # seconds of a call that is timed once
CLEAR = 0.01  # this far from equal an interval ends the race
NOISE = 0.1  # of a single round


@dataclass(frozen=True)
class Race:
    """Times of the answer over those of the original: their median and its 95 % interval."""

    ratio: float
    lower: float
    upper: float
    rounds: int

    @property
    def is_slower(self) -> bool:
        """Whether the answer is slower by more than the noise."""
        return self.lower > 1 and (self.rounds >= LEAST or self.ratio > 1 + NOISE)

    def __str__(self) -> str:
        return f"{self.ratio:.3f} ({self.lower:.3f} to {self.upper:.3f}) in {self.rounds} round(s)"


def has_time() -> bool:
    """Whether there are races at all."""
    return SECONDS > 0


Side = tuple[Callable[..., Any], Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]]


def race(answer: Side, original: Side, uses_up: bool = False) -> Race:
    """A side: the function, and what gives its arguments. uses_up: they serve for one call."""
    sides = {"answer": answer, "original": original}
    once = max(min(_seconds(side, 1) for _ in range(2)) for side in sides.values())
    count = 1 if uses_up else max(1, min(1000, int(BATCH_SECONDS / max(once, 1e-7))))
    rounds = 1 if once > LONG else LEAST
    end = time.perf_counter() + SECONDS
    drawn, order, ratios = random.Random(0), list(sides), list[float]()
    while len(ratios) < MOST:
        drawn.shuffle(order)
        seconds = {name: _batch(sides[name], count) for name in order}
        ratios.append(seconds["answer"] / seconds["original"])
        if len(ratios) >= ENOUGH and _is_clear(ratios):
            break
        if len(ratios) >= rounds and time.perf_counter() > end:
            break
    return Race(*interval(ratios), len(ratios))


def _is_clear(ratios: list[float]) -> bool:
    _, lower, upper = interval(ratios)
    return lower > 1 + CLEAR or upper < 1 - CLEAR


def _batch(side: Side, count: int) -> float:
    """After a call that is not counted: what ran before has its own data in the caches."""
    _seconds(side, 1)
    return _seconds(side, count)


def _seconds(side: Side, count: int) -> float:
    import jax

    function, arguments = side
    args, kwargs = jax.block_until_ready(arguments())
    clock = _clock()
    start = clock()
    found = function(*args, **kwargs)
    for _ in range(count - 1):
        found = function(*args, **kwargs)
    jax.block_until_ready(found)
    return clock() - start


def _clock() -> Callable[[], float]:
    """On one core, what others run there does not count; on several, threads run side by side."""
    cores = getattr(os, "sched_getaffinity", lambda _: (0, 1))(0)
    return time.process_time if len(cores) == 1 else time.perf_counter
