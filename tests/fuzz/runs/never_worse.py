"""Never worse: random programs under random rules, targets, settings, budgets and goals.

    python benchmarks/run.py never-worse [--seeds 0:1000] [--jobs N] [--time-limit S]
                                         [--log FILE] [--out FILE]

Every search is checked: the independent checker is silent on the answer and on the baseline, the
first goal is never above the baseline's, the schedule is worth what the selection says, and every
schedule is executed and compared with a float64 reference: by its own executor, and dispatch by
dispatch by kernels, those of its plans and of plans for small caches. One program in four is made
of equal blocks, half of these with one that differs: there a search that copies nothing from one
block to another proves the same. Prints one JSON object: counts
per target, setting, rule set and goals, how many answers are strictly better than the baseline, the
median gain, and all failures with the command that repeats them. Not ok if there are any.
With `--log FILE` the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from gates import Log, TooSlow, as_they_come, grouped, left_after, say, seeded

from fuzz.networks import is_hard
from fuzz.searches import Verdict, make_case, search

Row = dict[str, Any]
TABLES = ("target", "setting", "rules", "budget", "goals", "blocks")
PATIENCE = 10  # times the solver's limit; a search that takes longer is called slow, and left


def search_in_time(seed: int, seconds: float) -> Row:
    """A search that is left when it takes far longer than its solver may."""
    try:
        with left_after(PATIENCE * seconds):
            return search(seed, seconds).to_json()
    except TooSlow:
        case = make_case(seed)
        hard = is_hard(case.program)
        ops, late = case.program.op_count, PATIENCE * seconds
        return Verdict(seed, case.names, ops, hard, outcome="slow", seconds=late).to_json()


def run(seeds: range, jobs: int, seconds: float, log: Path | None) -> list[Row]:
    """One row per seed, in order; those in the log are taken from there."""
    rows = Log(log, "seed")
    missing = [s for s in seeds if s not in rows]
    ask = partial(search_in_time, seconds=seconds)
    for n, row in enumerate(as_they_come(ask, missing, jobs), 1):
        rows.add(row)
        if row["failure"]:
            say(f"{n}/{len(missing)} FAILED {row['failure']}\n  {again(row)}")
    return [rows[s] for s in seeds]


def again(row: Row) -> str:
    """The command that repeats one search."""
    return f"python benchmarks/run.py never-worse --seeds {row['seed']}:{row['seed'] + 1}"


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


def report(rows: list[Row]) -> dict[str, Any]:
    each = sorted(r["seconds"] for r in rows)
    return {
        "seconds_per_search": {"median": statistics.median(each), "most": each[-1]},
        "totals": totals(rows),
        "by": {key: _table(rows, key) for key in TABLES},
        "no_kernels": dict(Counter(why for r in rows for why in r["refused"]).most_common()),
        "slow": [again(r) for r in rows if r["outcome"] == "slow"],
        "failures": [{**r, "again": again(r)} for r in rows if r["failure"]],
    }


def _table(rows: list[Row], key: str) -> dict[str, Row]:
    return {n: totals(some) for n, some in grouped(rows, lambda r: r["names"][key]).items()}


def options(parser: argparse.ArgumentParser) -> None:
    seeded(parser, 1000, "search")
    parser.add_argument("--time-limit", type=float, default=6.0, help="seconds of each solver")


def measured(options: argparse.Namespace) -> Row:
    found = report(run(options.seeds, options.jobs, options.time_limit, options.log))
    return {"ok": not found["totals"]["failed"]} | found
