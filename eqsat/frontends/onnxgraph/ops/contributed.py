"""Operators of `com.microsoft`, which optimised exports of PyTorch models hold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eqsat.frontends.onnxgraph.call import OnnxCall, contributed
from eqsat.frontends.onnxgraph.ops.attention import (
    check_square,
    heads,
    merged,
    mixed_values,
    rotated,
)
from eqsat.frontends.onnxgraph.ops.elementwise import gelu_exact, gelu_tanh, swish
from eqsat.frontends.onnxgraph.ops.quantized import (
    dequantize_linear,
    dequantized,
    dynamic_quantize_linear,
    quantize_linear,
    quantized,
)
from eqsat.frontends.onnxgraph.ops.reductions import (
    in_f32,
    layer_normalization,
    moments,
    rms_normalization,
    root_mean_square,
    scaled,
    without_zero,
)

contributed("Gelu")(lambda c: gelu_exact(c, c[0]))
contributed("BiasGelu")(lambda c: gelu_exact(c, c[0] + c[1]))
contributed("FastGelu")(lambda c: gelu_tanh(c, c[0] + c[1] if c.has(1) else c[0]))
contributed("QuickGelu")(lambda c: swish(c, c[0], c.attribute("alpha", 1.702)))
contributed("LayerNormalization")(layer_normalization)
contributed("SimplifiedLayerNormalization")(rms_normalization)
contributed("QuantizeLinear")(quantize_linear)
contributed("DequantizeLinear")(dequantize_linear)


@contributed("FusedMatMul")
def fused_matmul(c: OnnxCall) -> Any:
    """alpha · A B, either transposed in its last two dims."""
    if c.attribute("transBatchA", 0) or c.attribute("transBatchB", 0):
        raise c.unsupported("transposed batch dims")
    a = c.xp.swapaxes(c[0], -1, -2) if c.attribute("transA", 0) else c[0]
    b = c.xp.swapaxes(c[1], -1, -2) if c.attribute("transB", 0) else c[1]
    return scaled(c.xp.matmul(a, b), c.attribute("alpha", 1.0))


@contributed("SkipLayerNormalization")
def skip_layer_normalization(c: OnnxCall) -> Any:
    """Operands: x, skip, gamma, beta, bias; results: the tensor, mean, 1 / deviation, the sum."""
    total = c[0] + c[1] + c[4] if c.has(4) else c[0] + c[1]
    axes, epsilon = (total.ndim - 1,), c.attribute("epsilon", 1e-12)
    centred, mean, inverse = moments(c, in_f32(c, total), axes, epsilon)
    scaled = (centred * inverse).astype(total.dtype) * c[2]
    return scaled + c[3] if c.has(3) else scaled, mean, inverse, total


@contributed("SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(c: OnnxCall) -> Any:
    total = c[0] + c[1] + c[3] if c.has(3) else c[0] + c[1]
    nothing = np.zeros(0, np.float32)  # mean and deviation are not given by any runtime either
    return root_mean_square(c, total, c[2], (total.ndim - 1,)), nothing, nothing, total


@contributed("EmbedLayerNormalization")
def embed_layer_normalization(c: OnnxCall) -> Any:
    """BERT's embeddings: words, positions and segments summed and normalised."""
    ids, steps = c[0], c.shape(0)[1]
    positions = c.xp.take(c[3], c[8], axis=0) if c.has(8) else c[3][None, :steps]
    total = c.xp.take(c[2], ids, axis=0, mode="clip") + positions
    if c.has(1) and c.has(4):
        total = total + c.xp.take(c[4], c[1], axis=0, mode="clip")
    centred, _, inverse = moments(c, total, (2,), c.attribute("epsilon", 1e-12))
    embedded = centred * inverse * c[5] + c[6]
    if c.has(7):
        lengths = c.xp.sum(c[7].astype(np.int32), axis=1)
    else:
        lengths = c.xp.zeros((c.shape(0)[0],), np.int32)
    return embedded, lengths, total


@contributed("Attention")
def attention(c: OnnxCall) -> Any:
    """Operands: x, qkv weight and bias, mask; one tensor of all three projections, then split."""
    if any(c.has(i) for i in (4, 5, 6)):
        raise c.unsupported("past keys, biases of attention or cache lengths")
    count, total = int(c.needed("num_heads")), c.xp.matmul(c[0], c[1])
    if c.has(2):
        total = total + c[2]
    sizes = c.attribute("qkv_hidden_sizes") or (total.shape[-1] // 3,) * 3
    parts = c.xp.split(total, np.cumsum(sizes)[:-1].tolist(), axis=-1)
    q, k, v = (heads(x, count) for x in parts)
    bias = _mask(c, 3, q.shape[2], k.shape[2], bool(c.attribute("unidirectional", 0)), q.dtype)
    scale = c.attribute("scale") or 1 / math.sqrt(q.shape[-1])
    return merged(mixed_values(c, q, k, v, scale, bias))


@contributed("MultiHeadAttention")
def multi_head_attention(c: OnnxCall) -> Any:
    """Operands: q, k, v [batch, steps, hidden], bias, key mask, bias of attention, past k and v."""
    if c.rank(0) != 3 or not c.has(1) or not c.has(2) or c.rank(1) != 3:
        raise c.unsupported("packed queries, keys and values")
    if c.has(6) or c.has(7) or c.has(8):
        raise c.unsupported("past keys and values")
    count, xs = int(c.needed("num_heads")), [c[0], c[1], c[2]]
    if c.has(3):
        ends = [c.shape(0)[2], c.shape(0)[2] + c.shape(1)[2]]
        xs = [x + b for x, b in zip(xs, c.xp.split(c[3], ends), strict=True)]
    q, k, v = (heads(x, count) for x in xs)
    bias = _mask(c, 4, q.shape[2], k.shape[2], bool(c.attribute("unidirectional", 0)), q.dtype)
    if c.has(5):
        bias = c[5] if bias is None else bias + c[5]
    scale = c.attribute("scale") or 1 / math.sqrt(q.shape[-1])
    return merged(mixed_values(c, q, k, v, scale, bias))


def _mask(c: OnnxCall, i: int, steps: int, total: int, causal: bool, dtype: Any) -> Any | None:
    """What is added to the scores: `mask_filter_value` where a key is masked."""
    low, bias = c.attribute("mask_filter_value", -10000.0), None
    if c.has(i):
        mask = c[i]
        if mask.ndim == 1:  # how many keys of each sequence are valid
            line = c.xp.asarray(np.arange(total), mask.dtype)
            mask = (line[None] < mask[:, None]).astype(np.int32)
        places = {2: (slice(None), None, None), 3: (slice(None), None)}
        if mask.ndim not in places:
            raise c.unsupported(f"a mask of rank {mask.ndim}")
        bias = c.xp.where(mask[places[mask.ndim]] != 0, 0.0, low).astype(dtype)
    if causal:
        check_square(c, steps, total)
        seen = np.arange(total)[None] <= np.arange(steps)[:, None] + total - steps
        triangle = c.xp.asarray(np.where(seen, 0.0, low), dtype)
        bias = triangle if bias is None else bias + triangle
    return bias


@contributed("RotaryEmbedding")
def rotary_embedding(c: OnnxCall) -> Any:
    """Operands: x, position ids, cos and sin caches."""
    flat = c.rank(0) == 3
    x = c[0]
    if flat:
        size = 2 * c.shape(2)[1] if not c.attribute("rotary_embedding_dim", 0) else 0
        count = int(c.attribute("num_heads", 0)) or x.shape[2] // size
        x = heads(x, count)
    ids = c[1]
    if ids.ndim == 1:
        ids = ids[:, None] + c.xp.arange(x.shape[2], dtype=ids.dtype)[None]
    cos, sin = (c.xp.take(c[i], ids, axis=0)[:, None] for i in (2, 3))
    width = int(c.attribute("rotary_embedding_dim", 0)) or x.shape[-1]
    result = rotated(c, x, cos, sin, width, bool(c.attribute("interleaved", 0)))
    return merged(result) if flat else result


# ---- quantised -----------------------------------------------------------------------------------
@contributed("QLinearAdd", "QLinearMul")
def qlinear_binary(c: OnnxCall) -> Any:
    """a, its scale and zero; b, its; the result's."""
    a, b = dequantized(c[0], c[1], c.get(2)), dequantized(c[3], c[4], c.get(5))
    result = a + b if c.node.op == "QLinearAdd" else a * b
    return quantized(c, result, c[6], c.get(7), c.dtype(0))


@contributed("MatMulIntegerToFloat")
def matmul_integer_to_float(c: OnnxCall) -> Any:
    """a, b, their scales and zero points, a bias."""
    a, b = without_zero(c[0], c.get(4)), without_zero(c[1], c.get(5))
    product = c.xp.matmul(a, b).astype(c[2].dtype) * (c[2] * c[3])
    return product + c[6] if c.has(6) else product


@contributed("DynamicQuantizeMatMul")
def dynamic_quantize_matmul(c: OnnxCall) -> Any:
    a, scale, zero = dynamic_quantize_linear(c)
    total = c.xp.matmul(without_zero(a, zero), without_zero(c[1], c.get(3)))
    product = total.astype(scale.dtype) * (scale * c[2])
    return product + c[4] if c.has(4) else product


@contributed("MatMulNBits")
def matmul_nbits(c: OnnxCall) -> Any:
    """A times the transpose of B, stored [n, blocks, bytes] in 4 bits with a scale per block."""
    n, k = int(c.needed("N")), int(c.needed("K"))
    bits, block = int(c.attribute("bits", 4)), int(c.needed("block_size"))
    if bits not in (4, 8) or block < 1 or (c.has(4) and c.shape(4) != (0,)):
        raise c.unsupported(f"{bits} bits in blocks of {block}")
    blocks = -(-k // block)
    values = _unpacked(c, c[1].reshape(n, blocks, -1), bits)
    if c.has(3):
        zero = c[3]
        if zero.dtype == np.uint8:
            zero = _unpacked(c, zero.reshape(n, -1), bits)[:, :blocks]
        zero = zero.reshape(n, blocks, 1)
    else:
        zero = np.asarray(2 ** (bits - 1), np.float32)
    real = (values.astype(c.dtype(0)) - zero.astype(c.dtype(0))) * c[2].reshape(n, blocks, 1)
    product = c.xp.matmul(c[0], real.reshape(n, blocks * block)[:, :k].T)
    return product + c[5] if c.has(5) else product


def _unpacked(c: OnnxCall, data: Any, bits: int) -> Any:
    """Two values a byte, the low half first."""
    if bits == 8:
        return data
    halves = c.xp.stack([data & np.uint8(15), data >> np.uint8(4)], axis=-1)
    return halves.reshape(*data.shape[:-1], -1)
