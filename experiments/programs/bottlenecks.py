"""Four ResNet bottleneck blocks (stage 2 of ResNet-50 at a quarter of its width), NCHW."""

from functools import cache

import jax
import numpy as np

SIZE, CHANNELS, MIDDLE, BLOCKS = 28, 64, 32, 4


@cache
def params():
    """Per block: filters as OIHW, and a scale and a shift per channel for each (batch norm)."""
    rng = np.random.default_rng(0)
    blocks = []
    for i in range(BLOCKS):
        filters = {"reduce": (MIDDLE, CHANNELS * (2 if i else 1), 1, 1)}
        filters |= {"spatial": (MIDDLE, MIDDLE, 3, 3), "expand": (2 * CHANNELS, MIDDLE, 1, 1)}
        filters |= {} if i else {"project": (2 * CHANNELS, CHANNELS, 1, 1)}
        blocks.append({k: _convolution(rng, s) for k, s in filters.items()})
    return blocks


def _convolution(rng, shape):
    weights = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
    scale, shift = 1 + 0.1 * rng.standard_normal(shape[0]), 0.1 * rng.standard_normal(shape[0])
    return tuple(np.asarray(a, "f4") for a in (weights, scale, shift))


def convolve(x, weights, stride=1):
    filters, scale, shift = weights
    y = jax.lax.conv_general_dilated(
        x, filters, (stride, stride), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW")
    )
    return y * scale[:, None, None] + shift[:, None, None]


def bottleneck(x, p, stride):
    y = jax.nn.relu(convolve(x, p["reduce"]))
    y = jax.nn.relu(convolve(y, p["spatial"], stride))
    y = convolve(y, p["expand"])
    return jax.nn.relu(y + (convolve(x, p["project"], stride) if "project" in p else x))


def bottlenecks(x):
    """Four blocks over f32[1, 64, 28, 28]; the first one halves the image."""
    for i, p in enumerate(params()):
        x = bottleneck(x, p, 1 if i else 2)
    return x


def bottlenecks_example():
    return (jax.ShapeDtypeStruct((1, CHANNELS, SIZE, SIZE), "float32"),)
