"""Exports of eqsat with the ops that ONNX runtimes look for, so that peers run them at their best.

An export spells everything in small ops: a 1x1 convolution is a product between transposes, a
softmax is five ops. Runtimes know `Conv`, `Softmax`, `LayerNormalization`, `Gelu`, `Relu` and
pads of a window, and fuse only these. What is computed stays the same up to rounding; `peers.py`
compares every peer's results with a float64 reference.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper
from peerfunctions import (
    FOLDED,
    function,
    keras_norm,
    layer_norm,
    leaky,
    mean,
    root_norm,
    scaled_norm,
    softmax,
)  # fmt: skip
from peergraph import Graph, Ops, attribute, with_ops
from peerqdq import integers_of, quantise, quantised_bias, quantised_weight

SHARED = 2**18  # elements of a constant that is not copied for one of its readers
BESIDE = 64 * 2**20  # bytes of constants from which on they lie in a file of their own


def raise_ops(model: Any) -> Any:
    """The same model with fewer, larger ops."""
    graph = Graph(model)
    for step in STEPS:
        for node in list(graph.nodes):
            if graph.by_output.get(node.output[0]) is node:
                step(graph, node)
    return graph.model()


def raise_file(path: Path, ops: Ops) -> None:
    """Raise the ops of a model file in its place; large constants beside it in `NAME.data`.

    ops: what stands for those that the export leaves to the domain `eqsat`.
    """
    model = raise_ops(with_ops(onnx.load(str(path)), ops))
    size = sum(len(t.raw_data) for t in model.graph.initializer)
    beside = path.with_name(f"{path.name}.data")
    beside.unlink(missing_ok=True)
    if size < BESIDE:
        onnx.save(model, str(path))
        return
    onnx.save(model, str(path), save_as_external_data=True, location=beside.name)


# ---- steps: each looks at one node ---------------------------------------------------------------
def fold(graph: Graph, node: Any) -> None:
    """What follows from constants is one."""
    arrays = [graph.value(i) for i in node.input]
    if any(a is None for a in arrays):
        return
    if any(graph.readers[i] > 1 and prod(graph.shapes[i]) > SHARED for i in node.input):
        return  # a table that is also read as it is would be held twice
    if node.op_type == "Transpose":
        found = np.transpose(arrays[0], attribute(node, "perm"))
    elif node.op_type == "Cast" and (arrays[0].dtype == np.int8 or node.input[0] in graph.integers):
        found = arrays[0].astype(helper.tensor_dtype_to_np_dtype(attribute(node, "to")))
    elif node.op_type in FOLDED:
        found = FOLDED[node.op_type](*arrays)
    else:
        return
    name = node.output[0]
    if (integers := integers_of(graph, node)) is not None:
        graph.integers[name] = integers
    is_filter = found.ndim == 2 and graph.shapes[node.input[0]][2:] in ((1,), (1, 1), (1, 1, 1))
    was_last = found.ndim == 2 and graph.shapes[node.input[0]][:2] == (1, 1)
    if node.input[0] in graph.filters or is_filter or (was_last and arrays[0].ndim == 4):
        graph.filters.add(name)
    graph.values[name], graph.shapes[name] = np.asarray(found), found.shape
    del graph.by_output[name]
    graph.nodes = [n for n in graph.nodes if n is not node]


def reshape(graph: Graph, node: Any) -> None:
    """Of a reshape, of its input."""
    if node.op_type != "Reshape":
        return
    inner = graph.by_output.get(node.input[0])
    if inner is not None and inner.op_type == "Reshape":
        node.input[0] = inner.input[0]
    if graph.shapes[node.input[0]] == graph.shapes[node.output[0]]:
        graph.replace(node, helper.make_node("Identity", [node.input[0]], [node.output[0]]))


def same(graph: Graph, node: Any) -> None:
    """Values are read where they are made."""
    for at, given in enumerate(node.input):
        name = given
        while (n := graph.by_output.get(name)) is not None and n.op_type == "Identity":
            name = n.input[0]
        node.input[at] = name


def relu(graph: Graph, node: Any) -> None:
    """A maximum with zero, and a minimum of one with a number."""
    numbers = {i: graph.number(i) for i in node.input}
    others = [i for i in node.input if numbers[i] is None]
    if node.op_type not in ("Max", "Min") or len(numbers) != 2 or len(others) != 1:
        return
    if node.output[0] not in graph.floats:
        return
    limit = next(i for i in node.input if numbers[i] is not None)
    below = graph.by_output.get(others[0])
    if node.op_type == "Max" and numbers[limit] == 0:
        graph.replace(node, helper.make_node("Relu", others, list(node.output)))
    elif node.op_type == "Min" and below is not None and below.op_type == "Relu":
        zero = graph.add_constant(np.zeros((), np.float32))
        scalar = graph.add_constant(np.full((), numbers[limit], np.float32))
        inputs = [below.input[0], zero, scalar]
        graph.replace(node, helper.make_node("Clip", inputs, list(node.output)))


def window(graph: Graph, node: Any) -> None:
    """Pads in front of a convolution or pooling, as its own."""
    neutral = {"Conv": 0.0, "MaxPool": -np.inf, "AveragePool": 0.0}.get(node.op_type)
    rank = len(graph.shapes[node.input[0]]) - 2
    if neutral is None or attribute(node, "pads"):
        return
    cut, source = [0] * (rank + 2), node.input[0]
    sliced = graph.by_output.get(source)
    if sliced is not None and sliced.op_type == "Slice":
        start, stop, axes, step = (graph.numbers(i) for i in sliced.input[1:])
        if any(start) or any(s != 1 for s in step):
            return
        for axis, end in zip(axes, stop, strict=True):
            cut[axis] = graph.shapes[sliced.input[0]][axis] - end
        source = sliced.input[0]
    pad = graph.by_output.get(source)
    if pad is None or pad.op_type != "Pad" or graph.number(pad.input[2]) != neutral:
        return
    amounts = graph.numbers(pad.input[1])
    low = amounts[: rank + 2]
    high = [a - c for a, c in zip(amounts[rank + 2 :], cut, strict=True)]
    if any((*low[:2], *high[:2])) or min(*low, *high) < 0:
        return
    node.input[0] = pad.input[0]
    node.attribute.append(helper.make_attribute("pads", [*low[2:], *high[2:]]))
    if node.op_type == "AveragePool":
        node.attribute.append(helper.make_attribute("count_include_pad", 1))


def pointwise(graph: Graph, node: Any) -> None:
    """A product with what was a filter of one place, as the convolution it was."""
    if node.op_type != "MatMul" or node.input[1] not in graph.filters:
        return
    matrix = graph.value(node.input[1])
    shape = graph.shapes[node.input[0]]
    rank = len(shape) - 2
    if matrix is None or rank not in (1, 2, 3) or prod(shape[1:-1]) == 1:
        return
    ones = [1] * rank
    back, forth = [0, *range(2, rank + 2), 1], [0, rank + 1, *range(1, rank + 1)]
    weight = graph.add_moved(node.input[1], lambda x: x.T.reshape(*x.T.shape, *ones))
    first = graph.fresh([shape[0], shape[-1], *shape[1:-1]])
    total = graph.fresh([shape[0], matrix.shape[1], *shape[1:-1]])
    conv = helper.make_node("Conv", [first, weight], [total], kernel_shape=ones, strides=ones)
    graph.replace(
        node,
        helper.make_node("Transpose", [node.input[0]], [first], perm=forth),
        conv,
        helper.make_node("Transpose", [total], list(node.output), perm=back),
    )


def moved_pads(graph: Graph, node: Any) -> None:
    """A transpose of pads and slices, ahead of these."""
    inner = graph.by_output.get(node.input[0]) if node.op_type == "Transpose" else None
    if inner is None or inner.op_type not in ("Pad", "Slice"):
        return
    perm = attribute(node, "perm")
    first = graph.fresh([graph.shapes[inner.input[0]][p] for p in perm])
    moved = helper.make_node("Transpose", [inner.input[0]], [first], perm=perm)
    if inner.op_type == "Pad":
        amounts, rank = graph.numbers(inner.input[1]), len(perm)
        found = [amounts[p + side] for side in (0, rank) for p in perm]
        rest = [graph.add_constant(np.array(found, np.int64)), *inner.input[2:]]
    else:
        axes = [perm.index(a) for a in graph.numbers(inner.input[3])]
        where = graph.add_constant(np.array(axes, np.int64))
        rest = [*inner.input[1:3], where, *inner.input[4:]]
    made = helper.make_node(inner.op_type, [first, *rest], list(node.output))
    graph.replace(node, moved, made)
    moved_pads(graph, moved)


def channels_first(graph: Graph, node: Any) -> None:
    """Scale and shift per channel, next to their convolution and not behind its transpose."""
    if node.op_type not in ("Mul", "Add"):
        return
    for x, other in (node.input, reversed(node.input)):
        back, given = graph.by_output.get(x), graph.value(other)
        if back is None or given is None or back.op_type != "Transpose":
            continue
        shape = graph.shapes[x]
        rank = len(shape) - 2
        if attribute(back, "perm") != [0, *range(2, rank + 2), 1] or given.size != shape[-1] > 1:
            continue
        if given.shape[-1] != shape[-1]:
            continue
        column = graph.add_constant(given.reshape(-1, *(1,) * rank))
        total = graph.fresh(graph.shapes[back.input[0]])
        made = helper.make_node(node.op_type, [back.input[0], column], [total])
        perm = attribute(back, "perm")
        last = helper.make_node("Transpose", [total], list(node.output), perm=perm)
        graph.replace(node, made, last)
        return


def rows(graph: Graph, node: Any) -> None:
    """A matrix times one column, as a row times the transposed matrix."""
    if node.op_type != "MatMul" or graph.shapes[node.input[1]][1:] != (1,):
        return
    matrix, column = graph.value(node.input[0]), graph.by_output.get(node.input[1])
    if matrix is None or column is None or column.op_type != "Reshape" or matrix.ndim != 2:
        return
    weight = graph.add_constant(np.ascontiguousarray(matrix.T))
    row, total = graph.fresh([1, matrix.shape[1]]), graph.fresh([1, matrix.shape[0]])
    shapes = [graph.add_constant(np.array(s, np.int64)) for s in ((1, -1), (-1, 1))]
    graph.replace(
        node,
        helper.make_node("Reshape", [column.input[0], shapes[0]], [row]),
        helper.make_node("MatMul", [row, weight], [total]),
        helper.make_node("Reshape", [total, shapes[1]], list(node.output)),
    )


def transpose(graph: Graph, node: Any) -> None:
    """Of a transpose: one, or none."""
    inner = graph.by_output.get(node.input[0]) if node.op_type == "Transpose" else None
    if inner is None or inner.op_type != "Transpose":
        return
    first, second = attribute(inner, "perm"), attribute(node, "perm")
    perm = [first[p] for p in second]
    if perm == sorted(perm):
        graph.replace(node, helper.make_node("Identity", [inner.input[0]], list(node.output)))
    else:
        made = helper.make_node("Transpose", [inner.input[0]], list(node.output), perm=perm)
        graph.replace(node, made)


def strides(graph: Graph, node: Any) -> None:
    """Places that a convolution of 1x1 skips, as its strides."""
    if node.op_type != "Conv" or graph.shapes[node.input[1]][2:] != (1, 1):
        return
    sliced = graph.by_output.get(node.input[0])
    if sliced is None or sliced.op_type != "Slice":
        return
    start, _, axes, step = (graph.numbers(i) for i in sliced.input[1:])
    if any(start) or set(axes) - {2, 3} or attribute(node, "strides") != [1, 1]:
        return
    found = [dict(zip(axes, step, strict=True)).get(d, 1) for d in (2, 3)]
    wanted = [-(-graph.shapes[sliced.input[0]][d] // s) for d, s in zip((2, 3), found, strict=True)]
    if min(found) < 1 or wanted != list(graph.shapes[node.input[0]][2:]):
        return
    inputs = [sliced.input[0], *node.input[1:]]
    made = helper.make_node("Conv", inputs, list(node.output), kernel_shape=[1, 1], strides=found)
    graph.replace(node, made)


# ---- shapes as a person writes them: batches of products, repeats, indices -----------------------
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


STEPS = (
    fold, indices, repeated, same_size, same, reshape, same, batched, later, later, reshape, same,
    relu, layer_norm, scaled_norm, scaled_norm, keras_norm, root_norm, function, leaky,
    pointwise, moved_pads, transpose, same, channels_first, channels_first, transpose, same, window,
    strides, softmax, quantise, quantised_weight, quantised_bias, mean, rows,
)  # fmt: skip
