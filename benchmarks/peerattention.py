"""Transformers and mixers as their papers state them, with random weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from peergraph import INT64, Array, Written
from peernets import conv, model


def dense(x: Any, w: Any, out: int) -> Any:
    return x @ w(x.shape[-1], out) + w(out)


def norm(x: Any, w: Any) -> Any:
    """Layer norm with a scale and a shift."""
    centred = x - x.mean(-1, keepdims=True)
    x = centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return x * w(x.shape[-1]) + w(x.shape[-1])


def rms(x: Any, w: Any) -> Any:
    return x * lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6) * w(x.shape[-1])


def attention(q: Any, k: Any, v: Any, heads: int, scale: float, bias: Any = None) -> Any:
    """Of [batch, places, width], to all places."""
    split = (x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3) for x in (q, k, v))
    a, b, c = split
    scores = scale * (a @ b.swapaxes(2, 3))
    shares = jax.nn.softmax(scores if bias is None else scores + bias, axis=-1)
    return (shares @ c).transpose(0, 2, 1, 3).reshape(q.shape)


def own_attention(x: Any, w: Any, heads: int) -> Any:
    width = x.shape[-1]
    q, k, v = jnp.split(dense(x, w, 3 * width), 3, axis=-1)
    return dense(attention(q, k, v, heads, (width // heads) ** -0.5), w, width)


@model((1, 196, 768))
def mixer(patches: Any, w: Any) -> Any:
    """MLP-Mixer S/16 (Tolstikhin et al. 2021) on 196 patches."""
    x = dense(patches, w, 512)
    for _ in range(8):
        y = norm(x, w).swapaxes(1, 2)
        x = x + dense(jax.nn.gelu(dense(y, w, 256)), w, 196).swapaxes(1, 2)
        x = x + dense(jax.nn.gelu(dense(norm(x, w), w, 2048)), w, 512)
    return dense(norm(x, w).mean(1), w, 1000)


@model((1, 3, 192, 192))
def vit(image: Any, w: Any) -> Any:
    """ViT-S/16 (Dosovitskiy et al. 2021) on 144 places of an image and one of the class."""
    patches = lax.conv_general_dilated(image, w(384, 3, 16, 16), (16, 16), "VALID")
    x = patches.reshape(1, 384, -1).swapaxes(1, 2) + w(384)
    x = jnp.concatenate([w(1, 1, 384), x], 1) + w(1, 145, 384)
    for _ in range(12):
        x = x + own_attention(norm(x, w), w, 6)
        x = x + dense(jax.nn.gelu(dense(norm(x, w), w, 1536), approximate=False), w, 384)
    return dense(norm(x, w)[:, 0], w, 1000)


def buckets(size: int, most: int = 128) -> Any:
    """The 32 buckets of distances of T5: of either side 8 of one each, and 8 that grow."""
    away = np.arange(size)[None] - np.arange(size)[:, None]
    far = 8 + (np.log(np.maximum(np.abs(away), 1) / 8) / np.log(most / 8) * 8).astype(int)
    return np.where(away > 0, 16, 0) + np.where(np.abs(away) < 8, np.abs(away), np.minimum(far, 15))


@model(np.random.default_rng(1).integers(0, 8192, (1, 128)).astype("i4"))
def t5enc(ids: Any, w: Any) -> Any:
    """The encoder of T5-small (Raffel et al. 2020) on 128 words of 8,192."""
    x = 30 * w(8192, 512)[ids]
    bias = w(32, 8)[buckets(128)].transpose(2, 0, 1)
    for _ in range(6):
        y = rms(x, w)
        q, k, v = (y @ w(512, 512) for _ in range(3))
        x = x + attention(q, k, v, 8, 1.0, bias) @ w(512, 512)
        x = x + jax.nn.relu(rms(x, w) @ w(512, 2048)) @ w(2048, 512)
    return rms(x, w)


@model((1, 200, 256))
def conformer(x: Any, w: Any) -> Any:
    """Four blocks of a Conformer (Gulati et al. 2020) on 200 frames; its batch norm is folded."""

    def half(x: Any) -> Any:
        return x + 0.5 * dense(jax.nn.silu(dense(norm(x, w), w, 1024)), w, 256)

    for _ in range(4):
        x = half(x)
        x = x + own_attention(norm(x, w), w, 4)
        a, b = jnp.split(dense(norm(x, w), w, 512), 2, axis=-1)
        y = lax.conv_general_dilated(
            a * jax.nn.sigmoid(b), w(31, 1, 256), (1,), "SAME", feature_group_count=256,
            dimension_numbers=("NWC", "WIO", "NWC"),
        )  # fmt: skip
        x = x + dense(jax.nn.silu(y + w(256)), w, 256)
        x = norm(half(x), w)
    return x


@model((8, 512), (4, 2, 8, 4, 512, 64), np.asarray(300, "i4"), state={"cache": 1})
def decode8(x: Any, cache: Any, at: Any, w: Any) -> Any:
    """A token for each of a batch of 8 over a cache [layer, kv, batch, head, place, size].

    Four layers of 8 heads that share 4 keys and values, with a gated layer behind (Llama's kind).
    """
    for layer in range(4):
        y = rms(x, w)
        q = (y @ w(512, 512)).reshape(8, 4, 2, 64)
        k, v = ((y @ w(512, 256)).reshape(8, 4, 64) for _ in range(2))
        new = jnp.stack([k, v])[None, :, :, :, None]
        cache = lax.dynamic_update_slice(cache, new, (layer, 0, 0, 0, at, 0))
        keys, values = cache[layer]
        scores = jnp.einsum("bgqd,bgtd->bgqt", q, keys) / 8
        scores = jnp.where(jnp.arange(512) <= at, scores, -1e9)
        mixed = jnp.einsum("bgqt,bgtd->bgqd", jax.nn.softmax(scores, axis=-1), values)
        x = x + mixed.reshape(8, 512) @ w(512, 512)
        y = rms(x, w)
        x = x + (jax.nn.silu(y @ w(512, 1408)) * (y @ w(512, 1408))) @ w(1408, 512)
    return rms(x, w), cache


def decode8_natural(ops: Written, xs: Sequence[str], weights: Sequence[Array]) -> list[str]:
    """What is new goes into the cache by `ScatterND`, as of `cache[layer, :, :, :, at] = new`."""
    x, cache, at = xs
    left = iter(weights)
    place = ops("Mul", ops("Cast", at, to=INT64), np.array([0, 0, 0, 0, 1]))
    seen = ops("LessOrEqual", np.arange(512, dtype="i4"), at)

    def root(x: str) -> str:
        square = ops("ReduceMean", ops("Pow", x, np.array(2, "f4")), np.array([-1]), keepdims=1)
        root = ops("Sqrt", ops("Add", square, np.array(1e-6, "f4")))
        return ops("Mul", ops("Div", x, root), next(left))

    def into(x: str, *shape: int) -> str:
        return ops("Reshape", x, np.array(shape))

    def product(x: str) -> str:
        return ops("MatMul", x, next(left))

    for layer in range(4):
        y = root(x)
        q = into(product(y), 8, 4, 2, 64)
        new = ops("Concat", *(into(product(y), 1, 8, 4, 64) for _ in range(2)), axis=0)
        grid = np.moveaxis(np.indices((1, 2, 8, 4, 1)), 0, -1).reshape(2, 8, 4, 5)
        grid[..., 0] = layer
        cache = ops("ScatterND", cache, ops("Add", grid, place), new)
        keys, values = (ops("GatherND", cache, np.array([layer, i])) for i in range(2))
        scores = ops("MatMul", q, ops("Transpose", keys, perm=[0, 1, 3, 2]))
        scores = ops("Mul", scores, np.array(1 / 8, "f4"))
        shares = ops("Softmax", ops("Where", seen, scores, np.array(-1e9, "f4")), axis=-1)
        x = ops("Add", x, product(into(ops("MatMul", shares, values), 8, 512)))
        y = root(x)
        gate, up = product(y), product(y)
        y = ops("Mul", ops("Mul", gate, ops("Sigmoid", gate)), up)
        x = ops("Add", x, product(y))
    return [root(x), cache]


# ---- sound --------------------------------------------------------------------------------------
@model((1, 64, 4096))
def wavenet(x: Any, w: Any) -> Any:
    """Twenty gated layers of WaveNet (van den Oord et al. 2016) over 4,096 samples, 256 classes."""

    def causal(x: Any, dilation: int) -> Any:
        y = lax.conv_general_dilated(
            x, w(128, 64, 2), (1,), [(dilation, 0)], rhs_dilation=(dilation,)
        )
        return y + w(128)[:, None]

    total: Any = 0.0
    for layer in range(20):
        a, b = jnp.split(causal(x, 2 ** (layer % 10)), 2, axis=1)
        y = jnp.tanh(a) * jax.nn.sigmoid(b)
        total = total + conv(y, w, 64, 1, act=lambda y: y)
        x = x + conv(y, w, 64, 1, act=lambda y: y)
    return conv(conv(jax.nn.relu(total), w, 64, 1), w, 256, 1, act=lambda y: y)
