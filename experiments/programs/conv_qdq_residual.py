"""A quantised residual block of ResNet: 3x3 convolution, 1x1 convolution, add; NCHW.

On a GPU whose compiler cuts the innermost loop into tiles, the 1x1 convolution over 56 x 56 places
has no tile (16 does not divide 56) unless the places are one loop of 3136 = 49 * 64.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

MIDDLE, CHANNELS, SIZE = 64, 128, 56
SCALE = 1 / 64


@cache
def params():
    """Filters as OIHW and a bias per filter, random and always the same."""
    rng = np.random.default_rng(0)
    shapes = {"spatial": (MIDDLE, MIDDLE, 3, 3), "expand": (CHANNELS, MIDDLE, 1, 1)}
    filters = {k: rng.standard_normal(s) / np.sqrt(np.prod(s[1:])) for k, s in shapes.items()}
    biases = {f"{k}_bias": 0.1 * rng.standard_normal(s[0]) for k, s in shapes.items()}
    return {k: np.asarray(v, "f4") for k, v in (filters | biases).items()}


def convolve(x, filters, bias, stride, padding):
    y = jax.lax.conv_general_dilated(
        x, filters, (stride, stride), padding, dimension_numbers=("NCHW", "OIHW", "NCHW")
    )
    return y + bias[:, None, None]


def quantised(x):
    """Rounded to multiples of 1/64 that fit i8, by way of i8 (ONNX QuantizeLinear and back)."""
    small = jnp.clip(jnp.round(x / SCALE), -128, 127).astype(jnp.int8)
    return small.astype(jnp.float32) * SCALE


def conv_qdq_residual(x, skipped):
    """f32[1, 64, 112, 112] and the skip connection f32[1, 128, 56, 56]."""
    p = params()
    y = jax.nn.relu(convolve(x, p["spatial"], p["spatial_bias"], 2, [(1, 1), (1, 1)]))
    y = convolve(y, p["expand"], p["expand_bias"], 1, "VALID")
    return jax.nn.relu(quantised(y) + quantised(skipped))


def conv_qdq_residual_example():
    shapes = (1, MIDDLE, 2 * SIZE, 2 * SIZE), (1, CHANNELS, SIZE, SIZE)
    return tuple(jax.ShapeDtypeStruct(s, "float32") for s in shapes)
