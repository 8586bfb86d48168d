"""Ops that move elements: Transpose, Reshape, Pad, Slice, Concat, Gather and what packs make."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.export.onnxmodel.graph import Graph, Value
from eqsat.model.expr import read_literal
from eqsat.model.layout import Layout
from eqsat.model.movement import Move


def write_layout(graph: Graph, op: str, layout: Layout, x: Value) -> Value:
    """`pack`, `unpack`, `retype` or `relax`; lanes that may hold anything hold zeros."""
    if op == "relax":
        return x
    if op == "pack":
        return _pack(graph, layout, x)
    plain = _unpack(graph, layout, x)
    return plain if op == "unpack" else _pack(graph, layout, plain)


def _pack(graph: Graph, layout: Layout, x: Value) -> Value:
    for d, tile, text in layout.padded_dims:
        missing = -layout.source[d] % tile
        high = [missing if axis == d else 0 for axis in range(len(x.shape))]
        value = 0 if text in ("-", "?") else read_literal(text)
        x = graph.pad(x, [0] * len(high), high, value)
    shape, order = layout.blocked(x.shape)
    return graph.transpose(graph.reshape(x, shape), order)


def _unpack(graph: Graph, layout: Layout, x: Value) -> Value:
    slots, padded = layout.unblocked(x.shape)
    whole = graph.reshape(graph.transpose(x, slots), padded)
    return graph.slice(whole, [0] * len(padded), layout.source, [1] * len(padded))


def write_move(graph: Graph, attr: Move, xs: Sequence[Value]) -> Value:
    """`pad`, `slice`, `concat` or `gather`; a gather's indices are clipped into range."""
    if attr.op == "pad":
        low, high, text = attr.args
        return graph.pad(xs[0], low, high, read_literal(str(text)))
    if attr.op == "slice":
        return graph.slice(xs[0], *attr.args)
    if attr.op == "concat":
        return graph.concat(xs, attr.args[0])
    (axis,) = attr.args
    indices = graph.cast(xs[1], "i64")
    last = max(0, xs[0].shape[axis] - 1)
    below = graph.broadcast("Min", indices, graph.scalar(last, "i64"))
    inside = graph.broadcast("Max", below, graph.scalar(0, "i64"))
    return graph.gather(xs[0], inside, axis)
