"""Is a planner or a generator that is wrong by one told? Mutants of both against what checks them.

    python benchmarks/run.py plan-mutants [--each 12] [--records 2] [--numbers 0:2]
                                          [--more 2:3] [--parts PART …] [--seed 0] [--log FILE]

`each` mutants of every module of the nests, the planner and the generator (a number, a count, an
offset, a comparison, an end of a range, an order or a condition changed by one) run in a process
each, on the edge cases (`fuzz.edges`) that reach their line. Those that nothing tells from the
code as it is run on further sizes (`more`), and what is left then is listed. Beside them,
`records` nests and as many plans of every case are changed by one themselves. Prints one JSON
object; not ok if a check refuses what the code as it is makes of a case (`alarms`).

Verdicts: `refused` by the check of nests or of plans; `caught`, as a kernel writes something wrong,
touches memory of others, is no IR or does not end; `crashes`, an exception; `raises`: it only
refuses more than before; `right`: other plans or other code, whose kernels are right; `same`: the
same code at every size that was tried. `slips` counts the mutants of nests and planner that were
wrong at a size where no check refused them.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gates import Log, logs, say, seeds

from fuzz.codemutants import CodeMutant
from fuzz.planmutants import PARTS, Known, drawn, known, verdict
from fuzz.recordmutants import verdicts

Row = dict[str, Any]
KILLED = ("refused", "caught", "crashes")


def run(
    mutants: Iterable[tuple[str, CodeMutant]], found: Known, log: Path | None, again: bool
) -> list[Row]:
    """One row per mutant; those in the log are taken from there."""
    done = Log(log, "mutant", "again")
    rows: list[Row] = []
    for part, mutant in mutants:
        row = done.get((str(mutant), again))
        if row is None:
            begin = time.monotonic()
            row = {"part": part, "again": again, **verdict(mutant, found)}
            row["seconds"] = round(time.monotonic() - begin, 2)
            say(f"{row['verdict']:8} {row['mutant']}")
            done.add(row)
        rows.append(row)
    return rows


def report(rows: list[Row], records: list[Row], alarms: Iterable[str]) -> Row:
    """Verdicts by part and by kind of change."""
    whats = ("nest", "plan")
    parts = {p: [r for r in rows if r["part"] == p] for p in PARTS}
    kinds = sorted({r["kind"] for r in rows})
    killed = [r for r in rows if r["verdict"] in KILLED]
    slips = [r for r in rows if r["part"] != "generator" and r.get("slipped")]
    return {
        "mutants": len(rows),
        "told": len(killed),
        "verdicts": {p: dict(Counter(r["verdict"] for r in own)) for p, own in parts.items()},
        "kinds": {k: dict(Counter(r["verdict"] for r in rows if r["kind"] == k)) for k in kinds},
        "alarms": list(alarms),
        "slips": [{"mutant": r["mutant"], "wrong": r.get("wrong")} for r in slips],
        "records": {
            w: dict(Counter(r["verdict"] for r in records if r["what"] == w)) for w in whats
        },
        "records_not_refused": [r for r in records if r["verdict"] in ("caught", "right")],
        "not_told": [
            {k: r.get(k) for k in ("verdict", "mutant", "cases", "differ", "executed")}
            for r in rows
            if r["verdict"] not in KILLED
        ],
    }


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--each", type=int, default=12, help="mutants of a module, at most")
    parser.add_argument("--records", type=int, default=2, help="nests, and plans, of each case")
    parser.add_argument("--numbers", type=seeds, default=range(2), help="sizes, FROM:TO")
    parser.add_argument("--more", type=seeds, default=range(2, 3), help="sizes of a second look")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seed", type=int, default=0)
    logs(parser, "mutant")


def measured(o: argparse.Namespace) -> Row:
    found = known(o.numbers)
    mutants = list(drawn(found, o.each, o.seed, o.parts))
    rows = run(mutants, found, o.log, again=False)
    left = [m for m, r in zip(mutants, rows, strict=True) if r["verdict"] not in KILLED]
    further = known(o.more) if left else Known((), {})
    second = {r["mutant"]: r for r in run(left, further, o.log, again=True)}
    rows = [_both(r, second.get(r["mutant"])) for r in rows]
    records = list(verdicts(found, o.records, o.seed))
    alarms = *found.alarms, *further.alarms
    return {"ok": not alarms} | report(rows, records, alarms)


def _both(first: Row, second: Row | None) -> Row:
    """The verdict that says more, and the cases of both looks."""
    if second is None:
        return first
    order = (*KILLED, "right", "raises", "same")
    best = min(first, second, key=lambda r: order.index(r["verdict"]))
    counts = {
        k: (first.get(k) or 0) + (second.get(k) or 0) for k in ("cases", "differ", "executed")
    }
    return {**best, **counts}
