"""One block of a diffusion model's UNet: a residual block and a transformer block, NCHW.

The residual block has group norm, SiLU, 3x3 convolutions and a time embedding; the transformer
block attends to itself and to a prompt, and ends in a gated feed-forward (Rombach et al. 2022).
`unet` has the sizes of the first level of Stable Diffusion 1 at a quarter of its places: 320
channels, 32 x 32, 8 heads, a prompt of 77 vectors of 768. Weights are arguments, known by their
shapes; filters are OIHW, matrices [in, out].
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

unet_weights = ("params",)


@dataclass(frozen=True)
class Config:
    """Sizes of a block and of what it reads."""

    channels: int = 320
    size: int = 32  # height and width
    groups: int = 32
    heads: int = 8
    time: int = 1280
    prompt: int = 77
    context: int = 768
    epsilon: float = 1e-5


LEVEL = Config()


def shapes(c: Config):
    """Every weight as a `jax.ShapeDtypeStruct`."""
    w = c.channels
    found = _convolution("conv1", w, 3) | _convolution("conv2", w, 3)
    found |= _convolution("into", w, 1) | _convolution("out", w, 1)
    found |= _dense("time", c.time, w)
    for name in ("norm1", "norm2", "norm3", "ln1", "ln2", "ln3"):
        found |= {f"{name}.scale": (w,), f"{name}.shift": (w,)}
    for at, inner in (("own", w), ("cross", c.context)):
        found |= {f"{at}.q": (w, w), f"{at}.k": (inner, w), f"{at}.v": (inner, w)}
        found |= _dense(f"{at}.o", w, w)
    found |= _dense("gated", w, 8 * w) | _dense("down", 4 * w, w)
    return {k: jax.ShapeDtypeStruct(s, "float32") for k, s in found.items()}


def _convolution(name, channels, size):
    return {f"{name}.w": (channels, channels, size, size), f"{name}.b": (channels,)}


def _dense(name, inner, outer):
    return {f"{name}.w": (inner, outer), f"{name}.b": (outer,)}


def dense(x, p, name):
    return x @ p[f"{name}.w"] + p[f"{name}.b"]


def convolve(x, p, name):
    y = jax.lax.conv_general_dilated(
        x, p[f"{name}.w"], (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW")
    )
    return y + p[f"{name}.b"][:, None, None]


def centred(x, axes, epsilon):
    """Mean 0 and variance 1 over these axes."""
    mean = x.mean(axes, keepdims=True)
    variance = jnp.square(x - mean).mean(axes, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + epsilon)


def group_norm(x, p, name, c: Config):
    split = x.reshape(x.shape[0], c.groups, -1, *x.shape[2:])
    y = centred(split, (2, 3, 4), c.epsilon).reshape(x.shape)
    return y * p[f"{name}.scale"][:, None, None] + p[f"{name}.shift"][:, None, None]


def layer_norm(x, p, name, c: Config):
    return centred(x, (-1,), c.epsilon) * p[f"{name}.scale"] + p[f"{name}.shift"]


def residual(x, time, p, c: Config):
    y = convolve(jax.nn.silu(group_norm(x, p, "norm1", c)), p, "conv1")
    y = y + dense(jax.nn.silu(time), p, "time")[:, :, None, None]
    return x + convolve(jax.nn.silu(group_norm(y, p, "norm2", c)), p, "conv2")


def attention(x, source, p, at, c: Config):
    """Of the places x, [batch, places, channels], to the vectors of a source."""
    batch, _, width = x.shape
    q, k, v = (
        (y @ p[f"{at}.{n}"]).reshape(batch, -1, c.heads, width // c.heads)
        for y, n in ((x, "q"), (source, "k"), (source, "v"))
    )
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(width // c.heads, dtype="f4")
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)
    return dense(mixed.reshape(x.shape), p, f"{at}.o")


def transformer(x, prompt, p, c: Config):
    y = convolve(group_norm(x, p, "norm3", c), p, "into")
    y = y.reshape(*x.shape[:2], -1).transpose(0, 2, 1)
    own = layer_norm(y, p, "ln1", c)
    y = y + attention(own, own, p, "own", c)
    y = y + attention(layer_norm(y, p, "ln2", c), prompt, p, "cross", c)
    value, gate = jnp.split(dense(layer_norm(y, p, "ln3", c), p, "gated"), 2, axis=-1)
    y = y + dense(value * jax.nn.gelu(gate, approximate=False), p, "down")
    return x + convolve(y.transpose(0, 2, 1).reshape(x.shape), p, "out")


def block(x, time, prompt, p, c: Config):
    return transformer(residual(x, time, p, c), prompt, p, c)


def unet(x, time, prompt, params):
    """f32[1, 320, 32, 32], f32[1, 1280] and f32[1, 77, 768] to the shape of the first."""
    return block(x, time, prompt, params, LEVEL)


def example(c: Config):
    found = (1, c.channels, c.size, c.size), (1, c.time), (1, c.prompt, c.context)
    return *(jax.ShapeDtypeStruct(s, "float32") for s in found), shapes(c)


def unet_example():
    return example(LEVEL)
