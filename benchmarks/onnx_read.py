"""How long models of real size take to be read from ONNX, and whether their numbers hold.

    python benchmarks/onnx_read.py [--check]

Builds ResNet-50 and an encoder of MiniLM-L6's size with random weights in the form torch.onnx gives
them, reads both, and prints JSON: bytes of the file, ops, CPU seconds. With --check the float64
reference of what was read is compared with onnxruntime: `error` is max|a - b| / max|b|.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import onnxmodels as models

from eqsat.frontends.onnxgraph import read_onnx
from eqsat.ops.meaning.programs import evaluate_program

SHAPES = {"resnet50": {"batch": 1}, "minilm": {"batch": 1, "sequence": 128}}
MODELS: dict[str, Callable[[], Any]] = {
    "resnet50": models.resnet50,
    "minilm": lambda: models.encoder(6, 384, 12, 30522, 512),
}


def inputs(name: str) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    if name == "resnet50":
        return {"input": rng.standard_normal((1, 3, 224, 224)).astype(np.float32)}
    mask = np.ones((1, 128), np.int64)
    return {"input_ids": rng.integers(0, 30522, (1, 128)), "attention_mask": mask}


def measure(name: str, folder: Path, check: bool) -> dict[str, Any]:
    path = folder / f"{name}.onnx"
    path.write_bytes(MODELS[name]().SerializeToString())
    begin = time.process_time()
    found = read_onnx(path, SHAPES[name])
    seconds = time.process_time() - begin
    row = {
        "model": name,
        "file_bytes": path.stat().st_size,
        "ops": found.program.op_count,
        "opaque": len(found.opaque),
        "weights": len(found.weights),
        "read_cpu_seconds": round(seconds, 2),
    }
    return row | ({"error": error(path, found, inputs(name))} if check else {})


def error(path: Path, found: Any, given: dict[str, Any]) -> float:
    """Of the float64 reference of what was read, against onnxruntime."""
    import onnxruntime

    wanted = np.asarray(onnxruntime.InferenceSession(path).run(None, given)[0])
    (got,) = evaluate_program(found.program, list(given.values()), found.weights, found.opaque)
    return float(np.abs(got - wanted).max() / np.abs(wanted).max())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(name, Path(folder), args.check) for name in MODELS]
    print(json.dumps({"format": 1, "models": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
