"""Interleaved rounds of process time: a slow minute of the machine touches all figures alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from eqsat.execute.timing import step_of
from eqsat.lab.calibrate.probes import Call, Probe
from eqsat.model.diag import EqsatError, fail

LEAST, STEPS = 2e-3, 50  # seconds, or steps of the clock, of one measurement of repeated calls
MOST, DOUBLINGS = 20_000, 3  # calls in one measurement, and tries of one that shows no time
Timer = Callable[[Probe], float]  # seconds of one call
Progress = Callable[[str, float], None]  # what is done now, and the share that is done


def part(progress: Progress, begin: float, end: float) -> Progress:
    """The progress of a part of the work, which is that from `begin` to `end` of the whole."""
    return lambda text, share: progress(text, begin + (end - begin) * share)


@dataclass(frozen=True)
class Sample:
    """Seconds of one call of a probe over the rounds."""

    median: float
    low: float
    high: float


@dataclass
class CoreTimer:
    """Times probes by the process's own time, so that other processes do not count."""

    clock: Callable[[], float] = time.process_time
    calls: dict[str, tuple[Call, int]] = field(default_factory=dict)
    fewest: int = 1  # calls in one measurement

    def __call__(self, probe: Probe) -> float:
        """Seconds of one call; 0 where the clock shows none, however often it is called."""
        if probe.name not in self.calls:
            call = probe.build()
            self.calls[probe.name] = call, self._count(call)
        call, count = self.calls[probe.name]
        for _ in range(DOUBLINGS):
            if (seconds := self.took(call, count)) > 0:
                return seconds / count
            count *= 2  # the clock was disturbed, or is coarser than it looked
            self.calls[probe.name] = call, count
        return 0.0

    def took(self, call: Call, count: int) -> float:
        """Seconds of so many calls."""
        call()  # what the probe before left to free, and what is not in the caches
        begin = self.clock()
        for _ in range(count):
            call()
        return self.clock() - begin

    def enough(self, call: Call) -> float:
        """Seconds that calls have to take to be measured."""
        return self._least

    @cached_property
    def _least(self) -> float:
        return max(LEAST, STEPS * step_of(self.clock))

    def _count(self, call: Call) -> int:
        """How many calls take long enough; disturbed tries do not count."""
        self.took(call, 1)
        count, enough = self.fewest, self.enough(call)
        while count < MOST:
            took = min(self.took(call, count) for _ in range(3))
            if took >= enough:
                break
            more = 1.2 * enough / max(took, 1e-7)  # a disturbed try tells nothing of a hundred
            count = min(MOST, round(count * min(max(more, 2), 8)))
        return count


def check_clock(clock: Callable[[], float] = time.process_time) -> None:
    """EqsatError (E420) if the clock stands still: nothing could be measured for hours."""
    if not step_of(clock, 1.0):
        raise _dead("the process clock of this machine stands still")


def _dead(what: str) -> EqsatError:
    return fail("E420", what, help="calibrate on a machine that counts a process's time")


def timed_rounds(
    probes: Sequence[Probe], rounds: int, timer: Timer, progress: Progress = lambda *_: None
) -> dict[str, Sample]:
    """Medians and extremes per probe; EqsatError (E420) if the clock does not move."""
    seconds: dict[str, list[float]] = {p.name: [] for p in probes}
    for i in range(rounds):
        for j, p in enumerate(probes):
            done = (i * len(probes) + j) / (rounds * len(probes))
            progress(f"round {i + 1} of {rounds}: {p.name}", done)
            seconds[p.name].append(timer(p))
    stuck = [name for name, samples in seconds.items() if statistics.median(samples) <= 0]
    if stuck:
        raise _dead(f"the process clock stood still while `{stuck[0]}` ran again and again")
    return {k: Sample(statistics.median(v), min(v), max(v)) for k, v in seconds.items()}
