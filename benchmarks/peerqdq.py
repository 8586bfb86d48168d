"""QuantizeLinear and DequantizeLinear in an ONNX graph, as exporters of quantised models do it.

Runtimes fuse layers between them to layers of bytes: weights are integers with a scale per output
channel, the bias of a layer is i32 with the product of both scales.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper
from peerfunctions import FOLDED, LINE, leaves, line_of
from peergraph import Array, Graph, attribute

STEPS_TO_LEAF = 18  # ops of a rounding to bytes and back
OUTPUT_CHANNEL = {"Conv": 0, "MatMul": 1}  # dim of the weight


def quantise(graph: Graph, node: Any) -> None:
    """Rounding to multiples of a number that fit a byte, and back to f32."""
    numbers = [s for i in node.input if (s := graph.number(i)) is not None]
    if node.op_type not in ("Mul", "Div") or len(numbers) != 1 or numbers[0] == 0:
        return
    scale = np.float32(numbers[0] if node.op_type == "Mul" else 1 / numbers[0])
    line = LINE * np.float32(100) * scale
    for leaf in leaves(graph, node, STEPS_TO_LEAF):
        above = graph.by_output.get(leaf)
        if above is not None and above.op_type in ("Round", "Cast"):
            continue
        found = line_of(graph, node.output[0], leaf, {}, line)
        zero = None if found is None else _zero_point(graph, node, found, line, scale)
        if zero is not None:
            _write_quantised(graph, node, leaf, scale, zero)
            return


def _zero_point(
    graph: Graph, node: Any, found: Array, line: Array, scale: np.float32
) -> Array | None:
    """The zero point, of the type it is rounded to; None if it is not rounded to bytes."""
    signed = _is_signed(graph, node)
    for dtype in (np.int8, np.uint8) if signed else (np.uint8, np.int8):
        ends = np.iinfo(dtype)
        zero = int(ends.min - np.round(found.min() / scale))
        if not ends.min <= zero <= ends.max:
            continue
        wanted = (np.clip(np.round(line / scale) + zero, ends.min, ends.max) - zero) * scale
        if np.array_equal(found, wanted.astype(np.float32)):
            return np.asarray(zero, dtype)
    return None


def _is_signed(graph: Graph, node: Any) -> bool:
    """Whether the nearest cast to bytes above a node is not to u8."""
    above = [node]
    for n in above:
        to = attribute(n, "to") if n.op_type == "Cast" else None
        if to in (TensorProto.UINT8, TensorProto.INT8) or len(above) > STEPS_TO_LEAF:
            return to != TensorProto.UINT8
        above += [graph.by_output[i] for i in n.input if i in graph.by_output]
    return True


def _write_quantised(graph: Graph, node: Any, leaf: str, scale: np.float32, zero: Array) -> None:
    step, origin = graph.add_constant(np.asarray(scale)), graph.add_constant(zero)
    small = graph.fresh(graph.shapes[leaf])
    graph.replace(
        node,
        helper.make_node("QuantizeLinear", [leaf, step, origin], [small]),
        helper.make_node("DequantizeLinear", [small, step, origin], list(node.output)),
    )


# ---- layers -------------------------------------------------------------------------------------
def integers_of(graph: Graph, node: Any) -> tuple[Array, Array] | None:
    """What a folded node gives, as integers times scales, if what it reads is."""
    source = next((i for i in node.input if i in graph.integers), node.input[0])
    if node.op_type == "Cast" and source not in graph.integers:
        whole = graph.value(source)
        return (whole, np.ones(whole.shape, np.float32)) if whole.dtype == np.int8 else None
    if source not in graph.integers:
        return None
    whole, scales = graph.integers[source]
    others = [graph.value(i) for i in node.input if i != source]
    if node.op_type == "Transpose":
        perm = helper.get_node_attr_value(node, "perm")
        return whole.transpose(perm), scales.transpose(perm)
    if node.op_type == "Reshape":
        return tuple(FOLDED["Reshape"](x, others[0]) for x in (whole, scales))
    if node.op_type == "Mul" and len(others) == 1:
        return whole, np.broadcast_to(scales * others[0], whole.shape)
    is_same = node.op_type == "Cast" or (node.op_type == "Sub" and not np.any(others[0]))
    return (whole, scales) if is_same else None


def quantised_weight(graph: Graph, node: Any) -> None:
    """A layer of dequantised values reads a dequantised weight, with a scale per output channel."""
    scales = _layer(graph, node)
    if scales is None or graph.value(node.input[1]) is None:
        return
    whole, _ = graph.integers[node.input[1]]
    zero = graph.add_constant(np.zeros(len(scales), np.int8))
    given = [graph.add_constant(np.ascontiguousarray(whole)), graph.add_constant(scales), zero]
    weight = graph.fresh(whole.shape)
    graph.integers[weight] = graph.integers[node.input[1]]
    made = helper.make_node("DequantizeLinear", given, [weight], axis=OUTPUT_CHANNEL[node.op_type])
    layer = helper.make_node(node.op_type, [node.input[0], weight], list(node.output))
    layer.attribute.extend(node.attribute)
    graph.replace(node, made, layer)


def _layer(graph: Graph, node: Any) -> Array | None:
    """The scales per output channel of a layer whose operands are dequantised."""
    if node.op_type not in OUTPUT_CHANNEL or node.input[1] not in graph.integers:
        return None
    given = graph.by_output.get(node.input[0])
    if given is None or given.op_type != "DequantizeLinear":
        return None
    axis = OUTPUT_CHANNEL[node.op_type]
    scales = np.moveaxis(graph.integers[node.input[1]][1], axis, 0).reshape(-1, 1)
    scales = scales.reshape(graph.shapes[node.input[1]][axis], -1)
    is_per_channel = (scales == scales[:, :1]).all()
    return np.ascontiguousarray(scales[:, 0], np.float32) if is_per_channel else None


def quantised_bias(graph: Graph, node: Any) -> None:
    """A bias behind a layer of dequantised values is part of it: `Conv`, and `Gemm` of matrices."""
    if node.op_type != "Add":
        return
    for x, other in (node.input, reversed(node.input)):
        layer, bias = graph.by_output.get(x), graph.value(other)
        if layer is None or bias is None or graph.readers[x] > 1:
            continue
        scales = _layer(graph, layer)
        if scales is None or bias.size != len(scales) or len(layer.input) > 2:
            continue
        if layer.op_type == "MatMul" and len(graph.shapes[layer.input[0]]) != 2:
            continue
        _write_bias(graph, node, layer, bias.reshape(-1), scales)
        return


def _write_bias(graph: Graph, node: Any, layer: Any, bias: Array, scales: Array) -> None:
    of_input = graph.number(graph.by_output[layer.input[0]].input[1])
    steps = (scales * np.float32(of_input)).astype(np.float32)
    whole = np.round(bias / steps).astype(np.int32)
    given = [graph.add_constant(x) for x in (whole, steps, np.zeros(len(steps), np.int32))]
    real = graph.fresh(bias.shape)
    op = "Gemm" if layer.op_type == "MatMul" else layer.op_type
    made = helper.make_node(op, [*layer.input, real], list(node.output))
    made.attribute.extend(layer.attribute)
    graph.replace(node, helper.make_node("DequantizeLinear", given, [real], axis=0), made)
