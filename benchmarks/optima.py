"""The optima of chosen programs, targets and goals, beside those that an older eqsat found.

    python benchmarks/optima.py [--small] [--only NAME …] [--targets T …] [--goals G …]
                                [--table FILE] [--new FILE] [--cpu S] [--limit S] [--kill S]
    python benchmarks/optima.py --fill …    # search what the table lacks, and write it there

A cell is a program, a target and goals; `budget` are all goals with the memory 10 % of its
temporaries below what the answer without a budget takes (the table keeps that number). The table
has for each cell `goals` (value and bound of each, as integers: ps, bytes, counts), `stop`, `cuts`
(candidates left out), `cpu` (process seconds); or `refused`, with `proven`; or `slow`, if it was
not back after `--kill` seconds. A search is asked to stop after `--cpu` seconds of the process, so
that a busy machine changes little, and every answer is checked again.

Without `--fill` each cell is searched (or taken from `--new`, which keeps what was searched) and
compared: a line per cell on stderr, one JSON object on stdout. A cell is judged by the first goal
that differs: `better`, `worse`, or `wrong` if both sides proved it over all candidates; `looser`
if all values are the same and one is no longer proven. Exit code 1 if a cell is wrong, refused,
slow or faulty, or worse than what the table calls proven.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gates import TooSlow, asked_and_told, left_after, say
from layers import program

import eqsat
from eqsat.extract.check import check
from eqsat.model.deadline import Stop
from eqsat.model.diag import EqsatError

TABLE = Path(__file__).parent / "optima.json"
JOINT, BUDGET = "time,memory,dispatches", "budget"
LESS = 0.1  # of the temporaries' part of the peak
TINY = ("transposed_pack", "three_readers", "two_packs", "residual", "folded_batch")
QUICK = (*TINY, "padded_chain", "permuted_consumer", "quantized_matmul", "lookup.py:lookup")
MAIN = ("reference", "avx512-xla", "avx512", "tpu-v5e", "gfx942", "iree-like")
OTHERS = (
    "avx512-vnni", "avx2", "avx512-conv2d", "arm64", "riscv64", "no-data-tiling", "vmvx-like",
    "separate-conversions", "sm_80",
)  # fmt: skip
Cell = tuple[str, str, str]  # program, target, goals
Row = dict[str, Any]
SMALL: tuple[Cell, ...] = (
    *((p, t, JOINT) for p in QUICK for t in MAIN),
    *((p, t, g) for p in TINY for t in MAIN for g in ("time", "memory", BUDGET)),
    *((p, t, JOINT) for p in ("transposed_pack", "three_readers") for t in OTHERS),
)
OUTCOMES = ("same", "looser", "better", "worse", "wrong", "refused", "slow", "faulty")


def cells() -> tuple[Cell, ...]:
    """The small ones first, so that a run that is cut short has most of the table."""
    four, two = ("time", "memory", JOINT, BUDGET), ("time", JOINT)
    layers = [("encoder-1", t, g) for t in MAIN for g in four]
    blocks = [("bottlenecks", t, g) for t in ("avx512-xla", "avx512", "gfx942") for g in four]
    blocks += [("bottlenecks", t, "time") for t in ("reference", "tpu-v5e")]
    others = [(p, t, JOINT) for p in ("encoder-1", "bottlenecks") for t in OTHERS]
    nets = [(p, "avx512-xla", g) for p in ("unet", "minilm", "encoder-6") for g in two]
    nets += [("encoder-6", "avx512-xla", g) for g in ("memory", BUDGET)]
    nets += [(p, t, "time") for p in ("unet", "minilm") for t in ("reference", "iree-like")]
    nets += [(p, t, JOINT) for p in ("encoder-6", "minilm") for t in ("avx512", "tpu-v5e")]
    nets += [("encoder-24", t, JOINT) for t in ("avx512-xla", "reference")]
    models = ("resnet50", "bert", "gpt2.py:gpt2", "gpt2.py:gpt2_decode", "llama-4")
    kernels = [(p, "avx512", JOINT) for p in ("encoder-24", "resnet50", "unet", "bert")]
    whole = [(p, "avx512-xla", JOINT) for p in models]
    return (*SMALL, *layers, *blocks, *others, *nets, *whole, *kernels)


# ---- searching -----------------------------------------------------------------------------------
def searched(cell: Cell, source: eqsat.Source, known: Row, options: argparse.Namespace) -> Row:
    """One search; `known` has the budget, if the table knows one."""
    name, target, goals = cell
    row: Row = {"program": name, "target": target, "asked": goals}
    budget = None
    if goals == BUDGET:
        budget = known.get("budget") or _less(source, target, options)
        row["budget"], goals = budget, JOINT
    cpu = time.process_time()
    try:
        with _ended(options) as stop:
            run = eqsat.optimize(
                source, target=target, goals=tuple(goals.split(",")), stop=stop,
                time_limit=options.limit, budget={} if budget is None else {"memory": budget},
            )  # fmt: skip
    except EqsatError as error:
        first = error.diagnostics[0]
        row |= {"refused": first.code, "proven": "(proven)" in first.message}
        return row | {"cpu": round(time.process_time() - cpu, 2)}
    except TooSlow:
        return row | {"slow": options.kill}
    except Exception as error:  # a search that breaks is a finding, and the others go on
        return row | {"faults": [f"{type(error).__name__}: {error}"]}
    cpu = time.process_time() - cpu
    return row | _told(run, goals) | {"cpu": round(cpu, 2)}


def _told(run: eqsat.Run, goals: str) -> Row:
    assert run.selection is not None
    assert run.egraph is not None
    s, found = run.selection, dict(run.selection.goals)
    row: Row = {"goals": {g: [found[g].value, found[g].bound] for g in goals.split(",")}}
    row |= {"stop": s.stop, "cuts": sum(c.count for c in s.cuts)}
    faults = check(run.egraph, run.target, s)
    return row | ({"faults": faults} if faults else {})


def _less(source: eqsat.Source, target: str, options: argparse.Namespace) -> int:
    """The budget of a program, from its answer without one."""
    with _ended(options) as stop:
        s = eqsat.optimize(
            source, target=target, goals=JOINT.split(","), time_limit=options.limit, stop=stop
        ).summary()
    return int(s["goals"]["peak_bytes"]["value"] - LESS * s["bytes"]["arena_bytes"])


@contextmanager
def _ended(options: argparse.Namespace) -> Iterator[Stop]:
    """Something that stops a search after seconds of the process, and leaves it after a clock's."""
    stop, done = Stop(), threading.Event()
    end = time.process_time() + options.cpu

    def watch() -> None:
        while not done.wait(0.1):
            if time.process_time() > end:
                return stop.request()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        with left_after(options.kill):
            yield stop
    finally:
        done.set()
        thread.join()


# ---- the table -----------------------------------------------------------------------------------
def cell_of(row: Row) -> Cell:
    return row["program"], row["target"], row["asked"]


def read(path: Path | None) -> dict[Cell, Row]:
    if path is None or not path.exists():
        return {}
    rows = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return {cell_of(r): r for r in rows}


def write(path: Path, rows: dict[Cell, Row]) -> None:
    """A line per cell, in the order of `cells`, so that differences can be read."""
    place = {c: i for i, c in enumerate(cells())}
    order = sorted(rows, key=lambda c: (place.get(c, len(place)), c))
    lines = ",\n".join(json.dumps(rows[c]) for c in order)
    path.write_text(f'{{"format": 1, "cells": [\n{lines}\n]}}\n', encoding="utf-8")


# ---- comparing -----------------------------------------------------------------------------------
def outcome(was: Row, now: Row) -> str:
    """What became of one search: one of OUTCOMES; by the first goal that differs."""
    for kind, word in (("faults", "faulty"), ("slow", "slow")):
        if kind in now:
            return "same" if kind in was else word
        if kind in was:
            return "better"
    if "refused" in was or "refused" in now:
        return _of_refusals(was, now)
    proven = was["cuts"] == 0 == now["cuts"]
    loose = False
    for goal, (before, least_before) in was["goals"].items():
        after, least = now["goals"][goal]
        loose |= before <= least_before and after > least
        proven &= before <= least_before and after <= least
        if before != after:
            if proven:
                return "wrong"
            return "better" if after < before else "worse"
    return "looser" if loose else "same"


def _of_refusals(was: Row, now: Row) -> str:
    if "refused" in was and "refused" in now:
        return "looser" if was["proven"] and not now["proven"] else "same"
    refusal = was if "refused" in was else now
    if refusal["proven"]:
        return "wrong"
    return "better" if "refused" in was else "refused"


def holds(was: Row, now: Row, outcome: str) -> bool:
    """Whether the table permits it: worse only than what was not proven up to that goal."""
    if outcome != "worse":
        return outcome in ("same", "looser", "better")
    for goal, (before, least) in was["goals"].items():
        if before > least:
            return True
        if now["goals"][goal][0] != before:
            return False
    return True


def line(was: Row, now: Row, outcome: str) -> str:
    """For people."""
    head = f"{outcome:7} {now['program']:20} {now['target']:20} {now['asked']:22}"
    cpu = " ".join(f"{r.get('cpu', '-'):>6}" for r in (was, now))
    if outcome == "same":
        return f"{head} {cpu}"
    shown = [_shown(r) for r in (was, now)]
    return f"{head} {cpu}  {shown[0]} -> {shown[1]}"


def _shown(row: Row) -> str:
    if "goals" not in row:
        ending = f"refused{' (proven)' * row.get('proven', False)}" if "refused" in row else "slow"
        return "".join(row.get("faults", [ending])[:1])
    values = (f"{v}{'' if v <= b else f' (>= {b})'}" for v, b in row["goals"].values())
    return ", ".join((*values, row["stop"], *row.get("faults", ())[:1]))


def report(rows: list[tuple[Row, Row]]) -> Row:
    """Counts, CPU seconds of cells that both have, and each cell that is not the same."""
    judged = [(was, now, outcome(was, now)) for was, now in rows]
    counts = Counter(o for *_, o in judged)
    both = [(w["cpu"], n["cpu"]) for w, n in rows if "cpu" in w and "cpu" in n]
    return {
        "cells": len(rows), "outcomes": {k: counts[k] for k in OUTCOMES},
        "cpu": {"old": round(sum(w for w, _ in both), 1), "new": round(sum(n for _, n in both), 1)},
        "broken": [list(cell_of(w)) for w, n, o in judged if not holds(w, n, o)],
        "differences": [{"outcome": o, "old": w, "new": n} for w, n, o in judged if o != "same"],
    }  # fmt: skip


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fill", action="store_true", help="add what the table lacks")
    parser.add_argument("--small", action="store_true", help="small programs only (a minute)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="programs")
    parser.add_argument("--targets", nargs="+", metavar="TARGET")
    parser.add_argument("--goals", nargs="+", metavar="G", help=f"time, memory, {JOINT}, {BUDGET}")
    parser.add_argument("--table", type=Path, default=TABLE, help="what was found before")
    parser.add_argument("--new", type=Path, help="where what is found now is kept")
    parser.add_argument("--cpu", type=float, default=60.0, help="process seconds of each search")
    parser.add_argument("--limit", type=float, default=1200.0, help="seconds of each search")
    parser.add_argument("--kill", type=float, default=1500.0, help="seconds after which it is left")


def measured(o: argparse.Namespace) -> Row:
    table, new = read(o.table), read(o.new)
    kept, file = (table, o.table) if o.fill else (new, o.new)
    wanted = [
        c for c in (SMALL if o.small else cells())
        if c[0] in (o.only or (c[0],)) and c[1] in (o.targets or (c[1],))
        and c[2] in (o.goals or (c[2],)) and (o.fill or c in table)
    ]  # fmt: skip
    sources: dict[str, eqsat.Source] = {}
    for c in wanted:
        if c not in kept:
            if c[0] not in sources:
                sources = {c[0]: program(c[0])}
            kept[c] = searched(c, sources[c[0]], table.get(c, {}), o)
            if file is not None:
                write(file, kept)
        was = table[c]
        say(line(was, kept[c], outcome(was, kept[c])))
    found = report([(table[c], kept[c]) for c in wanted])
    return {"ok": not found["broken"]} | found


if __name__ == "__main__":
    sys.exit(asked_and_told(__doc__, options, measured))
