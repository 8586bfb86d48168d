"""Fronts and prices: how many points, how many of them proven, in how many seconds.

    python benchmarks/pareto.py [--program NAME]... [--target NAME]... [--points N]
                                [--time-limit SECONDS] [--prices] [--out FILE]

Prints one JSON object with a row per program and target: the points of the front time × peak
memory × dispatches and whether it is complete; with `--prices` also what every choice that the
fastest program did not make would have cost: how many prices are exact.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import eqsat

PROGRAMS = (
    "transposed_pack",
    "mlp.py:mlp_784",
    "encoder.py:encoder",
    "bottlenecks.py:bottlenecks",
    "gates",
)
TARGETS = ("reference", "avx512-xla")


def front_row(program: str, target: str, points: int, seconds: float) -> dict[str, Any]:
    """What `eqsat.pareto` finds within so many seconds."""
    start = time.perf_counter()
    found = eqsat.pareto(eqsat.read(program), target=target, points=points, time_limit=seconds)
    return {
        "points": len(found.points),
        "proven": sum(_is_proven(p) for p in found.points),
        "at_least": found.at_least,
        "complete": found.complete,
        "stop": found.stop,
        "seconds": round(time.perf_counter() - start, 3),
    }


def _is_proven(point: eqsat.Run) -> bool:
    assert point.selection is not None
    return all(g.gap == 0 for _, g in point.selection.goals)


def prices_row(program: str, target: str, seconds: float) -> dict[str, Any]:
    """What every choice that was not made would have cost, within so many seconds."""
    run = eqsat.optimize(eqsat.read(program), target=target)
    start = time.perf_counter()
    found = run.explain(price=True, time_limit=seconds)
    prices = [p for c in found.choices for p in (c.price, *(a.price for a in c.alternatives)) if p]
    return {
        "prices": len(prices),
        "by_status": dict(Counter(p.status for p in prices)),
        "seconds": round(time.perf_counter() - start, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Fronts and prices.")
    parser.add_argument("--program", action="append", help="a program; repeatable")
    parser.add_argument("--target", action="append", help="a target; repeatable")
    parser.add_argument("--points", type=int, default=12)
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds per row")
    parser.add_argument("--prices", action="store_true", help="price all choices as well")
    parser.add_argument("--out", type=Path, help="write the JSON here as well")
    asked = parser.parse_args()
    rows = []
    for program in asked.program or PROGRAMS:
        for target in asked.target or TARGETS:
            row: dict[str, Any] = {"program": program, "target": target}
            row["front"] = front_row(program, target, asked.points, asked.time_limit)
            if asked.prices:
                row["prices"] = prices_row(program, target, asked.time_limit)
            rows.append(row)
    text = json.dumps({"rows": rows}, indent=1)
    print(text)
    if asked.out is not None:
        asked.out.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
