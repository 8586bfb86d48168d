"""JAX functions that are timed: twenty of 10 us to 100 ms, and 36 that nobody tuned to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

LIMIT = {"time_limit": 10.0}  # seconds of search of the unseen models


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


# ---- unseen --------------------------------------------------------------------------------------
def unseen() -> dict[str, Timed]:
    """28 small functions and eight models."""
    return small() | models()


def integers(seed: int, high: int, *shape: int) -> jax.Array:
    """Whole numbers i32[shape] below `high`."""
    return jax.random.randint(jax.random.key(seed), shape, 0, high)


def _mlp(x: Any, w: Any, v: Any) -> Any:
    return jax.nn.relu(x @ w) @ v


def _conv(x: Any, w: Any) -> Any:
    return jax.nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME"))


def _distances(x: Any, y: Any) -> Any:
    return jnp.sqrt(((x[:, None] - y[None]) ** 2).sum(-1))


def _rope(x: Any, c: Any, s: Any) -> Any:
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * c - b * s, a * s + b * c], -1)


def _ema(x: Any) -> Any:
    def step(state: Any, row: Any) -> Any:
        state = 0.9 * state + 0.1 * row
        return state, state

    return lax.scan(step, jnp.zeros(x.shape[1]), x)[1]


def _covariance(x: Any) -> Any:
    y = x - x.mean(0)
    return y.T @ y / (x.shape[0] - 1)


def _cholesky(x: Any) -> Any:
    return jnp.linalg.cholesky(x @ x.T + 64 * jnp.eye(64))


def _bilinear(x: Any) -> Any:
    return jax.image.resize(x, (64, 64), "bilinear")


def _dct(x: Any) -> Any:
    n = jnp.arange(64)
    basis = jnp.cos(jnp.pi / 64 * (n[:, None] + 0.5) * n)
    return basis.T @ x @ basis


def small() -> dict[str, Timed]:
    """The functions, of a few microseconds to a millisecond."""
    x, w = real(0, 64, 256), real(1, 256, 256)
    keys = jnp.arange(32) / 32
    half = real(2, 128, 128).astype(jnp.bfloat16)
    table: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "softmax_64x256": (jax.nn.softmax, (x,)),
        "layernorm_128x512": (layer_norm, (real(3, 128, 512),)),
        "gelu_bias_256x1024": (
            lambda x, b: jax.nn.gelu(x + b), (real(4, 256, 1024), real(5, 1024)),
        ),
        "matmul_64": (jnp.matmul, (real(6, 64, 64), real(7, 64, 64))),
        "matmul_256": (jnp.matmul, (w, real(8, 256, 256))),
        "mlp_16x256": (_mlp, (real(9, 16, 256), w, real(10, 256, 256))),
        "matvec_1024": (jnp.matmul, (real(11, 1024, 1024), real(12, 1024))),
        "transpose_512": (lambda x: x.T + 1.0, (real(13, 512, 512),)),
        "logsumexp0_512x256": (lambda x: jax.nn.logsumexp(x, 0), (real(14, 512, 256),)),
        "cumsum_64x1024": (lambda x: jnp.cumsum(x, 1), (real(15, 64, 1024),)),
        "sort_64x256": (lambda x: jnp.sort(x, -1), (x,)),
        "rfft_16x1024": (lambda x: jnp.abs(jnp.fft.rfft(x)), (real(16, 16, 1024),)),
        "topk_64x512": (lambda x: lax.top_k(x, 8), (real(17, 64, 512),)),
        "gather_sum": (
            lambda t, i: t[i].sum(1), (real(18, 1000, 64), integers(19, 1000, 32, 8)),
        ),
        "segment_sum": (
            lambda x, i: jax.ops.segment_sum(x, i, 32), (x, integers(20, 32, 64)),
        ),
        "conv3x3_16c_28": (_conv, (real(21, 1, 16, 28, 28), real(22, 16, 16, 3, 3))),
        "cholesky_64": (_cholesky, (real(23, 64, 64),)),
        "pairdist_128x16": (_distances, (real(24, 128, 16), real(25, 128, 16))),
        "rope_64x8x64": (
            _rope,
            (real(26, 64, 8, 64), jnp.cos(keys), jnp.sin(keys)),
        ),
        "ema_scan_256x64": (_ema, (real(27, 256, 64),)),
        "rng_normal": (lambda k: jax.random.normal(k, (64, 256)), (jax.random.key(1),)),
        "histogram_16384": (
            lambda x: jnp.zeros(64, jnp.int32).at[x].add(1), (integers(28, 64, 16384),),
        ),
        "bilinear_32": (_bilinear, (real(29, 32, 32),)),
        "covariance_512x64": (_covariance, (real(30, 512, 64),)),
        "median_63x256": (lambda x: jnp.median(x, 0), (real(31, 63, 256),)),
        "where_log_sum": (
            lambda x: jnp.where(x > 0, jnp.log(jnp.abs(x) + 1e-3), 0.0).sum(-1),
            (real(32, 128, 256),),
        ),
        "dct_64": (_dct, (real(33, 64, 64),)),
        "bf16_matmul_128": (jnp.matmul, (half, half)),
    }  # fmt: skip
    return {name: Timed(function, args) for name, (function, args) in table.items()}


# ---- models --------------------------------------------------------------------------------------
def gru(x: Any, w: Any, u: Any) -> Any:
    """64 steps of a GRU of 128."""

    def step(h: Any, row: Any) -> Any:
        (r, z, n), (ur, uz, un) = jnp.split(row, 3, -1), jnp.split(h @ u, 3, -1)
        z = jax.nn.sigmoid(z + uz)
        h = (1 - z) * jnp.tanh(n + jax.nn.sigmoid(r + ur) * un) + z * h
        return h, h

    return lax.scan(step, jnp.zeros((x.shape[1], u.shape[0])), x @ w)[1]


def lstm(x: Any, w: Any, u: Any) -> Any:
    """32 steps of an LSTM of 128, batch 8."""

    def step(state: Any, row: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(row + h @ u, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    start = jnp.zeros((x.shape[1], u.shape[0]))
    return lax.scan(step, (start, start), x @ w)[1]


def gnn(x: Any, to: Any, of: Any, w: Any, v: Any) -> Any:
    """Two layers of message passing over 2,048 edges."""
    for weight in (w, v):
        x = jax.nn.relu(jax.ops.segment_sum((x @ weight)[of], to, x.shape[0]))
    return x


def dlrm(dense: Any, ids: Any, tables: Any, w: Any, v: Any) -> Any:
    """Eight embeddings, their products, and two layers."""
    rows = [t[i] for t, i in zip(tables, ids.T, strict=True)]
    parts = jnp.stack([jax.nn.relu(dense @ w), *rows], 1)
    pairs = jnp.einsum("bij,bkj->bik", parts, parts).reshape(dense.shape[0], -1)
    return jax.nn.sigmoid(pairs @ v)


def stencil(x: Any) -> Any:
    """Six Jacobi steps on a padded grid."""
    for _ in range(6):
        p = jnp.pad(x, 1)
        x = 0.25 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:])
    return x


def decode(q: Any, k: Any, v: Any, cache: Any, at: Any) -> Any:
    """A token's attention of two layers over a stacked cache [layer, kv, head, token, size]."""
    for number in range(cache.shape[0]):
        new = jnp.stack([k[number], v[number]])[None, :, :, None]
        cache = lax.dynamic_update_slice(cache, new, (number, 0, 0, at, 0))
        keys, values = cache[number]
        scores = jnp.einsum("hd,htd->ht", q[number], keys)
        scores = jnp.where(jnp.arange(keys.shape[1]) <= at, scores, -1e9)
        q = q.at[(number + 1) % 2].add(jnp.einsum("ht,htd->hd", jax.nn.softmax(scores), values))
    return q, cache


def kmeans(x: Any, centres: Any) -> Any:
    """Two rounds of Lloyd's algorithm."""
    for _ in range(2):
        away = (x**2).sum(1)[:, None] - 2 * x @ centres.T + (centres**2).sum(1)
        near = jax.nn.one_hot(away.argmin(1), centres.shape[0], dtype=jnp.float32)
        centres = near.T @ x / (near.sum(0)[:, None] + 1e-6)
    return centres


def fir(x: Any, taps: Any) -> Any:
    """A bank of filters of 64 taps over signals."""
    return lax.conv_general_dilated(x[:, None], taps[:, None], (1,), "VALID")


def models() -> dict[str, Timed]:
    """The models, of a tenth of a millisecond to some."""
    table: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "gru": (gru, (real(0, 64, 4, 128), real(1, 128, 384), real(2, 128, 384))),
        "lstm": (lstm, (real(3, 32, 8, 128), real(4, 128, 512), real(5, 128, 512))),
        "gnn": (
            gnn,
            (real(6, 256, 64), integers(7, 256, 2048), integers(8, 256, 2048),
             real(9, 64, 64), real(10, 64, 64)),
        ),
        "dlrm": (
            dlrm,
            (real(11, 64, 13), integers(12, 500, 64, 8),
             [real(13 + i, 500, 32) for i in range(8)], real(30, 13, 32), real(31, 81, 1)),
        ),
        "stencil": (stencil, (real(32, 256, 256),)),
        "decode": (
            decode,
            (real(33, 2, 8, 64), real(34, 2, 8, 64), real(35, 2, 8, 64),
             real(36, 2, 2, 8, 512, 64), jnp.int32(300)),
        ),
        "kmeans": (kmeans, (real(37, 2048, 16), real(38, 32, 16))),
        "fir": (fir, (real(39, 4, 4096), real(40, 8, 64))),
    }  # fmt: skip
    return {n: Timed(function, args, options=LIMIT) for n, (function, args) in table.items()}
