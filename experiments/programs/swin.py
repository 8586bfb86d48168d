"""Swin-T, an image classifier with attention inside of shifted windows (Liu et al. 2021).

`swin` reads one image, f32[1, 224, 224, 3], and gives scores of 1,000 classes. Patches of 4 x 4
become vectors of 96; four stages of 2, 2, 6 and 2 blocks halve the places and double the width in
between. A block attends inside windows of 7 x 7 places; every second one rolls the image by half a
window first, with a mask where a window then spans two borders. Weights are arguments, known by
their shapes; matrices are [in, out], the filter of the patches is HWIO.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

swin_weights = ("params",)


@dataclass(frozen=True)
class Config:
    """Sizes of a model and of its image."""

    image: int = 224
    patch: int = 4
    width: int = 96  # of the first stage
    depths: tuple[int, ...] = (2, 2, 6, 2)
    heads: tuple[int, ...] = (3, 6, 12, 24)
    window: int = 7
    ratio: int = 4  # of the hidden width to the width
    classes: int = 1000
    epsilon: float = 1e-5

    def places(self, stage):
        """Places along an edge of the image in a stage."""
        return self.image // self.patch >> stage


TINY = Config()


def shapes(c: Config):
    """Every weight as a `jax.ShapeDtypeStruct`."""
    found = {"patch.w": (c.patch, c.patch, 3, c.width), "patch.b": (c.width,)}
    found |= _norm("norm", c.width)
    for stage, (depth, heads) in enumerate(zip(c.depths, c.heads, strict=True)):
        width = c.width << stage
        for block in range(depth):
            found |= _block(f"{stage}.{block}", width, heads, c)
        if stage + 1 < len(c.depths):
            found |= {f"{stage}.merge.w": (4 * width, 2 * width)}
            found |= _norm(f"{stage}.merge.norm", 4 * width)
    last = c.width << len(c.depths) - 1
    found |= _norm("last", last) | _dense("head", last, c.classes)
    return {k: jax.ShapeDtypeStruct(s, "float32") for k, s in found.items()}


def _block(at, width, heads, c: Config):
    found = {f"{at}.table": ((2 * c.window - 1) ** 2, heads)}
    found |= _norm(f"{at}.norm1", width) | _norm(f"{at}.norm2", width)
    found |= _dense(f"{at}.qkv", width, 3 * width) | _dense(f"{at}.out", width, width)
    return (
        found
        | _dense(f"{at}.up", width, c.ratio * width)
        | _dense(f"{at}.down", c.ratio * width, width)
    )


def _dense(name, inner, outer):
    return {f"{name}.w": (inner, outer), f"{name}.b": (outer,)}


def _norm(name, width):
    return {f"{name}.scale": (width,), f"{name}.shift": (width,)}


def dense(x, p, name):
    return x @ p[f"{name}.w"] + p[f"{name}.b"]


def layer_norm(x, p, name, c: Config):
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    y = (x - mean) * jax.lax.rsqrt(variance + c.epsilon)
    return y * p[f"{name}.scale"] + p[f"{name}.shift"]


def windows(x, size):
    """[places, places, width] as [windows, size * size, width]."""
    n, width = x.shape[0] // size, x.shape[-1]
    split = x.reshape(n, size, n, size, width).transpose(0, 2, 1, 3, 4)
    return split.reshape(n * n, size * size, width)


def unwindows(x, size, places):
    """Undo `windows`."""
    n = places // size
    split = x.reshape(n, n, size, size, -1).transpose(0, 2, 1, 3, 4)
    return split.reshape(places, places, -1)


def relative(size):
    """For every pair of places in a window the row of the table for their distance."""
    at = np.stack(np.meshgrid(np.arange(size), np.arange(size), indexing="ij")).reshape(2, -1)
    apart = at[:, :, None] - at[:, None, :] + size - 1
    return apart[0] * (2 * size - 1) + apart[1]


def mask(places, size, shift):
    """[windows, size^2, size^2]: 0 between places that were neighbours before the roll, else -100.

    After a roll the last windows hold places from opposite borders of the image.
    """
    part = np.zeros(places, np.int32)
    part[places - size : places - shift] = 1
    part[places - shift :] = 2
    parts = (3 * part[:, None] + part[None, :]).reshape(places // size, size, -1, size)
    parts = parts.transpose(0, 2, 1, 3).reshape(-1, size * size)
    return np.where(parts[:, :, None] == parts[:, None, :], 0.0, -100.0).astype("f4")


def attention(x, p, at, heads, allowed, c: Config):
    """Inside every window, x is [windows, places, width]; `allowed` is added to the scores."""
    count, places, width = x.shape
    qkv = dense(x, p, f"{at}.qkv").reshape(count, places, 3, heads, width // heads)
    q, k, v = qkv.transpose(2, 0, 3, 1, 4)
    scores = jnp.einsum("whqd,whkd->whqk", q / np.sqrt(width // heads, dtype="f4"), k)
    bias = p[f"{at}.table"][relative(c.window)].transpose(2, 0, 1)
    scores = scores + bias
    if allowed is not None:
        scores = scores + allowed[:, None]
    mixed = jnp.einsum("whqk,whkd->whqd", jax.nn.softmax(scores, axis=-1), v)
    return dense(mixed.transpose(0, 2, 1, 3).reshape(x.shape), p, f"{at}.out")


def block(x, p, at, heads, is_shifted, c: Config):
    """Attention inside of windows and a feed-forward, over [places, places, width]."""
    places = x.shape[0]
    shift = c.window // 2 if is_shifted and places > c.window else 0
    y = layer_norm(x, p, f"{at}.norm1", c)
    if shift:
        y = jnp.roll(y, (-shift, -shift), (0, 1))
    allowed = mask(places, c.window, shift) if shift else None
    y = attention(windows(y, c.window), p, at, heads, allowed, c)
    y = unwindows(y, c.window, places)
    if shift:
        y = jnp.roll(y, (shift, shift), (0, 1))
    x = x + y
    hidden = jax.nn.gelu(
        dense(layer_norm(x, p, f"{at}.norm2", c), p, f"{at}.up"), approximate=False
    )
    return x + dense(hidden, p, f"{at}.down")


def merge(x, p, stage, c: Config):
    """Four neighbours become one place of twice the width."""
    parts = (x[0::2, 0::2], x[1::2, 0::2], x[0::2, 1::2], x[1::2, 1::2])
    y = jnp.concatenate(parts, axis=-1)
    return layer_norm(y, p, f"{stage}.merge.norm", c) @ p[f"{stage}.merge.w"]


def classify(image, p, c: Config):
    """Scores of the classes of one image, [1, size, size, 3]."""
    x = jax.lax.conv_general_dilated(
        image, p["patch.w"], (c.patch, c.patch), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    x = layer_norm(x[0] + p["patch.b"], p, "norm", c)
    for stage, (depth, heads) in enumerate(zip(c.depths, c.heads, strict=True)):
        for i in range(depth):
            x = block(x, p, f"{stage}.{i}", heads, i % 2 == 1, c)
        if stage + 1 < len(c.depths):
            x = merge(x, p, stage, c)
    return dense(layer_norm(x, p, "last", c).mean((0, 1)), p, "head")


def swin(image, params):
    """f32[1, 224, 224, 3] to f32[1000]."""
    return classify(image, params, TINY)


def swin_example():
    return jax.ShapeDtypeStruct((1, TINY.image, TINY.image, 3), "float32"), shapes(TINY)
