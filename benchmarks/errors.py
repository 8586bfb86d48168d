"""Errors of kernels against float64, beside those of XLA's ops for the input program.

    python benchmarks/errors.py [--only NAME …] [--target avx512] [--time-limit S] [--out FILE]

Every program is searched on a target with kernels, and executed on random arguments (and weights,
where it has none). An error is the largest difference of a result from float64 over the largest
element of that result. A result that XLA gets right to half a unit roundoff of its largest element
is compared with that. Prints one JSON object; exit code 1 if an error is more than twice that of
XLA.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from seeded import tell

import eqsat
from eqsat.execute.draw import drawn_weights, random_inputs
from eqsat.execute.reference import reference
from eqsat.execute.witness import Witness
from eqsat.execute.work import OverWork, WorkBudget
from eqsat.model.diag import EqsatError

MOST = 2.0  # times the error of XLA's ops
WORK = 2e11  # operations of a reference
ROUNDING = 2.0**-24  # of f32, half a unit roundoff: no error counts as smaller
NAMES = (
    "mlp.py:mlp_784", "encoder", "transposed_pack.py:transposed_pack", "conv_qdq_residual.py",
    "bottlenecks", "folded_batch.eqs", "padded_chain.eqs", "permuted_consumer.eqs", "residual.eqs",
    "three_readers.eqs", "tied_table.eqs", "two_packs.eqs", "unet", "llama.py:llama_64", "minilm",
    "stablelm", "sdxl.py:residual", "sdxl.py:transformer", "train.py:step",
)  # fmt: skip


def row(name: str, target: str, time_limit: float) -> dict[str, Any]:
    """The errors of one program, or why it was not executed."""
    try:
        run = eqsat.optimize(eqsat.read(name), target=target, time_limit=time_limit)
    except EqsatError as error:
        return {"program": name, "refused": str(error.diagnostics[0])}
    weights = {**run.weights, **drawn_weights(run.program, run.weights)}
    run.executable.take_weights(weights)
    inputs = random_inputs(run.program, np.random.default_rng(0))
    try:
        wide = reference(run.program, inputs, weights, run.source.opaque, WorkBudget(WORK))
    except OverWork as error:
        return {"program": name, "refused": str(error)}
    ours = run.executable.flat(*inputs)
    theirs = Witness(run.program, weights, run.source.opaque)(inputs)
    pairs = [(_error(a, w), _error(b, w)) for a, b, w in zip(ours, theirs, wide, strict=True)]
    kernels, xla = max(pairs, key=lambda p: p[0] / max(p[1], ROUNDING))
    ratio = kernels / max(xla, ROUNDING)
    return {
        "program": name,
        "dispatches": len(run.schedule.dispatches) if run.schedule else 0,
        "declined": len(run.execution.declined),
        "kernels": kernels,
        "xla": xla,
        "ratio": round(ratio, 3),
        "kept": ratio <= MOST,
    }


def _error(result: Any, wide: Any) -> float:
    """Largest difference over the largest element; what is not finite in float64 is left out."""
    wide, got = np.asarray(wide, np.float64), np.asarray(result, np.float64)
    finite = np.isfinite(wide)
    if not finite.any():
        return 0.0
    return float(np.max(np.abs(got - wide)[finite]) / max(np.max(np.abs(wide[finite])), 1e-300))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", default=list(NAMES))
    parser.add_argument("--target", default="avx512")
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds of a search")
    parser.add_argument("--out", type=Path, help="write the JSON there instead of printing it")
    options = parser.parse_args(argv)
    rows = []
    for name in options.only:
        rows.append(row(name, options.target, options.time_limit))
        print(rows[-1], file=sys.stderr, flush=True)
    tell({"format": 1, "target": options.target, "rows": rows}, options.out)
    return int(any(not r.get("kept", True) for r in rows))


if __name__ == "__main__":
    sys.exit(main())
