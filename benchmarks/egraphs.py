"""What `eqsat extract` finds on a folder of serialized e-graphs, and how long it takes.

    python benchmarks/egraphs.py FOLDER [--time-limit S] [--only TEXT] [--brute N] [--out FILE]

Prints one JSON object: per file its size, status, DAG cost, bound, gap and seconds (reading
included). Every e-graph of at most N classes is also solved by trying all choices, and every answer
is recomputed from the file by another few lines: `agrees` says whether both hold. Exit code 1 if
one does not.
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

from eqsat.api import extract_egraph

INFINITE = 2**53
TOLERANCE = 1e-9
Nodes = dict[str, dict[str, Any]]


def measure(files: list[Path], time_limit: float, brute: int) -> list[dict[str, Any]]:
    """One row per file."""
    return [_row(f, time_limit, brute) for f in files]


def _row(file: Path, time_limit: float, brute: int) -> dict[str, Any]:
    start = time.monotonic()
    found = extract_egraph(file, time_limit)
    wall = time.monotonic() - start
    data = json.loads(file.read_text(encoding="utf-8"))
    classes = len({n["eclass"] for n in data["nodes"].values()})
    tried = classes <= brute
    row = {
        "file": file.name,
        "nodes": len(data["nodes"]),
        "classes": classes,
        **{k: found[k] for k in ("status", "stop", "dag_cost", "bound", "gap")},
        "seconds": round(wall, 2),
        "brute_force": tried,
        "agrees": _agrees(data, found, tried),
    }
    print(f"{file.name}: {row['status']} {row['dag_cost']} {wall:.1f} s", file=sys.stderr)
    return row


def _agrees(data: dict[str, Any], found: dict[str, Any], brute: bool) -> bool:
    roots = data["root_eclasses"]
    cost = _cost(data["nodes"], roots, found["choices"])
    if cost is None or found["dag_cost"] is None:
        same = cost is None and found["dag_cost"] is None
    else:
        same = abs(cost - found["dag_cost"]) <= TOLERANCE * max(abs(cost), 1)
    if not brute:
        return same
    best = min(_costs(data["nodes"], roots), default=None)
    if best is None or found["dag_cost"] is None:
        return same and best is None and found["status"] == "infeasible"
    return same and abs(best - found["dag_cost"]) <= TOLERANCE * max(abs(best), 1)


def _cost(nodes: Nodes, roots: list[str], choices: dict[str, str]) -> float | None:
    """What a choice costs, from the roots; None if it is not acyclic and finite."""
    below: dict[str, set[str]] = {}
    open_ = list(roots)
    while open_:
        c = open_.pop()
        if c in below:
            continue
        node = nodes.get(choices.get(c, ""))
        if node is None or node["eclass"] != c or float(node.get("cost", 1)) >= INFINITE:
            return None
        below[c] = {nodes[d]["eclass"] for d in node["children"]}
        open_ += below[c]
    total = sum(float(nodes[choices[c]].get("cost", 1)) for c in below)
    while below:
        done = {c for c, children in below.items() if children.isdisjoint(below)}
        if not done:
            return None
        below = {c: children for c, children in below.items() if c not in done}
    return total


def _costs(nodes: Nodes, roots: list[str]) -> Iterator[float]:
    """The cost of every acyclic choice, one after another."""
    options: dict[str, list[str]] = {}
    for name, n in nodes.items():
        options.setdefault(n["eclass"], []).append(name)

    def extended(chosen: dict[str, str], open_: list[str]) -> Iterator[float]:
        if not open_:
            cost = _cost(nodes, roots, chosen)
            if cost is not None:
                yield cost
            return
        first, *rest = open_
        for name in options[first]:
            below = dict.fromkeys(nodes[c]["eclass"] for c in nodes[name]["children"])
            fresh = [d for d in below if d != first and d not in chosen and d not in rest]
            yield from extended({**chosen, first: name}, [*rest, *fresh])

    yield from extended({}, list(dict.fromkeys(roots)))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="a folder of egraph-serialize JSON files")
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds per file")
    parser.add_argument("--only", default="", help="only files whose name holds this text")
    parser.add_argument(
        "--brute", type=int, default=14, help="try all choices up to so many classes"
    )
    parser.add_argument("--out", type=Path, help="write the JSON there instead of printing it")
    options = parser.parse_args()
    files = sorted(f for f in options.folder.glob("*.json") if options.only in f.name)
    if not files:
        parser.error(f"no file `*{options.only}*.json` in `{options.folder}`")
    rows = measure(files, options.time_limit, options.brute)
    proven = sum(r["status"] in ("optimal", "infeasible") for r in rows)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    summary = {"format": 1, "machine": machine, "files": len(rows), "proven": proven, "rows": rows}
    text = json.dumps(summary, indent=1)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")
    else:
        sys.stdout.write(text + "\n")
    sys.exit(not all(r["agrees"] for r in rows))


if __name__ == "__main__":
    main()
