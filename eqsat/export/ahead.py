"""What follows from weights alone, computed in NumPy: packed weights, folded constants.

Ops that move elements work on the elements as they are stored; arithmetic is done in float64 and
rounded once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.model.diag import fail
from eqsat.model.generic import Result
from eqsat.model.layout import Layout
from eqsat.model.program import Node, Program
from eqsat.ops.builtin.layouts import pack, unpack
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.programs import element_dtype, evaluate_node
from eqsat.ops.registry import builtin_ops

Array = np.ndarray[Any, Any]
OpaqueFunction = Callable[..., Sequence[Any]]


def ahead_arrays(
    program: Program,
    wanted: Sequence[int],
    weights: Mapping[str, Array],
    opaque: Mapping[str, OpaqueFunction],
) -> dict[int, Array]:
    """Node → its value in its element type. Lanes that may hold anything hold zeros.

    EqsatError E381 if a weight has no values.
    """
    needed = _below(program, wanted)
    left = {i: sum(i in program.nodes[j].operands for j in needed) for i in needed}
    values: dict[int, list[Array]] = {}
    for i in needed:
        n = program.nodes[i]
        if n.op == "weight":
            values[i] = [weight_array(program, i, weights)]
        else:
            values[i] = _evaluate(program, n, values, opaque)
        for o in set(n.operands):
            left[o] -= 1
            if left[o] == 0 and o not in wanted:
                del values[o]
    return {i: np.asarray(values[i][0], order="C") for i in wanted}


def weight_array(program: Program, node: int, weights: Mapping[str, Array]) -> Array:
    """The values of a weight in its element type; EqsatError E381 if there are none."""
    leaf = program.leaf(node)
    if leaf.key not in weights:
        raise fail(
            "E381",
            f"weight `{leaf.name}` has no values, so it cannot be written as a constant",
            help="`--weights arguments` makes the weights arguments of the exported function",
        )
    return np.asarray(weights[leaf.key], element_dtype(leaf.type.dtype), order="C")


def _below(program: Program, wanted: Sequence[int]) -> list[int]:
    nodes: set[int] = set()
    stack = list(wanted)
    while stack:
        i = stack.pop()
        if i not in nodes:
            nodes.add(i)
            stack += program.nodes[i].operands
    return sorted(nodes)


def _evaluate(
    program: Program,
    n: Node,
    values: Mapping[int, list[Array]],
    opaque: Mapping[str, OpaqueFunction],
) -> list[Array]:
    if isinstance(n.attr, Result):
        return [values[n.operands[0]][n.attr.index]]
    xs = [values[o][0] for o in n.operands]
    if n.op in MOVED:
        return [MOVED[n.op](n.attr, *xs)]
    types = [program.nodes[o].type for o in n.operands]
    held = [scalar.hold(x, t.dtype) for x, t in zip(xs, types, strict=True)]
    results = evaluate_node(n.op, n.attr, held, opaque)
    with np.errstate(over="ignore"):
        return [a.astype(element_dtype(t.dtype)) for a, t in zip(results, n.types, strict=True)]


def _packed(layout: Layout, x: Array) -> Array:
    return pack(layout, x, x.dtype.type(0))


# ops that move elements, in the operand's own type -> (attribute, *operands) -> result
MOVED: dict[str, Callable[..., Array]] = {
    name: r.numpy
    for name, r in builtin_ops().items()
    if r.kind in ("view", "conversion", "transfer", "move") and r.numpy is not None
} | {"pack": _packed, "retype": lambda layout, x: _packed(layout, unpack(layout, x))}
del MOVED["pad"]  # its value is rounded to the element type


def little_endian(array: Array) -> bytes:
    """The elements in order, as MLIR and ONNX store those of types of whole bytes."""
    value = np.asarray(array, order="C")
    if value.dtype.kind == "V" and sys.byteorder == "big":  # types NumPy has no byte order for
        return value.view(f"u{value.dtype.itemsize}").astype(f"<u{value.dtype.itemsize}").tobytes()
    return value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes()
