"""MiniLM-L6 with its real weights: read, searched, executed, exported, and judged by two others.

    make models && python benchmarks/minilm.py [--target NAME] [--time-limit S] [--out FILE]

Prints one JSON object: seconds by the clock and by process time, goals with their gaps, and the
largest difference of the embeddings of 20 sentences to `bert64.py` (NumPy, float64, no padding,
its own code), of XLA's execution and of onnxruntime's execution of the exported model. Vectors have
length 1; differences are relative to the largest element. Exit code 1 if a bound is not kept.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from bert64 import embed

import eqsat

HERE = Path(__file__).resolve().parent
PROGRAM = HERE.parent / "experiments" / "programs" / "minilm.py"
BOUNDS = {"read": 5.0, "search": 30.0, "gap": 0.01, "xla": 1e-5, "onnx": 1e-4}
SENTENCES = (
    "The compiler packs the weights once, before the first call.",
    "Before anything runs, the weights are brought into blocks.",
    "A cat sleeps on the warm stones of the harbour wall.",
    "Rain is expected in the north from Thursday evening.",
    "How long does it take to walk from the station to the museum?",
    "Heat the oil, add the onions and stir until they are golden.",
    "Prime numbers thin out, but they never end.",
    "She tuned the cello while the hall was still empty.",
    "Der Zug nach Basel fährt heute von Gleis sieben.",
    "No.",
    "The quarterly report shows revenue of 4.2 million and rising costs.",
    "An e-graph holds many programs at once, and every one of them means the same.",
    "Please reset my password; the link in the e-mail has expired.",
    "Two rivers meet below the old bridge, one clear and one brown with silt.",
    "def area(width, height): return width * height",
    "The referee stopped the match in the eighty-first minute.",
    "Vaccines train the immune system without causing the disease.",
    "Why do some metals rust while others only lose their shine?",
    "Unusual tokens: naïve café ☕ 東京 Ω ≈ 3.14159",
    "Long after the lights had gone out along the quay and the last ferry had crossed, the keeper "
    "of the lock wrote down the height of the water, the direction of the wind and the names of "
    "the three boats that had passed, as he had done every night for thirty years, and closed "
    "the book.",
)


def tokens(folder: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Ids and masks, i32[20, 128] each, by the model's own tokenizer."""
    from tokenizers import Tokenizer

    found = Tokenizer.from_file(str(folder / "tokenizer.json")).encode_batch(list(SENTENCES))
    ids, mask = ([getattr(e, k) for e in found] for k in ("ids", "attention_mask"))
    return np.asarray(ids, np.int32), np.asarray(mask, np.int32)


def measure(target: str, time_limit: float) -> dict[str, Any]:
    """All figures; SystemExit if the weights were never fetched."""
    module = _module()
    folder = module.model_folder()
    if folder is None:
        raise SystemExit("the weights are not there: make models")
    ids, mask = tokens(folder)
    seconds: dict[str, dict[str, float]] = {}
    with _timed(seconds, "read"):
        source = eqsat.read(str(PROGRAM))
    with _timed(seconds, "search"):
        run = eqsat.optimize(source, target=target, time_limit=time_limit)
    with _timed(seconds, "reference"):
        wanted = _reference(source, ids, mask, module.CONFIG)
    with _timed(seconds, "compile"):
        call = run.executable.compile()
    with _timed(seconds, "execute"):
        found = _each(call, ids, mask)
    with _timed(seconds, "onnx"):
        exported = _each(_onnx(run), ids, mask)
    s = run.summary()
    return {
        "format": 1,
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "program": s["program"],
        "target": s["target"],
        "ops": _ops(source),
        "goals": s["goals"],
        "baseline": s["baseline"],
        "stop": s["stop"],
        "counts": s["counts"],
        "bytes": s["bytes"],
        "sentences": len(ids),
        "longest": int(mask.sum(1).max()),
        "error": {"xla": _error(found, wanted), "onnx": _error(exported, wanted)},
        "seconds": seconds,
    }


def broken(figures: dict[str, Any]) -> list[str]:
    """Bounds that are not kept; times are those of the process, which no neighbour slows down."""
    seconds = {k: figures["seconds"][k]["process"] for k in ("read", "search")}
    gap = max(g["gap"] for g in figures["goals"].values() if g["gap"] is not None)
    values = seconds | {"gap": gap} | figures["error"]
    return [f"{k}: {v:.3g} > {BOUNDS[k]}" for k, v in values.items() if not v <= BOUNDS[k]]


def _reference(source: eqsat.Source, ids: Any, mask: Any, config: Any) -> np.ndarray[Any, Any]:
    names = (source.program.leaf(i) for i in source.program.weights)
    plain = {_file_name(leaf.name, config): source.weights[leaf.key] for leaf in names}
    sizes = {"layers": config.layers, "heads": config.heads}
    return np.stack([embed(i[m != 0], plain, **sizes) for i, m in zip(ids, mask, strict=True)])


def _file_name(leaf: str, config: Any) -> str:
    """A weight's name in the file, from that of its leaf (an identifier)."""
    import re

    names = {re.sub(r"\W+", "_", f"params['{k}']").strip("_"): k for k in _module().shapes(config)}
    return names[leaf]


def _each(call: Callable[..., Any], ids: Any, mask: Any) -> np.ndarray[Any, Any]:
    """One vector per sentence, one sentence at a time."""
    pairs = zip(ids, mask, strict=True)
    return np.concatenate([np.asarray(call(i[None], m[None])[0]) for i, m in pairs])


def _onnx(run: eqsat.Run) -> Callable[..., Any]:
    """onnxruntime's execution of the chosen program, read back from a file."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "minilm.onnx"
        run.export("onnx", path)
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return lambda *xs: session.run(None, dict(zip(names, xs, strict=True)))


def _error(found: Any, wanted: Any) -> float:
    return float(np.max(np.abs(found - wanted)) / np.max(np.abs(wanted)))


def _ops(source: eqsat.Source) -> dict[str, int]:
    ops = [n.op for n in source.program.nodes]
    return {op: ops.count(op) for op in sorted(set(ops))}


@contextmanager
def _timed(seconds: dict[str, dict[str, float]], what: str) -> Iterator[None]:
    clock, process = time.perf_counter(), time.process_time()
    yield
    seconds[what] = {
        "clock": round(time.perf_counter() - clock, 3),
        "process": round(time.process_time() - process, 3),
    }


def _module() -> Any:
    sys.path.insert(0, str(PROGRAM.parent))  # it imports its neighbour
    spec = importlib.util.spec_from_file_location("_minilm", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default="avx512-xla")
    parser.add_argument("--time-limit", type=float, default=5.0, help="seconds of the solver")
    parser.add_argument("--out", type=Path, help="write the JSON there instead of printing it")
    options = parser.parse_args()
    figures = measure(options.target, options.time_limit)
    figures["broken"] = broken(figures)
    text = json.dumps(figures, indent=1) + "\n"
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 1 if figures["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
