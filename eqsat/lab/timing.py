"""Wall time of a run's program on the machine at hand."""

from __future__ import annotations

import statistics
import time
from typing import Any

from eqsat.api import Run


def measure(run: Run, runs: int, warmup: int, seed: int = 0) -> dict[str, Any]:
    """Microseconds of `runs` calls after `warmup`: {"runs", "median_us", "min_us", "max_us"}.

    Inputs are on the device before the clock starts; each call is waited for.
    """
    import jax
    import numpy as np

    from eqsat.execute.draw import drawn_weights, random_inputs

    if lacking := drawn_weights(run.program, run.source.weights):
        run.executable.take_weights(lacking)  # any values take the same time
    call = run.executable.flat
    inputs = jax.device_put(random_inputs(run.program, np.random.default_rng(seed)))
    seconds = []
    for i in range(warmup + runs):
        begin = time.perf_counter()
        jax.block_until_ready(call(*inputs))
        if i >= warmup:
            seconds.append(time.perf_counter() - begin)
    figures = {"median": statistics.median, "min": min, "max": max}
    return {"runs": runs} | {f"{k}_us": round(f(seconds) * 1e6, 1) for k, f in figures.items()}
