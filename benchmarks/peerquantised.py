"""Nets as `quantize_static` of onnxruntime writes them: u8 activations, i8 weights, all QDQ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from peernets import largest, model

SIGNED, POSITIVE = (0.04, 128), (0.03, 0)  # scale and zero point, of any values and behind a ReLU
UP_TO_6, SHARE = (6 / 255, 0), (1 / 255, 0)  # behind a ReLU6 and a softmax
Layers = Callable[..., tuple[Any, Any, Any]]


def drawn() -> Layers:
    """The next layer of a net: i8 filters of a shape, [out, ...], with a scale and bias each."""
    rng = np.random.default_rng(0)

    def layer(*shape: int) -> tuple[Any, Any, Any]:
        values = rng.standard_normal(shape, "f4") * (2 / np.prod(shape[1:])) ** 0.5
        scale = np.abs(values).reshape(shape[0], -1).max(1) / 127
        each = scale.reshape(-1, *(1,) * (len(shape) - 1))
        bias = 0.1 * rng.standard_normal(shape[0], "f4")
        return np.round(values / each).astype("i1"), scale.astype("f4"), bias

    return layer


def rounded(x: Any, kind: tuple[float, int]) -> Any:
    """To u8 and back."""
    scale, zero = kind
    whole = jnp.clip(jnp.round(x / scale) + zero, 0, 255).astype(jnp.uint8)
    return (whole.astype(jnp.int32) - zero).astype(jnp.float32) * scale


def dequantised(whole: Any, scale: Any) -> Any:
    return jnp.asarray(whole).astype(jnp.float32) * scale


def conv(x: Any, layer: Layers, out: int, size: int, stride: int = 1, groups: int = 1) -> Any:
    """A convolution of an image with a bias, padded alike on both sides."""
    filters, scale, bias = layer(out, x.shape[1] // groups, size, size)
    pad = size // 2
    y = lax.conv_general_dilated(
        x, dequantised(filters, scale[:, None, None, None]), (stride,) * 2, [(pad, pad)] * 2,
        feature_group_count=groups,
    )  # fmt: skip
    return y + bias[:, None, None]


def dense(x: Any, layer: Layers, out: int) -> Any:
    matrix, scale, bias = layer(out, x.shape[-1])
    return x @ dequantised(matrix, scale[:, None]).T + bias


@model((1, 3, 224, 224))
def q18(x: Any) -> Any:
    """Logits of a quantised ResNet-18 (He et al. 2016)."""
    relu, layer = jax.nn.relu, drawn()
    x = rounded(relu(conv(rounded(x, SIGNED), layer, 64, 7, 2)), POSITIVE)
    x = rounded(largest(x, 3, 2, 1), POSITIVE)
    for out in (64, 128, 256, 512):
        for stride in (1 if out == 64 else 2, 1):
            y = rounded(relu(conv(x, layer, out, 3, stride)), POSITIVE)
            y = rounded(conv(y, layer, out, 3), SIGNED)
            x = rounded(conv(x, layer, out, 1, stride), SIGNED) if stride == 2 else x
            x = rounded(relu(x + y), POSITIVE)
    return rounded(dense(rounded(x.mean((2, 3)), POSITIVE), layer, 1000), SIGNED)


WIDER = (  # how many times wider a block is inside, its channels, how many, the first one's stride
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
    (6, 320, 1, 1),
)  # fmt: skip


@model((1, 3, 224, 224))
def qmobilenet(x: Any) -> Any:
    """Logits of a quantised MobileNet v2 (Sandler et al. 2018)."""
    layer = drawn()

    def relu6(y: Any) -> Any:
        return rounded(jnp.clip(y, 0, 6), UP_TO_6)

    x = relu6(conv(rounded(x, SIGNED), layer, 32, 3, 2))
    for times, out, count, first in WIDER:
        for stride in (first, *(1,) * (count - 1)):
            inside = times * x.shape[1]
            y = relu6(conv(x, layer, inside, 1)) if times > 1 else x
            y = relu6(conv(y, layer, inside, 3, stride, groups=inside))
            y = rounded(conv(y, layer, out, 1), SIGNED)
            x = rounded(x + y, SIGNED) if x.shape == y.shape else y
    x = relu6(conv(x, layer, 1280, 1))
    return rounded(dense(rounded(x.mean((2, 3)), UP_TO_6), layer, 1000), SIGNED)


@model((128, 768))
def qbert(x: Any) -> Any:
    """A quantised layer of BERT (Devlin et al. 2019), norms behind its two halves."""
    layer, (rows, width), heads = drawn(), x.shape, 12

    def linear(x: Any, out: int) -> Any:
        return rounded(dense(x, layer, out), SIGNED)

    def normed(x: Any) -> Any:
        y = x - x.mean(-1, keepdims=True)
        return rounded(y * lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5), SIGNED)

    def apart(x: Any) -> Any:
        return x.reshape(rows, heads, width // heads).transpose(1, 0, 2)

    x = rounded(x, SIGNED)
    q, k, v = (apart(linear(x, width)) for _ in range(3))
    scores = rounded(q @ k.transpose(0, 2, 1) * (width // heads) ** -0.5, SIGNED)
    mixed = rounded(rounded(jax.nn.softmax(scores), SHARE) @ v, SIGNED)
    mixed = rounded(mixed.transpose(1, 0, 2).reshape(rows, width), SIGNED)
    x = normed(rounded(x + linear(mixed, width), SIGNED))
    inner = rounded(jax.nn.gelu(linear(x, 4 * width), approximate=False), SIGNED)
    return normed(rounded(x + linear(inner, width), SIGNED))
