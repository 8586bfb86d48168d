"""Every backend node test of the installed onnx package, through the reader.

`python benchmarks/run.py conformance [--only WORD]`. Per case: pass, refused (with the
sentence), wrong or crash. Floating results are the float64 reference's, held to the case's own
tolerance (one unit in the last place for 16- and 8-bit floats); integers are exact.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import jax
from onnxcases import cases, operators, run


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default="", help="cases whose name holds this word")


def measured(asked: argparse.Namespace) -> dict[str, Any]:
    jax.config.update("jax_enable_x64", True)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, case in cases().items():
            if asked.only in name:
                found = run(case, Path(folder))
                rows.append({"case": name, "operators": operators(case), **vars(found)})
    counted = counts(rows)
    return {"ok": not {"wrong", "crash"} & set(counted), "counts": counted, "cases": rows}


def counts(rows: list[dict[str, object]]) -> dict[str, int]:
    return dict(sorted(Counter(str(r["status"]) for r in rows).items()))
