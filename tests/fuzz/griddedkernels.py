"""Random programs as Pallas kernels in the interpreter, against the float64 reference.

    python benchmarks/run.py gridded [--seeds 0:50]

Every program is searched on a machine whose kernels are blocks and on one whose kernels read by
address. Told are dispatches, why some are no kernels, and what is wrong.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable
from typing import Any

from gates import say, seeds

import eqsat
from eqsat.execute.draw import drawn_weights
from eqsat.execute.pallas.executor import without_kernels
from fuzz.networks import network
from fuzz.programs import Maker

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


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=seeds, default=range(50), help="FROM:TO, or one seed")


def measured(o: argparse.Namespace) -> Row:
    rows = []
    for seed in o.seeds:
        for target in TARGETS:
            rows.append(_guarded(seed, target))
            say(str(rows[-1]))
    reasons = Counter(why for r in rows for why in r.get("declined", ()))
    wrong = [r for r in rows if r["outcome"] not in ("ok", "none", "unproven")]
    total = sum(r.get("dispatches", 0) for r in rows)
    return {
        "ok": not wrong,
        "programs": len(rows),
        "dispatches": total,
        "kernels": total - sum(reasons.values()),
        "outcomes": Counter(r["outcome"] for r in rows),
        "declined": dict(reasons.most_common()),
        "wrong": wrong,
    }


def _guarded(seed: int, target: str) -> Row:
    """The row, or the exception that there is instead of one."""
    try:
        return row(seed, target)
    except Exception as error:
        what = f"{type(error).__name__}: {str(error)[:600]}"
        return {"seed": seed, "target": target, "outcome": "exception", "reason": what}
