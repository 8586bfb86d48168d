"""What each op is in ONNX: a table, one line per op."""

from __future__ import annotations

from collections.abc import Callable

from eqsat.export.onnxmodel.generics import write_generic
from eqsat.export.onnxmodel.graph import Graph, Value
from eqsat.model.attr import Attr
from eqsat.model.expr import read_literal
from eqsat.model.layout import Layout
from eqsat.model.leaves import Fill
from eqsat.model.movement import Move


def _fill(graph: Graph, fill: Fill) -> Value:
    return graph.expand(graph.scalar(fill.value, fill.type.dtype), fill.type.shape)


def _same(graph: Graph, attr: Attr, x: Value) -> Value:
    """A requested layout, a copy to another device, or padding that is forgotten."""
    return x


def _pack(graph: Graph, layout: Layout, x: Value) -> Value:
    """Lanes that may hold anything hold zeros."""
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


def _pad(graph: Graph, move: Move, x: Value) -> Value:
    low, high, text = move.args
    return graph.pad(x, low, high, read_literal(str(text)))


def _gather(graph: Graph, move: Move, x: Value, indices: Value) -> Value:
    """Indices are clipped into range."""
    (axis,) = move.args
    last = graph.scalar(max(0, x.shape[axis] - 1), "i64")
    below = graph.broadcast("Min", graph.cast(indices, "i64"), last)
    return graph.gather(x, graph.broadcast("Max", below, graph.scalar(0, "i64")), axis)


# op -> (graph, attribute, *operands) -> its results, or the only one; an op that is not here
# cannot be written
WRITERS: dict[str, Callable[..., Value | list[Value]]] = {
    "generic": lambda graph, g, *xs: write_generic(graph, g, xs),
    "fill": _fill,
    "transpose": lambda graph, t, x: graph.transpose(x, t.perm),
    "reshape": lambda graph, r, x: graph.reshape(x, r.shape),
    "pack": _pack,
    "unpack": _unpack,
    "retype": lambda graph, layout, x: _pack(graph, layout, _unpack(graph, layout, x)),
    "relax": _same,
    "pad": _pad,
    "slice": lambda graph, move, x: graph.slice(x, *move.args),
    "concat": lambda graph, move, *xs: graph.concat(xs, move.args[0]),
    "gather": _gather,
    "set_encoding": _same,
    "unset_encoding": _same,
    "transfer": _same,
}
