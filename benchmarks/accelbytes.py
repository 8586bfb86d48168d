"""Part b of `accelerators.py`: peak bytes and dispatches as predicted and as compilers have them.

    python benchmarks/accelbytes.py [NAME …]

Programs that do not fit into a TPU's VMEM are searched for v5e and h100, and the peak of each
answer's schedule is compared with what XLA needs of main memory for it, weights among arguments.
Four exports go to IREE for gfx942: dispatches as predicted and as it has them, and those of the
exported input. `ok`: within 1 % on v5e, within 25 % on h100, within 1 dispatch on gfx942, and no
export has more dispatches than its input. What the model is known not to predict is measured, too,
and told as `known`, with the reason. Compilers that are not installed are skipped.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
NEEDS: tuple[str, ...] = ()  # each compiler is skipped by itself
MINUTES = 5
SECONDS = 10.0  # of a search
NEAR = {"v5e": 0.01, "h100": 0.25}  # share by which a prediction may be off
TARGETS = {"v5e": ("tpu-v5e", "sm_90"), "h100": ("sm_90",), "gfx942": ("gfx942",)}
# what XLA is known to do and the model has not, by device and program: measured, but not required
KNOWN = {
    ("v5e", "chain_f32"): "f32 that only products of `default` precision read is kept as bf16",
    ("v5e", "rows"): "a sum over the rows of a product is in its kernel",
    ("v5e", "gated"): "an elementwise step behind a product writes over its other operand",
    ("v5e", "norm"): "the centred rows are computed again, not kept",
    ("v5e", "same_convolutions"): "padding is a convolution's own, not a value that is written",
    ("h100", "convolutions"): "cuDNN's convolutions are copied into its layouts, with a workspace",
    ("h100", "same_convolutions"): "cuDNN's convolutions are copied into its layouts, likewise",
}
EXPORTS = (
    "conv_qdq_residual.py:conv_qdq_residual", "bottlenecks.py:bottlenecks", "mlp.py:mlp_784",
    "quantized_matmul.mlir",
)  # fmt: skip


def measured(names: Sequence[str] = ()) -> Row:
    """All rows, and whether they show what they must."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    from accelprograms import cases

    found: Row = {}
    for device in NEAR:
        asked = {k: case for k, case in cases().items() if not names or k in names}
        found[device] = by_compiler(device, lambda d, a=asked: [peak(d, k, *a[k]) for k in a])
    found["gfx942"] = by_compiler("gfx942", lambda _: [dispatches(n) for n in EXPORTS])
    every = [r for rows in found.values() if isinstance(rows, list) for r in rows]
    rows = [r for r in every if not r.get("known")]
    return {"ok": all(r["ok"] for r in rows), **found}


def by_compiler(device: str, ask: Callable[[str], list[Row]]) -> list[Row] | str:
    """The rows of a device, or why it has none."""
    from eqsat.execute.compilers.ask import need_compiler
    from eqsat.model.diag import EqsatError
    from eqsat.run.compiling import oracle_for

    try:
        need_compiler(oracle_for(device))
    except EqsatError as error:
        told = error.diagnostics[0]
        print(f"SKIPPED {device}: {told.message}; {told.help}", file=sys.stderr)
        return f"skipped: {told.message}"
    return ask(device)


def peak(device: str, name: str, function: Any, args: list[Any], weights: tuple[str, ...]) -> Row:
    """Peak bytes of one program."""
    import eqsat
    from eqsat.run.compiling import CompilerQuestions, oracle_for, predicted

    begin = time.monotonic()
    target = next(t for t in TARGETS[device] if t in shipped())
    if weights:
        run = eqsat.optimize(function, *args, target=target, time_limit=SECONDS, weights=weights)
    else:
        run = eqsat.optimize(function, *args, target=target, time_limit=SECONDS)
    assert run.schedule is not None
    asked = CompilerQuestions(oracle_for(device), run.source, run.weights)
    told = asked.answer(asked.module(run.schedule, run.target))
    wanted, own = told.peak_bytes, predicted(run.schedule, run.target).peak_bytes
    share = None if not wanted else round(own / wanted - 1, 5)
    found = {
        "program": name, "target": target, "predicted": own, "compiler": wanted, "off": share,
        "dispatches": run.schedule.kernels, "kernels": told.kernels,
        "refused": told.refused, "known": KNOWN.get((device, name)),
        "ok": share is not None and abs(share) <= NEAR[device],
        "seconds": round(time.monotonic() - begin, 1),
    }  # fmt: skip
    print(json.dumps({"device": device} | found), file=sys.stderr, flush=True)
    return found


def dispatches(name: str) -> Row:
    """Dispatches of one export, by IREE."""
    import eqsat
    from eqsat.lang.experiments import find_program

    begin = time.monotonic()
    run = eqsat.optimize(
        find_program(name), target="gfx942", settings=("oracle='iree gfx942'",),
        check_compile=True, time_limit=SECONDS,
    )  # fmt: skip
    told = run.compile_for("gfx942")
    ours, theirs, plain = told.predicted.dispatches, told.chosen.kernels, told.plain.kernels
    fine = False
    if theirs is not None and plain is not None:
        fine = abs(ours - theirs) <= 1 and theirs <= plain
    found = {
        "program": name, "predicted": ours, "iree": theirs, "iree_of_input": plain,
        "lds_bytes": told.chosen.scratch_bytes,
        "refused": told.chosen.refused or told.plain.refused,
        "ok": fine,
        "seconds": round(time.monotonic() - begin, 1),
    }  # fmt: skip
    print(json.dumps({"device": "gfx942"} | found), file=sys.stderr, flush=True)
    return found


def shipped() -> set[str]:
    """The names of the targets that come with eqsat."""
    return {p.stem for p in (Path(__file__).parent.parent / "targets").glob("*.yaml")}


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1:]), indent=1))
