"""Weights → the packed arrays a schedule reads at run time, made once and kept in a file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from eqsat.execute.arrayfiles import device_arrays, rooms_for
from eqsat.execute.lowering import OpaqueFunction, evaluate
from eqsat.model.diag import check_known, fail
from eqsat.model.layout import Layout
from eqsat.model.leaves import Leaf
from eqsat.model.program import Program
from eqsat.model.schedule import Schedule
from eqsat.ops.builtin.layouts import pack
from eqsat.ops.meaning.elements import DTYPE_NAMES
from eqsat.ops.meaning.programs import evaluate_node, weight_arrays

_MOVES = frozenset({"pack", "unpack", "relax", "transpose", "reshape", "slice", "pad", "concat"})
READABLE = 160  # longer derivations are named by their hash


def ahead_nodes(schedule: Schedule) -> list[int]:
    """Weights and everything computed from them once, in program order."""
    return sorted({*schedule.ahead, *schedule.program.weights})


def resident(schedule: Schedule) -> list[int]:
    """Ahead nodes that run-time nodes read or that are results: what stays in memory."""
    program, ahead = schedule.program, set(ahead_nodes(schedule))
    read = {o for i in run_time_nodes(schedule) for o in program.nodes[i].operands}
    return sorted((read | set(program.results)) & ahead)


def run_time_nodes(schedule: Schedule) -> list[int]:
    """Nodes the results need, ahead-of-time ones and what only they need left out."""
    program, ahead = schedule.program, set(ahead_nodes(schedule))
    needed: set[int] = set()
    stack = [r for r in program.results if r not in ahead]
    while stack:
        i = stack.pop()
        if i in needed:
            continue
        needed.add(i)
        stack += [o for o in program.nodes[i].operands if o not in ahead]
    return sorted(needed)


def packed_per_run(schedule: Schedule) -> list[int]:
    """Resident nodes that something is made from in every run, without any input."""
    program, ahead = schedule.program, set(ahead_nodes(schedule))
    run_time, nodes = run_time_nodes(schedule), program.nodes
    fixed = set(ahead)
    sources: set[int] = set()
    for i in run_time:
        if nodes[i].op == "input" or not fixed.issuperset(nodes[i].operands):
            continue
        fixed.add(i)
        sources.update(ahead.intersection(nodes[i].operands))
    return sorted(sources)


def pack_weights(
    schedule: Schedule,
    weights: Mapping[str, Any],
    opaque: Mapping[str, OpaqueFunction] | None = None,
) -> dict[int, Any]:
    """Resident node → array. What follows from a tracer is traced, all else is packed now.

    EqsatError E503 if a weight has no array.
    """
    import jax
    from jax.core import Tracer

    leaves, functions = weight_arrays(schedule.program, weights), opaque or {}
    fixed = {i: x for i, x in leaves.items() if not isinstance(x, Tracer)}
    first = _computable(schedule, fixed)
    residents = resident(schedule)
    if len(fixed) < len(leaves):  # what traced weights will need of the others
        residents = [i for i in first if len(schedule.program.nodes[i].types) == 1]
    # under an outer jit the packing must still happen now, and once
    with jax.ensure_compile_time_eval():
        moved: dict[int, Any] = {}
        if jax.default_backend() == "cpu":
            moved = moved_by_numpy(schedule.program, first, fixed)
        ours = [i for i in residents if i in moved]
        copies = _copies([moved[i] for i in ours])
        packed = dict(zip(ours, map(jax.device_put, copies), strict=True))
        rest = [i for i in residents if i not in moved]
        if rest:
            ready = {i: jax.numpy.asarray(x) for i, x in (fixed | moved).items()}
            packed |= jax.jit(lambda xs: _run(schedule, first, rest, xs, functions))(ready)
    if len(fixed) == len(leaves):
        return packed
    given = packed | {i: x for i, x in leaves.items() if i not in fixed}
    return _run(schedule, ahead_nodes(schedule), resident(schedule), given, functions)


def moved_by_numpy(
    program: Program, nodes: Iterable[int], leaves: Mapping[int, Any]
) -> dict[int, np.ndarray[Any, Any]]:
    """Node → array of these leaves and of all nodes (ascending) that only move their data.

    On a CPU this is faster than XLA's, which compiles a program first. Arrays may be views.
    """
    arrays = {i: np.asarray(x) for i, x in leaves.items()}
    for i in nodes:
        n = program.nodes[i]
        if i in arrays or n.op not in _MOVES or not arrays.keys() >= set(n.operands):
            continue
        xs = [arrays[o] for o in n.operands]
        if n.op == "pack" and isinstance(n.attr, Layout):
            arrays[i] = pack(n.attr, xs[0], 0)
        else:
            arrays[i] = evaluate_node(n.op, n.attr, xs)[0]
    return arrays


def _copies(arrays: Sequence[np.ndarray[Any, Any]]) -> Iterator[np.ndarray[Any, Any]]:
    """Copies, aligned as JAX wants them to take them as they are."""
    rooms = rooms_for([(x.dtype, x.shape) for x in arrays])
    for room, x in zip(rooms, arrays, strict=True):
        room[...] = x
        yield room


def _computable(schedule: Schedule, leaves: Mapping[int, Any]) -> list[int]:
    """The ahead nodes that need no other weight than these."""
    computable: set[int] = set()
    for i in ahead_nodes(schedule):
        n = schedule.program.nodes[i]
        if i in leaves or (n.op != "weight" and computable.issuperset(n.operands)):
            computable.add(i)
    return sorted(computable)


def _run(
    schedule: Schedule,
    nodes: Sequence[int],
    wanted: Sequence[int],
    given: Mapping[int, Any],
    opaque: Mapping[str, OpaqueFunction],
) -> dict[int, Any]:
    """The values of `wanted`, by the ops of `nodes` from those that are given."""
    values = evaluate(schedule.program, nodes, given, opaque)
    return {i: values[i][0] for i in wanted if i in values}


def arrays_by_key(program: Program, values: Mapping[str, Any]) -> dict[str, Any]:
    """Content key → array, for weights given by name.

    EqsatError: E324 if there is no such weight, E503 for another shape or element type.
    """
    leaves = {program.leaf(i).name: program.leaf(i) for i in program.weights}
    arrays = {}
    for name, array in values.items():
        check_known(name, leaves, "E324", f"`{program.name}` has no weight `{name}`")
        t, value = leaves[name].type, array if hasattr(array, "dtype") else np.asarray(array)
        given = DTYPE_NAMES.get(value.dtype.name, value.dtype.name)
        if tuple(value.shape) != t.shape or given != t.dtype:
            raise fail("E503", f"weight `{name}` is {t}, got {given}{list(value.shape)}")
        arrays[leaves[name].key] = value
    return arrays


def content_key(program: Program, node: int) -> str:
    """How an ahead node follows from weights: content hashes and layouts, e.g.

    `pack(3fa90c…, pos=[0, 1], tiles=[16, 1], outer=[0, 1])`.
    """
    memo: dict[int, str] = {}
    for i in range(node + 1):
        n = program.nodes[i]
        if any(o not in memo for o in n.operands):
            continue  # depends on an input
        if isinstance(n.attr, Leaf):
            if n.op == "weight":
                memo[i] = n.attr.key
            continue
        parts = [*(memo[o] for o in n.operands), n.attr.text(n.op), str(n.types[0])]
        text = f"{n.op}({', '.join(p for p in parts if p)})"
        memo[i] = text if len(text) <= READABLE else _digest(text)
    return memo[node]


@lru_cache(maxsize=10_000)
def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def packed_arrays(schedule: Schedule, packed: Mapping[int, Any]) -> dict[str, Any]:
    """Packed weights by content key, as a file keeps them."""
    return {content_key(schedule.program, i): array for i, array in packed.items()}


def read_packed(path: str | Path, schedule: Schedule) -> dict[int, Any] | None:
    """The packed weights of this schedule, or None if the file lacks one of them.

    EqsatError E504 if the file is no safetensors file.
    """
    keys = {i: content_key(schedule.program, i) for i in resident(schedule)}
    arrays = device_arrays(path, list(keys.values()))
    return None if arrays is None else dict(zip(keys, arrays, strict=True))
