"""Attention and rotary embedding of the standard (opset 23 on), and operators of `com.microsoft`.

The latter are fused by optimised exports of PyTorch models, most of them around attention.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from eqsat.frontends.onnxgraph.graph import STATIC_ELEMENTS, OnnxCall, contributed, operator
from eqsat.frontends.onnxgraph.ops.elementwise import (
    dequantize_linear,
    dequantized,
    dynamic_quantize_linear,
    gelu_exact,
    gelu_tanh,
    quantize_linear,
    quantized,
    swish,
)
from eqsat.frontends.onnxgraph.ops.reductions import (
    in_f32,
    layer_normalization,
    moments,
    rms_normalization,
    root_mean_square,
    scaled,
    softmax_of,
    without_zero,
)
from eqsat.frontends.onnxgraph.proto import stored_type
from eqsat.ops.meaning.programs import element_dtype


def heads(x: Any, count: int) -> Any:
    """[batch, steps, count · size] → [batch, count, steps, size]."""
    batch, steps, width = x.shape
    return x.reshape(batch, steps, count, width // count).transpose(0, 2, 1, 3)


def merged(x: Any) -> Any:
    """Undo `heads`."""
    batch, count, steps, size = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, steps, count * size)


def mixed_values(c: OnnxCall, q: Any, k: Any, v: Any, scale: float, bias: Any | None) -> Any:
    """softmax(scale q kᵀ + bias) v over the last two dims."""
    scores = c.xp.matmul(q, c.xp.swapaxes(k, -1, -2)) * np.asarray(scale, q.dtype)
    if bias is not None:
        scores = scores + bias
    return c.xp.matmul(softmax_of(c, scores, scores.ndim - 1), v)


@operator("RotaryEmbedding", newest=23)
def rotary_embedding(c: OnnxCall) -> Any:
    """Caches [positions, size / 2] with position ids, or [batch, steps, size / 2] without."""
    flat = c.rank(0) == 3
    x = heads(c[0], int(c.needed("num_heads"))) if flat else c[0]
    cos, sin = (c[i] if not c.has(3) else c.xp.take(c[i], c[3], axis=0) for i in (1, 2))
    width = int(c.attribute("rotary_embedding_dim", 0)) or x.shape[-1]
    result = rotated(c, x, cos[:, None], sin[:, None], width, bool(c.attribute("interleaved", 0)))
    return merged(result) if flat else result


def rotated(c: OnnxCall, x: Any, cos: Any, sin: Any, width: int, interleaved: bool) -> Any:
    """The first `width` elements of the last dim turned by the angles, in pairs."""
    turned, rest = x[..., :width], x[..., width:]
    cos, sin = cos[..., : width // 2], sin[..., : width // 2]
    if interleaved:
        a, b = turned[..., 0::2], turned[..., 1::2]
    else:
        a, b = turned[..., : width // 2], turned[..., width // 2 :]
    parts = [a * cos - b * sin, a * sin + b * cos]
    if interleaved:
        pairs = c.xp.stack(parts, axis=-1).reshape(turned.shape)
    else:
        pairs = c.xp.concatenate(parts, axis=-1)
    return c.xp.concatenate([pairs, rest], axis=-1) if rest.shape[-1] else pairs


@operator("Attention", newest=25)
def attention(c: OnnxCall) -> Any:
    """Multi-head, grouped or multi-query attention; past keys and values come first."""
    flat = c.rank(0) == 3
    q, k, v = (
        c[i] if not flat else heads(c[i], int(c.needed("kv_num_heads" if i else "q_num_heads")))
        for i in range(3)
    )
    if c.has(4) and c.has(5):
        k, v = (c.xp.concatenate([c[i], x], axis=2) for i, x in ((4, k), (5, v)))
    present = (k, v)
    times = q.shape[1] // k.shape[1]
    k, v = (x if times == 1 else c.xp.repeat(x, times, axis=1) for x in (k, v))
    attended, scores = _attended(c, q, k, v)
    return merged(attended) if flat else attended, *present, scores


def _attended(c: OnnxCall, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """(result, the stage of the scores that `qk_matmul_output_mode` asks for)."""
    root = np.asarray(math.sqrt(c.attribute("scale") or 1 / math.sqrt(q.shape[-1])), q.dtype)
    raw = c.xp.matmul(q * root, c.xp.swapaxes(k, -1, -2) * root)
    cap = c.attribute("softcap", 0.0)
    capped = cap * c.xp.tanh(raw / cap) if cap else raw
    bias = _bias(c, q.shape[2], k.shape[2], q.dtype)
    masked = capped if bias is None else capped + bias
    share = _share(c, masked, bias)
    stages = (capped, capped, masked, share)
    mode = int(c.attribute("qk_matmul_output_mode", 0))
    scores = stages[mode if 0 <= mode < 4 else 0].astype(q.dtype)
    return c.xp.matmul(share.astype(q.dtype), v), scores


def _share(c: OnnxCall, scores: Any, bias: Any | None) -> Any:
    """Softmax in the precision asked for; a row without any key to read is zero."""
    number = int(c.attribute("softmax_precision", 0))
    if number:
        scores = scores.astype(element_dtype(stored_type(number, c.node.label).name))
    shares = softmax_of(c, scores, scores.ndim - 1)
    if bias is None or not (c.has(3) or c.has(6)):
        return shares
    empty = c.xp.isneginf(c.xp.max(bias, axis=-1, keepdims=True))
    return c.xp.where(empty, np.zeros((), shares.dtype), shares)


def _bias(c: OnnxCall, steps: int, total: int, dtype: Any) -> Any | None:
    """Masks as what is added to the scores: 0, or -inf where a key is not read."""
    parts = [_mask(c, total, dtype)] if c.has(3) else []
    offset = c.shape(4)[2] if c.has(4) else 0
    if c.has(6) and not c.has(4):  # lengths of the sequences in a cache of fixed size
        offset = (c[6] - steps).reshape(-1, 1, 1, 1)
        line = c.xp.asarray(np.arange(total), c[6].dtype)
        parts.append(_barred(c, line < c[6].reshape(-1, 1, 1, 1), dtype))
    if _windowed(c):
        check_square(c, steps, total)
        ahead = np.arange(total)[None, :] - np.arange(steps)[:, None]
        parts += [_barred(c, seen, dtype) for seen in _in_window(c, ahead, offset)]
    return functools.reduce(c.xp.add, parts) if parts else None


def check_square(c: OnnxCall, steps: int, total: int) -> None:
    """E368 where a mask of queries by keys would be too large to be made while reading."""
    if steps * total > STATIC_ELEMENTS:
        raise c.error("E368", f"wants a mask of {steps} by {total}, which is too large")


def _mask(c: OnnxCall, total: int, dtype: Any) -> Any:
    mask = c[3]
    if mask.dtype.kind == "b":
        mask = _barred(c, mask, dtype)
    widths = [(0, 0)] * (mask.ndim - 1) + [(0, max(total - mask.shape[-1], 0))]
    return c.xp.pad(mask, widths, constant_values=-np.inf) if any(map(any, widths)) else mask


def _barred(c: OnnxCall, seen: Any, dtype: Any) -> Any:
    zero, never = np.zeros((), dtype), np.asarray(-np.inf, dtype)
    if isinstance(seen, np.ndarray):
        return c.xp.asarray(np.where(seen, zero, never))
    return c.xp.where(seen, zero, never)


def _windowed(c: OnnxCall) -> bool:
    sides = ("left_window_size", "right_window_size")
    return bool(c.attribute("is_causal", 0)) or any(c.attribute(s, -1) >= 0 for s in sides)


def _in_window(c: OnnxCall, ahead: Any, offset: Any) -> list[Any]:
    """ahead: how far a key lies behind a query's own place, less the keys before the block."""
    left, right = c.attribute("left_window_size", -1), c.attribute("right_window_size", -1)
    conditions = [ahead <= offset] if c.attribute("is_causal", 0) else []
    conditions += [ahead >= offset - left] if left >= 0 else []
    return conditions + ([ahead <= offset + right] if right >= 0 else [])


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
def contributed_attention(c: OnnxCall) -> Any:
    """Operands: x, qkv weight and bias, mask; one tensor of all three projections, then split."""
    if any(c.has(i) for i in (4, 5, 6)):
        raise c.unsupported("past keys, biases of attention or cache lengths")
    count, total = int(c.needed("num_heads")), c.xp.matmul(c[0], c[1])
    if c.has(2):
        total = total + c[2]
    sizes = c.attribute("qkv_hidden_sizes") or (total.shape[-1] // 3,) * 3
    parts = c.xp.split(total, np.cumsum(sizes)[:-1].tolist(), axis=-1)
    q, k, v = (heads(x, count) for x in parts)
    return _merged_values(c, q, k, v, _score_mask(c, 3, q, k))


def _merged_values(c: OnnxCall, q: Any, k: Any, v: Any, bias: Any | None) -> Any:
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
    bias = _score_mask(c, 4, q, k)
    if c.has(5):
        bias = c[5] if bias is None else bias + c[5]
    return _merged_values(c, q, k, v, bias)


def _score_mask(c: OnnxCall, i: int, q: Any, k: Any) -> Any | None:
    """Bias of the scores: `mask_filter_value` where a key is masked."""
    steps, total, dtype = q.shape[2], k.shape[2], q.dtype
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
    if c.attribute("unidirectional", 0):
        check_square(c, steps, total)
        seen = np.arange(total)[None] <= np.arange(steps)[:, None] + total - steps
        triangle = c.xp.asarray(np.where(seen, 0.0, low), dtype)
        bias = triangle if bias is None else bias + triangle
    return bias


@contributed("RotaryEmbedding")
def contributed_rotary_embedding(c: OnnxCall) -> Any:
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
