"""A call of all kernels as data, for processes that only make it: no program, plan or code.

It holds names of functions with the keys of their objects, and types and places of what is read and
written. A call with tracers is not made so: derivatives and batches are those of the ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from eqsat.execute.arrayfiles import device_arrays
from eqsat.execute.kernels import linked
from eqsat.execute.withpacked import with_packed
from eqsat.model.diag import fail
from eqsat.ops.meaning.elements import element_dtype

Record = dict[str, Any]  # JSON


def recorded(executable: Any) -> Record | None:
    """The record of an executable of kernels that is one call; None of any other."""
    from eqsat.execute.weights import content_key

    call = getattr(executable, "whole", None)
    if call is None or not linked.keys.keys() >= set(call.functions):
        return None
    schedule, program = executable.schedule, executable.schedule.program
    places: dict[int, int | str] = {i: n for n, i in enumerate(program.inputs)}
    places |= {i: content_key(program, i) for i in executable.packed if i not in places}
    by_buffer = {schedule.buffer_of(i): at for i, at in places.items()}

    def typed(node: int) -> list[Any]:
        t = program.nodes[node].types[0]
        return [t.dtype, list(t.shape)]

    return {
        "name": call.target,
        "functions": {f: linked.keys[f] for f in call.functions},
        "program": program.name,
        "inputs": [[program.leaf(i).name, *typed(i)] for i in program.inputs],
        "reads": [
            [places.get(i, by_buffer.get(schedule.buffer_of(i))), *typed(i)] for i in call.reads
        ],
        "writes": [typed(i) for i in call.writes],
        "donated": list(executable.donated),
        "as_arguments": executable.weights_are_arguments,
    }


def called_again(record: Record, packed: Path | None) -> Callable[..., Any] | None:
    """The function of flat inputs, as `JaxExecutable.flat`; None if a part is there no more.

    packed: the file of packed weights. Raises EqsatError (E503) if an input does not fit.
    """
    import jax

    keys = [at for at, *_ in record["reads"] if isinstance(at, str)]
    held = device_arrays(packed, keys) if packed is not None and keys else []
    if held is None or len(held) < len(keys):
        return None
    if not linked.load_again(record["name"], record["functions"]):
        return None
    writes = [jax.ShapeDtypeStruct(shape, element_dtype(t)) for t, shape in record["writes"]]
    call = jax.ffi.ffi_call(record["name"], writes)

    def run(weights: Sequence[Any], *inputs: Any) -> tuple[Any, ...]:
        given, rest = _typed(record, inputs), iter(weights)
        reads = [next(rest) if isinstance(at, str) else given[at] for at, *_ in record["reads"]]
        shapes = [shape for _, _, shape in record["reads"]]
        return tuple(call(*(x.reshape(s) for x, s in zip(reads, shapes, strict=True))))

    run.__name__ = record["program"]
    donated = record["donated"]
    if record["as_arguments"]:
        return with_packed(jax.jit(run, donate_argnums=tuple(n + 1 for n in donated)), held)
    return jax.jit(lambda *inputs: run(held, *inputs), donate_argnums=tuple(donated))


def _typed(record: Record, inputs: Sequence[Any]) -> list[Any]:
    """Inputs as JAX arrays, as `JaxExecutable.typed` has them."""
    import jax.numpy as jnp

    name, wanted = record["program"], record["inputs"]
    if len(inputs) != len(wanted):
        raise fail("E503", f"`{name}` takes {len(wanted)} input(s), got {len(inputs)}")
    arrays = [jnp.asarray(x) for x in inputs]
    for x, (leaf, dtype, shape) in zip(arrays, wanted, strict=True):
        what = f"`{leaf}` is {dtype}{shape}, got"
        if list(x.shape) != shape:
            raise fail("E503", f"{what} shape {list(x.shape)}")
        if x.dtype != element_dtype(dtype):
            raise fail("E503", f"{what} element type {x.dtype}")
    return arrays
