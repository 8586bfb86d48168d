"""Legality is monotone: identities on the edges of small programs, and no better answer for them.

    python benchmarks/run.py monotone [--seeds 0:120] [--jobs N] [--log FILE] [--out FILE]

Moves, gathers, contractions and reductions get transposes and back, packs and unpacks, reshapes,
copies, negations of negations, pads that are cut off again or slices that are put together again on
an edge. Both programs are searched as they stand, on nine set-ups, most of them without rules, and
where all is proven the optima are compared. Prints one JSON object: counts per identity, machine
and rules, and every answer that an identity has made better. Not ok if there is one.
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

from gates import rows_of_seeds, seeded

from fuzz.monotone import hunt

Row = dict[str, Any]
OUTCOMES = ("same", "worse", "better", "unproven", "refused", "unequal")


def rows_of(seed: int) -> list[Row]:
    return [verdict.to_json() for verdict in hunt(seed)]


def options(parser: argparse.ArgumentParser) -> None:
    seeded(parser, 120, "seed")


def measured(options: argparse.Namespace) -> Row:
    found = report(rows_of_seeds(rows_of, options.seeds, options.jobs, options.log))
    return {"ok": not (found["totals"]["better"] or found["totals"]["unequal"])} | found


def report(rows: list[Row]) -> Row:
    wrong = [r for r in rows if r["outcome"] in ("better", "refused", "unequal")]
    return {
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
