"""Normalisations, inference only."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.frontends.onnxgraph.call import OnnxCall
from eqsat.frontends.onnxgraph.registry import operator


def per_channel(x: Any, rank: int) -> Any:
    """[c] → [c, 1, …], which broadcasts along axis 1 of a tensor of this rank."""
    return x.reshape(-1, *([1] * (rank - 2)))


@operator("BatchNormalization", newest=15)
def batch_normalization(c: OnnxCall) -> Any:
    if c.attribute("training_mode", 0):
        raise c.unsupported("training mode", "export the model for inference")
    x, rank, eps = c[0], max(c.rank(0), 2), c.attribute("epsilon", 1e-5)
    scale, bias, mean, var = (per_channel(c[i], rank) for i in range(1, 5))
    return ((x - mean) / c.xp.sqrt(var + eps) * scale + bias).astype(x.dtype)


def moments(c: OnnxCall, x: Any, axes: tuple[int, ...], epsilon: float) -> tuple[Any, Any, Any]:
    """(centred x, mean, 1 / standard deviation), dims kept."""
    mean = c.xp.mean(x, axis=axes, keepdims=True)
    centred = x - mean
    variance = c.xp.mean(centred * centred, axis=axes, keepdims=True)
    return centred, mean, 1 / c.xp.sqrt(variance + epsilon)


def in_f32(c: OnnxCall, x: Any) -> Any:
    """The stash type: 16-bit floats are normalised in 32 bits."""
    narrow = x.dtype.itemsize < 4 and int(c.attribute("stash_type", 1)) == 1
    return x.astype(np.float32) if narrow else x


@operator("LayerNormalization", newest=17)
def layer_normalization(c: OnnxCall) -> Any:
    """Over all axes from `axis` on; results: the tensor, mean and 1 / standard deviation."""
    axis = c.along("axis", -1)
    axes = tuple(range(axis, c.rank(0)))
    centred, mean, inverse = moments(c, in_f32(c, c[0]), axes, c.attribute("epsilon", 1e-5))
    found = (centred * inverse).astype(c[0].dtype) * c[1]
    if c.has(2):
        found = found + c[2]
    return found, mean, inverse


@operator("RMSNormalization", newest=23)
def rms_normalization(c: OnnxCall) -> Any:
    axis = c.along("axis", -1)
    return root_mean_square(c, c[0], c[1], tuple(range(axis, c.rank(0))))


def root_mean_square(c: OnnxCall, x: Any, scale: Any, axes: tuple[int, ...]) -> Any:
    """x / √(mean of x² + ε) · scale."""
    wide = in_f32(c, x)
    square = c.xp.mean(wide * wide, axis=axes, keepdims=True)
    normal = wide / c.xp.sqrt(square + c.attribute("epsilon", 1e-5))
    return normal.astype(x.dtype) * scale


@operator("InstanceNormalization", newest=22)
def instance_normalization(c: OnnxCall) -> Any:
    axes = tuple(range(2, c.rank(0)))
    centred, _, inverse = moments(c, c[0], axes, c.attribute("epsilon", 1e-5))
    rank = c.rank(0)
    return centred * inverse * per_channel(c[1], rank) + per_channel(c[2], rank)


@operator("GroupNormalization", newest=21)
def group_normalization(c: OnnxCall) -> Any:
    """Scale and bias: one per channel, before opset 21 one per group."""
    (n, channels, *rest), groups = c.shape(0), int(c.needed("num_groups"))
    if groups < 1 or channels % groups:
        raise c.error("E368", f"has {groups} groups of {channels} channels")
    x = in_f32(c, c[0]).reshape(n, groups, channels // groups, *rest)
    axes = tuple(range(2, x.ndim))
    centred, _, inverse = moments(c, x, axes, c.attribute("epsilon", 1e-5))
    scale, bias = (_per_group(c, c[i], groups, channels, len(rest)) for i in (1, 2))
    found = (centred * inverse).astype(c[0].dtype) * scale + bias
    return found.reshape(c.shape(0))


def _per_group(c: OnnxCall, x: Any, groups: int, channels: int, spatial: int) -> Any:
    if x.shape not in ((groups,), (channels,)):
        raise c.error("E368", f"has {list(x.shape)} scales for {channels} channels")
    return x.reshape(groups, -1, *([1] * spatial))


@operator("LRN", newest=13)
def local_response(c: OnnxCall) -> Any:
    """x / (bias + alpha/size · sum of squares over neighbouring channels)^beta."""
    size = int(c.needed("size"))
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    rank, x = c.rank(0), c[0]
    total = c.lax.reduce_window(
        x * x, np.zeros((), x.dtype), c.lax.add, (1, size, *([1] * (rank - 2))), (1,) * rank,
        ((0, 0), (before, after), *([(0, 0)] * (rank - 2))),
    )  # fmt: skip
    base = c.attribute("bias", 1.0) + c.attribute("alpha", 1e-4) / size * total
    return x / base ** c.attribute("beta", 0.75)


@operator("LpNormalization", newest=22)
def lp_normalization(c: OnnxCall) -> Any:
    axis = c.along("axis", -1)
    x = c[0]
    if int(c.attribute("p", 2)) == 1:
        norm = c.xp.sum(c.xp.abs(x), axis=axis, keepdims=True)
    else:
        norm = c.xp.sqrt(c.xp.sum(x * x, axis=axis, keepdims=True))
    return c.xp.where(norm == 0, 0, x / c.xp.where(norm == 0, 1, norm))


@operator("MeanVarianceNormalization", newest=13)
def mean_variance_normalization(c: OnnxCall) -> Any:
    axes = c.axes(c.attribute("axes", (0, 2, 3)), c.rank(0))
    x = c[0]
    mean = c.xp.mean(x, axis=axes, keepdims=True)
    variance = c.xp.mean(x * x, axis=axes, keepdims=True) - mean * mean
    return (x - mean) / (c.xp.sqrt(variance) + 1e-9)
