"""Time, memory and dispatches together, from a transposed pack to 24 encoder layers and ResNet-50.

    python benchmarks/joint.py [--program NAME …] [--target NAME …] [--time-limit S] [--set K=V …]
                               [--no-budget] [--out FILE]

Prints one JSON object: per program and target the seconds of every phase, value, bound and gap of
every goal and why the search stopped; then the same with a memory budget 15 % below the peak found
without one: feasible (with its gap), infeasible (proven) or unknown. `growth` says how the seconds
of the extraction grow with the number of encoder layers: 1.0 is linear. Rows run one after another
in one process, after a first small search that loads the libraries.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from layers import program

import eqsat
from eqsat.extract import extract
from eqsat.model.diag import EqsatError
from eqsat.model.selection import Selection

PROGRAMS = (
    "transposed_pack", "mlp.py:mlp_784", "mlp.py:mlp_1024", "encoder-1", "encoder-2", "encoder-6",
    "encoder-12", "resnet50.py:resnet50",
)  # fmt: skip
SCALING = "encoder-24"  # added with --scaling
TARGETS = ("reference", "avx512-xla")
BUDGET = 0.85  # of the peak found without a budget
NOTHING_ADMISSIBLE = 3  # exit code of an EqsatError

Row = dict[str, Any]


def measure(options: argparse.Namespace) -> list[Row]:
    eqsat.optimize(program("transposed_pack"))  # loads the libraries and reads the rules
    rows: list[Row] = []
    for name in options.programs:
        for target in options.targets:
            print(f"{name} on {target}", file=sys.stderr, flush=True)
            try:
                rows.append(_row(name, target, options))
            except EqsatError as error:
                rows.append({"program": name, "target": target, "error": str(error)})
            print(f"  {_told(rows[-1])}", file=sys.stderr, flush=True)
    return rows


def _row(name: str, target: str, options: argparse.Namespace) -> Row:
    begin = time.perf_counter()
    source = program(name)
    reading = time.perf_counter() - begin
    run = eqsat.optimize(
        source, target=target, settings=options.settings, time_limit=options.time_limit
    )
    assert run.egraph is not None
    assert run.selection is not None
    found = run.summary()
    row = {
        "program": name,
        "target": target,
        "ops": found["program"]["ops"],
        "nodes": found["egraph"]["nodes"],
        "blocks": found["egraph"]["blocks"],
        "dispatches": found["counts"]["dispatches"],
        "stop": found["stop"],
        "goals": _goals(run.selection),
        "baseline": {k: g.value for k, g in run.baseline.goals} if run.baseline else None,
        "seconds": found["seconds"] | {"trace": round(reading, 3)},
    }
    return row if options.no_budget else row | {"budget": _budget(run, options.time_limit)}


def _goals(selection: Selection) -> dict[str, Row]:
    return {
        name: {"value": g.value, "bound": g.bound, "gap": round(g.gap, 6)}
        for name, g in selection.goals
    }


def _budget(run: eqsat.Run, seconds: float) -> Row:
    """The same request with less memory than it took."""
    assert run.egraph is not None
    assert run.selection is not None
    limit = int(run.selection.goal("memory").value * BUDGET)
    machine = replace(run.target, budget=(("memory", limit),))
    begin = time.perf_counter()
    try:
        found, _ = extract(run.egraph, machine, run.goals, time_limit=seconds)
    except EqsatError as error:
        if error.exit_code != NOTHING_ADMISSIBLE:
            raise
        message = str(error.diagnostics[0].message)
        answer: Row = {"answer": "infeasible" if "(proven)" in message else "unknown"}
        answer["message"] = message
    else:
        answer = {"answer": "feasible", "stop": found.stop, "goals": _goals(found)}
    return {"memory": limit} | answer | {"seconds": round(time.perf_counter() - begin, 3)}


def growth(rows: list[Row]) -> dict[str, Any]:
    """Per target the exponent of the extraction's seconds over layers, from 6 layers on."""
    found: dict[str, Any] = {}
    for target in dict.fromkeys(r["target"] for r in rows):
        at = {
            int(r["program"].partition("-")[2]): r["seconds"]["extract"]
            for r in rows
            if r["target"] == target and r["program"].startswith("encoder-") and "error" not in r
        }
        layers = sorted(n for n in at if n >= 6)
        if len(layers) > 1:
            first, last = layers[0], layers[-1]
            power = math.log(at[last] / at[first]) / math.log(last / first)
            found[target] = {"extract_seconds": at, "exponent": round(power, 3)}
    return found


def _told(row: Row) -> str:
    if "error" in row:
        return row["error"]
    gaps = ", ".join(f"{k} {g['gap']:.2%}" for k, g in row["goals"].items())
    text = f"extract {row['seconds']['extract']:.1f} s, {row['stop']}, gaps {gaps}"
    budget = row.get("budget")
    return f"{text}; budget {budget['answer']} in {budget['seconds']:.1f} s" if budget else text


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--program", dest="programs", action="append", help="`encoder-N` or as for `optimize`"
    )
    parser.add_argument("--target", dest="targets", action="append", help="name or file")
    parser.add_argument("--scaling", action="store_true", help="24 encoder layers as well")
    parser.add_argument("--set", dest="settings", action="append", default=[], help="KEY=VALUE")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds of each search")
    parser.add_argument("--no-budget", action="store_true", help="leave out the memory budgets")
    parser.add_argument("--out", type=Path, help="write the JSON there instead of printing it")
    options = parser.parse_args()
    options.programs = options.programs or [*PROGRAMS, *([SCALING] if options.scaling else [])]
    options.targets = options.targets or TARGETS
    rows = measure(options)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    found = {
        "format": 1,
        "machine": machine,
        "time_limit": options.time_limit,
        "rows": rows,
        "growth": growth(rows),
    }
    text = json.dumps(found, indent=1)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")
    else:
        sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
