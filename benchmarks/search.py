"""How long the search takes, phase by phase, on programs of experiments.

    python benchmarks/search.py [--repeat N] [--out FILE]

Prints one JSON object: per program and target the median seconds of every phase over N runs
(interleaved, so that a slow minute of the machine touches all rows), sizes, goals and stop reason.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from pathlib import Path
from typing import Any

import eqsat

PROGRAMS = ("transposed_pack", "mlp.py:mlp_784", "mlp.py:mlp_1024", "encoder.py:encoder")
TARGETS = ("reference", "avx512-xla")
TILE = "tiles.matmul=[{mnk: [16, 16, 16], rate: 0.68}]"
SETTINGS = {"free": (), "forced": (TILE, "tiles_forced=true")}
PHASES = ("read", "saturate", "extract", "schedule", "total")


def measure(repeat: int) -> list[dict[str, Any]]:
    """One row per program, target and setting."""
    programs = Path(__file__).parent.parent / "experiments" / "programs"
    sources = {
        p: eqsat.read(str(programs / p) if ":" in p else str(programs / f"{p}.eqs"))
        for p in PROGRAMS
    }
    cases = [(p, t, s) for p in PROGRAMS for t in TARGETS for s in SETTINGS]
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = {c: [] for c in cases}
    for _ in range(repeat):
        for p, t, s in cases:
            run = eqsat.optimize(sources[p], target=t, settings=SETTINGS[s])
            found[p, t, s].append(run.summary())
    return [_row(case, runs) for case, runs in found.items()]


def _row(case: tuple[str, str, str], runs: list[dict[str, Any]]) -> dict[str, Any]:
    program, target, tiles = case
    seconds = {k: round(statistics.median(r["seconds"][k] or 0.0 for r in runs), 4) for k in PHASES}
    last = runs[-1]
    return {
        "program": program,
        "target": target,
        "tiles": tiles,
        "ops": last["program"]["ops"],
        "nodes": last["egraph"]["nodes"],
        "classes": last["egraph"]["classes"],
        "stop": last["stop"],
        "gaps": {k: g["gap"] for k, g in last["goals"].items()},
        "goals": {k: g["value"] for k, g in last["goals"].items()},
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3, help="runs per row (median is kept)")
    parser.add_argument("--out", type=Path, help="write the JSON there instead of printing it")
    options = parser.parse_args()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    text = json.dumps({"format": 1, "machine": machine, "rows": measure(options.repeat)}, indent=1)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")
    else:
        sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
