"""Extractor, buffer placer and sharding search by themselves: one file in, one answer out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eqsat.model.deadline import Stop, elapsed, gc_paused


def extract_egraph(
    path: str | Path, time_limit: float = 30.0, seed: int = 0, stop: Stop | None = None
) -> dict[str, Any]:
    """The cheapest DAG of an egraph-serialize JSON file, as `eqsat extract` prints it.

    time_limit: seconds, reading included. The keys: `status` (optimal, feasible or infeasible),
    `stop`, `dag_cost`, `bound`, `gap`, `seconds`, `choices` (class → node). Raises EqsatError.
    """
    start = elapsed()
    from eqsat.dag.search import extract_dag
    from eqsat.frontends.serialized import read_serialized

    egraph = read_serialized(Path(path))
    extraction = extract_dag(egraph, deadline=start + time_limit, seed=seed, stop=stop).to_json()
    return extraction | {"seconds": elapsed() - start}


def place_buffers(
    path: str | Path,
    capacity: int | None = None,
    time_limit: float = 60.0,
    seed: int = 0,
    stop: Stop | None = None,
) -> dict[str, Any]:
    """The lowest placement of a CSV file's buffers in one arena, as `eqsat place` prints it.

    capacity: bytes; the first placement that fits ends the search. The keys: `status` (optimal,
    feasible, infeasible: proven, or unknown: nothing found that fits), `stop`, `height`, `bound`,
    `seconds`, `rows` (id, lower, upper, size, offset of each buffer). Raises EqsatError.
    """
    start = elapsed()
    from eqsat.extract.place import place
    from eqsat.frontends.contests import read_buffers

    buffers = read_buffers(path)
    left = time_limit - (elapsed() - start)
    placement = place(buffers, capacity=capacity, seconds=left, seed=seed, stop=stop).to_json()
    placed = zip(buffers, placement.pop("offsets"), strict=True)
    rows = [[b.name, b.lower, b.upper, b.size, o] for b, o in placed]
    return placement | {"seconds": elapsed() - start, "rows": rows}


def shard_graph(
    path: str | Path, time_limit: float = 60.0, seed: int = 0, stop: Stop | None = None
) -> dict[str, Any]:
    """The cheapest strategy of each node of an IOPDDL file, as `eqsat shard` prints it.

    time_limit: seconds, reading included. The keys: `status` (optimal, feasible, infeasible:
    proven, or unknown: nothing found within the usage limit), `stop`, `cost`, `bound`, `gap`,
    `seconds`, `strategies` (an index per node). Raises EqsatError.
    """
    start = elapsed()
    from eqsat.extract.shard import solve_sharding
    from eqsat.frontends.contests import read_sharding

    with gc_paused():
        problem = read_sharding(Path(path))
    left = max(time_limit - (elapsed() - start), 0.0)
    sharding = solve_sharding(problem, time_limit=left, seed=seed, stop=stop).to_json()
    return sharding | {"seconds": elapsed() - start}
