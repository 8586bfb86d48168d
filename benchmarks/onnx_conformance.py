"""Every backend node test of the installed onnx package, through the reader; prints JSON.

`python benchmarks/onnx_conformance.py [-o FILE] [--only WORD]`. Per case: pass, refused (with the
sentence), wrong or crash. Floating results are the float64 reference's, held to the case's own
tolerance (one unit in the last place for 16- and 8-bit floats); integers are exact.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import jax

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from onnxcases import cases, operators, run


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--only", default="", help="Cases whose name holds this word.")
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, case in cases().items():
            if args.only in name:
                found = run(case, Path(folder))
                rows.append({"case": name, "operators": operators(case), **vars(found)})
    text = json.dumps({"format": 1, "counts": counts(rows), "cases": rows}, indent=1)
    if args.out is None:
        print(text)
    else:
        args.out.write_text(text + "\n", encoding="utf-8")
        print(json.dumps(counts(rows)))
    return 0 if not {"wrong", "crash"} & set(counts(rows)) else 1


def counts(rows: list[dict[str, object]]) -> dict[str, int]:
    return dict(sorted(Counter(str(r["status"]) for r in rows).items()))


if __name__ == "__main__":
    sys.exit(main())
