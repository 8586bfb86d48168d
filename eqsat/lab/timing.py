"""Wall time of the programs of runs on the machine at hand."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from eqsat.api import Run


def measure(rows: Sequence[Run], runs: int, warmup: int, seed: int = 0) -> list[dict[str, Any]]:
    """Per run, microseconds of `runs` calls: {"runs", "median_us", "min_us", "max_us"}.

    The programs take turns in an order drawn anew for each turn, so that a slow moment of the
    machine touches all alike; `warmup` calls of each come first, and one in front of every call
    that counts. Inputs are on the device before the clock starts; each call is waited for.
    """
    calls = [_call(run, seed) for run in rows]
    for call in calls:
        for _ in range(warmup):
            call()
    seconds: list[list[float]] = [[] for _ in calls]
    order, drawn = list(range(len(calls))), random.Random(seed)
    for _ in range(runs):
        drawn.shuffle(order)
        for i in order:
            calls[i]()
            begin = time.perf_counter()
            calls[i]()
            seconds[i].append(time.perf_counter() - begin)
    return [_figures(runs, found) for found in seconds]


def _call(run: Run, seed: int) -> Callable[[], None]:
    """The run's program on inputs that are on the device; waited for."""
    import jax
    import numpy as np

    from eqsat.execute.draw import drawn_weights, random_inputs

    if lacking := drawn_weights(run.program, run.weights):
        run.executable.take_weights(lacking)  # any values take the same time
    call = run.executable.flat
    inputs = jax.device_put(random_inputs(run.program, np.random.default_rng(seed)))

    def once() -> None:
        jax.block_until_ready(call(*inputs))

    return once


def _figures(runs: int, seconds: Sequence[float]) -> dict[str, Any]:
    figures = {"median": statistics.median, "min": min, "max": max}
    return {"runs": runs} | {f"{k}_us": round(f(seconds) * 1e6, 1) for k, f in figures.items()}
