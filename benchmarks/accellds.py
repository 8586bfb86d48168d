"""LDS of gfx942 as `gfx942-iree` predicts it against what IREE's compiler states (L.b).

    python benchmarks/accellds.py

Products of f32, f16, bf16 and i8, compiled for gfx942 by `iree-compile`, which states the bytes of
`group_segment_fixed_size`. The target's rules were read off `FITTED`; nothing was fitted to
`FURTHER`. Prints JSON with both figures of every product, and how many are equal to the byte; exit
code 1 if fewer than nine in ten of `FURTHER` are.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

NEEDS = ("iree.compiler",)
MINUTES = 3
TARGET, DEVICE = "gfx942-iree", "gfx942"
LEAST_EQUAL = 0.9
Row = dict[str, Any]
Shape = tuple[str, int, int, int]  # element type; m, n, k

FITTED: tuple[Shape, ...] = (
    ("f32", 256, 256, 256), ("f32", 128, 3136, 64), ("f32", 128, 10, 512), ("bf16", 64, 3136, 64),
    ("bf16", 2048, 2048, 2048), ("i8", 256, 256, 256), ("f32", 100, 100, 100), ("f32", 8, 512, 512),
)  # fmt: skip
# drawn before any of them was compiled
FURTHER: tuple[Shape, ...] = (
    ("f32", 256, 512, 320), ("bf16", 512, 1536, 768), ("i8", 1024, 4096, 1024),
    ("f32", 128, 1000, 2048), ("f16", 320, 640, 256), ("f32", 2048, 64, 512),
    ("bf16", 64, 768, 768), ("i8", 4096, 4096, 4096), ("f32", 640, 384, 96),
    ("bf16", 256, 10, 128), ("i8", 96, 96, 96), ("f16", 192, 2304, 768),
)  # fmt: skip


def measured() -> Row:
    """Every product with both figures."""
    fitted, further = ([row(*s) for s in shapes] for shapes in (FITTED, FURTHER))
    equal = sum(r["equal"] for r in further)
    return {
        "ok": equal >= LEAST_EQUAL * len(further),
        "equal_of_fitted": f"{sum(r['equal'] for r in fitted)} of {len(fitted)}",
        "equal_of_further": f"{equal} of {len(further)}",
        "rows": [*fitted, *further],
    }


def most_scratch(schedule: Any, target: Any) -> tuple[int, str]:
    """Bytes of the dispatch that takes most, and the pipeline that computes it."""
    from eqsat.schedule.fused import OneDispatch

    both = [
        (OneDispatch(i, d, schedule.program, target).scratch_bytes, d.pipeline)
        for i, d in enumerate(schedule.dispatches)
    ]
    return max(both)


def row(dtype: str, m: int, n: int, k: int) -> Row:
    from eqsat.execute.compilers.ask import DEFAULT_LIMIT
    from eqsat.execute.compilers.iree import ask_iree

    own, pipeline = predicted(dtype, m, n, k)
    with TemporaryDirectory() as folder:
        text = Path(folder) / "product.mlir"
        text.write_text(product(dtype, m, n, k), encoding="utf-8")
        told = ask_iree(DEVICE, text, DEFAULT_LIMIT, 0)
    found = {
        "product": f"{dtype} {m}x{n}x{k}", "predicted": own, "iree": told.scratch_bytes,
        "pipeline": pipeline, "refused": told.refused, "equal": own == told.scratch_bytes,
    }  # fmt: skip
    print(json.dumps(found), file=sys.stderr, flush=True)
    return found


def predicted(dtype: str, m: int, n: int, k: int) -> tuple[int, str]:
    """Bytes of scratch of the product alone, and the pipeline that computes it."""
    import eqsat
    from eqsat.lang.programs import parse_program
    from eqsat.lang.targets import load_target

    text = f"input x: {dtype}[{m}, {k}]\ninput w: {dtype}[{k}, {n}]\ny = matmul(x, w)\nreturn y\n"
    target = load_target(TARGET)
    run = eqsat.optimize(parse_program(text), target=target, rules=("policy/keep",), threads=1)
    assert run.schedule is not None
    return most_scratch(run.schedule, target)


def product(dtype: str, m: int, n: int, k: int) -> str:
    """A function of MLIR that multiplies two matrices."""
    kept = "i32" if dtype == "i8" else "f32"
    zero = "0" if dtype == "i8" else "0.0"
    lhs, rhs = f"tensor<{m}x{k}x{dtype}>", f"tensor<{k}x{n}x{dtype}>"
    made = f"tensor<{m}x{n}x{kept}>"
    return f"""func.func @main(%a: {lhs}, %b: {rhs}) -> {made} {{
  %zero = arith.constant {zero} : {kept}
  %empty = tensor.empty() : {made}
  %start = linalg.fill ins(%zero : {kept}) outs(%empty : {made}) -> {made}
  %sum = linalg.matmul ins(%a, %b : {lhs}, {rhs}) outs(%start : {made}) -> {made}
  return %sum : {made}
}}
"""


if __name__ == "__main__":
    result = measured()
    print(json.dumps(result, indent=1))
    sys.exit(0 if result["ok"] else 1)
