"""Loops that run over windows, and reductions over windows as pooling."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.export.onnxmodel.graph import Graph, Value, extent
from eqsat.export.onnxmodel.loops import to_loops
from eqsat.model.generic import Generic
from eqsat.ops.generics.windows import Window, windows


def pool(graph: Graph, g: Generic, operands: Sequence[Value]) -> Value | None:
    """A maximum or a sum of f32 over windows as MaxPool or AveragePool, else None."""
    if len(g.maps) != 1 or len(g.yields) != 1 or g.body.fn != "arg" or len(g.sizes) == g.rank:
        return None
    found = windows(g, g.maps[0])
    is_f32 = g.dtypes == ("f32",) and g.yields[0].dtype == "f32"
    if not found or not is_f32 or g.combine not in ("max", "add") or len(found) > 3:
        return None
    offsets, positions = [w.offset for w in found], [w.position for w in found]
    bare = [e.dim for e in g.maps[0] if e.dim is not None]
    if sorted(offsets) != list(g.reductions) or max(bare, default=0) >= g.rank:
        return None
    at = [e.dim for e in g.maps[0]]
    x = graph.transpose(operands[0], [*(at.index(d) for d in bare), *(w.axis for w in found)])
    x = graph.reshape(x, [1, extent([g.sizes[d] for d in bare]), *x.shape[len(bare) :]])
    total = _pooled(graph, g, x, found)
    order = [*bare, *positions]
    return to_loops(graph, graph.reshape(total, [g.sizes[d] for d in order]), order, g.result_shape)


def _pooled(graph: Graph, g: Generic, x: Value, found: Sequence[Window]) -> Value:
    kernel = tuple(g.sizes[w.offset] for w in found)
    attrs = {
        "kernel_shape": kernel,
        "strides": tuple(w.stride for w in found),
        "dilations": tuple(w.dilation for w in found),
    }
    shape = (*x.shape[:2], *(g.sizes[w.position] for w in found))
    if g.combine == "max":
        return graph.add("MaxPool", [x], x.dtype, shape, **attrs)
    mean = graph.add("AveragePool", [x], x.dtype, shape, **attrs)
    return graph.broadcast("Mul", mean, graph.scalar(float(extent(kernel)), x.dtype))
