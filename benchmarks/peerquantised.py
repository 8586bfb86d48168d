"""ResNet-18 as onnxruntime's `quantize_static` writes it: u8 activations, i8 weights, all QDQ."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from peernets import largest
from peerweights import model

SIGNED, POSITIVE = (0.04, 128), (0.03, 0)  # scale and zero point, of any values and behind a ReLU


@cache
def layers() -> list[Any]:
    """(i8 filters, a scale and a bias per channel) of every convolution, the matrix last."""
    rng = np.random.default_rng(0)
    shapes: list[tuple[int, ...]] = [(64, 3, 7, 7)]
    for stage in range(4):
        out = 64 << stage
        for block in range(2):
            before = out if block or not stage else out // 2
            shapes += [(out, before, 3, 3), (out, out, 3, 3)]
            shapes += [(out, before, 1, 1)] if before != out else []
    found = []
    for shape in [*shapes, (1000, 512)]:
        values = rng.standard_normal(shape, "f4") * (2 / np.prod(shape[1:])) ** 0.5
        scale = np.abs(values).reshape(shape[0], -1).max(1) / 127
        each = scale.reshape(-1, *(1,) * (len(shape) - 1))
        bias = 0.1 * rng.standard_normal(shape[0], "f4")
        found.append((np.round(values / each).astype("i1"), scale.astype("f4"), bias))
    return found


def rounded(x: Any, kind: tuple[float, int]) -> Any:
    """To u8 and back."""
    scale, zero = kind
    whole = jnp.clip(jnp.round(x / scale) + zero, 0, 255).astype(jnp.uint8)
    return (whole.astype(jnp.int32) - zero).astype(jnp.float32) * scale


def dequantised(whole: Any, scale: Any) -> Any:
    return jnp.asarray(whole).astype(jnp.float32) * scale


@model((1, 3, 224, 224))
def q18(x: Any) -> Any:
    """Logits of a quantised ResNet-18 (He et al. 2016)."""
    left = iter(layers())

    def conv(x: Any, stride: int = 1) -> Any:
        filters, scale, bias = next(left)
        pad = filters.shape[2] // 2
        y = lax.conv_general_dilated(
            x, dequantised(filters, scale[:, None, None, None]), (stride,) * 2, [(pad, pad)] * 2
        )
        return y + bias[:, None, None]

    x = rounded(jax.nn.relu(conv(rounded(x, SIGNED), 2)), POSITIVE)
    x = rounded(largest(x, 3, 2, 1), POSITIVE)
    for stage in range(4):
        for block in range(2):
            stride = 2 if stage and not block else 1
            y = rounded(jax.nn.relu(conv(x, stride)), POSITIVE)
            y = rounded(conv(y), SIGNED)
            x = rounded(conv(x, stride), SIGNED) if stride == 2 else x
            x = rounded(jax.nn.relu(x + y), POSITIVE)
    x = rounded(x.mean((2, 3)), POSITIVE)
    matrix, scale, bias = next(left)
    return rounded(x @ dequantised(matrix, scale[:, None]).T + bias, SIGNED)
