"""The encoder of Whisper, which reads the spectrogram of half a minute (Radford et al. 2022).

`whisper` has the sizes of the tiny model: f32[1, 80, 3000], 80 bands of 3,000 frames, becomes 1,500
vectors of 384 by two convolutions in one dimension, the second of stride 2, and four pre-norm
layers with six heads. Keys have no bias. Weights are arguments, known by their shapes; filters are
[out, in, 3], matrices [in, out].
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

whisper_weights = ("params",)


@dataclass(frozen=True)
class Config:
    """Sizes of a model and of its spectrogram."""

    bands: int = 80
    frames: int = 3000
    width: int = 384
    heads: int = 6
    layers: int = 4
    ratio: int = 4  # of the hidden width to the width
    epsilon: float = 1e-5


TINY = Config()


def shapes(c: Config):
    """Every weight as a `jax.ShapeDtypeStruct`."""
    w = c.width
    found = {"conv1.w": (w, c.bands, 3), "conv1.b": (w,), "conv2.w": (w, w, 3), "conv2.b": (w,)}
    for i in range(c.layers):
        found |= _norm(f"{i}.norm1", w) | _norm(f"{i}.norm2", w)
        found |= _dense(f"{i}.q", w, w) | {f"{i}.k.w": (w, w)}
        found |= _dense(f"{i}.v", w, w) | _dense(f"{i}.o", w, w)
        found |= _dense(f"{i}.up", w, c.ratio * w) | _dense(f"{i}.down", c.ratio * w, w)
    found |= _norm("last", w)
    return {k: jax.ShapeDtypeStruct(s, "float32") for k, s in found.items()}


def _dense(name, inner, outer):
    return {f"{name}.w": (inner, outer), f"{name}.b": (outer,)}


def _norm(name, width):
    return {f"{name}.scale": (width,), f"{name}.shift": (width,)}


def dense(x, p, name):
    return x @ p[f"{name}.w"] + p[f"{name}.b"]


def convolve(x, p, name, stride):
    y = jax.lax.conv_general_dilated(
        x, p[f"{name}.w"], (stride,), [(1, 1)], dimension_numbers=("NCH", "OIH", "NCH")
    )
    return y + p[f"{name}.b"][:, None]


def layer_norm(x, p, name, c: Config):
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    y = (x - mean) * jax.lax.rsqrt(variance + c.epsilon)
    return y * p[f"{name}.scale"] + p[f"{name}.shift"]


def positions(places, width):
    """Sines, then cosines, of every place at wave lengths from 2 pi to 10,000 times as long."""
    steps = np.arange(width // 2) * -(np.log(10_000.0) / (width // 2 - 1))
    turns = np.arange(places)[:, None] * np.exp(steps)
    return np.concatenate([np.sin(turns), np.cos(turns)], axis=1).astype("f4")


def attention(x, p, at, c: Config):
    batch, _, width = x.shape
    q, k, v = dense(x, p, f"{at}.q"), x @ p[f"{at}.k.w"], dense(x, p, f"{at}.v")
    q, k, v = (y.reshape(batch, -1, c.heads, width // c.heads) for y in (q, k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(width // c.heads, dtype="f4")
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)
    return dense(mixed.reshape(x.shape), p, f"{at}.o")


def layer(x, p, at, c: Config):
    x = x + attention(layer_norm(x, p, f"{at}.norm1", c), p, at, c)
    y = dense(layer_norm(x, p, f"{at}.norm2", c), p, f"{at}.up")
    return x + dense(jax.nn.gelu(y, approximate=False), p, f"{at}.down")


def encode(sound, p, c: Config):
    """The vectors of a spectrogram [batch, bands, frames], one of each two frames."""
    x = jax.nn.gelu(convolve(sound, p, "conv1", 1), approximate=False)
    x = jax.nn.gelu(convolve(x, p, "conv2", 2), approximate=False).transpose(0, 2, 1)
    x = x + positions(x.shape[1], c.width)
    for i in range(c.layers):
        x = layer(x, p, str(i), c)
    return layer_norm(x, p, "last", c)


def whisper(sound, params):
    """f32[1, 80, 3000] to f32[1, 1500, 384]."""
    return encode(sound, params, TINY)


def example(c: Config):
    return jax.ShapeDtypeStruct((1, c.bands, c.frames), "float32"), shapes(c)


def whisper_example():
    return example(TINY)
