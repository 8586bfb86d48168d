"""Twenty JAX functions of 10 us to 100 ms a call, for `clock.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


@dataclass(frozen=True)
class Timed:
    """A function, its arguments on the device, and the options `eqsat.jit` gets."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    keywords: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


def real(seed: int, *shape: int) -> jax.Array:
    """Normal numbers f32[shape], of about unit size after a product with one of them."""
    return jax.random.normal(jax.random.key(seed), shape) / max(shape or (1,)) ** 0.5


def dense(seed: int, *widths: int) -> list[tuple[jax.Array, jax.Array]]:
    """Weights and biases of dense layers of these widths."""
    pairs = pairwise(widths)
    return [(real(seed + i, *p), real(seed + 50 + i, p[1])) for i, p in enumerate(pairs)]


def layer_norm(x: jax.Array) -> jax.Array:
    """Rows of zero mean and unit variance."""
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def attention(x: jax.Array, w: jax.Array, heads: int) -> jax.Array:
    """Self-attention of f32[T, D] with w f32[D, 3 D]; heads are split and joined by transposes."""
    rows, width = x.shape
    q, k, v = (
        part.reshape(rows, heads, width // heads).transpose(1, 0, 2)
        for part in jnp.split(x @ w, 3, axis=1)
    )
    scores = jax.nn.softmax(q @ k.transpose(0, 2, 1) * (width // heads) ** -0.5)
    return (scores @ v).transpose(1, 0, 2).reshape(rows, width)


def encoder(x: jax.Array, p: dict[str, jax.Array]) -> jax.Array:
    """One encoder layer, norms in front."""
    x = x + attention(layer_norm(x), p["qkv"], 4) @ p["out"]
    return x + jax.nn.gelu(layer_norm(x) @ p["up"]) @ p["down"]


def encoder_params(width: int) -> dict[str, jax.Array]:
    """Weights of an encoder layer of this width."""
    d = width
    shapes = {"qkv": (d, 3 * d), "out": (d, d), "up": (d, 4 * d), "down": (4 * d, d)}
    return {k: real(i, *s) for i, (k, s) in enumerate(shapes.items())}


def mlp(x: jax.Array, layers: Any) -> jax.Array:
    """Dense layers with relu."""
    for w, b in layers:
        x = jax.nn.relu(x @ w + b)
    return x


def mlp_of_columns(x: jax.Array, layers: Any) -> jax.Array:
    """The same over the columns of f32[D, T], as a framework with features first writes it."""
    for w, b in layers:
        x = jax.nn.relu(w.T @ x + b[:, None])
    return x


def conv_block(x: jax.Array, w: jax.Array, form: str) -> jax.Array:
    """A 3x3 convolution of padding 1, scale and relu; form: how images lie, NHWC or NCHW."""
    y = lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=(form, "HWIO" if form == "NHWC" else "OIHW", form)
    )
    return jax.nn.relu(y * 0.5 + 0.1)


def rnn(x: jax.Array, w: jax.Array, u: jax.Array) -> jax.Array:
    """A plain recurrent layer over the rows of f32[T, N, D]."""

    def step(h: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        h = jnp.tanh(row @ w + h @ u)
        return h, h

    return lax.scan(step, jnp.zeros(x.shape[1:], x.dtype), x)[1]


def programs() -> dict[str, Timed]:
    """Name → what is timed, small ones first."""
    x = real(0, 64, 256)
    hidden = dense(1, 256, 1024, 256)
    encoded, params = real(2, 64, 128), encoder_params(128)
    table, ids = real(3, 5000, 128), jax.random.randint(jax.random.key(4), (64, 32), 0, 5000)
    nhwc, filters = real(5, 4, 28, 28, 32), real(6, 3, 3, 32, 32)
    w, b = real(7, 256, 256), real(8, 256)
    narrow = real(10, 512, 16)
    big, heavy = real(11, 512, 1024), dense(12, 1024, 4096, 1024)
    moved = nhwc.transpose(0, 3, 1, 2), filters.transpose(3, 2, 0, 1)
    return {
        "scale": Timed(lambda x: x * 2 + 1, (real(20, 64, 64),)),
        "small_matmul": Timed(lambda a, b: a @ b, (real(21, 32, 32), real(22, 32, 32))),
        "dict": Timed(lambda p, *, s: {"y": p["a"] * s, "z": (p["a"] + p["b"],)},
                      ({"a": real(24, 64, 64), "b": real(25, 64, 64)},), {"s": real(40)}),
        "weights_small": Timed(lambda x, w, b: jax.nn.relu(x @ w + b),
                               (real(26, 8, 128), real(27, 128, 128), real(28, 128)),
                               options={"weights": ("w", "b")}),
        "layer_norm": Timed(layer_norm, (real(29, 128, 512),)),
        "embedding": Timed(lambda i: table[i].mean(1), (ids,)),
        "gelu": Timed(jax.nn.gelu, (real(30, 256, 1024),)),
        "sorted": Timed(lambda x: jnp.cumsum(jnp.sort(x, axis=1), axis=1) * 2, (x,)),
        "rnn": Timed(rnn, (real(31, 16, 8, 64), real(32, 64, 64), real(33, 64, 64))),
        "transposed": Timed(lambda x: ((x.T @ w.T).T + b).T, (w,)),
        "folded": Timed(lambda x, w, b: x @ (w * b).T, (x, w, b), options={"weights": ("w", "b")}),
        "lora": Timed(lambda x, w, a, b: x @ (w + a @ b), (x, w, narrow[:256], narrow[256:].T),
                      options={"weights": ("w", "a", "b")}),
        "attention": Timed(lambda x: attention(x, params["qkv"], 4), (encoded,)),
        "mlp_closed": Timed(lambda x: mlp(x, hidden), (x,)),
        "mlp_params": Timed(mlp, (x, hidden)),
        "columns": Timed(lambda x: mlp_of_columns(x.T, hidden).T, (x,)),
        "encoder": Timed(lambda x: encoder(x, params), (encoded,)),
        "conv_nhwc": Timed(lambda x: conv_block(x, filters, "NHWC"), (nhwc,)),
        "conv_nchw": Timed(lambda x: conv_block(x, moved[1], "NCHW"), (moved[0],)),
        "big_mlp": Timed(lambda x: mlp(x, heavy), (big,)),
    }  # fmt: skip
