"""A small net that removes noise from a picture: five convolutions of few channels.

`denoise` has NCHW pictures, `denoise_nhwc` is the same net with channels last.
"""

from functools import cache
from itertools import pairwise

import jax
import numpy as np

SIZE, COLOURS, CHANNELS, LAYERS = 128, 3, 6, 5


@cache
def params():
    """Filters as OIHW and a shift per channel, layer by layer."""
    rng = np.random.default_rng(0)
    widths = [COLOURS, *[CHANNELS] * (LAYERS - 1), COLOURS]
    return [
        (
            (rng.standard_normal((o, i, 3, 3)) / np.sqrt(9 * i)).astype("f4"),
            (0.1 * rng.standard_normal(o)).astype("f4"),
        )
        for i, o in pairwise(widths)
    ]


def denoise(x):
    """What is left of a picture, f32[1, 3, 128, 128], when the noise is taken off."""
    h = x
    for k, (filters, shift) in enumerate(params()):
        h = jax.lax.conv_general_dilated(
            h, filters, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW")
        )
        h = h + shift[:, None, None]
        h = jax.nn.relu(h) if k < LAYERS - 1 else h
    return x - h


def denoise_nhwc(x):
    """The same of f32[1, 128, 128, 3]."""
    h = x
    for k, (filters, shift) in enumerate(params()):
        h = jax.lax.conv_general_dilated(
            h, filters, (1, 1), "SAME", dimension_numbers=("NHWC", "OIHW", "NHWC")
        )
        h = h + shift
        h = jax.nn.relu(h) if k < LAYERS - 1 else h
    return x - h


def denoise_example():
    return (jax.ShapeDtypeStruct((1, COLOURS, SIZE, SIZE), "float32"),)


def denoise_nhwc_example():
    return (jax.ShapeDtypeStruct((1, SIZE, SIZE, COLOURS), "float32"),)
