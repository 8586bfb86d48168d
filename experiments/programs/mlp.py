"""Multi-layer perceptrons with ReLU; the weights are closed over, random and always the same."""

from functools import cache
from itertools import pairwise

import jax
import numpy as np


@cache
def layers(*widths):
    """(weight, bias) per layer, f32[n, m] and f32[m]."""
    rng = np.random.default_rng(0)
    return [
        (rng.standard_normal((n, m), "f4") / np.sqrt(n, dtype="f4"), rng.standard_normal(m, "f4"))
        for n, m in pairwise(widths)
    ]


def mlp(x, params):
    for w, b in params[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = params[-1]
    return x @ w + b


def mlp_784(x):
    """784-512-512-10."""
    return mlp(x, layers(784, 512, 512, 10))


def mlp_784_example():
    return (jax.ShapeDtypeStruct((128, 784), "float32"),)


def mlp_1024(x):
    """Four layers of 1024."""
    return mlp(x, layers(1024, 1024, 1024, 1024, 1024))


def mlp_1024_example():
    return (jax.ShapeDtypeStruct((256, 1024), "float32"),)
