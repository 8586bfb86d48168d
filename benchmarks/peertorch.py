"""An ONNX graph as a PyTorch module: one torch function per op, traceable by `torch.compile`.

It knows the ops that eqsat's exports have. Shapes, axes and pads are constants of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import helper, numpy_helper

Function = Callable[..., Any]


def module_of(path: Path) -> torch.nn.Module:
    """The model as a module of its inputs; NotImplementedError names an op that is not known."""
    model = onnx.load(str(path))
    unknown = sorted({n.op_type for n in model.graph.node} - OPS.keys())
    if unknown:
        raise NotImplementedError(f"no torch function for {', '.join(unknown)}")
    return _Graph(model.graph)


class _Graph(torch.nn.Module):
    """Nodes in order; large constants are buffers, which `torch.compile` freezes."""

    def __init__(self, graph: Any):
        super().__init__()
        self.inputs = [i.name for i in graph.input]
        self.results = [o.name for o in graph.output]
        self.held: dict[str, str] = {}  # constant → its buffer
        self.known: dict[str, Any] = {}  # what is read as numbers: shapes, axes, pads
        for number, tensor in enumerate(graph.initializer):
            array = _array(tensor)
            if array.numel() == 1 or (array.dtype == torch.int64 and array.numel() < 64):
                self.known[tensor.name] = array.tolist()
            self.held[tensor.name] = f"c{number}"
            self.register_buffer(f"c{number}", array)
        self.steps = [(n, _attributes(n)) for n in graph.node]

    def forward(self, *given: Any) -> list[Any]:
        values = dict(zip(self.inputs, given, strict=True))
        values |= {name: getattr(self, at) for name, at in self.held.items()}
        for n, attributes in self.steps:
            numbers = [self.known.get(i) for i in n.input]
            function = OPS[n.op_type]
            values[n.output[0]] = function([values.get(i) for i in n.input], numbers, attributes)
        return [values[r] for r in self.results]


def _array(tensor: Any) -> Any:
    if tensor.data_type == onnx.TensorProto.BFLOAT16:
        raw = np.frombuffer(tensor.raw_data, np.int16).copy()
        return torch.from_numpy(raw).view(torch.bfloat16).reshape(tuple(tensor.dims))
    return torch.from_numpy(np.array(numpy_helper.to_array(tensor)))


def _attributes(node: Any) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


# ---- ops: (values, the same as numbers where they are constant lists, attributes) → value --------
def _plain(function: Function) -> Function:
    return lambda xs, numbers, attributes: function(*xs)


def _reshape(xs: Sequence[Any], numbers: Sequence[Any], attributes: Any) -> Any:
    return xs[0].reshape(numbers[1])


def _slice(xs: Sequence[Any], numbers: Sequence[Any], attributes: Any) -> Any:
    x = xs[0]
    for start, stop, axis, step in zip(*numbers[1:], strict=True):
        if step > 0:
            x = x[(slice(None),) * axis + (slice(start, stop, step),)]
        else:
            places = range(x.shape[axis])[slice(start, None if stop < 0 else stop, step)]
            x = x.index_select(axis, torch.tensor(list(places)))
    return x


def _pad(xs: Sequence[Any], numbers: Sequence[Any], attributes: Any) -> Any:
    amounts, rank = numbers[1], xs[0].ndim
    pairs = [(amounts[d], amounts[d + rank]) for d in reversed(range(rank))]
    return F.pad(xs[0], [a for p in pairs for a in p], value=numbers[2])


def _conv(xs: Sequence[Any], numbers: Sequence[Any], attributes: Any) -> Any:
    x, w = xs[:2]
    rank = x.ndim - 2
    pads = attributes.get("pads", [0] * 2 * rank)
    low, high = pads[:rank], pads[rank:]
    if low != high:
        around = [a for pair in zip(reversed(low), reversed(high), strict=True) for a in pair]
        x, low = F.pad(x, around), [0] * rank
    function = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
    strides, dilations = (attributes.get(k, [1] * rank) for k in ("strides", "dilations"))
    bias = xs[2] if len(xs) > 2 else None
    return function(x, w, bias, strides, low, dilations, attributes.get("group", 1))


def _pool(kind: str) -> Function:
    """Averages count their pads, which is what `F.avg_pool2d` does, too."""

    def pool(xs: Sequence[Any], numbers: Sequence[Any], attributes: Any) -> Any:
        size = attributes["kernel_shape"]
        rank = len(size)
        pads = attributes.get("pads", [0] * 2 * rank)
        strides = attributes.get("strides", [1] * rank)
        x, low, high = xs[0], pads[:rank], pads[rank:]
        if low != high:
            around = [a for pair in zip(reversed(low), reversed(high), strict=True) for a in pair]
            x = F.pad(x, around, value=float("-inf") if kind == "max" else 0.0)
            low = [0] * rank
        return getattr(F, f"{kind}_pool{rank}d")(x, size, strides, low)

    return pool


def _reduce(function: Function) -> Function:
    def reduce(xs: Sequence[Any], numbers: Sequence[Any], attributes: Any) -> Any:
        return function(xs[0], numbers[1], bool(attributes.get("keepdims", 1)))

    return reduce


def _product(x: Any, axes: Sequence[int], keep: bool) -> Any:
    for axis in sorted(axes, reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


def _gather(xs: Sequence[Any], numbers: Sequence[Any], attributes: Any) -> Any:
    x, at, axis = xs[0], xs[1], attributes.get("axis", 0)
    found = x.index_select(axis, at.reshape(-1))
    return found.reshape(x.shape[:axis] + at.shape + x.shape[axis + 1 :])


def _cast(xs: Sequence[Any], numbers: Sequence[Any], attributes: Any) -> Any:
    return xs[0].to(DTYPES[attributes["to"]])


def _clip(xs: Sequence[Any], numbers: Sequence[Any], attributes: Any) -> Any:
    return torch.clamp(xs[0], *numbers[1:])


def _gelu(xs: Sequence[Any], numbers: Sequence[Any], attributes: Any) -> Any:
    return F.gelu(xs[0], approximate=attributes.get("approximate", b"none").decode())


def _layer_norm(xs: Sequence[Any], numbers: Sequence[Any], attributes: Any) -> Any:
    bias = xs[2] if len(xs) > 2 else None
    return F.layer_norm(xs[0], xs[0].shape[-1:], xs[1], bias, attributes["epsilon"])


def _quantise(xs: Sequence[Any], numbers: Sequence[Any], attributes: Any) -> Any:
    return torch.clamp(torch.round(xs[0] / numbers[1]), -128, 127).to(torch.int8)


def _dequantise(xs: Sequence[Any], numbers: Sequence[Any], attributes: Any) -> Any:
    return xs[0].to(torch.float32) * numbers[1]


DTYPES = {
    onnx.TensorProto.FLOAT: torch.float32, onnx.TensorProto.DOUBLE: torch.float64,
    onnx.TensorProto.BFLOAT16: torch.bfloat16, onnx.TensorProto.FLOAT16: torch.float16,
    onnx.TensorProto.INT8: torch.int8, onnx.TensorProto.UINT8: torch.uint8,
    onnx.TensorProto.INT32: torch.int32, onnx.TensorProto.INT64: torch.int64,
    onnx.TensorProto.BOOL: torch.bool,
}  # fmt: skip
PLAIN: dict[str, Function] = {
    "Abs": torch.abs, "Add": torch.add, "And": torch.logical_and, "Atan": torch.atan,
    "Ceil": torch.ceil, "Cos": torch.cos, "Div": torch.div, "Equal": torch.eq, "Erf": torch.erf,
    "Exp": torch.exp, "Floor": torch.floor, "Greater": torch.gt, "GreaterOrEqual": torch.ge,
    "HardSigmoid": F.hardsigmoid, "HardSwish": F.hardswish,
    "Identity": lambda x: x, "IsNaN": torch.isnan, "Less": torch.lt, "LessOrEqual": torch.le,
    "Log": torch.log, "MatMul": torch.matmul, "Max": torch.maximum, "Min": torch.minimum,
    "Mul": torch.mul, "Neg": torch.neg, "Not": torch.logical_not, "Or": torch.logical_or,
    "Pow": torch.pow, "Reciprocal": torch.reciprocal, "Relu": F.relu, "Round": torch.round,
    "Sigmoid": torch.sigmoid, "Sign": torch.sign, "Sin": torch.sin, "Softplus": F.softplus,
    "Sqrt": torch.sqrt,
    "Sub": torch.sub, "Tanh": torch.tanh, "Where": torch.where, "Xor": torch.logical_xor,
}  # fmt: skip
OPS: dict[str, Function] = {name: _plain(f) for name, f in PLAIN.items()} | {
    "AveragePool": _pool("avg"),
    "Cast": _cast,
    "Clip": _clip,
    "Concat": lambda xs, numbers, attributes: torch.cat(list(xs), attributes["axis"]),
    "Conv": _conv,
    "DequantizeLinear": _dequantise,
    "Expand": lambda xs, numbers, attributes: xs[0].expand(numbers[1]),
    "Gather": _gather,
    "Gelu": _gelu,
    "LayerNormalization": _layer_norm,
    "LeakyRelu": lambda xs, numbers, attributes: F.leaky_relu(xs[0], attributes["alpha"]),
    "MaxPool": _pool("max"),
    "Pad": _pad,
    "QuantizeLinear": _quantise,
    "ReduceMax": _reduce(lambda x, axes, keep: x.amax(axes, keep)),
    "ReduceMean": _reduce(lambda x, axes, keep: x.mean(axes, keep)),
    "ReduceMin": _reduce(lambda x, axes, keep: x.amin(axes, keep)),
    "ReduceProd": _reduce(_product),
    "ReduceSum": _reduce(lambda x, axes, keep: x.sum(axes, keep)),
    "Reshape": _reshape,
    "Slice": _slice,
    "Softmax": lambda xs, numbers, attributes: torch.softmax(xs[0], attributes.get("axis", -1)),
    "Transpose": lambda xs, numbers, attributes: xs[0].permute(attributes["perm"]),
}
