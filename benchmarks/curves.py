"""Anytime curves: the best time and its bound over CPU seconds of a search, for ten models.

    python benchmarks/curves.py [--only NAME …] [--target T] [--limit S] [--at S] [--out FILE]

Prints one JSON object with a row per model: `points` are [CPU seconds, value, bound] as the search
tells them, the baseline's value first; `behind` is how far the value at `--at` seconds is above the
last one, None where there was none yet. Half of the models are those that nobody tuned to.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from peermodels import ALL

import eqsat

TUNED = ("bert", "gpt2_decode", "minilm", "resnet50", "unet")
UNSEEN = ("conformer", "inception", "mixer", "vit", "wavenet")
Point = tuple[float, int | None, int | None]


def curve(name: str, target: str, limit: float) -> dict[str, Any]:
    """One search."""
    model, points = ALL[name], list[Point]()
    inputs, begin = model.inputs, time.process_time()

    def told(now: Any) -> None:
        last = next((p for p in reversed(now.points) if p.goal == "time"), None)
        if last is not None and (not points or points[-1][1:] != (last.value, last.bound)):
            points.append((round(time.process_time() - begin, 2), last.value, last.bound))

    run = eqsat.optimize(
        model.closed, *inputs, target=target, goals=("time",), time_limit=limit, progress=told
    )
    assert run.selection is not None
    last = run.selection.goal("time")
    points.append((round(time.process_time() - begin, 2), last.value, last.bound))
    return {"model": name, "target": target, "stop": run.selection.stop, "points": points}


def behind(points: list[Point], at: float) -> float | None:
    """How far the best value at this moment is above the last one."""
    known = [value for seconds, value, _ in points if seconds <= at and value is not None]
    last = points[-1][1]
    return None if not known or not last else round(min(known) / last - 1, 4)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=(*TUNED, *UNSEEN), choices=sorted(ALL))
    parser.add_argument("--target", default="avx512-xla")
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--at", type=float, default=5.0)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows = [curve(name, asked.target, asked.limit) for name in asked.only]
    rows = [row | {"behind": behind(row["points"], asked.at)} for row in rows]
    text = json.dumps({"at": asked.at, "limit": asked.limit, "rows": rows}, indent=1)
    if asked.out:
        asked.out.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
