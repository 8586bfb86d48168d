"""How long saturation takes for encoders of 3 to 24 layers, with and without block reuse.

    python benchmarks/saturate.py [--repeat N] [--out FILE]

Prints one JSON object. Per number of layers: ops, nodes, why the search stopped, and for the whole
program ("direct") and with equal blocks searched once ("reused") the median over N runs of the wall
and processor seconds of the whole phase and of the matching in it (egglog and the tables of the
rules). Runs are interleaved, so that a slow minute of the machine touches all rows.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import jax
from layers import encoders

import eqsat
from eqsat.model.egraph import EGraph
from eqsat.model.program import Program
from eqsat.model.target import Memory, Target, Tile
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.saturate import saturate

LAYERS = (3, 6, 12, 24)
TILES = ((16, 16, 1), (8, 16, 1), (16, 16, 16), (8, 8, 4))  # m, n, k


def encoder(layers: int) -> Program:
    """So many encoder layers, elementwise chains merged as the search sees them."""
    return merge_elementwise(encoders(layers).program)


def target() -> Target:
    """A machine with four tiles for every contraction."""
    tiles = tuple(Tile((("m", m), ("n", n), ("k", k)), 1.0) for m, n, k in TILES)
    memory = (Memory("ram", 1 << 40, 1e9),)
    return Target("four-tiles", "", "xla", True, memory, 0, (), 1.0, 1.0, (("matmul", tiles),))


def measure(repeat: int) -> list[dict[str, Any]]:
    """One row per number of layers."""
    programs = {n: encoder(n) for n in LAYERS}
    rules, machine = eqsat.rules("default"), target()
    saturate(programs[LAYERS[0]], rules, machine)  # the first run fills caches
    timed: dict[tuple[int, bool], list[dict[str, float]]] = {
        (n, reuse): [] for n in LAYERS for reuse in (False, True)
    }
    graphs: dict[tuple[int, bool], EGraph] = {}
    for _ in range(repeat):
        for (n, reuse), runs in timed.items():
            wall, processor = time.perf_counter(), time.process_time()
            graph = saturate(programs[n], rules, machine, reuse_blocks=reuse)
            figures = {
                "wall_s": time.perf_counter() - wall,
                "processor_s": time.process_time() - processor,
                "matching_s": sum(r.seconds for r in graph.rules),
            }
            runs.append(figures)
            graphs[n, reuse] = graph
    return [_row(n, programs[n], graphs, timed) for n in LAYERS]


def _row(
    layers: int,
    program: Program,
    graphs: dict[tuple[int, bool], EGraph],
    timed: dict[tuple[int, bool], list[dict[str, float]]],
) -> dict[str, Any]:
    row: dict[str, Any] = {"layers": layers, "ops": program.op_count}
    for name, reuse in (("direct", False), ("reused", True)):
        graph, runs = graphs[layers, reuse], timed[layers, reuse]
        row[name] = {
            "nodes": len(graph.nodes),
            "classes": len(graph.types),
            "rounds": graph.rounds,
            "stop": graph.stop,
            "blocks": vars(graph.blocks) if graph.blocks else None,
        } | {k: round(statistics.median(r[k] for r in runs), 4) for k in runs[0]}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5, help="runs per row (median is kept)")
    parser.add_argument("--out", type=Path, help="write the JSON there instead of printing it")
    options = parser.parse_args()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    found = {
        "format": 1,
        "machine": machine,
        "jax": jax.__version__,
        "rules": len(eqsat.rules("default").rules),
        "tiles": TILES,
        "rows": measure(options.repeat),
    }
    text = json.dumps(found, indent=1)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")
    else:
        sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
