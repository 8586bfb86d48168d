"""What a TPU's compiler says where it is imported: for a process of its own, which prints JSON.

    python tests/ontpu.py [scratch] [mesh] [steps]

JAX looks at libtpu as soon as it can be imported, and both write to stderr on a machine without a
TPU, which the tests must not.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

SCRATCH = ("product f32 2048x2048x2048 by 256x256x128", "product bf16 96x512x1024 by 32x256x256",
           "product i8 24x384x640 by 8x128x128", "product bf16 1024x960x1024 by 128x192x128",
           "pass f32 (4096, 4096) by (1024, 1024), 2 operand(s)")  # fmt: skip


def scratch() -> list[dict[str, Any]]:
    """Bytes of VMEM of Pallas kernels, predicted and stated."""
    import accelscratch as by

    from eqsat.lang.targets import load_target

    target = load_target("tpu-v5e")
    assert target.padding is not None and target.limits.scratch_bytes is not None
    known = {k.name: k for k in by.grid_kernels(target.padding, target.limits.scratch_bytes)}
    device = chips("v5e:2x2")[0]
    return [
        {"kernel": name, "predicted": known[name].nbytes, "refusal": known[name].refusal,
         "admits": known[name].is_admitted, "stated": by.stated_by_mosaic(known[name], device)}
        for name in SCRATCH
    ]  # fmt: skip


def mesh() -> dict[str, Any]:
    """Collectives and bytes of a chip, of an MLP that is cut over data and model."""
    import accelmesh as by

    case = next(c for c in by.cases(8, 32, 4096, 16384) if c.name == "mlp")
    cut = {"x": "[data, -, -]", "result0": "[data, -, -]"}
    run = by.planned(case, "bfloat16", shards=cut)
    compiled = by.aot(run, chips("v5e:2x4"))
    told = compiled.memory_analysis()
    return {
        "plan": run.mesh_plan.collectives,
        "compiled": by.collectives(compiled.as_text() or ""),
        "plan_bytes": run.mesh_plan.peak_bytes,
        "stated_bytes": told.argument_size_in_bytes
        + told.output_size_in_bytes
        + told.temp_size_in_bytes,
    }


def steps() -> str:
    """A 1x1 convolution that takes every other row and column, as one Pallas kernel."""
    import accelpallas as by
    import jax

    import eqsat
    from eqsat.execute.pallas.executor import kernel_of
    from eqsat.plan.gridded.flat import BLOCKS

    def shortcut(x: Any, w: Any) -> Any:
        numbers = ("NCHW", "OIHW", "NCHW")
        return jax.lax.conv_general_dilated(x, w, (2, 2), "VALID", dimension_numbers=numbers)

    shapes = [jax.ShapeDtypeStruct(s, "float32") for s in ((1, 64, 28, 28), (128, 64, 1, 1))]
    run = eqsat.optimize(shortcut, *shapes, target="tpu-v5e", rules=(), time_limit=20)
    assert run.schedule is not None and len(run.schedule.dispatches) == 1
    return by.compiled(kernel_of(run.schedule, 0, run.target, BLOCKS), "v5e")


def chips(topology: str) -> list[Any]:
    from jax.experimental import topologies

    return list(topologies.get_topology_desc(platform="tpu", topology_name=topology).devices)


if __name__ == "__main__":
    os.environ["JAX_PLATFORMS"] = "cpu"
    questions = {"scratch": scratch, "mesh": mesh, "steps": steps}
    print(json.dumps({question: questions[question]() for question in sys.argv[1:]}))
