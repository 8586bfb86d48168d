"""Does `verify` catch wrong results and leave right ones alone? JSON (docs/verification.md).

A hundred wrong programs are forced into the executor in place of the chosen one, once so that
`verify` sees the wrong program (a wrong rewrite), once so that it sees the right one (a wrong
executor). A hundred right programs that lose digits are searched, executed and verified.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import numpy as np
from hunts.networks import network
from hunts.programs import Maker
from illconditioned import cases
from wrongprograms import change, wrong_programs

import eqsat
from eqsat.execute.draw import drawn_weights, random_inputs
from eqsat.execute.verify import verify
from eqsat.execute.witness import Witness
from eqsat.execute.xla import xla_executable

LIBRARY = (
    "two_packs", "residual.eqs", "permuted_consumer.eqs", "padded_chain", "folded_batch",
    "transposed_pack.eqs", "quantized_matmul.eqs",
)  # fmt: skip
FORCED = ("tiles_forced=true", "tiles.matmul=[{mnk: [4, 8, 4], rate: 1.0}]")
ABOVE_ROUNDING = 1e-4  # a fault that changes less is none: f32 sums of the same programs do
OF_EACH = 4
Row = dict[str, Any]


def main() -> None:
    """Print what was caught and what passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--skip", type=int, default=0, help="right programs to leave out")
    parser.add_argument("--only", choices=("wrong", "right"))
    asked = parser.parse_args()
    found: Row = {}
    if asked.only != "right":
        rows = wrong(asked.count)
        found["wrong"] = {
            "programs": len(rows),
            "caught": sum(r["rewrite"] == "mismatch" for r in rows),
            "caught_in_the_executor": sum(r["executor"] == "mismatch" for r in rows),
            "faults": dict(Counter(r["fault"] for r in rows)),
            "missed": [r for r in rows if {r["rewrite"], r["executor"]} != {"mismatch"}],
        }
    if asked.only != "wrong":
        rows = right(asked.skip, asked.count)
        found["right"] = {
            "programs": len(rows),
            "passed": sum(r["outcome"] == "ok" for r in rows),
            "outcomes": dict(Counter(r["outcome"] for r in rows)),
            "failed": [r for r in rows if r["outcome"] != "ok"],
            "rows": rows,
        }
    print(json.dumps(found, indent=1))


# ---- wrong ---------------------------------------------------------------------------------------
def wrong(count: int) -> list[Row]:
    """Rows of `count` faults, a few per program."""
    rows: list[Row] = []
    for name, run in searched():
        taken = 0
        assert run.schedule is not None
        for fault, program in wrong_programs(run.schedule.program, random.Random(name)):
            row = forced(run, name, fault, program)
            if row is not None:
                rows.append(row)
                taken += 1
                say(f"{len(rows):4} {name}: {fault}: {row['rewrite']}, {row['executor']}")
            if taken == OF_EACH or len(rows) == count:
                break
        if len(rows) == count:
            break
    return rows


def searched() -> Iterator[tuple[str, eqsat.Run]]:
    """Library programs, networks and random programs, with packs where they may have any."""
    for name in LIBRARY:
        yield name, eqsat.optimize(eqsat.read(name), target="avx512-xla", settings=FORCED)
    for seed in range(1000):
        make = (network, lambda s: Maker(s, exact=False).program(6))[seed % 2]
        program = make(seed)
        source = eqsat.Source(program, drawn_weights(program))
        yield program.name, eqsat.optimize(source, target="avx512-xla", time_limit=5)


def forced(run: eqsat.Run, name: str, fault: str, program: Any) -> Row | None:
    """One fault; None if it changes nothing."""
    source, schedule = run.source, run.schedule
    assert schedule is not None
    weights = {**drawn_weights(source.program, source.weights), **source.weights}
    inputs = random_inputs(source.program, np.random.default_rng(1))

    def executed(p: Any) -> Any:
        return Witness(p, weights, source.opaque)(inputs)

    size = change(schedule.program, program, inputs, weights, source.opaque, executed)
    if size < ABOVE_ROUNDING:
        return None
    call = xla_executable(replace(schedule, program=program), source.opaque, weights).compile()
    seen = {"rewrite": program, "executor": schedule.program}
    outcomes = {
        k: verify(source.program, call, weights, source.opaque, chosen=p).outcome
        for k, p in seen.items()
    }
    return {"program": name, "fault": fault, "change": size} | outcomes


# ---- right ---------------------------------------------------------------------------------------
def right(skip: int, count: int) -> list[Row]:
    """Rows of `count` ill-conditioned programs."""
    rows = []
    for name, function, args in islice(cases(), skip, skip + count):
        run = packed(function, *args)
        begin = time.process_time()
        v = run.verify(samples=2)
        seconds = round(time.process_time() - begin, 2)
        row = {
            "program": name, "outcome": v.outcome, "max_error": v.max_error, "limit": v.limit,
            "where": v.where, "reason": v.reason, "verify_cpu_s": seconds,
        }  # fmt: skip
        rows.append(row)
        say(f"{len(rows):4} {name}: {v.outcome} {v.max_error:.1e} of {v.limit:.1e} {v.reason}")
    return rows


def packed(function: Any, *args: Any) -> eqsat.Run:
    """With every contraction in tiles, if all of them have any."""
    try:
        return eqsat.optimize(function, *args, target="avx512-xla", settings=FORCED, time_limit=5)
    except eqsat.EqsatError as error:
        if error.exit_code != 3:
            raise
        return eqsat.optimize(function, *args, target="avx512-xla", time_limit=5)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
