"""Loops that run over windows, and reductions over windows as pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.export.onnxmodel.graph import Graph, Value, extent
from eqsat.export.onnxmodel.loops import to_loops
from eqsat.model.affine import Map
from eqsat.model.generic import Generic


@dataclass(frozen=True)
class Window:
    """One spatial dim: input = stride * position + dilation * offset."""

    axis: int  # of the image
    position: int  # loops
    offset: int
    stride: int
    dilation: int


def windows(g: Generic, m: Map) -> list[Window] | None:
    """Every sum of one result loop and one reduction loop; None if there are others, or none.

    No two of its dims share a loop.
    """
    found = []
    for axis, e in enumerate(m):
        if e.dim is not None:
            continue
        if len(e.terms) != 2 or e.constant or any(s <= 0 for _, s in e.terms):
            return None
        (p, stride), (w, dilation) = sorted(e.terms)
        if p >= g.rank or w < g.rank:
            return None
        found.append(Window(axis, p, w, stride, dilation))
    loops = [d for e in m for d, _ in e.terms]
    return found if found and len(set(loops)) == len(loops) else None


def pool(graph: Graph, g: Generic, operands: Sequence[Value]) -> Value | None:
    """A maximum or a sum of f32 over windows as MaxPool or AveragePool, else None."""
    if len(g.maps) != 1 or len(g.yields) != 1 or g.body.fn != "arg" or len(g.sizes) == g.rank:
        return None
    found = windows(g, g.maps[0])
    is_f32 = g.dtypes == ("f32",) and g.yields[0].dtype == "f32"
    if found is None or not is_f32 or g.combine not in ("max", "add") or len(found) > 3:
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
