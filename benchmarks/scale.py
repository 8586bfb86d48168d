"""Whole models: what a search of them takes, each in a process of its own.

    python benchmarks/scale.py [--parts P …] [--only NAME …] [--targets T …] [--limit S]
                               [--cores N …] [--kill S] [--out FILE]

Parts: `models` (time, memory, dispatches), `members` (BERT with groups of four), `memory` (memory
first), `budget` (memory 10 % of its temporaries below what the answer without a budget takes),
`front` (all best trade-offs), `deadline` (a time limit of two seconds). NAME is `encoder-N`,
`llama-N` (N layers of Llama 2 7B), or what `eqsat optimize` takes.

Prints one JSON object with a row per search: `cpu` is the process time of the whole search, with
what it loads (as bytecode, which is written first), `wall` its wall time, both from the end of
reading; `peak_rss` is that of the process in bytes, with reading; `candidates` is what the summary
says about them. `wanted` are the upper bounds of a row, `missed` which of them are not kept.
`growth` has per target the exponent of the process time over layers, from 6 to 24 encoders. With
`--cores` every process is bound to these. Exit code 1 if anything is missed.
"""

from __future__ import annotations

import argparse
import compileall
import json
import math
import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gates import alone, asked_and_told, exponent, say
from layers import program

HERE = Path(__file__).resolve().parent
# CPU seconds that are wanted on the targets of CPUs; on others and on simple models twice that
MODELS: dict[str, float | None] = {
    "encoder-1": 1.5, "encoder-6": None, "encoder-24": 10.0, "minilm": 8.0, "bert": 12.0,
    "gpt2.py:gpt2": 12.0, "gpt2.py:gpt2_decode": 10.0, "llama.py:llama2_7b": 15.0, "unet": 5.0,
}  # fmt: skip
MAIN = ("avx512", "avx512-xla")
OTHERS = ("reference", "iree-like", "gfx942")
GAP, EXPONENT = 0.005, 0.6
LLAMA_RSS, MEMBERS_RSS = 10**9, 6 * 10**8
MEMORY = {"encoder-1": 3.0, "encoder-6": 15.0}  # CPU seconds, memory first
MEMORY_GAP = 0.01
LESS = 0.1  # of the temporaries' part of the peak
FRONTS: dict[str, dict[str, float]] = {
    "encoder-6": {"wall": 30.0, "complete": True},
    "gates": {"points": 5},
}
AT_LEAST = ("points", "complete")  # of a front; all others are upper bounds
SHORT, IN_ALL = 2.0, 3.0  # seconds of wall time: the limit, and when an answer has to be there
PARTS = ("models", "members", "memory", "budget", "front", "deadline")

Row = dict[str, Any]


def cases(parts: list[str], only: list[str] | None, targets: list[str] | None) -> Iterator[Row]:
    """What is asked, and what is wanted of the answer."""
    for part in parts:
        for name in only or _programs(part):
            for target in targets or ((*MAIN, *OTHERS) if part == "models" else MAIN):
                wanted = _wanted(part, name, target)
                yield {"part": part, "program": name, "target": target, "wanted": wanted}


def _programs(part: str) -> tuple[str, ...]:
    chosen = {"members": ("bert",), "memory": MEMORY, "budget": MEMORY, "front": FRONTS}
    return tuple(chosen.get(part, MODELS))


def _wanted(part: str, name: str, target: str) -> dict[str, float]:
    """Bounds by key of a row."""
    match part:
        case "models":
            found = {"gap": GAP}
            if (cpu := MODELS.get(name)) is not None:
                found["cpu"] = cpu if target in MAIN else 2 * cpu
            return found | ({"peak_rss": LLAMA_RSS} if "llama2_7b" in name else {})
        case "members":
            return {"gap": GAP, "peak_rss": MEMBERS_RSS}
        case "memory" | "budget":
            return {"gap": MEMORY_GAP} | ({"cpu": MEMORY[name]} if name in MEMORY else {})
        case "front":
            return FRONTS.get(name, {})
        case _:
            return {"wall": IN_ALL}


# ---- in a process of its own ---------------------------------------------------------------------
def searched(row: Row, source: Any, limit: float) -> Row:
    """One search of a program that was read before its clocks start."""
    import eqsat

    asked: dict[str, Any] = {"target": row["target"], "time_limit": limit}
    if row["part"] == "members":
        asked["settings"] = ("fusion.members=4",)
    if row["part"] == "memory":
        asked["goals"] = ("memory", "time", "dispatches")
    if row["part"] == "budget":
        asked["budget"] = {"memory": _less(eqsat.optimize(source, **asked).summary())}
    if row["part"] == "deadline":
        asked["time_limit"] = SHORT
    cpu, wall = time.process_time(), time.monotonic()
    found = _front(source, asked) if row["part"] == "front" else _answer(source, asked)
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"cpu": round(cpu, 2), "wall": round(wall, 2), "peak_rss": rss} | found


def _less(s: Row) -> int:
    """The budget of a program whose answer without one is known."""
    return int(s["goals"]["peak_bytes"]["value"] - LESS * s["bytes"]["arena_bytes"])


def _answer(source: Any, asked: dict[str, Any]) -> Row:
    import eqsat
    from eqsat.model.diag import EqsatError

    try:
        s = eqsat.optimize(source, **asked).summary()
    except EqsatError as error:
        if error.exit_code != 3:
            raise
        first = error.diagnostics[0]
        proven = "(proven)" in first.message
        return {"refused": first.message, "proven": proven, "budget": asked.get("budget")}
    return {
        "stop": s["stop"],
        "gap": max(g["gap"] for g in s["goals"].values() if g["gap"] is not None),
        "gaps": {k: g["gap"] for k, g in s["goals"].items()},
        "goals": {k: g["value"] for k, g in s["goals"].items()},
        "ops": s["program"]["ops"],
        "nodes": s["egraph"]["nodes"],
        "blocks": s["egraph"]["blocks"],
        "left_out": sum(c["count"] for c in s["cuts"] or ()),
        "candidates": s.get("candidates"),
        "budget": asked.get("budget"),
        "seconds": s["seconds"],
    }


def _front(source: Any, asked: dict[str, Any]) -> Row:
    import eqsat

    found = eqsat.pareto(source, **asked)
    gaps = [g.gap for p in found.points if p.selection for _, g in p.selection.goals]
    return {
        "stop": found.stop,
        "points": len(found.points),
        "at_least": found.at_least,
        "complete": found.complete,
        "gap": max(gaps),
        "goals": [
            {k: g.value for k, g in p.selection.goals} for p in found.points if p.selection
        ],
    }  # fmt: skip


# ---- the process that starts them ----------------------------------------------------------------
def asked(row: Row, options: argparse.Namespace) -> Row:
    """The row with its figures, or with how its process ended."""
    words = ["--one", json.dumps(row), "--limit", str(options.limit)]
    words += ["--cores", *map(str, options.cores)] if options.cores else []
    row |= alone(__file__, words, options.kill)
    ended = "cpu" in row
    return row | {"missed": missed(row) if ended else sorted(row["wanted"])}


def missed(row: Row) -> list[str]:
    """The keys of what is wanted and not kept; a refusal has to be proven."""
    wanted = row["wanted"]
    if "refused" in row:
        found = [k for k in ("cpu", "wall") if row[k] > wanted.get(k, math.inf)]
        return found if row["proven"] else [*found, "proven"]
    return [k for k, v in wanted.items() if (row[k] < v if k in AT_LEAST else row[k] > v)]


def growth(rows: list[Row]) -> dict[str, Any]:
    """Per target the exponent of process time over layers, from the fewest to the most."""
    found: dict[str, Any] = {}
    for target in dict.fromkeys(r["target"] for r in rows):
        at = {
            int(r["program"].partition("-")[2]): r["cpu"]
            for r in rows
            if r["part"] == "models" and r["target"] == target and "cpu" in r
            and r["program"] in ("encoder-6", "encoder-24")
        }  # fmt: skip
        if len(at) == 2:
            power = exponent((6, at[6]), (24, at[24]))
            found[target] = {"cpu": at, "exponent": power, "wanted": EXPONENT}
    return found


def told(row: Row) -> str:
    """A line for people."""
    head = f"{row['part']:8} {row['program']:20} {row['target']:11}"
    if "cpu" not in row:
        return f"{head} {row.get('error') or 'killed'}"
    figures = f"cpu {row['cpu']:6.2f} wall {row['wall']:6.2f} rss {row['peak_rss'] / 1e9:5.2f} GB"
    if "refused" in row:
        ending = f"refused{' (proven)' * row['proven']}"
    else:
        ending = f"gap {row['gap']:8.4%} {row['stop']}"
    points = f" {row['points']} of {row['at_least']} points" if "points" in row else ""
    return f"{head} {figures} {ending}{points}{'  MISSED ' * bool(row['missed'])}" + ", ".join(
        f"{k} {row['wanted'][k]:g}" if k in row["wanted"] else k for k in row["missed"]
    )


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS, metavar="P")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="programs")
    parser.add_argument("--targets", nargs="+", metavar="TARGET")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of each search")
    parser.add_argument("--cores", nargs="+", type=int, metavar="N", help="to run on")
    parser.add_argument("--kill", type=float, default=400.0, help="seconds of each process")
    parser.add_argument("--one", help=argparse.SUPPRESS)


def measured(o: argparse.Namespace) -> Row:
    compileall.compile_dir(HERE.parent / "eqsat", quiet=1)  # as an installed package is
    rows: list[Row] = []
    for row in cases(o.parts, o.only, o.targets):
        rows.append(asked(row, o))
        say(told(rows[-1]))
    grown = growth(rows)
    late = [f"{r['part']}: {r['program']} on {r['target']}" for r in rows if r["missed"]]
    late += [f"growth on {t}" for t, g in grown.items() if g["exponent"] > EXPONENT]
    found = {"cores": o.cores, "limit": o.limit, "missed": late, "growth": grown, "rows": rows}
    return {"ok": not late} | found


def one(o: argparse.Namespace) -> Row:
    """A process of `asked`."""
    if o.cores:
        os.sched_setaffinity(0, o.cores)  # before a library starts its threads
    row = json.loads(o.one)
    return searched(row, program(row["program"]), o.limit)


if __name__ == "__main__":
    sys.exit(asked_and_told(__doc__, options, measured, one=one))
