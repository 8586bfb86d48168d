"""The store of experiments under kills, with several writers, and with many cells.

    python benchmarks/run.py store [--kills N] [--interrupts N] [--cells N] [--seed N]

A sweep of synthetic cells (each sleeps for some milliseconds) runs in a process of its own, which
is killed at a random moment, again and again: no row that was kept is lost or begun again. Then two
processes run one sweep on one store, and thousands of cells are kept one by one. Last, an
experiment of twelve real rows runs with one job and with two. Not ok if a row was
lost or run twice.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from eqsat.lab.experiment import Experiment
from eqsat.lab.store.query import ask
from eqsat.lab.store.store import RunStore
from eqsat.lab.store.tables import FILE
from eqsat.lab.sweep import sweep
from eqsat.model.diag import EqsatError
from fuzz import sweepwork

CELLS, SECONDS = 800, 0.02  # of a sweep that is killed
LONGEST_S = 0.5  # from a process's first cell until it is killed
TWELVE = """experiment: twelve
doc: Rows that are searched side by side.
programs: ["encoder.py:encoder", "bottlenecks.py:bottlenecks"]
targets: [reference, avx512-xla]
vary: {seed: [0, 1, 2]}
"""


def kept(folder: Path) -> set[str]:
    """Keys of the rows that are kept."""
    if not (folder / FILE).is_file():
        return set()
    try:
        return {run for (run,) in ask(folder, "SELECT run FROM runs")[1]}
    except EqsatError:  # its tables are being made
        return set()


def begun(folder: Path) -> Counter[str]:
    """How often each cell was begun."""
    log = folder / "log.txt"
    return Counter(log.read_text(encoding="utf-8").split() if log.is_file() else ())


def killed(how: signal.Signals, times: int, seed: int) -> dict[str, Any]:
    """One sweep, killed and begun again so many times at random moments, then run to its end."""
    drawn, lost, again, moments = random.Random(seed), 0, 0, []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for _ in range(times):
            before, starts = kept(folder), begun(folder)
            process = _sweeping(folder, jobs=2)
            while process.poll() is None and begun(folder) == starts:
                time.sleep(0.01)
            time.sleep(drawn.uniform(0, LONGEST_S))
            process.send_signal(how)
            process.wait(60)
            after, restarts = kept(folder), begun(folder)
            lost += len(before - after)
            again += sum(restarts[k] > starts[k] for k in before)
            moments.append(len(after))
        before, starts = kept(folder), begun(folder)
        _sweeping(folder, jobs=2).wait(600)
        lost += CELLS - len(kept(folder))
        again += sum(begun(folder)[k] > starts[k] for k in before)
    return {"kills": times, "kept_after_each": moments, "lost": lost, "run_again": again}


def _sweeping(folder: Path, jobs: int) -> subprocess.Popen[bytes]:
    arguments = [str(folder), str(CELLS), str(SECONDS), str(jobs)]
    return subprocess.Popen(
        [sys.executable, sweepwork.__file__, *arguments], stderr=subprocess.DEVNULL
    )


def two_writers() -> dict[str, Any]:
    """Two processes run one sweep on one store."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        codes = [p.wait(600) for p in [_sweeping(folder, jobs=1) for _ in range(2)]]
        twice = sum(n > 1 for n in begun(folder).values())
        return {"lost": CELLS - len(kept(folder)), "run_again": twice, "exit_codes": codes}


def many(count: int) -> dict[str, Any]:
    """Milliseconds of a cell that does nothing: claimed, kept and, the second time, found."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tasks = sweepwork.tasks(count, 0, folder / "log.txt")
        milliseconds = []
        for _ in range(2):
            begin = time.perf_counter()
            with RunStore(folder) as store:
                sweep(store, tasks, sweepwork.cell)
            milliseconds.append(round((time.perf_counter() - begin) * 1e3 / count, 3))
        first, second = milliseconds
        return {"cells": len(kept(folder)), "kept_ms": first, "found_ms": second}


def side_by_side() -> dict[str, Any]:
    """Seconds of twelve rows with one job and with two, one thread each."""
    seconds = {}
    for n in (1, 2):
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "twelve.yaml"
            path.write_text(TWELVE, encoding="utf-8")
            begin = time.perf_counter()
            Experiment.read(path).run(Path(name) / "r", jobs=n, threads=1)
            seconds[str(n)] = round(time.perf_counter() - begin, 2)
    return {"seconds": seconds, "ratio": round(seconds["1"] / seconds["2"], 2)}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--interrupts", type=int, default=5)
    parser.add_argument("--cells", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    found = {
        "sigkill": killed(signal.SIGKILL, options.kills, options.seed),
        "sigint": killed(signal.SIGINT, options.interrupts, options.seed),
        "two_writers": two_writers(),
        "many": many(options.cells),
        "jobs": side_by_side(),
    }
    parts = (found["sigkill"], found["sigint"], found["two_writers"])
    return {"ok": not any(p["lost"] or p["run_again"] for p in parts)} | found
