"""Pairs of equal programs, one with less work: does the search find the better from the naive one?

    python benchmarks/run.py algebra [--only NAME …] [--theme NAME …] [--rules SET]
                                     [--target T] [--log FILE] [--out FILE]

Both functions of a pair (`tests/fuzz/pairs`) are searched with the same rules for the same target.
A pair is reached if the answer to the naive one is predicted to take no longer than the answer to
the better one. A line of stderr per pair has, in microseconds: the naive input, the answer to it,
the answer to the better input, that input; then processor seconds of both searches, and `proven`
where both are proven over an e-graph that is complete.

A search that fails is a row with its `problem`. Not ok if fewer pairs than wanted are reached.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

from gates import Log, logs, say

from eqsat.model.diag import EqsatError
from fuzz.pairs import PAIRS, THEMES, Pair

REACHED = 0.95  # of the pairs
SAME = 1e-6  # of a predicted time: two sums in another order
SIDES = ("naive", "better")

Row = dict[str, Any]


def row(name: str, options: argparse.Namespace) -> Row:
    """All figures of one pair."""
    entry = PAIRS[name]
    pair = entry.at()
    found: Row = {"pair": name, "theme": entry.theme, "source": entry.source}
    try:
        found |= {side: searched(getattr(pair, side), pair, options) for side in SIDES}
    except EqsatError as problem:
        failed = {"problem": problem.diagnostics[0].message, "reached": False, "proven": False}
        return found | failed
    found["reached"] = _no_longer(found["naive"]["answer_us"], found["better"]["answer_us"])
    found["proven"] = all(found[side]["proven"] for side in SIDES)
    return found


def searched(function: Any, pair: Pair, options: argparse.Namespace) -> Row:
    """What is told of the search of one side."""
    import eqsat

    begin = time.process_time()
    run = eqsat.optimize(
        function, *pair.specs, rules=options.rules, target=options.target, goals=("time",),
        weights=pair.weights, time_limit=options.time_limit,
    )  # fmt: skip
    seconds = time.process_time() - begin
    summary = run.summary()
    goal = summary["goals"]["time_us"]
    return {
        "input_us": summary["baseline"]["time_us"],
        "answer_us": goal["value"],
        "bound_us": goal["bound"],
        "is_input": run.is_input,
        "search_cpu_s": round(seconds, 3),
        "proven": summary["claim"] == "optimal",
        "claim": summary["claim"],
        "nodes": summary["egraph"]["nodes"],
        "egraph_stop": summary["egraph"]["stop"],
    }


def _no_longer(left: float, right: float) -> bool:
    return left <= right * (1 + SAME)


# ---- telling -------------------------------------------------------------------------------------
def line(r: Row) -> str:
    """One row of the table."""
    if "problem" in r:
        return f"{r['pair']:28} FAILED: {r['problem']}"
    naive, better = r["naive"], r["better"]
    times = (naive["input_us"], naive["answer_us"], better["answer_us"], better["input_us"])
    # an input that was not looked at in time has no price
    text = f"{r['pair']:28}" + "".join(f"{float('nan') if t is None else t:11.2f}" for t in times)
    text += f"  {naive['search_cpu_s']:6.2f} {better['search_cpu_s']:6.2f}"
    text += f"  {'reached' if r['reached'] else 'MISSED'}{'' if r['proven'] else ', not proven'}"
    return text


def report(rows: Sequence[Row], options: argparse.Namespace) -> Row:
    """All rows and their counts."""
    return {
        "rules": options.rules,
        "target": options.target,
        "pairs": len(rows),
        "reached": sum(r["reached"] for r in rows),
        "proven": sum(r["proven"] for r in rows),
        "missed": [r["pair"] for r in rows if not r["reached"]],
        "rows": list(rows),
    }


def options(parser: argparse.ArgumentParser) -> None:
    themes = [t.__name__.rpartition(".")[2] for t in THEMES]
    parser.add_argument("--only", nargs="+", choices=PAIRS, metavar="NAME", help="pairs")
    parser.add_argument("--theme", nargs="+", choices=themes, help="pairs of these themes")
    parser.add_argument("--rules", nargs="+", default=["full"], metavar="SET")
    parser.add_argument("--target", default="avx512-xla")
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds of each search")
    logs(parser, "pair")


def measured(options: argparse.Namespace) -> Row:
    log, rows = Log(options.log, "pair", "rules", "target"), []
    asked = {"rules": " ".join(options.rules), "target": options.target}
    for name in _wanted(options):
        found = log.get((name, *asked.values())) or row(name, options) | asked
        if "problem" not in found and (name, *asked.values()) not in log:
            log.add(found)
        say(line(found))
        rows.append(found)
    told = report(rows, options)
    return {"ok": told["reached"] >= REACHED * len(rows)} | told


def _wanted(options: argparse.Namespace) -> list[str]:
    return [
        name
        for name, entry in PAIRS.items()
        if (not options.only or name in options.only)
        and (not options.theme or entry.theme in options.theme)
    ]
