"""Legality is monotone: identities on the edges of small programs, and no better answer for them.

    python benchmarks/monotone.py [--seeds 0:120] [--jobs N] [--log FILE] [--out FILE]

Moves, gathers, contractions and reductions get transposes and back, packs and unpacks, reshapes,
copies, negations of negations, pads that are cut off again or slices that are put together again on
an edge. Both programs are searched as they stand, on nine set-ups, most of them without rules, and
where all is proven the optima are compared. Prints one JSON object: counts per identity, machine
and rules, and every answer that an identity has made better. Exit code 1 if there is one.

With `--log FILE` each seed is a line of that file, and seeds that are there are not run again.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from hunts.monotone import hunt
from seeded import add_to, logged, parser_of, tell

Row = dict[str, Any]
OUTCOMES = ("same", "worse", "better", "unproven", "refused", "unequal")


def rows_of(seed: int) -> list[Row]:
    return [verdict.to_json() for verdict in hunt(seed)]


def run(seeds: range, jobs: int, log: Path | None) -> list[Row]:
    """The rows of all seeds, in order; those in the log are taken from there."""
    known = logged(log)
    missing = [s for s in seeds if s not in known]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for seed, rows in zip(missing, pool.map(rows_of, missing), strict=True):
            known[seed] = rows
            add_to(log, seed, rows)
    return [row for s in seeds for row in known[s]]


def report(rows: list[Row], seconds: float) -> Row:
    wrong = [r for r in rows if r["outcome"] in ("better", "refused", "unequal")]
    return {
        "format": 1,
        "seconds": round(seconds, 1),
        "totals": _totals(rows),
        "by": {
            key: {name: _totals([r for r in rows if r[key] == name]) for name in names}
            for key, names in (
                (k, sorted({r[k] for r in rows})) for k in ("kind", "machine", "rules")
            )
        },
        "wrong": wrong,
    }


def _totals(rows: list[Row]) -> Row:
    count = Counter(r["outcome"] for r in rows)
    return {"pairs": len(rows), **{outcome: count[outcome] for outcome in OUTCOMES}}


def main() -> int:
    parser = parser_of(__doc__, 120, "seed")
    options = parser.parse_args()
    begin = time.perf_counter()
    rows = run(options.seeds, options.jobs, options.log)
    found = report(rows, time.perf_counter() - begin)
    tell(found, options.out)
    return 1 if found["totals"]["better"] or found["totals"]["unequal"] else 0


if __name__ == "__main__":
    sys.exit(main())
