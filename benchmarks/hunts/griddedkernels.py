"""Random programs as Pallas kernels in the interpreter, against the float64 reference.

    python -m hunts.griddedkernels [--count N] [--skip N]

Every program is searched on a machine whose kernels are blocks and on one whose kernels read by
address. Prints JSON: dispatches, why some are no kernels, and what is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

import eqsat
from eqsat.execute.draw import drawn_weights
from eqsat.execute.pallas.executor import without_kernels
from hunts.networks import network
from hunts.programs import Maker

TARGETS = ("avx512", "sm_90")  # blocks, by address
Row = dict[str, Any]


def hunt(seeds: Iterable[int]) -> list[Row]:
    """A row per program and target."""
    return [row(seed, target) for seed in seeds for target in TARGETS]


def row(seed: int, target: str) -> Row:
    """One random program on one target: its dispatches, those that are declined, the outcome."""
    program = network(seed) if seed % 2 else Maker(seed, exact=False).program(6)
    source = eqsat.Source(program, drawn_weights(program))
    found: Row = {"seed": seed, "target": target}
    run = eqsat.optimize(source, target=target, settings=["executor=pallas"], time_limit=5)
    if run.schedule is None:
        return found | {"dispatches": 0, "declined": [], "outcome": "none"}
    refused = without_kernels(run.schedule, run.target)
    found |= {"dispatches": len(run.schedule.dispatches), "declined": sorted(refused.values())}
    check = run.verify(samples=1)
    return found | {"outcome": check.outcome, "where": check.where, "reason": check.reason}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--skip", type=int, default=0)
    args = parser.parse_args()
    rows = []
    for seed in range(args.skip, args.skip + args.count):
        for target in TARGETS:
            rows.append(_guarded(seed, target))
            print(rows[-1], file=sys.stderr, flush=True)
    reasons = Counter(why for r in rows for why in r.get("declined", ()))
    wrong = [r for r in rows if r["outcome"] not in ("ok", "none", "unproven")]
    total = sum(r.get("dispatches", 0) for r in rows)
    kernels = total - sum(reasons.values())
    found = {
        "programs": len(rows),
        "dispatches": total,
        "kernels": kernels,
        "outcomes": Counter(r["outcome"] for r in rows),
        "declined": dict(reasons.most_common()),
        "wrong": wrong,
    }
    print(json.dumps(found, indent=1))
    return 1 if wrong else 0


def _guarded(seed: int, target: str) -> Row:
    """The row, or the exception that there is instead of one."""
    try:
        return row(seed, target)
    except Exception as error:
        what = f"{type(error).__name__}: {str(error)[:600]}"
        return {"seed": seed, "target": target, "outcome": "exception", "reason": what}


if __name__ == "__main__":
    sys.exit(main())
