"""One more result on a mesh: small networks, and the same with a result more, both planned.

    python benchmarks/run.py meshresults [--seeds 0:330] [--jobs N] [--log FILE] [--out FILE]

A seed in three has no value inside of its program, and is left out. Prints one JSON object: how
many pairs there were, in how many both plans take one time, and every program that is slower than
the same one with more to do. Not ok if there is one.
"""

from __future__ import annotations

import argparse
from typing import Any

from gates import rows_of_seeds, seeded

from fuzz.meshresults import verdict

Row = dict[str, Any]


def rows_of(seed: int) -> list[Row]:
    found = verdict(seed)
    return [] if found is None else [found.to_json()]


def options(parser: argparse.ArgumentParser) -> None:
    seeded(parser, 330, "seed")


def measured(options: argparse.Namespace) -> Row:
    rows = rows_of_seeds(rows_of, options.seeds, options.jobs, options.log)
    worse = [r for r in rows if r["worse"]]
    equal = sum(len(set(r["times_ps"])) == 1 for r in rows)
    return {"ok": not worse and bool(rows), "pairs": len(rows), "equal": equal, "worse": worse}
