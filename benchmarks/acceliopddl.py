"""How cheap the shardings of the public IOPDDL instances get, and what is proven about them.

    python benchmarks/run.py sharding [--folder FOLDER] [--time-limit S] [--cpu] [--only A K …]

FOLDER holds instances of the ASPLOS 2025 contest (https://github.com/google/iopddl, in
`benchmarks/`), `asplos-2025-iopddl-A.json.gz` and so on; by default the
variable EQSAT_IOPDDL names it. Nothing is fetched. Per instance cost and bound,
both over the best cost of the contest's twenty teams, wall and CPU seconds. `--cpu`: the limit is
in CPU seconds, so that a busy machine gives the figures of an idle one; one core is used. Every
answer was checked by sums that share nothing with the search. numba's compilation comes first and
has its own figure; it is kept on disk. `ok`: all are there and feasible with a bound, within 10 %
of the best known cost, and two within 1 %.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gates import say

from eqsat.api import shard_graph
from eqsat.extract.shard import solve_sharding
from eqsat.model.sharding import ShardEdge, ShardNode, ShardProblem

FOLDER = "EQSAT_IOPDDL"
SECONDS = 120.0
WITHIN, CLOSE, CLOSE_ONES = 1.10, 1.01, 2
# instance -> the best cost of the contest, from its results
BEST = {"A": 6548641531, "K": 2274276676, "P": 662197407330, "U": 2569342178}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--folder", default=os.environ.get(FOLDER, ""), help="of the instances")
    parser.add_argument("--time-limit", type=float, default=SECONDS, help="seconds per instance")
    parser.add_argument("--cpu", action="store_true", help="the limit is in CPU seconds")
    parser.add_argument("--seed", type=int, default=0, help="seed of the search")
    parser.add_argument("--only", nargs="*", default=list(BEST), help="names of instances")


def measured(o: argparse.Namespace) -> dict[str, Any]:
    """Skipped where there is no instance."""
    if o.folder and any(instance(Path(o.folder), name) for name in o.only):
        if o.cpu:
            time.monotonic = time.process_time
        return figures(Path(o.folder), o.time_limit, o.seed, o.only)
    wanted = f"set {FOLDER} to `benchmarks` of a clone of https://github.com/google/iopddl"
    why = f"{wanted}: there is no instance in {o.folder}" if o.folder else wanted
    say(f"SKIPPED sharding problems: {why}")
    return {"skipped": why}


def figures(folder: Path, seconds: float, seed: int, names: Sequence[str]) -> dict[str, Any]:
    compiled = round(compile_seconds(), 2)
    paths = {name: instance(folder, name) for name in names}
    rows = [one(path, seconds, seed) for path in paths.values() if path]
    near = [r["cost"] / r["best_known"] for r in rows if r["cost"] is not None]
    proven = all(r["bound"] is not None for r in rows)
    close = sum(r <= CLOSE for r in near) >= min(CLOSE_ONES, len(rows))
    fine = len(near) == len(paths) > 0 and proven and close and max(near) <= WITHIN
    missing = [name for name, path in paths.items() if not path]
    return {
        "ok": fine, "compile_seconds": compiled, "missing": missing,
        "rows": rows,
    }  # fmt: skip


def instance(folder: Path, name: str) -> Path | None:
    """The file of an instance, if it is there."""
    found = [folder / f"asplos-2025-iopddl-{name}.json{end}" for end in (".gz", "")]
    return next((p for p in found if p.is_file()), None)


def compile_seconds() -> float:
    """A problem too large for the exact solver and small enough to be done at once."""
    start = time.process_time()
    costs = [list(range(i, i + 9)) for i in range(90)]
    nodes = [ShardNode(c, c[::-1], i % 5, i % 5 + 3) for i, c in enumerate(costs)]
    pairs = [[(i * j) % 7 for j in range(81)] for i in range(90)]
    edges = [ShardEdge(i, (i * 7 + 1) % 90, p) for i, p in enumerate(pairs)]
    solve_sharding(ShardProblem(nodes, edges, 3000), time_limit=8.0)
    return time.process_time() - start


def one(path: Path, seconds: float, seed: int) -> dict[str, Any]:
    best = BEST.get(path.name.split(".")[0][-1])
    cpu, wall = time.process_time(), time.perf_counter()
    found = shard_graph(path, time_limit=seconds, seed=seed)
    row: dict[str, Any] = {"instance": path.name.split(".")[0], "best_known": best}
    row |= {k: found[k] for k in ("status", "stop", "cost", "bound", "gap")}
    if best is not None:
        row |= {f"{k}_over_best": found[k] and round(found[k] / best, 4) for k in ("cost", "bound")}
    row["wall_seconds"] = round(time.perf_counter() - wall, 1)
    row["cpu_seconds"] = round(time.process_time() - cpu, 1)
    say(json.dumps(row))
    return row
