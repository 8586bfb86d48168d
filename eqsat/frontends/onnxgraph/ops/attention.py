"""Attention and rotary embedding of the standard (opset 23 on)."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from eqsat.frontends.onnxgraph.call import STATIC_ELEMENTS, OnnxCall, operator
from eqsat.frontends.onnxgraph.ops.reductions import softmax_of
from eqsat.frontends.onnxgraph.tensors import stored_type
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
    q, k, v = (c[i] if not flat else heads(c[i], _count(c, i)) for i in range(3))
    if c.has(4) and c.has(5):
        k, v = (c.xp.concatenate([c[i], x], axis=2) for i, x in ((4, k), (5, v)))
    present = (k, v)
    times = q.shape[1] // k.shape[1]
    k, v = (x if times == 1 else c.xp.repeat(x, times, axis=1) for x in (k, v))
    attended, scores = _attended(c, q, k, v)
    return merged(attended) if flat else attended, *present, scores


def _count(c: OnnxCall, i: int) -> int:
    return int(c.needed("q_num_heads" if i == 0 else "kv_num_heads"))


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
