"""The least permutes of ExecuTorch's 49 modules on `cortex-m-like`, beside the published counts.

    python benchmarks/run.py permutes [--only NAME …] [--seconds S]

A row per module: permutes in the graph as exported (published, and the same in ours), the least
number that the rules reach with its bound, how many of these lie at the border (a caller who passes
or takes the tensor in that order has the work instead), CPU seconds of the search. A line per
module on stderr, one JSON object on stdout. Ours counts the transposes of a run that move
elements. The published counts are of a graph, where 91 of the 138 transpose a weight, some the same
one at every step; such a transpose of a matrix is done ahead here, once, in a column of its own.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any

from gates import say
from permutemodules import CASES, LAST, Case

import eqsat
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Transpose
from eqsat.model.schedule import Schedule

PUBLISHED = {"exported": 138, "channels last": 156, "absorbed": 137, "obligations": 17, "arm": 82}
MOST = 82  # Arm's passes, written by hand


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", metavar="NAME", help="modules")
    parser.add_argument("--seconds", type=float, default=120.0, help="of each search, by the wall")


def measured(o: argparse.Namespace) -> dict[str, Any]:
    rows: dict[str, dict[str, Any]] = {}
    for name, case in (CASES | LAST).items():
        if o.only is None or name in o.only:
            rows[name] = row(case, o.seconds)
            say(f"{name} {json.dumps(rows[name])}")
    plain = [r for n, r in rows.items() if n in CASES]
    least = sum(r["least"] for r in plain)
    unproven = [n for n, r in rows.items() if r["least"] != r["bound"]]
    return {
        "ok": not unproven and least <= MOST,
        "published": PUBLISHED,
        "least": least,
        "weights_ahead": sum(r["weights_ahead"] for r in plain),
        "least_at_border": sum(r["at_border"] for r in plain),
        "least_channels_last": sum(r["least"] for n, r in rows.items() if n in LAST),
        "unproven": unproven,
        "modules": rows,
    }


def row(case: Case, seconds: float = 120.0) -> dict[str, Any]:
    """What one module needs."""
    begin = time.process_time()
    run = searched(case, seconds)
    assert run.selection is not None
    assert run.schedule is not None
    goal = dict(run.selection.goals)["permutes"]
    return {
        "exported": case.permutes,
        "least": goal.value,
        "bound": goal.bound,
        "at_border": len([*at_border(run.schedule)]),
        "weights_ahead": len([*ahead(run.schedule)]),
        "stop": run.selection.stop,
        "cpu_seconds": round(time.process_time() - begin, 1),
    }


def searched(case: Case, seconds: float = 120.0) -> eqsat.Run:
    """The run of one module by the default rules and `layout/straighten`."""
    return eqsat.optimize(
        case.function, *case.example, weights=["weights"] if case.weights else [],
        rules="permutes",
        target="cortex-m-like", goals=("permutes", "time"), time_limit=seconds, cache=False,
        threads=1, layouts={k: f"transpose(perm={list(p)})" for k, p in case.orders.items()},
    )  # fmt: skip


def at_border(schedule: Schedule) -> Iterator[int]:
    """Permutes that read an argument or write a result, seen through views."""
    nodes, results = schedule.program.nodes, {*map(schedule.viewed, schedule.program.results)}
    for _, i in schedule.ops({"transpose"}):
        attr, read = nodes[i].attr, nodes[schedule.viewed(nodes[i].operands[0])].attr
        if isinstance(attr, Transpose) and attr.moves and (i in results or isinstance(read, Leaf)):
            yield i


def ahead(schedule: Schedule) -> Iterator[int]:
    """Matrices of weights that are transposed ahead of the run."""
    in_run = {i for _, i in schedule.ops({"transpose"})}
    for i, n in enumerate(schedule.program.nodes):
        if n.op == "transpose" and i not in in_run and n.type.rank == 2:
            yield i
