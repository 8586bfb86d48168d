"""How long the public placement instances take: do they fit their capacity, and how low do they go.

    python benchmarks/place.py FOLDER [--time-limit S] [--seed N] [--out FILE]

FOLDER holds MiniMalloc's instances (https://github.com/google/minimalloc), `NAME.CAPACITY.csv`.
Prints one JSON object: per instance and question (`fits`: the capacity of its name, `lowest`: no
capacity) status, height, bound, stop reason and wall seconds. numba's compilation comes first and
has its own figure; it is kept on disk, so a second run pays little for it. Every answer was checked
by a sweep that shares nothing with the search.
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

from eqsat.api import place_buffers


def compile_seconds() -> float:
    """Search a placement of two buffers, so that all functions are compiled."""
    start = time.perf_counter()
    from eqsat.extract.place.depthfirst import Searcher

    Searcher((0, 0), (1, 2), (1, 2), seed=0).search([1.0, 2.0], 3, 100, False)
    return time.perf_counter() - start


def measure(folder: Path, seconds: float, seed: int) -> Iterator[dict[str, Any]]:
    """One row per instance and question."""
    for path in sorted(folder.glob("*.csv")):
        name, capacity, *_ = path.name.split(".")
        if not capacity.isdigit():
            continue
        for question, most in (("fits", int(capacity)), ("lowest", None)):
            found = place_buffers(path, most, time_limit=seconds, seed=seed)
            row = {"instance": name, "question": question, "capacity": most}
            row["buffers"] = len(found["rows"])
            row |= {k: found[k] for k in ("status", "stop", "height", "bound")}
            row["seconds"] = round(found["seconds"], 3)
            print(json.dumps(row), file=sys.stderr)
            yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the instances are")
    parser.add_argument("--time-limit", type=float, default=120.0, help="seconds per row")
    parser.add_argument("--seed", type=int, default=0, help="seed of the search")
    parser.add_argument("--out", type=Path, help="write the JSON there instead of printing it")
    options = parser.parse_args()
    if not any(options.folder.glob("*.csv")):
        parser.error(f"no CSV files in {options.folder}")
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    compiled = round(compile_seconds(), 3)
    rows = list(measure(options.folder, options.time_limit, options.seed))
    found = {"format": 1, "machine": machine, "compile_seconds": compiled, "rows": rows}
    text = json.dumps(found, indent=1)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")
    else:
        sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
