"""Ops in ONNX: a table, one line per op; loops and branches as Scan, Loop and If.

Their bodies read the values around them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from eqsat.export.onnxmodel.generics import write_generic
from eqsat.export.onnxmodel.graph import Graph, Value
from eqsat.model.attr import Attr
from eqsat.model.control import COND, SCAN, Control
from eqsat.model.expr import read_literal
from eqsat.model.layout import Layout
from eqsat.model.leaves import Fill
from eqsat.model.movement import Move
from eqsat.model.tensor import TensorType


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


# (graph, number of the body, its operands) → its results, written into the graph
Write = Callable[[Graph, int, Sequence[Value]], list[Value]]
_FLAG, _COUNT = TensorType("bool", ()), TensorType("i64", ())


def write_control(graph: Graph, attr: Control, xs: Sequence[Value], write: Write) -> list[Value]:
    """Its results; scratch, which nobody reads, has no name."""
    scratch = [Value("", t.dtype, t.shape) for t in attr.scratch_types]
    if not attr.result_types:
        return scratch
    form = {SCAN: _scan, COND: _cond}.get(attr.op, _while)
    return form(graph, attr, xs, write) + scratch


# ---- scan --------------------------------------------------------------------------------------
def _scan(graph: Graph, attr: Control, xs: Sequence[Value], write: Write) -> list[Value]:
    """A Scan; ONNX has none without a stacked operand, so that one is a Loop."""
    at = attr.consts + attr.carries
    consts, carries, stacked = xs[: attr.consts], xs[attr.consts : at], xs[at:]
    if attr.length == 0:
        empty = attr.result_types[attr.carries :]
        return [*carries, *(graph.expand(graph.scalar(0, t.dtype), t.shape) for t in empty)]
    if not stacked:
        return _counted(graph, attr, consts, carries, write)
    inner = graph.inside()
    state = [inner.given(v.type) for v in carries]
    slices = [inner.given(v.type.with_shape(v.shape[1:])) for v in stacked]
    body = inner.closed([*state, *slices], write(inner, 0, [*consts, *state, *slices]))
    outputs = len(attr.result_types) - attr.carries
    ways = {"scan_input_directions": len(stacked), "scan_output_directions": outputs}
    turned = {k: (1,) * n for k, n in ways.items() if attr.reverse and n}
    attrs = {"body": body, "num_scan_inputs": len(stacked)} | turned
    return graph.several("Scan", [*carries, *stacked], attr.result_types, attrs)


def _counted(
    graph: Graph, attr: Control, consts: Sequence[Value], carries: Sequence[Value], write: Write
) -> list[Value]:
    inner = graph.inside()
    number, going = inner.given(_COUNT), inner.given(_FLAG)
    state = [inner.given(v.type) for v in carries]
    next_state = write(inner, 0, [*consts, *state])
    body = inner.closed([number, going, *state], [going, *next_state])
    trips = graph.constant(np.array(attr.length), "i64")
    outputs = graph.several("Loop", [trips, None, *carries], attr.result_types, {"body": body})
    if not attr.reverse:
        return outputs
    return [*outputs[: attr.carries], *(_turned(graph, v) for v in outputs[attr.carries :])]


def _turned(graph: Graph, x: Value) -> Value:
    """The slices of a stack from the last one on."""
    length, *rest = x.shape
    steps = [-1, *(1 for _ in rest)]
    return graph.slice(x, [length - 1, *(0 for _ in rest)], [-1, *rest], steps)


# ---- while -------------------------------------------------------------------------------------
def _while(graph: Graph, attr: Control, xs: Sequence[Value], write: Write) -> list[Value]:
    """A Loop without a count; its condition is computed ahead of it, and in each step."""
    consts, carries = xs[: attr.consts], xs[attr.consts :]
    (first,) = write(graph, 0, xs)
    inner = graph.inside()
    number, before = inner.given(_COUNT), inner.given(_FLAG)
    state = [inner.given(v.type) for v in carries]
    after = write(inner, 1, [*consts, *state])
    going = write(inner, 0, [*consts, *after])
    body = inner.closed([number, before, *state], [*going, *after])
    return graph.several("Loop", [None, first, *carries], attr.result_types, {"body": body})


# ---- cond --------------------------------------------------------------------------------------
def _cond(
    graph: Graph, attr: Control, xs: Sequence[Value], write: Write, number: int = 0
) -> list[Value]:
    """An If per branch but the last; so an index that is too small or large is clipped."""
    index, *consts = xs
    if number + 1 == len(attr.bodies):
        return write(graph, number, consts)
    is_it = graph.broadcast("LessOrEqual", index, graph.scalar(number, "i32"), dtype="bool")
    this, rest = graph.inside(), graph.inside()
    branches = {
        "then_branch": this.closed([], write(this, number, consts)),
        "else_branch": rest.closed([], _cond(rest, attr, xs, write, number + 1)),
    }
    return graph.several("If", [is_it], attr.result_types, branches)
