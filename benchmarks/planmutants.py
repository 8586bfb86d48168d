"""Is a planner or a generator that is wrong by one told? Mutants of both against what checks them.

    python benchmarks/planmutants.py [--each 12] [--records 2] [--numbers 0:2] [--more 2:3]
                                     [--parts PART …] [--seed 0] [--log FILE] [--out FILE]

`each` mutants of every module of the nests, the planner and the generator (a number, a count, an
offset, a comparison, an end of a range, an order or a condition changed by one) run in a process
each, on the edge cases (`hunts/edges.py`) that reach their line. Those that nothing tells from the
code as it is run on further sizes (`more`), and what is left then is listed. Beside them,
`records` nests and as many plans of every case are changed by one themselves. Prints one JSON
object; exit code 1 if a check refuses what the code as it is makes of a case (`alarms`).

Verdicts: `refused` by the check of nests or of plans; `caught`, as a kernel writes something wrong,
touches memory of others, is no IR or does not end; `crashes`, an exception; `raises`: it only
refuses more than before; `right`: other plans or other code, whose kernels are right; `same`: the
same code at every size that was tried. `slips` counts the mutants of nests and planner that were
wrong at a size where no check refused them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hunts.codemutants import CodeMutant
from hunts.planmutants import PARTS, Known, drawn, known, verdict
from hunts.recordmutants import verdicts

Row = dict[str, Any]
KILLED = ("refused", "caught", "crashes")


def run(
    mutants: Iterable[tuple[str, CodeMutant]], found: Known, log: Path | None, again: bool
) -> list[Row]:
    """One row per mutant; those in the log are taken from there."""
    done = {(r["mutant"], r["again"]): r for r in _logged(log)}
    rows: list[Row] = []
    for part, mutant in mutants:
        row = done.get((str(mutant), again))
        if row is None:
            begin = time.monotonic()
            row = {"part": part, "again": again, **verdict(mutant, found)}
            row["seconds"] = round(time.monotonic() - begin, 2)
            _note(row, log)
        rows.append(row)
    return rows


def _logged(log: Path | None) -> list[Row]:
    if log is None or not log.exists():
        return []
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def _note(row: Row, log: Path | None) -> None:
    print(f"{row['verdict']:8} {row['mutant']}", file=sys.stderr, flush=True)
    if log is not None:
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def report(rows: list[Row], records: list[Row], alarms: Iterable[str]) -> Row:
    """Verdicts by part and by kind of change."""
    whats = ("nest", "plan")
    parts = {p: [r for r in rows if r["part"] == p] for p in PARTS}
    kinds = sorted({r["kind"] for r in rows})
    killed = [r for r in rows if r["verdict"] in KILLED]
    slips = [r for r in rows if r["part"] != "generator" and r.get("slipped")]
    return {
        "format": 1,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.python_version()}",
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


def _range(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--each", type=int, default=12, help="mutants of a module, at most")
    parser.add_argument("--records", type=int, default=2, help="nests, and plans, of each case")
    parser.add_argument("--numbers", type=_range, default=range(2), help="sizes, FROM:TO")
    parser.add_argument("--more", type=_range, default=range(2, 3), help="sizes of a second look")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="a line per mutant; what is there is not repeated")
    parser.add_argument("--out", type=Path, help="write the JSON there instead of printing it")
    o = parser.parse_args()
    found = known(o.numbers)
    mutants = list(drawn(found, o.each, o.seed, o.parts))
    rows = run(mutants, found, o.log, again=False)
    left = [m for m, r in zip(mutants, rows, strict=True) if r["verdict"] not in KILLED]
    further = known(o.more) if left else Known((), {})
    second = {r["mutant"]: r for r in run(left, further, o.log, again=True)}
    rows = [_both(r, second.get(r["mutant"])) for r in rows]
    records = list(verdicts(found, o.records, o.seed))
    alarms = *found.alarms, *further.alarms
    text = json.dumps(report(rows, records, alarms), indent=1) + "\n"
    if o.out:
        o.out.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 1 if alarms else 0


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


if __name__ == "__main__":
    sys.exit(main())
