"""Exports of the program library, checked by tools that share nothing with eqsat.

    python benchmarks/run.py export [--programs NAME …] [--targets input reference avx512-xla]
                                    [--time-limit S] [--folder DIR] [--out FILE]

Every program is exported as it came (`input`), as it was chosen for `reference` and `avx512-xla`
with packed contractions (tiles forced, where that is admissible). Prints one JSON object with a row
per program and target: ops; ops that are missing in MLIR and in ONNX; whether `iree-opt` verifies
the text; the relative error of what IREE (llvm-cpu, programs below 100 ops) and onnxruntime
compute, against a float64 evaluation of the input program; whether they agree. Weights that are
known by their shapes only are random. Not ok if an answer is wrong or less than 80 % of the
exports verify.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import iree_oracle
import numpy as np
import onnx_oracle
from gates import say

import eqsat
from eqsat.api import Source
from eqsat.execute.comparison import MANY
from eqsat.execute.draw import drawn_weights, random_inputs
from eqsat.execute.reference import WorkBudget, reference
from eqsat.execute.rounding import error_limit, moves
from eqsat.export.plan import Exported
from eqsat.lang.experiments import find_program
from eqsat.ops.meaning.programs import evaluate_program
from fuzz.worst import worst_error

Row = dict[str, Any]
SMALL = 100  # ops of programs that IREE computes
IN_PLACE = 32 * 2**20  # bytes of weights that IREE compiles into the program
ON_DEVICES = ("request_far",)  # needs a map of several
HEAVY = 256 * 2**20  # bytes of weights from which on nothing is computed
LIMIT = 1e-4


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--programs", nargs="*", default=None)
    parser.add_argument("--targets", nargs="*", default=["input", "reference", "avx512-xla"])
    parser.add_argument("--time-limit", type=float, default=20.0)
    parser.add_argument("--folder", type=Path, default=None, help="keep the exports here")


def measured(asked: argparse.Namespace) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        place = asked.folder or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        rows = [
            row(name, target, asked.time_limit, place)
            for name in asked.programs or library()
            for target in asked.targets
        ]
    share = shares(rows)
    return {"ok": is_fine(rows, share), "limit": LIMIT, "share": share, "rows": rows}


def library() -> list[str]:
    """The programs below `experiments/programs` for one device, by the names they are read by."""
    from eqsat.cli.files import LISTS, What

    return [name for name, _ in LISTS[What.programs]()[1] if name not in ON_DEVICES]


def row(name: str, target: str, seconds: float, folder: Path) -> Row:
    """One program on one target, in both formats."""
    begin = time.process_time()
    source = with_weights(eqsat.read(find_program(name)))
    run, forced = searched(source, target, seconds)
    program = run.program  # at the sizes that are priced, if some are symbols
    inputs, wanted = [], None
    if program.weight_bytes <= HEAVY:
        inputs = sensible_inputs(program)
        wanted = evaluate_program(program, inputs, source.weights, source.opaque)
    found: Row = {"program": name, "target": target, "tiles_forced": forced}
    found["ops"] = program.op_count
    stem = f"{name.replace('/', '_').replace(':', '_')}.{target}"
    found["mlir"] = mlir(run, folder / f"{stem}.mlir", inputs, wanted)
    found["onnx"] = onnx(run, folder / f"{stem}.onnx", inputs, wanted)
    found["cpu_seconds"] = round(time.process_time() - begin, 1)
    say(json.dumps(found))
    return found


def with_weights(source: Source) -> Source:
    """With random values for weights that have none; heavy ones stay unknown."""
    program = source.program
    if program.weight_bytes > HEAVY:
        return source
    standins = drawn_weights(program)
    random = {k: scaled(w) for k, w in standins.items()}
    return Source(program, random | dict(source.weights), source.opaque)


def scaled(weight: Any) -> Any:
    """Small enough that what is computed from it stays well conditioned."""
    if weight.dtype.kind in "iub":
        return weight
    return (weight.astype(np.float32) / np.sqrt(max(weight.shape, default=1))).astype(weight.dtype)


def searched(source: Source, target: str, seconds: float) -> tuple[eqsat.Run, bool]:
    """The run, and whether its contractions were forced into tiles."""
    if target == "input":
        return eqsat.optimize(source, stop_after="program"), False
    if target == "reference":
        return eqsat.optimize(source, target=target, time_limit=seconds), False
    try:
        forced = ("tiles_forced=true",)
        return eqsat.optimize(source, target=target, settings=forced, time_limit=seconds), True
    except eqsat.EqsatError:
        return eqsat.optimize(source, target=target, time_limit=seconds), False


def sensible_inputs(program: eqsat.Program) -> list[Any]:
    """Random inputs; integers are not negative, as many are indices."""
    found = random_inputs(program, np.random.default_rng(0))
    return [np.abs(x) if x.dtype.kind in "iu" else x for x in found]


def mlir(run: eqsat.Run, path: Path, inputs: Sequence[Any], wanted: Any) -> Row:
    """Export, verify with iree-opt, and compute with IREE if it is small."""
    places = "arguments" if wanted is None else "auto"
    found = run.export("mlir", path, of=part(run), weights=places, partial=True)
    result: Row = {"ops": found.ops, "missing": [str(m) for m in found.missing]}
    tool = Path(sys.executable).with_name("iree-opt")
    done = subprocess.run(
        [tool, path, "-o", "/dev/null"], capture_output=True, text=True, check=False
    )
    result["verifies"] = done.returncode == 0
    if done.returncode:
        result["message"] = done.stderr[:500]
    if wanted is not None and not found.missing and run.program.op_count < SMALL:
        result |= compared(run, inputs, wanted, lambda: in_iree(run, found, inputs))
    return result


def in_iree(run: eqsat.Run, found: Exported, inputs: Sequence[Any]) -> Sequence[Any]:
    """What IREE computes; large weights are arguments, as compiling them in takes minutes."""
    if run.program.weight_bytes <= IN_PLACE:
        return iree_oracle.run(found.data.decode(), inputs)
    program = run.program if run.schedule is None else run.schedule.program
    weights = [run.weights[program.leaf(i).key] for i in program.weights]
    text = run.export("mlir", of=part(run), weights="arguments").data.decode()
    return iree_oracle.run(text, [*inputs, *weights])


def part(run: eqsat.Run) -> str:
    """What is exported: what was chosen, if anything was."""
    return "program" if run.schedule is None else "schedule"


def onnx(run: eqsat.Run, path: Path, inputs: Sequence[Any], wanted: Any) -> Row:
    """Export, check, and compute with onnxruntime."""
    places = "arguments" if wanted is None else "auto"
    found = run.export("onnx", path, of=part(run), weights=places, partial=True)
    result: Row = {"ops": found.ops, "missing": [str(m) for m in found.missing]}
    if wanted is not None and not found.missing:
        result |= compared(run, inputs, wanted, lambda: onnx_oracle.run(found.data, inputs))
    return result


def compared(
    run: eqsat.Run,
    inputs: Sequence[Any],
    wanted: Sequence[Any],
    compute: Callable[[], Sequence[Any]],
) -> Row:
    """The largest relative error of any result."""
    try:
        got = compute()
    except Exception as error:
        return {"equal": False, "message": f"{type(error).__name__}: {error}"[:500]}
    given = [as_wanted(a, b) for a, b in zip(got, wanted, strict=True)]
    limit = max(LIMIT, error_limit(run.program))
    worst = worst_of(given, wanted, [None] * len(given))
    if worst[0] > limit:  # a rounding op that met a tie may be off by a quantum
        beside = (inputs, run.weights, run.source.opaque)
        noisy = partial(reference, run.program, *beside, WorkBudget(10**15))
        slack = [np.zeros(np.shape(w)) for w in wanted]
        for pair in range(MANY):  # one pair of noisy evaluations steps over half of the ties
            moved = moves(run.program, noisy, wanted, pair)
            slack = [np.maximum(a, b) for a, b in zip(slack, moved, strict=True)]
            worst = worst_of(given, wanted, slack)
            if worst[0] <= limit:
                break
    ok = worst[0] <= limit
    return {"error": worst[0], "equal": ok} | ({} if ok else {"where": worst[1]})


def as_wanted(got: Any, wanted: Any) -> Any:
    """IREE's integers have no sign: those of an unsigned result are read as such."""
    array = np.asarray(got)
    return array.view(wanted.dtype) if wanted.dtype.kind == "u" else array


def worst_of(got: Sequence[Any], wanted: Sequence[Any], slack: Sequence[Any]) -> tuple[float, str]:
    """(largest relative error, where)."""
    sides = zip(got, wanted, slack, strict=True)
    return max((worst_error(a, b, s) for a, b, s in sides), key=lambda e: e[0], default=(0.0, ""))


def shares(rows: Sequence[Row]) -> dict[str, float]:
    """Parts of all rows that are expressible, and that verify."""
    count = max(1, len(rows))
    return {
        "mlir_expressible": sum(not r["mlir"]["missing"] for r in rows) / count,
        "mlir_verifies": sum(r["mlir"]["verifies"] for r in rows) / count,
        "onnx_expressible": sum(not r["onnx"]["missing"] for r in rows) / count,
    }


def is_fine(rows: Sequence[Row], share: dict[str, float]) -> bool:
    wrong = [r for r in rows for side in ("mlir", "onnx") if r[side].get("equal") is False]
    return not wrong and min(share["mlir_expressible"], share["mlir_verifies"]) >= 0.8
