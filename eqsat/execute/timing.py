"""Calls timed beside each other, round by round: a slow moment of the machine touches all alike."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eqsat.model.deadline import tick

BATCH_SECONDS = 0.004  # one round of one side takes at least this long
MOST_CALLS = 1000
LEAST_ROUNDS = 30
FAR = 4  # times the time of the quickest side
SLOW_SECONDS = 0.02  # of three calls: each try is one call then
SECONDS = 2.0  # of one side, unless the fewest rounds take longer
Times = list[tuple[float, float]]  # seconds of a batch: on the wall, and of process time


def interleave(
    sides: Mapping[str, Callable[[], Any]], most: int = 400
) -> tuple[int, dict[str, Times]]:
    """Calls of a batch, and the seconds of each side's batches, one of each a round.

    The order is drawn anew for each round, always the same draws, and a call in front of each batch
    is not counted: what ran before has its own data in the caches, which cost up to 9 %. Slow
    calls, which vary less, get fewer than the `most` rounds, but never fewer than `LEAST_ROUNDS`.
    A side that is `FAR` slower than the quickest one makes fewer calls in a round, and its seconds
    are those of as many as the quickest one makes; others make as many as that, since what a batch
    costs besides its calls, up to 17 % of one of two calls, would make them differ.
    """
    each = {name: seconds_per_call(call) for name, call in sides.items()}
    least = min(each.values())
    count = max(1, min(MOST_CALLS, int(BATCH_SECONDS / least)))
    calls = {
        k: count if one < FAR * least else max(1, min(count, int(BATCH_SECONDS / one)))
        for k, one in each.items()
    }
    rounds = max(LEAST_ROUNDS, min(most, int(SECONDS / least / count)))
    seconds: dict[str, Times] = {name: [] for name in sides}
    order, drawn = list(sides), random.Random(0)
    for _ in range(rounds):
        tick()
        drawn.shuffle(order)
        for name in order:
            batch(sides[name], 1)
            wall, cpu = batch(sides[name], calls[name])
            scale = count / calls[name]
            seconds[name].append((wall * scale, cpu * scale))
    return count, seconds


def batch(call: Callable[[], Any], count: int) -> tuple[float, float]:
    """Seconds on the wall and of process time for `count` > 0 calls, the last waited for."""
    import jax

    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    for _ in range(count - 1):
        result = call()
    jax.block_until_ready(result)
    return time.perf_counter() - wall, time.process_time() - cpu


def seconds_per_call(call: Callable[[], Any]) -> float:
    """The best of several tries, as neighbours only add time; after a few that warm up."""
    count = 5 if batch(call, 3)[0] < SLOW_SECONDS else 1
    return min(batch(call, count)[0] for _ in range(5)) / count


def step_of(clock: Callable[[], float], seconds: float = 0.02) -> float:
    """The least by which a clock moves on; 0 if it stands still for so long."""
    steps, begin, last = list[float](), time.perf_counter(), clock()
    while len(steps) < 20 and time.perf_counter() - begin < seconds:
        if (now := clock()) != last:
            steps.append(now - last)
            last = now
    return min(steps, default=0.0)


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """(median, lower, upper): the 95 % interval of the median by order statistics."""
    ordered, n = sorted(ratios), len(ratios)
    rank, below = 0, 1 / 2**n
    while 2 * (below + math.comb(n, rank + 1) / 2**n) <= 0.05:
        rank += 1
        below += math.comb(n, rank) / 2**n
    return statistics.median(ordered), ordered[rank], ordered[n - 1 - rank]
