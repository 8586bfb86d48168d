"""Quantised networks as exporters write them: integers are dequantised, layers compute in f32, and
what they make is quantised again (ONNX QuantizeLinear and DequantizeLinear, QDQ).

Weights are i8 with a scale per output channel. Activations are u8, of zero point 0 behind a ReLU
and of 128 where there are negative ones, or i8.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

BATCH, WIDTH, LAYERS = 128, 1024, 4
CHANNELS, MIDDLE, SIZE = 256, 64, 56


def quantise(x, scale, zero, dtype):
    """saturate(round(x / scale) + zero)."""
    ends = jnp.iinfo(dtype)
    return jnp.clip(jnp.round(x / scale) + zero, ends.min, ends.max).astype(dtype)


def dequantise(q, scale, zero=0):
    """(q - zero) scale."""
    return (jnp.asarray(q).astype(jnp.int32) - zero).astype(jnp.float32) * scale


def round_trip(x, scale, zero=0, dtype=jnp.int8):
    return dequantise(quantise(x, scale, zero, dtype), scale, zero)


def quantised_layer(rng, *shape):
    """i8 weights [in, out] or [h, w, in, out], a scale and a bias per output channel."""
    w = rng.standard_normal(shape) / np.sqrt(np.prod(shape[:-1]))
    scale = np.abs(w).max(axis=tuple(range(len(shape) - 1))) / 127
    bias = 0.1 * rng.standard_normal(shape[-1])
    return np.round(w / scale).astype(np.int8), scale.astype("f4"), bias.astype("f4")


@cache
def mlp_params():
    rng = np.random.default_rng(0)
    return [quantised_layer(rng, WIDTH, WIDTH) for _ in range(LAYERS)]


def quantised_mlp(x):
    """Layers of 1024 on f32[128, 1024], with a ReLU behind each."""
    y = round_trip(x, 0.03, 128, jnp.uint8)
    for w, scale, bias in mlp_params():
        y = jax.nn.relu(y @ dequantise(w, scale) + bias)
        y = round_trip(y, 0.015, 0, jnp.uint8)
    return y


def quantised_mlp_example():
    return (jax.ShapeDtypeStruct((BATCH, WIDTH), "float32"),)


@cache
def bottleneck_params():
    """Filters [out, in, h, w]."""
    rng = np.random.default_rng(0)
    shapes = (1, 1, CHANNELS, MIDDLE), (3, 3, MIDDLE, MIDDLE), (1, 1, MIDDLE, CHANNELS)
    layers = [quantised_layer(rng, *s) for s in shapes]
    return [(np.ascontiguousarray(w.transpose(3, 2, 0, 1)), *rest) for w, *rest in layers]


def quantised_bottleneck(x):
    """A residual block of ResNet-50 on f32[1, 256, 56, 56]: u8 behind a ReLU."""
    x = round_trip(x, 0.02, 0, jnp.uint8)
    y = x
    for n, (w, scale, bias) in enumerate(bottleneck_params()):
        filters = dequantise(w, scale[:, None, None, None])
        y = jax.lax.conv_general_dilated(y, filters, (1, 1), "SAME") + bias[:, None, None]
        if n < 2:
            y = round_trip(jax.nn.relu(y), 0.02, 0, jnp.uint8)
    y = jax.nn.relu(round_trip(y, 0.03) + x)
    return round_trip(y, 0.03, 0, jnp.uint8)


def quantised_bottleneck_example():
    return (jax.ShapeDtypeStruct((1, CHANNELS, SIZE, SIZE), "float32"),)
