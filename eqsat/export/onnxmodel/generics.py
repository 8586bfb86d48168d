"""`generic` as ONNX: MatMul, Conv and pooling where it is one, else elementwise ops and Reduce."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as every

from eqsat.export.onnxmodel.expressions import Body
from eqsat.export.onnxmodel.graph import Graph, Value, extent
from eqsat.export.onnxmodel.loops import over_loops, project_all
from eqsat.export.onnxmodel.products import product
from eqsat.export.onnxmodel.windows import pool
from eqsat.export.plan import Inexpressible
from eqsat.export.typed import Typed, typed_yields
from eqsat.model.generic import Generic, Yield
from eqsat.ops.generics.windows import fixed_at, window_loops
from eqsat.ops.meaning.scalar import neutral

UNROLLED = 128  # window positions that are written out one by one
DOMAIN_LIMIT = 2**28  # elements of an iteration domain that a reduction writes down whole
_REDUCE = {"add": "ReduceSum", "mul": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin"}
_OF_BOOLS = {"add": "max", "or": "max", "max": "max", "mul": "min", "and": "min", "min": "min"}


def write_generic(graph: Graph, g: Generic, operands: Sequence[Value]) -> list[Value]:
    """One value per result, in its element type; Inexpressible if ONNX has no such ops."""
    if extent(g.sizes) == 0:
        return [_empty(graph, g, y) for y in g.yields]
    return [
        graph.cast(v, y.dtype) for v, y in zip(_wide(graph, g, operands), g.yields, strict=True)
    ]


def _empty(graph: Graph, g: Generic, y: Yield) -> Value:
    start = neutral(y.combine, y.dtype) if y.combine else 0
    return graph.expand(graph.scalar(start, y.dtype), g.result_shape)


def _wide(graph: Graph, g: Generic, operands: Sequence[Value]) -> list[Value]:
    """Results in the types they are computed in."""
    g, values = project_all(graph, g, operands)
    for attempt in (product, pool):
        found = attempt(graph, g, values)
        if found is not None:
            return [found]
    loops = window_loops(g)
    if loops and extent([g.sizes[d] for d in loops]) <= UNROLLED:
        return _unrolled(graph, g, values, loops)
    return _broadcast(graph, g, values)


# ---- windows -----------------------------------------------------------------------------------
def _unrolled(graph: Graph, g: Generic, operands: Sequence[Value], loops: list[int]) -> list[Value]:
    """The window loops at each of their places, combined: every step is plain slices."""
    total: list[Value] = []
    for at in every(*(range(g.sizes[d]) for d in loops)):
        step = _wide(graph, fixed_at(g, dict(zip(loops, at, strict=True))), operands)
        pairs = zip(g.yields, total or step, step, strict=True)
        total = [_combined(graph, *t) for t in pairs] if total else step
    return total


def _combined(graph: Graph, y: Yield, a: Value, b: Value) -> Value:
    args = tuple(Typed("arg", (), y.dtype, i) for i in (0, 1))
    return Body(graph, [a, b]).emit(Typed(y.combine, args, y.dtype))


# ---- everything else ---------------------------------------------------------------------------
def _broadcast(graph: Graph, g: Generic, operands: Sequence[Value]) -> list[Value]:
    """The body over all loops, then reduced."""
    if len(g.reductions) and extent(g.sizes) > DOMAIN_LIMIT:
        raise Inexpressible(f"a reduction over {extent(g.sizes)} places that is no product")
    views = [over_loops(graph, x, m, g.sizes) for x, m in zip(operands, g.maps, strict=True)]
    body = Body(graph, views)
    return [
        _result(graph, g, y, body.emit(t)) for y, t in zip(g.yields, typed_yields(g), strict=True)
    ]


def _result(graph: Graph, g: Generic, y: Yield, value: Value) -> Value:
    full = graph.expand(value, g.sizes)
    if not y.combine:
        return full
    axes = tuple(g.reductions)
    if y.dtype == "bool":
        counted = graph.cast(full, "i32")
        return graph.cast(_reduced(graph, _OF_BOOLS[y.combine], counted, axes), "bool")
    if y.combine not in _REDUCE:
        raise Inexpressible(f"ONNX reduces by no `{y.combine}` of {y.dtype}")
    return Body(graph, []).wrap(_reduced(graph, y.combine, full, axes), y.dtype)


def _reduced(graph: Graph, combine: str, value: Value, axes: Sequence[int]) -> Value:
    return graph.reduce(_REDUCE[combine], value, axes)
