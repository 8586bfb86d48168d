"""The model time of `tpu-v5e` against the cycles that XLA:TPU states (L.d).

    python benchmarks/acceltimes.py [--second]

50 variants: the programs of `PROGRAMS` in this order, each in up to four forms (`FORMS`): as
written, as the search writes it for `avx512`, packed by force for `avx512-xla`, and rewritten by
`full` for `sm_90`. Forms of a program that have as many ops and compile to as many cycles are one;
the first 50 that are left count. They were chosen before anything of the target was fitted.
`SECOND` names programs that nothing was fitted to. The cycles are the sum of `estimated_cycles` in
the ENTRY computation; the time is that of the program's own ops under `tpu-v5e`, with the best
dispatches. Prints JSON with Kendall's tau, and exit code 1 below 0.8.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import eqsat
from eqsat.model.diag import EqsatError

NEEDS = ("libtpu",)
MINUTES = 5
LEAST_TAU = 0.8
VARIANTS = 50
HERTZ = 1.5e9  # of a v5e's core: its peak is that of four 128 x 128 units at this clock
TARGET = "tpu-v5e"
PROGRAMS = (
    "mlp.py:mlp_784", "encoder.py:encoder", "bottlenecks.py:bottlenecks", "mlp.py:mlp_1024",
    "conv_qdq_residual.py:conv_qdq_residual", "denoise.py:denoise", "denoise.py:denoise_nhwc",
    "gates.py:gates", "lookup.py:lookup", "lookup.py:lookup_large", "quantised.py:quantised_mlp",
    "quantised.py:quantised_bottleneck", "train.py:step", "three_readers.eqs", "residual.eqs",
    "transposed_pack.eqs", "permuted_consumer.eqs", "quantized_matmul.eqs", "two_packs.eqs",
    "folded_batch.eqs", "stack.py:encoder_2",
)  # fmt: skip
SECOND = (
    "trainconv.py:sgd", "padded_chain.eqs", "tied_table.eqs", "skinny.eqs", "llama.py:llama_64",
    "minilm.py:minilm", "swin.py:swin", "whisper.py:whisper",
)  # fmt: skip
# name -> target, rule sets, settings
FORMS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "written": ("reference", (), ()),
    "avx512": ("avx512", ("default",), ()),
    "forced": ("avx512-xla", ("default",), ("tiles_forced=true",)),
    "full": ("sm_90", ("full",), ()),
}
Row = dict[str, Any]


def variants(programs: Sequence[str]) -> Iterator[Row]:
    """Programs in their forms with their cycles; those that are alike once."""
    seen = set()
    for name in programs:
        for form in FORMS:
            try:
                schedule, opaque = _searched(name, form)
                cycles = cycles_of(schedule, opaque)
            except EqsatError as error:  # a form that a program does not have
                print(f"{name}, {form}: {error.diagnostics[0].message}", file=sys.stderr)
                continue
            alike = name, cycles, len(schedule.program.nodes)
            if alike not in seen:
                seen.add(alike)
                yield {"program": name, "form": form, "cycles": cycles, "schedule": schedule}


def _searched(name: str, form: str) -> tuple[Any, Any]:
    target, rules, settings = FORMS[form]
    run = eqsat.optimize(
        eqsat.read(name), target=target, rules=rules, settings=settings, threads=1, time_limit=30
    )
    return run.schedule, run.source.opaque


def cycles_of(schedule: Any, opaque: Any) -> int:
    """What XLA:TPU states for a schedule's program on one v5e."""
    import jax
    from jax.experimental import topologies
    from jax.sharding import SingleDeviceSharding

    from eqsat.execute.weights import resident
    from eqsat.execute.xla import xla_executable
    from eqsat.ops.meaning.programs import element_dtype

    device = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices[0]
    place, program = SingleDeviceSharding(device), schedule.program

    def struct(node: int) -> Any:
        t = program.nodes[node].types[0]
        return jax.ShapeDtypeStruct(t.shape, element_dtype(t.dtype), sharding=place)

    packed = {i: struct(i) for i in resident(schedule)}
    run = xla_executable(schedule, opaque, None).run
    traced = jax.jit(run).trace(packed, *map(struct, program.inputs))
    text = traced.lower(lowering_platforms=("tpu",)).compile().as_text() or ""
    entry = text[text.index("\nENTRY ") :]
    return sum(map(int, re.findall(r'"estimated_cycles":"(\d+)"', entry)))


def predicted_ps(program: Any) -> int:
    """Time of a program's own ops under the target, with the best dispatches."""
    run = eqsat.optimize(program, target=TARGET, rules=(), threads=1, time_limit=30)
    assert run.schedule is not None
    return run.schedule.time_ps


def measured(programs: Sequence[str] = PROGRAMS, most: int = VARIANTS) -> Row:
    """Every variant with both figures, and how alike they rank the variants."""
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    import jax
    from scipy.stats import kendalltau

    jax.config.update("jax_platforms", "cpu")
    os.chdir(Path(__file__).parent.parent)
    rows = []
    for v in variants(programs):
        model = round(predicted_ps(v.pop("schedule").program) * HERTZ / 1e12)
        rows.append(v | {"model_cycles": model})
        if len(rows) == most:
            break
    found: Any = kendalltau([r["cycles"] for r in rows], [r["model_cycles"] for r in rows])
    tau = float(found.statistic)
    return {"ok": tau >= LEAST_TAU, "tau": round(tau, 4), "variants": len(rows), "rows": rows}


if __name__ == "__main__":
    result = measured(SECOND if "--second" in sys.argv else PROGRAMS)
    print(json.dumps(result, indent=1))
    sys.exit(0 if result["ok"] else 1)
