"""Interleaved rounds of process time: a slow minute of the machine touches all figures alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from eqsat.lab.calibrate.probes import Call, Probe
from eqsat.model.diag import fail

LEAST = 2e-3  # seconds of one measurement; shorter calls are repeated
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

    def __call__(self, probe: Probe) -> float:
        if probe.name not in self.calls:
            self.calls[probe.name] = self._warm(probe.build())
        call, repeats = self.calls[probe.name]
        call()  # what the probe before left to free, and what is not in the caches
        begin = self.clock()
        for _ in range(repeats):
            call()
        return (self.clock() - begin) / repeats

    def _warm(self, call: Call) -> tuple[Call, int]:
        """Run it twice, and find how often it has to run to be measured."""
        call()
        begin = self.clock()
        call()
        once = max(self.clock() - begin, 1e-6)
        return call, max(1, round(LEAST / once))


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
    stuck = [name for name, found in seconds.items() if statistics.median(found) <= 0]
    if stuck:
        what = f"the clock of this machine shows no time for `{stuck[0]}`"
        raise fail("E420", what, help="calibrate on a machine with a finer process clock")
    return {k: Sample(statistics.median(v), min(v), max(v)) for k, v in seconds.items()}
