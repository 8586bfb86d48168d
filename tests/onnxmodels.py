"""ONNX models in the shapes in which torch.onnx and quantisers write them, with random weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

FLOAT, INT64, INT8, UINT8 = (
    TensorProto.FLOAT,
    TensorProto.INT64,
    TensorProto.INT8,
    TensorProto.UINT8,
)


@dataclass
class Writer:
    """Collects nodes and initializers; `op` returns the name of the first result."""

    seed: int = 0
    opset: int = 17
    nodes: list[Any] = field(default_factory=list)
    initializers: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def op(self, kind: str, name: str, *inputs: str, results: int = 1, **attributes: Any) -> Any:
        """A node named like torch.onnx names it: `/encoder/MatMul`, `/encoder/MatMul_output_0`."""
        outputs = [f"{name}_output_{i}" for i in range(results)]
        self.nodes.append(helper.make_node(kind, list(inputs), outputs, name=name, **attributes))
        return outputs[0] if results == 1 else outputs

    def constant(self, name: str, array: Any) -> str:
        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, name: str, *shape: int, scale: float | None = None) -> str:
        fan = shape[0] if len(shape) < 3 else int(np.prod(shape[1:]))
        factor = fan**-0.5 if scale is None else scale
        return self.constant(name, (self.rng.standard_normal(shape) * factor).astype(np.float32))

    def whole(self, name: str, *values: int) -> str:
        return self.constant(name, np.asarray(values, np.int64))

    def model(
        self, inputs: Any, outputs: Any, functions: Any = (), imports: Any = ()
    ) -> ModelProto:
        graph = helper.make_graph(self.nodes, "main_graph", inputs, outputs, self.initializers)
        opsets = [helper.make_opsetid("", self.opset), *imports]
        return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=8)


def value(name: str, kind: int, *shape: int | str) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


# ---- a BERT-like encoder -------------------------------------------------------------------------
def encoder(
    layers: int = 2, hidden: int = 32, heads: int = 4, words: int = 50, places: int = 16
) -> ModelProto:
    """ids and mask [batch, sequence] → [batch, sequence, hidden]; the graph computes its shapes."""
    w = Writer()
    x = _embeddings(w, hidden, words, places)
    mask = w.op("Unsqueeze", "/Unsqueeze", "attention_mask", w.whole("axes12", 1, 2))
    mask = w.op("Cast", "/Cast", mask, to=FLOAT)
    mask = w.op("Sub", "/Sub", w.constant("one", np.float32(1)), mask)
    mask = w.op("Mul", "/Mul", mask, w.constant("lowest", np.float32(-1e4)))
    for i in range(layers):
        x = _layer(w, f"/encoder/layer.{i}", x, mask, hidden, heads)
    w.op("Identity", "/Identity", x)
    w.nodes[-1].output[0] = "last_hidden_state"
    shape = ("batch", "sequence")
    return w.model(
        [value("input_ids", INT64, *shape), value("attention_mask", INT64, *shape)],
        [value("last_hidden_state", FLOAT, *shape, hidden)],
    )


def _embeddings(w: Writer, hidden: int, words: int, places: int) -> str:
    at = "/embeddings"
    table = w.weight("embeddings.word_embeddings.weight", words, hidden, scale=1.0)
    word = w.op("Gather", f"{at}/word_embeddings/Gather", table, "input_ids")
    shape = w.op("Shape", f"{at}/Shape", "input_ids")
    length = w.op("Gather", f"{at}/Gather", shape, w.constant("1", np.asarray(1, np.int64)), axis=0)
    end = w.op("Unsqueeze", f"{at}/Unsqueeze", length, w.whole("axes0", 0))
    line = w.constant("position_ids", np.arange(places, dtype=np.int64)[None])
    cut = w.op("Slice", f"{at}/Slice", line, w.whole("from0", 0), end, w.whole("axis1", 1))
    place = w.weight("embeddings.position_embeddings.weight", places, hidden, scale=1.0)
    position = w.op("Gather", f"{at}/position_embeddings/Gather", place, cut)
    total = w.op("Add", f"{at}/Add", word, position)
    return _normalised(w, f"{at}/LayerNorm", total, hidden)


def _normalised(w: Writer, at: str, x: str, hidden: int) -> str:
    """Layer normalisation in the pieces that torch.onnx writes below opset 17."""
    name = at.strip("/").replace("/", ".")
    mean = w.op("ReduceMean", f"{at}/ReduceMean", x, axes=[-1])
    centred = w.op("Sub", f"{at}/Sub", x, mean)
    two = w.constant(f"{at}/two", np.float32(2))
    square = w.op("Pow", f"{at}/Pow", centred, two)
    variance = w.op("ReduceMean", f"{at}/ReduceMean_1", square, axes=[-1])
    safe = w.op("Add", f"{at}/Add", variance, w.constant(f"{at}/eps", np.float32(1e-12)))
    normal = w.op("Div", f"{at}/Div", centred, w.op("Sqrt", f"{at}/Sqrt", safe))
    scale = w.constant(f"{name}.weight", np.linspace(0.5, 1.5, hidden, dtype=np.float32))
    bias = w.weight(f"{name}.bias", hidden, scale=0.1)
    return w.op("Add", f"{at}/Add_1", w.op("Mul", f"{at}/Mul", normal, scale), bias)


def _linear(w: Writer, at: str, x: str, rows: int, columns: int) -> str:
    name = at.strip("/").replace("/", ".")
    found = w.op("MatMul", f"{at}/MatMul", x, w.weight(f"{name}.weight", rows, columns))
    return w.op("Add", f"{at}/Add", w.weight(f"{name}.bias", columns, scale=0.1), found)


def _by_heads(w: Writer, at: str, x: str, heads: int, size: int, perm: list[int]) -> str:
    """Shape → Gather → Unsqueeze → Concat → Reshape → Transpose."""
    shape = w.op("Shape", f"{at}/Shape", x)
    dims = []
    for i in range(2):
        index = w.constant(f"{at}/index{i}", np.asarray(i, np.int64))
        dim = w.op("Gather", f"{at}/Gather_{i}", shape, index, axis=0)
        dims.append(w.op("Unsqueeze", f"{at}/Unsqueeze_{i}", dim, w.whole(f"{at}/axes{i}", 0)))
    tail = [w.whole(f"{at}/heads", heads), w.whole(f"{at}/size", size)]
    wanted = w.op("Concat", f"{at}/Concat", *dims, *tail, axis=0)
    split = w.op("Reshape", f"{at}/Reshape", x, wanted)
    return w.op("Transpose", f"{at}/Transpose", split, perm=perm)


def _attention(w: Writer, at: str, x: str, mask: str, hidden: int, heads: int) -> str:
    """One projection of queries, keys and values, split as GPT-2 exports do."""
    size = hidden // heads
    qkv = _linear(w, f"{at}/c_attn", x, hidden, 3 * hidden)
    sizes = w.whole(f"{at}/sizes", hidden, hidden, hidden)
    parts = w.op("Split", f"{at}/Split", qkv, sizes, results=3, axis=-1)
    perms = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    q, k, v = (
        _by_heads(w, f"{at}/{n}", part, heads, size, perm)
        for n, part, perm in zip("qkv", parts, perms, strict=True)
    )
    scores = w.op("MatMul", f"{at}/MatMul", q, k)
    root = w.constant(f"{at}/root", np.float32(size**0.5))
    scores = w.op("Add", f"{at}/Add", w.op("Div", f"{at}/Div", scores, root), mask)
    share = w.op("Softmax", f"{at}/Softmax", scores, axis=-1)
    mixed = w.op(
        "Transpose", f"{at}/T", w.op("MatMul", f"{at}/MatMul_1", share, v), perm=[0, 2, 1, 3]
    )
    flat = w.op("Reshape", f"{at}/Reshape", mixed, w.whole(f"{at}/flat", 0, 0, -1))
    return _linear(w, f"{at}/c_proj", flat, hidden, hidden)


def _layer(w: Writer, at: str, x: str, mask: str, hidden: int, heads: int) -> str:
    found = _attention(w, f"{at}/attention", x, mask, hidden, heads)
    x = _normalised(w, f"{at}/norm1", w.op("Add", f"{at}/Add", x, found), hidden)
    inner = _linear(w, f"{at}/intermediate", x, hidden, 4 * hidden)
    inner = _gelu(w, f"{at}/act", inner)
    found = _linear(w, f"{at}/output", inner, 4 * hidden, hidden)
    return _normalised(w, f"{at}/norm2", w.op("Add", f"{at}/Add_1", x, found), hidden)


def _gelu(w: Writer, at: str, x: str) -> str:
    scaled = w.op("Div", f"{at}/Div", x, w.constant(f"{at}/root2", np.float32(2**0.5)))
    erf = w.op("Erf", f"{at}/Erf", scaled)
    more = w.op("Add", f"{at}/Add", erf, w.constant(f"{at}/one", np.float32(1)))
    half = w.constant(f"{at}/half", np.float32(0.5))
    return w.op("Mul", f"{at}/Mul_1", w.op("Mul", f"{at}/Mul", x, more), half)


# ---- a quantised residual block ------------------------------------------------------------------
def qdq_block(channels: int = 8, size: int = 10) -> ModelProto:
    """Two 3×3 convolutions with i8 weights per channel and u8 activations, and a skip; opset 13."""
    w = Writer(opset=13)
    x = _round_trip(w, "/quant", "input", 0.02, 128)
    y = _quantised_conv(w, "/layer1/conv1/Conv", x, channels)
    y = w.op("Relu", "/layer1/relu/Relu", y)
    y = _round_trip(w, "/layer1/relu/q", y, 0.015, 0)
    y = _quantised_conv(w, "/layer1/conv2/Conv", y, channels)
    y = _round_trip(w, "/layer1/conv2/q", y, 0.0313, 120)
    y = w.op("Relu", "/layer1/Relu", w.op("Add", "/layer1/Add", y, x))
    scale, zero = w.constant("out/scale", np.float32(0.0173)), w.constant("out/zero", np.uint8(0))
    w.nodes.append(helper.make_node("QuantizeLinear", [y, scale, zero], ["output"], name="/out"))
    shape = (1, channels, size, size)
    return w.model([value("input", FLOAT, *shape)], [value("output", UINT8, *shape)])


def _round_trip(w: Writer, at: str, x: str, scale: float, zero: int) -> str:
    s, z = w.constant(f"{at}/scale", np.float32(scale)), w.constant(f"{at}/zero", np.uint8(zero))
    q = w.op("QuantizeLinear", f"{at}/QuantizeLinear", x, s, z)
    return w.op("DequantizeLinear", f"{at}/DequantizeLinear", q, s, z)


def _quantised_conv(w: Writer, at: str, x: str, channels: int) -> str:
    data = w.rng.integers(-127, 128, (channels, channels, 3, 3)).astype(np.int8)
    scale = w.constant(f"{at}/w_scale", np.linspace(1e-3, 2e-3, channels, dtype=np.float32))
    zero = w.constant(f"{at}/w_zero", np.zeros(channels, np.int8))
    name = at.strip("/").replace("/", ".")
    quantised = w.constant(f"{name}.weight_quantized", data)
    real = w.op("DequantizeLinear", f"{at}/DequantizeLinear", quantised, scale, zero, axis=0)
    bias = w.weight(f"{name}.bias", channels, scale=0.1)
    return w.op("Conv", at, x, real, bias, kernel_shape=[3, 3], pads=[1, 1, 1, 1])


# ---- ResNet-50 -----------------------------------------------------------------------------------
def resnet50() -> ModelProto:
    """The whole network, batch normalisations folded into the convolutions as torch.onnx does."""
    w = Writer()
    x = _conv(w, "/conv1/Conv", "input", 3, 64, 7, 2, relu=True)
    x = w.op("MaxPool", "/maxpool/MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), 1):
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 1 else 1
            x = _bottleneck(w, f"/layer{stage}/layer{stage}.{block}", x, channels, width, stride)
            channels = 4 * width
    x = w.op("GlobalAveragePool", "/avgpool/GlobalAveragePool", x)
    x = w.op("Flatten", "/Flatten", x, axis=1)
    fc, bias = w.weight("fc.weight", 1000, 2048, scale=0.02), w.weight("fc.bias", 1000, scale=0.01)
    w.nodes.append(helper.make_node("Gemm", [x, fc, bias], ["logits"], name="/fc/Gemm", transB=1))
    return w.model(
        [value("input", FLOAT, "batch", 3, 224, 224)], [value("logits", FLOAT, "batch", 1000)]
    )


def _conv(
    w: Writer, at: str, x: str, rows: int, columns: int, size: int, stride: int, relu: bool = False
) -> str:
    name = at.strip("/").replace("/", ".")
    kernel = w.weight(f"{name}.weight", columns, rows, size, size)
    bias = w.weight(f"{name}.bias", columns, scale=0.01)
    y = w.op(
        "Conv", at, x, kernel, bias, kernel_shape=[size] * 2, strides=[stride] * 2,
        pads=[size // 2] * 4, dilations=[1, 1], group=1,
    )  # fmt: skip
    return w.op("Relu", f"{at}/Relu", y) if relu else y


def _bottleneck(w: Writer, at: str, x: str, channels: int, width: int, stride: int) -> str:
    y = _conv(w, f"{at}/conv1/Conv", x, channels, width, 1, 1, relu=True)
    y = _conv(w, f"{at}/conv2/Conv", y, width, width, 3, stride, relu=True)
    y = _conv(w, f"{at}/conv3/Conv", y, width, 4 * width, 1, 1)
    if channels != 4 * width:
        x = _conv(w, f"{at}/downsample/Conv", x, channels, 4 * width, 1, stride)
    return w.op("Relu", f"{at}/Relu", w.op("Add", f"{at}/Add", y, x))
