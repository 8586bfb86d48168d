"""Never worse: random programs under random rules, targets, settings, budgets and goals.

    python benchmarks/never_worse.py [--seeds 0:1000] [--jobs N] [--time-limit S] [--log FILE]
                                     [--out FILE]

Every search is checked: the independent checker is silent on the answer and on the baseline, the
first goal is never above the baseline's, the schedule is worth what the selection says, and every
schedule is executed and compared with a float64 reference: by its own executor, and dispatch by
dispatch by kernels, those of its plans and of plans for small caches. One program in four is made
of equal blocks, half of these with one that differs: there a search that copies nothing from one
block to another proves the same. Prints one JSON object: counts
per target, setting, rule set and goals, how many answers are strictly better than the baseline, the
median gain, and all failures with the command that repeats them. Exit code 1 if there are any.

With `--log FILE` each search is a line of that file as soon as it is done, and searches that are
there already are not run again: to resume, give the same command.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from hunts.networks import is_hard
from hunts.searches import Verdict, make_case, search
from seeded import parser_of, tell

Row = dict[str, Any]
TABLES = ("target", "setting", "rules", "budget", "goals", "blocks")
SEARCHES_PER_PROCESS = 100  # then a new one: XLA keeps what it has compiled
PATIENCE = 10  # times the solver's limit; a search that takes longer is called slow, and left


class TooSlow(BaseException):
    """Not an Exception: nobody on the way may take it for an answer."""


def search_in_time(seed: int, seconds: float) -> Verdict:
    """A search that is left when it takes far longer than its solver may (not on Windows)."""
    if not hasattr(signal, "setitimer"):
        return search(seed, seconds)

    def ring(*_: object) -> None:
        raise TooSlow

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE * seconds)
    try:
        return search(seed, seconds)
    except TooSlow:
        case = make_case(seed)
        hard = is_hard(case.program)
        return Verdict(
            seed,
            case.names,
            case.program.op_count,
            hard,
            outcome="slow",
            seconds=PATIENCE * seconds,
        )
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def run(seeds: range, jobs: int, seconds: float, log: Path | None) -> list[Row]:
    """One row per seed, in order; those in the log are taken from there."""
    rows = {r["seed"]: r for r in _logged(log) if r["seed"] in seeds}
    missing = [s for s in seeds if s not in rows]
    context = get_context("spawn")
    ask = partial(search_in_time, seconds=seconds)
    # not ProcessPoolExecutor: it hangs when a process has had its share and tasks wait
    with context.Pool(jobs, maxtasksperchild=SEARCHES_PER_PROCESS) as pool:
        for n, verdict in enumerate(pool.imap_unordered(ask, missing), 1):
            row = verdict.to_json()
            rows[row["seed"]] = row
            _note(row, log, f"{n}/{len(missing)}")
    return [rows[s] for s in seeds]


def _logged(log: Path | None) -> list[Row]:
    if log is None or not log.exists():
        return []
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def _note(row: Row, log: Path | None, place: str) -> None:
    if log is not None:
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    if row["failure"]:
        print(f"{place} FAILED {row['failure']}\n  {again(row)}", file=sys.stderr, flush=True)


def again(row: Row) -> str:
    """The command that repeats one search."""
    return f"python benchmarks/never_worse.py --seeds {row['seed']}:{row['seed'] + 1}"


def totals(rows: list[Row]) -> dict[str, Any]:
    """Counts over some searches; `better` is of those that have a baseline to be better than."""
    held = [r for r in rows if r["gain"] is not None]
    better = [r["gain"] for r in held if r["gain"] > 1]
    finite = [min(g, 1e6) for g in better]  # a goal that went down to 0 gains without end
    return {
        "searches": len(rows),
        "hard": sum(r["hard"] for r in rows),
        "inadmissible": sum(r["outcome"] == "inadmissible" for r in rows),
        "slow": sum(r["outcome"] == "slow" for r in rows),
        "baseline_inadmissible": sum(r["value"] is not None and r["gain"] is None for r in rows),
        "compared": len(held),
        "better": len(better),
        "better_share": round(len(better) / len(held), 4) if held else None,
        "median_gain_of_better": round(statistics.median(finite), 4) if finite else None,
        "optimal": sum(r["stop"] == "optimal" for r in rows),
        "executed": sum(r["executed"] for r in rows),
        "dispatches": sum(r["dispatches"] for r in rows),
        "kernels": sum(r["kernels"] for r in rows),
        "plans": sum(r["plans"] for r in rows),
        "failed": sum(bool(r["failure"]) for r in rows),
    }


def report(rows: list[Row], seconds: float) -> dict[str, Any]:
    tables = {
        key: {name: totals(some) for name, some in sorted(_grouped(rows, key).items())}
        for key in TABLES
    }
    each = sorted(r["seconds"] for r in rows)
    return {
        "format": 1,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.python_version()}",
        "seconds": round(seconds, 1),
        "seconds_per_search": {"median": statistics.median(each), "most": each[-1]},
        "totals": totals(rows),
        "by": tables,
        "no_kernels": dict(Counter(why for r in rows for why in r["refused"]).most_common()),
        "slow": [again(r) for r in rows if r["outcome"] == "slow"],
        "failures": [{**r, "again": again(r)} for r in rows if r["failure"]],
    }


def _grouped(rows: Iterable[Row], key: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for r in rows:
        found.setdefault(r["names"][key], []).append(r)
    return found


def main() -> int:
    parser = parser_of(__doc__, 1000, "search")
    parser.add_argument("--time-limit", type=float, default=6.0, help="seconds of each solver")
    options = parser.parse_args()
    begin = time.perf_counter()
    rows = run(options.seeds, options.jobs, options.time_limit, options.log)
    found = report(rows, time.perf_counter() - begin)
    tell(found, options.out)
    return 1 if found["totals"]["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
