"""Work of synthetic sweeps; workers and killed processes import it by name."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from eqsat.lab.store.record import FOUND, RunRecord
from eqsat.lab.store.store import RunStore
from eqsat.lab.sweep import RowTask, local_crew, sweep


def cell(payload):
    """(key, seconds, log): a record after so many seconds, and a line of the log for each start."""
    key, seconds, log = payload
    with Path(log).open("a", encoding="utf-8") as file:
        file.write(f"{key}\n")
    time.sleep(seconds)
    return made(key)


def made(key):
    goal = {"goal": "time", "rank": 1, "value": 1.5, "bound": 1.5, "gap": 0.0, "input": 3.0}
    figures = {k: {"value": 1.5, "bound": 1.5, "gap": 0.0} for k in ("time_us", "peak_bytes")}
    counts = ("dispatches", "packs", "unpacks", "transposes", "fused_conversions")
    summary = {
        "goals": figures, "counts": dict.fromkeys(counts, 1), "bytes": {"bytes_moved": 1},
        "egraph": {"nodes": 1}, "seconds": {"total": 0.1}, "stop": "optimal", "claim": "optimal",
        "candidates": 1, "baseline": None, "verify": None, "rule_check": None,
    }  # fmt: skip
    return RunRecord(key, "p", "t", FOUND, summary=summary, goals=(goal,), totals_s=(0.1,))


def deadly(payload):
    """A cell whose worker is killed while it works, as one out of memory is, if it says so."""
    key, _, log = payload
    if key.startswith("deadly") or (key.startswith("once") and not Path(f"{log}.{key}").exists()):
        Path(f"{log}.{key}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return cell(payload)


def tasks(count, seconds, log):
    return [
        RowTask(f"row {i}", f"{i:032d}", "p", "t", (f"{i:032d}", seconds, str(log)))
        for i in range(count)
    ]


def main(folder, count, seconds, jobs):
    """A sweep in a process of its own, to be killed."""
    log = Path(folder) / "log.txt"
    with RunStore(folder) as store, local_crew(int(jobs), lambda *_: None) as crew:
        sweep(store, tasks(int(count), float(seconds), log), cell, crew=crew)


if __name__ == "__main__":
    main(*sys.argv[1:])
