"""Which dispatches are loop nests, and whether these mean what their members do.

    python benchmarks/run.py nests [--seeds 0:200] [--targets T …] [--library] [--only NAME …]
                               [--limit S] [--points N] [--out FILE]

Searches random programs (number s on target s mod their count, as `arena` does), or
with `--library` the programs of the library on every target, and builds the nest of every dispatch
of what is chosen (`eqsat.ops.nests.nest`). A nest is evaluated in NumPy float64 from its strides
and bounds (`fuzz.nestmeaning`) and compared with the reference, unless a stage of it has more than
N points. Prints one JSON object: the share of dispatches that are nests, why the others are none,
microseconds per nest, and every disagreement; not ok if there is one.
"""

from __future__ import annotations

import argparse
import re
import time
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np
from gates import say, seeded
from layers import LIBRARY, TARGETS

from eqsat.api import Source
from eqsat.execute.draw import random_inputs
from eqsat.model.diag import EqsatError
from eqsat.model.nest import Nest, NoNest
from eqsat.model.schedule import Schedule
from eqsat.ops.meaning import programs as meaning
from eqsat.ops.nests.nest import forget, nest_of_dispatch
from fuzz.nestmeaning import disagreement
from fuzz.runs.arena import cases_of, searched

Row = dict[str, Any]


def case(program: int | str, target: str, limit: float, points: int) -> Row:
    """One search and the nests of its dispatches."""
    row: Row = {"program": program, "target": target}
    try:
        source, schedule, _ = searched(program, target, limit)
    except EqsatError as error:
        return row | {"refused": str(error).splitlines()[0]}
    return row | _nests(source, schedule, points)


def _nests(source: Source, schedule: Schedule, points: int) -> Row:
    found, reasons, seconds = [], [], []
    for d in schedule.dispatches:
        forget()
        begin = time.perf_counter()
        try:
            found.append((d.ops, nest_of_dispatch(schedule, d)))
        except NoNest as why:
            reasons.append(re.sub(r"%\d+ ", "", str(why)))
        seconds.append(time.perf_counter() - begin)
    small = [(name, n) for name, n in found if _points(n) <= points]
    wrong: list[str] = []
    if small:
        with np.errstate(all="ignore"):
            values = _values(source, schedule, {b for _, n in small for b in (*n.reads, *n.writes)})
            said = ((name, disagreement(n, values)) for name, n in small)
            wrong = [f"{name}: {what}" for name, what in said if what]
    return {
        "dispatches": len(schedule.dispatches),
        "nests": len(found),
        "evaluated": len(small),
        "reasons": reasons,
        "wrong": wrong,
        "seconds": seconds,
    }


def _values(source: Source, schedule: Schedule, wanted: set[int]) -> dict[int, Any]:
    inputs = random_inputs(schedule.program, np.random.default_rng(0))
    walk = meaning.walk(schedule.program, inputs, source.weights, source.opaque)
    return {i: np.asarray(results[0]) for i, results in walk if i in wanted}


def _points(nest: Nest) -> int:
    """Of the stage or store that has the most."""
    stages = (nest.points((*s.loops, *s.reduced)) for s in nest.stages)
    return max([*stages, *(nest.points(s.loops) for s in nest.stores)], default=1)


def totals(rows: Sequence[Row]) -> Row:
    """Counts over some cases, and the microseconds of the median and of the slowest nest."""
    seconds = [s for r in rows for s in r.get("seconds", ())]
    dispatches, nests = (sum(r.get(k, 0) for r in rows) for k in ("dispatches", "nests"))
    return {
        "cases": len(rows),
        "dispatches": dispatches,
        "nests": nests,
        "share": round(nests / max(dispatches, 1), 4),
        "evaluated": sum(r.get("evaluated", 0) for r in rows),
        "wrong": sum(len(r.get("wrong", ())) for r in rows),
        "median_us": round(median(seconds) * 1e6) if seconds else None,
        "slowest_us": round(max(seconds) * 1e6) if seconds else None,
        "reasons": dict(Counter(w for r in rows for w in r.get("reasons", ())).most_common()),
    }


def options(parser: argparse.ArgumentParser) -> None:
    seeded(parser, 200, "case")
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), metavar="TARGET")
    parser.add_argument("--library", action="store_true", help="the program library instead")
    parser.add_argument("--only", nargs="+", default=list(LIBRARY), metavar="NAME")
    parser.add_argument("--limit", type=float, default=5.0, help="seconds of each search")
    parser.add_argument("--points", type=float, default=2**24, help="of a stage that is evaluated")


def measured(o: argparse.Namespace) -> Row:
    rows = []
    for program, target in cases_of(o):
        rows.append(row := case(program, target, o.limit, o.points))
        if row.get("wrong"):
            say(f"{program} {target} {row['wrong']}")
    wrong = [r for r in rows if r.get("wrong")]
    return {
        "ok": not wrong,
        "totals": totals(rows),
        "by_target": {t: totals([r for r in rows if r["target"] == t]) for t in o.targets},
        "refused": [r for r in rows if "refused" in r],
        "wrong": wrong,
    }
