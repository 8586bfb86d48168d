"""Rows of an experiment on the clock: those of one program beside each other, each round by round.

Programs that are equal are measured once. Nothing is measured while an experiment of this user
searches on the machine (`store.locks`).
"""

from __future__ import annotations

import hashlib
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from eqsat.lab.results import CellResult
from eqsat.lab.store.files import measuring
from eqsat.lab.store.store import Measurement, RunStore

if TYPE_CHECKING:
    from eqsat.run import Run


def measure_groups(
    outcomes: Sequence[CellResult], rounds: int, warmup: int, store: RunStore | None
) -> list[CellResult]:
    """The outcomes with their times; what the store has of a whole group is taken from there.

    A group are the rows of one program at the same sizes. It is measured anew as soon as one
    program of it is new, as only times of the same rounds compare.
    """
    groups: dict[Any, dict[str, CellResult]] = {}  # by program, then by what runs
    for o in outcomes:
        if o.has_answer:
            key = o.cell.program, o.cell.sizes
            groups.setdefault(key, {}).setdefault(o.record.program_hash, o)
    times: dict[Any, dict[str, Measurement]] = {}
    for key, distinct in groups.items():
        times[key] = _group(list(distinct.values()), rounds, warmup, store)
    return [
        replace(o, measured=times[o.cell.program, o.cell.sizes][o.record.program_hash])
        if o.has_answer else o
        for o in outcomes
    ]  # fmt: skip


def _group(
    distinct: Sequence[CellResult], rounds: int, warmup: int, store: RunStore | None
) -> dict[str, Measurement]:
    """By `program_hash`: from the store if it has all of this group, else measured now."""
    keys = sorted(o.record.program_hash for o in distinct)
    beside = hashlib.sha256(repr((keys, rounds, warmup)).encode()).hexdigest()[:32]
    if store is not None:
        stored = {k: m for k in keys if (m := store.measurement(k, beside)) is not None}
        if len(stored) == len(keys):
            return stored
    with measuring():
        calls = {o.record.program_hash: _call(o.need_run()) for o in distinct}
        times = measured_rounds(calls, rounds, warmup)
    if store is not None:
        store.put_measurements(beside, times)
    return times


def measured_rounds(
    calls: Mapping[str, Callable[[], Any]], rounds: int, warmup: int, seed: int = 0
) -> dict[str, Measurement]:
    """Interleaved rounds; a call in front of every batch that counts, as its neighbours had theirs.

    The order is drawn anew for each round, always the same draws. A batch is so many calls that the
    quickest program takes some milliseconds.
    """
    from eqsat.execute.timing import BATCH_SECONDS, MOST_CALLS, batch, interval, seconds_per_call

    for call in calls.values():
        batch(call, max(warmup, 1))
    one = min(map(seconds_per_call, calls.values()))
    count = max(1, min(MOST_CALLS, int(BATCH_SECONDS / one)))
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    order, drawn = list(calls), random.Random(seed)
    for _ in range(rounds):
        drawn.shuffle(order)
        for name in order:
            batch(calls[name], 1)
            wall, cpu = batch(calls[name], count)
            samples[name].append((1e6 * wall / count, 1e6 * cpu / count))
    return {
        name: Measurement(
            count, *interval([w for w, _ in s]), statistics.median(c for _, c in s), tuple(s)
        )
        for name, s in samples.items()
    }


def _call(run: Run) -> Callable[[], Any]:
    """The run's program on inputs that are on the device."""
    import jax
    import numpy as np

    from eqsat.execute.draw import drawn_weights, random_inputs

    if lacking := drawn_weights(run.program, run.weights):
        run.executable.take_weights(lacking)  # any values take the same time
    call = run.executable.flat
    inputs = jax.device_put(random_inputs(run.program, np.random.default_rng(0)))
    return lambda: call(*inputs)
