"""The process in which XLA compiles for a device that is not here: a request file → an answer file.

    python -m eqsat.execute.compilers.child REQUEST.json ANSWER.json

The environment is set by whoever starts it, before JAX is imported. The answer has the text of the
optimised module and the sizes of its memory, or `refused`, the compiler's own words.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def answer_request(request: str, answer: str) -> None:
    asked = json.loads(Path(request).read_text(encoding="utf-8"))
    Path(answer).write_text(json.dumps(compile_module(asked)), encoding="utf-8")


def compile_module(asked: dict[str, Any]) -> dict[str, Any]:
    """asked: `platform`, `topology` (name and options), `module` (a file of `jax.export`)."""
    import jax
    from jax import export
    from jax.experimental import topologies
    from jax.sharding import SingleDeviceSharding

    name, options = asked["topology"]
    devices = topologies.get_topology_desc(
        platform=asked["platform"], topology_name=name, **options
    ).devices
    here = SingleDeviceSharding(devices[0])
    module = export.deserialize(bytearray(Path(asked["module"]).read_bytes()))
    flat = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=here) for a in module.in_avals]
    args, kwargs = jax.tree.unflatten(module.in_tree, flat)
    lowered = (
        jax.jit(module.call).trace(*args, **kwargs).lower(lowering_platforms=(asked["platform"],))
    )
    try:
        done = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        return {"refused": str(error)}
    return {"text": done.as_text(), "memory": memory_sizes(done.memory_analysis())}


def memory_sizes(told: Any) -> dict[str, int]:
    """Bytes by what they are; those that a back end does not tell are 0."""
    names = ("argument", "output", "temp", "alias")
    found = {n: int(getattr(told, f"{n}_size_in_bytes", 0)) for n in names}
    return found | {"peak": int(getattr(told, "peak_memory_in_bytes", 0))}


if __name__ == "__main__":
    answer_request(*sys.argv[1:])
