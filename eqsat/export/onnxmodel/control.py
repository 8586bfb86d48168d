"""Loops and branches as Scan, Loop and If, whose bodies read the values around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from eqsat.export.onnxmodel.graph import Graph, Value
from eqsat.model.control import COND, SCAN, Control
from eqsat.model.tensor import TensorType

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
    made = write(inner, 0, [*consts, *state])
    body = inner.closed([number, going, *state], [going, *made])
    trips = graph.constant(np.array(attr.length), "i64")
    found = graph.several("Loop", [trips, None, *carries], attr.result_types, {"body": body})
    if not attr.reverse:
        return found
    return [*found[: attr.carries], *(_turned(graph, v) for v in found[attr.carries :])]


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
