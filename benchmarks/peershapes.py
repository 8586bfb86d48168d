"""Shapes in an ONNX graph as a person writes them: batches of products, repeats, indices."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper
from peergraph import Graph, attribute


def same_size(graph: Graph, node: Any) -> None:
    """What is expanded by ones alone is reshaped."""
    shape = graph.shapes.get(node.output[0])
    if node.op_type != "Expand" or shape is None or np.prod(shape) != _size(graph, node.input[0]):
        return
    wanted = graph.add_constant(np.array(shape, np.int64))
    made = helper.make_node("Reshape", [node.input[0], wanted], list(node.output))
    graph.replace(node, made)


def _size(graph: Graph, name: str) -> int:
    return int(np.prod(graph.shapes[name]))


def _source(graph: Graph, name: str) -> str | None:
    """x, where this is x with its leading dims in another shape, the last two as they were."""
    node = graph.by_output.get(name)
    if node is None or node.op_type != "Reshape" or len(graph.shapes[node.input[0]]) < 4:
        return None
    same = graph.shapes[node.input[0]][-2:] == graph.shapes[name][-2:]
    return node.input[0] if same else None


def batched(graph: Graph, node: Any) -> None:
    """A product of [batch, head, m, k] and [batch, head, k, n] is one of these shapes."""
    if node.op_type != "MatMul":
        return
    a, b = (_source(graph, i) for i in node.input)
    if a is None or b is None or graph.shapes[a][:-2] != graph.shapes[b][:-2]:
        return
    whole = [*graph.shapes[a][:-1], graph.shapes[b][-1]]
    _reshaped_later(graph, node, [a, b], whole)


def later(graph: Graph, node: Any) -> None:
    """A scale or a mask of the last two dims, ahead of a reshape of the leading ones."""
    if node.op_type not in ("Mul", "Div", "Add", "Where"):
        return
    sources = [_source(graph, i) for i in node.input]
    others = [i for i, s in zip(node.input, sources, strict=True) if s is None]
    found = [s for s in sources if s is not None]
    shapes = {graph.shapes[s] for s in found}
    is_small = all(len(graph.shapes.get(i, (0,) * 3)) <= 2 for i in others)
    if len(shapes) != 1 or not is_small or not found:
        return
    names = [s or i for s, i in zip(sources, node.input, strict=True)]
    _reshaped_later(graph, node, names, list(shapes.pop()))


def _reshaped_later(graph: Graph, node: Any, inputs: list[str], shape: list[int]) -> None:
    name = graph.fresh(shape)
    wanted = graph.add_constant(np.array(graph.shapes[node.output[0]], np.int64))
    graph.replace(
        node,
        helper.make_node(node.op_type, inputs, [name]),
        helper.make_node("Reshape", [name, wanted], list(node.output)),
    )


def repeated(graph: Graph, node: Any) -> None:
    """Places of an image that are repeated, dim by dim, as one `Resize`."""
    wide = graph.by_output.get(node.input[0]) if node.op_type == "Reshape" else None
    thin = graph.by_output.get(wide.input[0]) if wide and wide.op_type == "Expand" else None
    if thin is None or thin.op_type != "Reshape":
        return
    name, into = thin.input[0], graph.shapes[node.output[0]]
    shape, most = graph.shapes[name], graph.shapes[node.input[0]]
    for axis in range(2, len(shape)):
        times = most[axis + 1] if len(most) == len(shape) + 1 else 0
        before, after = shape[: axis + 1], shape[axis + 1 :]
        if most != (*before, times, *after) or into != (*before[:-1], before[-1] * times, *after):
            continue
        scales = np.array([times if d == axis else 1 for d in range(len(shape))], np.float32)
        inner = graph.by_output.get(name)
        if inner is not None and inner.op_type == "Resize":
            name, scales = inner.input[0], scales * graph.value(inner.input[2])
        made = helper.make_node(
            "Resize", [name, "", graph.add_constant(scales)], list(node.output), mode="nearest",
            coordinate_transformation_mode="asymmetric", nearest_mode="floor",
        )  # fmt: skip
        graph.replace(node, made)
        return


def indices(graph: Graph, node: Any) -> None:
    """Indices of a `Gather` that are counted from the end and cut to its range, as they came.

    ONNX counts negative ones from the end itself; a person's export cuts none.
    """
    if node.op_type != "Gather" or graph.value(node.input[1]) is not None:
        return
    name, size = node.input[1], graph.shapes[node.input[0]][attribute(node, "axis", 0)]
    for op, limit in (("Max", 0), ("Min", size - 1)):
        cut = graph.by_output.get(name)
        if cut is None or cut.op_type != op or graph.number(cut.input[1]) != limit:
            return
        name = cut.input[0]
    node.input[1] = _counted(graph, name, size)


def _counted(graph: Graph, name: str, size: int) -> str:
    """i, where these are i or, below zero, i + size."""
    cast = graph.by_output.get(name)
    source = cast.input[0] if cast is not None and cast.op_type == "Cast" else name
    node = graph.by_output.get(source)
    if node is None or node.op_type != "Where":
        return name if source in graph.floats else source
    below, more = (graph.by_output.get(i) for i in node.input[:2])
    own = node.input[2]
    is_below = below is not None and below.op_type == "Less" and list(below.input[:1]) == [own]
    is_more = more is not None and more.op_type == "Add" and list(more.input[:1]) == [own]
    if below is None or more is None or not is_below or not is_more:
        return source
    is_so = graph.number(below.input[1]) == 0 and graph.number(more.input[1]) == size
    return own if is_so else source
