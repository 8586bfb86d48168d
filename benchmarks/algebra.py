"""Pairs of equal programs, one with less work: does the search find the better from the naive one?

    python benchmarks/algebra.py [--only NAME …] [--theme NAME …] [--rules SET] [--target T]
                                 [--clock] [--core N] [--log FILE] [--out FILE]

Both functions of a pair (`benchmarks/pairs`) are searched with the same rules for the same target.
A pair is reached if the answer to the naive one is predicted to take no longer than the answer to
the better one. A line of stderr per pair has, in microseconds: the naive input, the answer to it,
the answer to the better input, that input; then processor seconds of both searches, and `proven`
where both are proven over an e-graph that is complete.

With `--clock` both answers and `jax.jit` of both inputs are timed beside each other on one pinned
core, at least 30 rounds, by process time. A pair is kept if the answer to the naive one takes at
most 5 % longer than that to the better one; or, where `jax.jit` gains nothing by the better form,
than `jax.jit` of the naive one. Where both answers are one schedule (`same`) they are timed as
well, but a difference is the machine's. An answer whose numbers differ from those of `jax.jit` is
not kept.

With `--log FILE` each row is a line of that file as soon as it is there, and is not made again.
A search that fails is a row with its `problem`.
Prints one JSON object. Exit code 1 if fewer pairs than wanted are reached or kept.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clock import pin
from hunts.worst import largest_difference
from pairs import PAIRS, THEMES, Pair
from seeded import tell

from eqsat.model.diag import EqsatError
from eqsat.model.program import is_same

REACHED, KEPT = 0.95, 0.90  # shares that are wanted, by the model and by the clock
SAME = 1e-6  # of a predicted time: two sums in another order
WITHIN = 1.05  # of a measured time
MOST_ERROR = 1e-3  # relative; inputs are f32, sums are reordered
SIDES = ("naive", "better")

Row = dict[str, Any]


def row(name: str, options: argparse.Namespace) -> Row:
    """All figures of one pair."""
    entry = PAIRS[name]
    pair = entry.at()
    found: Row = {"pair": name, "theme": entry.theme, "source": entry.source}
    try:
        runs = {side: searched(getattr(pair, side), pair, options) for side in SIDES}
    except EqsatError as problem:
        failed = {"problem": problem.diagnostics[0].message, "reached": False, "proven": False}
        return found | failed | ({"clock": {"kept": False}} if options.clock else {})
    found |= {side: figures for side, (_, figures) in runs.items()}
    found["reached"] = _no_longer(found["naive"]["answer_us"], found["better"]["answer_us"])
    found["proven"] = all(found[side]["proven"] for side in SIDES)
    if options.clock:
        found["clock"] = measured(pair, {s: run for s, (run, _) in runs.items()}, options.rounds)
        found["clock"]["same"] = _one_answer(*(run for run, _ in runs.values()))
        found["clock"]["kept"] |= found["clock"]["same"] and found["clock"]["is_right"]
    return found


def _one_answer(naive: Any, better: Any) -> bool:
    """Whether both are executed as the same schedule."""
    left, right = naive.schedule, better.schedule
    if left is None or right is None or naive.is_input or better.is_input:
        return False
    return is_same(left.program, right.program) and left.dispatches == right.dispatches


def searched(function: Any, pair: Pair, options: argparse.Namespace) -> tuple[Any, Row]:
    """The run of one side, and what is told of it."""
    import eqsat

    begin = time.process_time()
    run = eqsat.optimize(
        function, *pair.specs, rules=options.rules, target=options.target, goals=("time",),
        weights=pair.weights, time_limit=options.time_limit,
    )  # fmt: skip
    seconds = time.process_time() - begin
    summary = run.summary()
    goal = summary["goals"]["time_us"]
    return run, {
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


def measured(pair: Pair, runs: dict[str, Any], rounds: int) -> Row:
    """Medians of process time per call in microseconds, ratios, and the error of the answer."""
    import jax

    from eqsat.execute.timing import interleave, interval

    arrays = [jax.device_put(a) for a in pair.draw()]
    calls = {side: run.compile(check="never") for side, run in runs.items()}
    calls |= {f"jax_{side}": jax.jit(getattr(pair, side)) for side in SIDES}
    error = largest_difference(calls["naive"](*arrays), calls["jax_naive"](*arrays))
    count, seconds = interleave({k: lambda f=f: f(*arrays) for k, f in calls.items()}, rounds)
    cpu = {k: [s[1] / count for s in batches] for k, batches in seconds.items()}

    def ratio(left: str, right: str) -> list[float]:
        ratios = [a / b for a, b in zip(cpu[left], cpu[right], strict=True)]
        return [round(v, 4) for v in interval(ratios)]

    found: Row = {"rounds": len(cpu["naive"]), "error": error}
    found |= {f"{k}_us": round(statistics.median(v) * 1e6, 2) for k, v in cpu.items()}
    found["to_better"] = ratio("naive", "better")
    found["to_jax"] = ratio("naive", "jax_naive")
    found["jax_gain"] = ratio("jax_naive", "jax_better")
    is_better = found["jax_gain"][0] > 1
    is_quick = found["to_better"][0] <= WITHIN or (not is_better and found["to_jax"][0] <= WITHIN)
    found["is_right"] = error <= MOST_ERROR
    found["kept"] = is_quick and found["is_right"]
    return found


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
    if "clock" in r:
        c = r["clock"]
        text += f"  clock {c['naive_us']:.0f} {c['better_us']:.0f}"
        text += f" jax {c['jax_naive_us']:.0f} {c['jax_better_us']:.0f}"
        text += ", one schedule" if c["same"] else ""
        text += "" if c["kept"] else " NOT KEPT"
        text += "" if c["error"] <= MOST_ERROR else f", WRONG by {c['error']:.3g}"
    return text


def report(rows: Sequence[Row], options: argparse.Namespace) -> Row:
    """All rows and their counts."""
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    found: Row = {
        "format": 1,
        "machine": machine,
        "rules": options.rules,
        "target": options.target,
        "pairs": len(rows),
        "reached": sum(r["reached"] for r in rows),
        "proven": sum(r["proven"] for r in rows),
        "missed": [r["pair"] for r in rows if not r["reached"]],
    }
    if options.clock:
        found["kept"] = sum(r["clock"]["kept"] for r in rows)
        found["not_kept"] = [r["pair"] for r in rows if not r["clock"]["kept"]]
    return found | {"rows": list(rows)}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    themes = [t.__name__.rpartition(".")[2] for t in THEMES]
    parser.add_argument("--only", nargs="+", choices=PAIRS, metavar="NAME", help="pairs")
    parser.add_argument("--theme", nargs="+", choices=themes, help="pairs of these themes")
    parser.add_argument("--rules", nargs="+", default=["full"], metavar="SET")
    parser.add_argument("--target", default="avx512-xla")
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds of each search")
    parser.add_argument("--clock", action="store_true", help="execute and time as well")
    parser.add_argument("--core", type=int, help="the core to time on; the first allowed one")
    parser.add_argument("--rounds", type=int, default=60, help="at most; never fewer than 30")
    parser.add_argument("--log", type=Path, help="a line per pair; what is there is not repeated")
    parser.add_argument("--out", type=Path, help="write the JSON there instead of printing it")
    options = parser.parse_args()
    if options.clock:
        pin(options.core)
    rows = list(_rows(_wanted(options), options))
    found = report(rows, options)
    tell(found, options.out)
    if not rows:
        return 0
    kept = found.get("kept", len(rows))
    return int(found["reached"] < REACHED * len(rows) or kept < KEPT * len(rows))


def _wanted(options: argparse.Namespace) -> list[str]:
    return [
        name
        for name, entry in PAIRS.items()
        if (not options.only or name in options.only)
        and (not options.theme or entry.theme in options.theme)
    ]


def _rows(names: Sequence[str], options: argparse.Namespace) -> Any:
    """Rows of the log where it has them, else made now."""
    asked = {"rules": options.rules, "target": options.target, "clock": options.clock}
    log: Path | None = options.log
    there = log.read_text(encoding="utf-8").splitlines() if log and log.exists() else []
    known = [json.loads(text) for text in there]
    done = {r["row"]["pair"]: r["row"] for r in known if r["asked"] == asked}
    for name in names:
        found = done.get(name) or row(name, options)
        print(line(found), file=sys.stderr, flush=True)
        if log and name not in done and "problem" not in found:
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"asked": asked, "row": found}) + "\n")
        yield found


if __name__ == "__main__":
    sys.exit(main())
