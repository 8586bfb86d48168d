"""The programs of the library in their full sizes: what they hold and what the search makes of it.

    python benchmarks/library.py [--only NAME …] [--targets T …] [--time-limit S] [--out FILE]

Prints one JSON object with a row per program and target: ops, weight bytes, seconds of process time
per phase, goals with their gaps, dispatches of baseline and answer, bytes. Weights are known by
their shapes, so nothing is executed and nothing fetched.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import eqsat

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE.parent / "experiments" / "programs"
LIBRARY = (
    "mlp.py:mlp_784", "mlp.py:mlp_1024", "encoder", "minilm", "bert", "gpt2.py:gpt2",
    "gpt2.py:gpt2_decode", "llama", "stablelm", "resnet50", "unet", "conv_qdq_residual",
    "bottlenecks",
)  # fmt: skip
TARGETS = ("reference", "avx512-xla")


def rows(names: list[str], targets: list[str], time_limit: float) -> Iterator[dict[str, Any]]:
    """One row per program and target."""
    for name in names:
        file, _, function = name.partition(":")
        begin = time.process_time()
        stem = file.removesuffix(".py")
        source = eqsat.read(f"{PROGRAMS / stem}.py:{function or stem}")
        seconds = time.process_time() - begin
        for target in targets:
            yield {"program": function or stem, "read": round(seconds, 3)} | row(
                source, target, time_limit
            )


def row(source: eqsat.Source, target: str, time_limit: float) -> dict[str, Any]:
    """What one search gives."""
    begin = time.process_time()
    run = eqsat.optimize(source, target=target, time_limit=time_limit)
    process = time.process_time() - begin
    s = run.summary()
    ops = [n.op for n in source.program.nodes]
    return {
        "target": target,
        "ops": s["program"]["ops"],
        "by_op": {op: ops.count(op) for op in sorted(set(ops))},
        "opaque": ops.count("opaque"),
        "weight_bytes": s["program"]["weight_bytes"],
        "nodes": s["egraph"]["nodes"],
        "process_seconds": round(process, 3),
        "seconds": s["seconds"],
        "stop": s["stop"],
        "goals": {k: g["value"] for k, g in s["goals"].items()},
        "gaps": {k: g["gap"] for k, g in s["goals"].items()},
        "baseline": s["baseline"],
        "counts": s["counts"],
        "bytes": s["bytes"],
        "resident": s["bytes"]["resident_bytes"] / max(s["program"]["weight_bytes"], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", default=list(LIBRARY), metavar="NAME")
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), metavar="TARGET")
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds of each search")
    parser.add_argument("--out", type=Path, help="write the JSON there instead of printing it")
    options = parser.parse_args()
    found = []
    for line in rows(options.only, options.targets, options.time_limit):
        gaps = {k: g and round(g, 5) for k, g in line["gaps"].items()}
        print(line["program"], line["target"], line["process_seconds"], gaps, file=sys.stderr)
        found.append(line)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    text = json.dumps({"format": 1, "machine": machine, "rows": found}, indent=1) + "\n"
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
