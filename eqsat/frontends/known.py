"""Index arrays that are known while tracing: constants, and integer arithmetic on constants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eqsat.frontends.values import Context, Tensor
from eqsat.model.generic import Generic
from eqsat.model.leaves import Leaf
from eqsat.model.program import Node
from eqsat.model.tensor import is_float
from eqsat.ops.meaning.programs import evaluate_node
from eqsat.ops.meaning.scalar import held_dtype

LARGEST = 2**20  # elements of one array
DEEPEST = 32  # nodes between a constant and its use

Array = np.ndarray[Any, Any]
_FOLDED = frozenset({"generic", "transpose", "reshape", "pad", "slice", "concat", "gather", "fill"})


def known(ctx: Context, value: Tensor) -> Array | None:
    """The array of an integer or bool value, None if it depends on an argument or is large."""
    if value.is_constant:
        return np.full(value.shape, value.constant, held_dtype(value.dtype))
    if math.prod(value.shape) > LARGEST or _evaluate(ctx, value.node, DEEPEST, {}) is None:
        return None
    return _evaluate(ctx, ctx.materialise(value), DEEPEST + 1, {})


def _evaluate(ctx: Context, node: int, depth: int, found: dict[int, Array | None]) -> Array | None:
    if node not in found:
        found[node] = _compute(ctx, node, depth, found) if depth else None
    return found[node]


def _compute(ctx: Context, node: int, depth: int, found: dict[int, Array | None]) -> Array | None:
    n = ctx.builder.nodes[node]
    if len(n.types) != 1 or is_float(n.type.dtype) or _work(n) > LARGEST:
        return None
    if n.op == "weight" and isinstance(n.attr, Leaf):
        array = ctx.weights.get(n.attr.key)
        return None if array is None else array.astype(held_dtype(n.type.dtype))
    if n.op not in _FOLDED:
        return None
    operands = []
    for o in n.operands:
        array = _evaluate(ctx, o, depth - 1, found)
        if array is None:
            return None
        operands.append(array)
    return evaluate_node(n.op, n.attr, operands)[0]


def _work(n: Node) -> int:
    """Elements that evaluating a node touches."""
    return max(n.type.size, math.prod(n.attr.sizes) if isinstance(n.attr, Generic) else 0)


def progression(line: Array) -> tuple[int, int] | None:
    """(first, step > 0) if these are equally spaced ascending numbers, else None."""
    if line.ndim != 1 or not line.size:
        return None
    steps = np.unique(np.diff(line.astype(np.int64)))
    if steps.size > 1 or (steps.size and steps[0] <= 0):
        return None
    return int(line[0]), int(steps[0]) if steps.size else 1
