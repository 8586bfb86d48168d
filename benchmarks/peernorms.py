"""Softmax, layer norm and mean in an ONNX graph, from the small ops that spell them."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from onnx import helper
from peergraph import Graph


def softmax(graph: Graph, node: Any) -> None:
    """exp(x - max) over its sum."""
    if node.op_type != "Div":
        return
    e, total = graph.by_output.get(node.input[0]), graph.made_by(node.input[1], "ReduceSum")
    if e is None or total is None or e.op_type != "Exp" or total.input[0] != e.output[0]:
        return
    shifted = graph.by_output.get(e.input[0])
    if shifted is None or shifted.op_type != "Sub":
        return
    most = graph.made_by(shifted.input[1], "ReduceMax")
    axes = graph.numbers(total.input[1])
    if most is None or most.input[0] != shifted.input[0] or len(axes) != 1:
        return
    if graph.numbers(most.input[1]) != axes:
        return
    made = helper.make_node("Softmax", [shifted.input[0]], list(node.output), axis=axes[0])
    graph.replace(node, made)


def layer_norm(graph: Graph, node: Any) -> None:
    """(x - mean) / sqrt(variance + epsilon) over the last dim; scale and shift follow as ops."""
    pair = node.input if node.op_type == "Mul" else ()
    for root, centred in (pair, reversed(pair)) if len(pair) == 2 else ():
        inverse = graph.made_by(root, "Reciprocal")
        deviation = inverse and graph.made_by(inverse.input[0], "Sqrt")
        moved = deviation and graph.made_by(deviation.input[0], "Add")
        x = _centred(graph, centred)
        if not moved or x is None:
            continue
        epsilon = graph.number(moved.input[1])
        square = graph.by_output.get(_mean_of(graph, moved.input[0]) or "")
        if epsilon is None or square is None or square.op_type != "Mul":
            continue
        if set(square.input) != {centred}:
            continue
        ones = graph.add_constant(np.ones(graph.shapes[x][-1:], np.float32))
        made = helper.make_node(
            "LayerNormalization", [x, ones], list(node.output), axis=-1, epsilon=epsilon
        )
        graph.replace(node, made)
        return


def keras_norm(graph: Graph, node: Any) -> None:
    """The same as Keras spells it: x s + (shift - mean s), s the scale over the deviation."""
    if node.op_type != "Add":
        return
    for left, right in (node.input, reversed(node.input)):
        scaled, rest = graph.by_output.get(right), graph.by_output.get(left)
        if not scaled or scaled.op_type != "Mul" or not rest or rest.op_type != "Add":
            continue
        x, factor = scaled.input
        back, shift = graph.by_output.get(rest.input[0]), rest.input[1]
        scale = graph.by_output.get(factor)
        if not back or back.op_type != "Mul" or back.input[1] != factor or not scale:
            continue
        mean_of = graph.made_by(back.input[0], "Neg")
        inverse = graph.made_by(scale.input[0], "Reciprocal")
        deviation = inverse and graph.made_by(inverse.input[0], "Sqrt")
        moved = deviation and graph.made_by(deviation.input[0], "Add")
        if not moved or not mean_of or _mean_of(graph, mean_of.input[0]) != x:
            continue
        square = graph.by_output.get(_mean_of(graph, moved.input[0]) or "")
        known = graph.value(scale.input[1]), graph.value(shift), graph.number(moved.input[1])
        if any(v is None for v in known) or not square or square.op_type != "Mul":
            continue
        if _centred(graph, square.input[0]) != x or square.input[0] != square.input[1]:
            continue
        inputs, epsilon = [x, scale.input[1], shift], known[2]
        made = helper.make_node(
            "LayerNormalization", inputs, list(node.output), axis=-1, epsilon=epsilon
        )
        graph.replace(node, made)
        return


def scaled_norm(graph: Graph, node: Any) -> None:
    """A norm's scale and shift, as its own."""
    if node.op_type not in ("Mul", "Add"):
        return
    for x, other in (node.input, reversed(node.input)):
        norm = graph.by_output.get(x)
        if norm is None or norm.op_type != "LayerNormalization":
            continue
        given = graph.value(other)
        if given is None or given.shape != graph.shapes[x][-1:]:
            continue
        if node.op_type == "Mul" and len(norm.input) == 2:
            if not (graph.value(norm.input[1]) == 1).all():
                continue
            inputs = [norm.input[0], other]
        elif node.op_type == "Add" and len(norm.input) == 2:
            inputs = [*norm.input, other]
        else:
            continue
        kept = {a.name: helper.get_attribute_value(a) for a in norm.attribute}
        graph.replace(node, helper.make_node(norm.op_type, inputs, list(node.output), **kept))
        return


def _centred(graph: Graph, name: str) -> str | None:
    """x, if this is x less its mean over the last dim."""
    node = graph.by_output.get(name)
    if node is None or node.op_type != "Sub":
        return None
    return node.input[0] if _mean_of(graph, node.input[1]) == node.input[0] else None


def mean(graph: Graph, node: Any) -> None:
    """A sum over its number of terms."""
    total = graph.made_by(node.input[0], "ReduceSum") if node.op_type == "Div" else None
    if total is None:
        return
    shape, axes = graph.shapes[total.input[0]], graph.numbers(total.input[1])
    kept = tuple(1 if d in axes else s for d, s in enumerate(shape))
    dropped = tuple(s for d, s in enumerate(shape) if d not in axes)
    keep = {kept: 1, dropped: 0}.get(graph.shapes[node.output[0]])
    if keep is not None and graph.number(node.input[1]) == prod(shape[a] for a in axes):
        made = helper.make_node("ReduceMean", total.input, list(node.output), keepdims=keep)
        graph.replace(node, made)


def root_norm(graph: Graph, node: Any) -> None:
    """x over the root of its mean square over the last dim, in the ops that runtimes fuse."""
    for root, x in (node.input, reversed(node.input)) if node.op_type == "Mul" else ():
        inverse = graph.made_by(root, "Reciprocal")
        deviation = inverse and graph.made_by(inverse.input[0], "Sqrt")
        moved = deviation and graph.made_by(deviation.input[0], "Add")
        square = graph.by_output.get(_mean_of(graph, moved.input[0]) or "") if moved else None
        epsilon = graph.number(moved.input[1]) if moved else None
        if square is None or square.op_type != "Mul" or {*square.input} != {x} or epsilon is None:
            continue
        shape = graph.shapes[x]
        names = [graph.fresh(s) for s in (shape, *((*shape[:-1], 1),) * 3)]
        two, small = (graph.add_constant(np.array(v, np.float32)) for v in (2, epsilon))
        last = graph.add_constant(np.array([-1]))
        graph.replace(
            node,
            helper.make_node("Pow", [x, two], names[:1]),
            helper.make_node("ReduceMean", [names[0], last], names[1:2], keepdims=1),
            helper.make_node("Add", [names[1], small], names[2:3]),
            helper.make_node("Sqrt", [names[2]], names[3:4]),
            helper.make_node("Div", [x, names[3]], list(node.output)),
        )
        return


def _mean_of(graph: Graph, name: str) -> str | None:
    """x, if this is its mean over the last dim."""
    node = graph.made_by(name, "Div")
    total = node and graph.made_by(node.input[0], "ReduceSum")
    if not total:
        return None
    shape = graph.shapes[total.input[0]]
    is_last = graph.numbers(total.input[1]) == [len(shape) - 1]
    return total.input[0] if is_last and graph.number(node.input[1]) == shape[-1] else None
