"""Rows of an experiment on the clock, beside each other, round by round, in fresh processes.

Programs that are equal are measured once. Nothing is measured while an experiment of this user
searches on the machine (`store.tables`). Run as a program it is one such process.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eqsat.execute.draw import drawn_weights, random_inputs
from eqsat.execute.timing import BATCH_SECONDS, MOST_CALLS, batch, interval, seconds_per_call
from eqsat.lab.store.store import Measurement, RunStore
from eqsat.lab.store.tables import measuring
from eqsat.model.diag import fail
from eqsat.run import Run
from eqsat.run.saved import load_folder

if TYPE_CHECKING:
    from eqsat.lab.results import CellResult


@dataclass(frozen=True)
class Rounds:
    """How rows are timed: `runs` samples of each, shared out among so many processes."""

    runs: int
    warmup: int
    processes: int = 1

    @property
    def of_each(self) -> int:
        """Samples that one process takes."""
        return -(-self.runs // self.processes)


def measure_groups(
    outcomes: Sequence[CellResult], rounds: Rounds, store: RunStore | None
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
        times[key] = _group(list(distinct.values()), rounds, store)
    return [
        replace(o, measured=times[o.cell.program, o.cell.sizes][o.record.program_hash])
        if o.has_answer else o
        for o in outcomes
    ]  # fmt: skip


def _group(
    distinct: Sequence[CellResult], rounds: Rounds, store: RunStore | None
) -> dict[str, Measurement]:
    """By `program_hash`: from the store if it has all of this group, else measured now."""
    keys = sorted(o.record.program_hash for o in distinct)
    beside = hashlib.sha256(repr((keys, rounds)).encode()).hexdigest()[:32]
    if store is not None:
        stored = {k: m for k in keys if (m := store.measurement(k, beside)) is not None}
        if len(stored) == len(keys):
            return stored
    with measuring():
        times = _here(distinct, rounds) if rounds.processes == 1 else _apart(distinct, rounds)
    if store is not None:
        store.put_measurements(beside, times)
    return times


def _here(distinct: Sequence[CellResult], rounds: Rounds) -> dict[str, Measurement]:
    """Timed in this process: the interval is that of the median of its samples."""
    calls = {o.record.program_hash: timed_call(o.need_run()) for o in distinct}
    count, samples = measured_rounds(calls, rounds.runs, rounds.warmup)
    return {
        k: Measurement(
            count, *interval([w for w, _ in s]), statistics.median(c for _, c in s), tuple(s)
        )
        for k, s in samples.items()
    }


# ---- several processes ---------------------------------------------------------------------------
CHILD = Path(__file__)


def _apart(distinct: Sequence[CellResult], rounds: Rounds) -> dict[str, Measurement]:
    """Timed in one process after the other, as where code and data lie differs between them.

    The median of the medians of the processes; the interval is that of these medians. EqsatError
    E432 if a process ends without an answer.
    """
    with tempfile.TemporaryDirectory() as place:
        folders = {o.record.program_hash: str(_folder(o, Path(place))) for o in distinct}
        answers = [_in_child(folders, rounds, seed) for seed in range(rounds.processes)]
    measured = {}
    for k in folders:
        samples = [answer["samples"][k] for answer in answers]
        walls = [statistics.median(w for w, _ in s) for s in samples]
        cpus = [statistics.median(c for _, c in s) for s in samples]
        measured[k] = Measurement(
            answers[0]["calls"], statistics.median(walls), min(walls), max(walls),
            statistics.median(cpus), tuple((w, c) for s in samples for w, c in s),
        )  # fmt: skip
    return measured


def _folder(o: CellResult, place: Path) -> Path:
    """The folder of a row's run, saved below this place where nothing keeps it."""
    if o.folder is not None:
        return o.folder.absolute()
    return o.need_run().save(place / o.record.program_hash, packed=False)


def _in_child(folders: Mapping[str, str], rounds: Rounds, seed: int) -> dict[str, Any]:
    """The samples of saved runs, in a fresh process that reads the same package."""
    request = {
        "folders": folders, "rounds": rounds.of_each, "warmup": rounds.warmup, "seed": seed,
    }  # fmt: skip
    paths = [str(CHILD.parents[2]), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-P", str(CHILD)],
        input=json.dumps(request), capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )  # fmt: skip
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise fail(
            "E432", f"a process that measures ended: {said}",
            help="`measure: {processes: 1}` measures in this process",
        )  # fmt: skip
    return json.loads(lines[-1])


def answer_parent() -> None:
    """In the child: samples of the runs that the parent names, as one line of JSON."""
    request = json.load(sys.stdin)
    calls = {k: timed_call(load_folder(Path(f))) for k, f in request["folders"].items()}
    count, samples = measured_rounds(calls, request["rounds"], request["warmup"], request["seed"])
    print(json.dumps({"calls": count, "samples": samples}))


# ---- rounds --------------------------------------------------------------------------------------
def measured_rounds(
    calls: Mapping[str, Callable[[], Any]], rounds: int, warmup: int, seed: int = 0
) -> tuple[int, dict[str, list[tuple[float, float]]]]:
    """Calls of a batch, and microseconds of a call in each interleaved round: (wall, CPU).

    A call in front of every batch does not count, as its neighbours had theirs. The order is drawn
    anew for each round, always the same draws. A batch is so many calls that the quickest program
    takes some milliseconds.
    """
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
    return count, samples


def timed_call(run: Run) -> Callable[[], Any]:
    """The run's program on inputs that are on the device."""
    import jax

    if lacking := drawn_weights(run.program, run.weights):
        run.executable.take_weights(lacking)  # any values take the same time
    call = run.executable.flat
    inputs = jax.device_put(random_inputs(run.program, np.random.default_rng(0)))
    return lambda: call(*inputs)


if __name__ == "__main__":
    answer_parent()
