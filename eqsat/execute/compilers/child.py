"""The process in which XLA compiles for a device that is not here: a request file → an answer file.

    python -m eqsat.execute.compilers.child REQUEST.json ANSWER.json

The environment is set by whoever starts it, before JAX is imported. The answer has the text of the
optimised module and the sizes of its memory, or `refused`, the compiler's own words; a list of
those if the request has `ways` in which arguments and results may lie.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def answer_request(request: str, answer: str) -> None:
    question = json.loads(Path(request).read_text(encoding="utf-8"))
    Path(answer).write_text(json.dumps(compile_module(question)), encoding="utf-8")


def compile_module(request: dict[str, Any]) -> Any:
    """Compile a request: `platform`, `topology` (name, options), `module` (file of `jax.export`).

    `ways`: per way two objects, number of a flat argument or of a result → the order of its dims in
    memory, the outermost first, or `auto` for the compiler to choose. Others lie row by row.
    """
    from jax import export
    from jax.experimental import topologies
    from jax.sharding import SingleDeviceSharding

    name, options = request["topology"]
    devices = topologies.get_topology_desc(
        platform=request["platform"], topology_name=name, **options
    ).devices
    here = SingleDeviceSharding(devices[0])
    module = export.deserialize(bytearray(Path(request["module"]).read_bytes()))
    if "ways" not in request:
        return compile_way(module, request["platform"], here, {}, {})
    return [compile_way(module, request["platform"], here, *way) for way in request["ways"]]


def compile_way(
    module: Any, platform: str, here: Any, came: dict[str, Any], goes: dict[str, Any]
) -> dict[str, Any]:
    """The module with arguments and results that lie so."""
    import jax
    from jax.experimental.layout import Format, Layout

    def lying(orders: dict[str, Any], number: int) -> Any:
        order = orders.get(str(number))
        if order is None:
            return here
        return Format(Layout.AUTO if order == "auto" else Layout(tuple(order)), here)

    ins = [lying(came, i) for i in range(len(module.in_avals))]
    outs = [lying(goes, i) for i in range(len(module.out_avals))] if goes else None
    flat = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in module.in_avals]
    args, _ = jax.tree.unflatten(module.in_tree, flat)
    formats, _ = jax.tree.unflatten(module.in_tree, ins)
    results = None if outs is None else jax.tree.unflatten(module.out_tree, outs)
    call = jax.jit(module.call, in_shardings=formats, out_shardings=results)
    try:
        done = call.trace(*args).lower(lowering_platforms=(platform,)).compile()
    except jax.errors.JaxRuntimeError as error:
        return {"refused": str(error)}
    return {"text": done.as_text(), "memory": memory_sizes(done.memory_analysis())}


def memory_sizes(memory: Any) -> dict[str, int]:
    """Bytes by what they are; those that a back end does not tell are 0."""
    names = ("argument", "output", "temp", "alias")
    sizes = {n: int(getattr(memory, f"{n}_size_in_bytes", 0)) for n in names}
    return sizes | {"peak": int(getattr(memory, "peak_memory_in_bytes", 0))}


if __name__ == "__main__":
    answer_request(*sys.argv[1:])
