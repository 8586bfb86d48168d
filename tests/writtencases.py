"""Functions that eqsat once computed wrongly, each of a few lines, with its arguments' shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Function = Callable[..., Any]
Shapes = tuple[tuple[int, ...], ...]
silu, softmax = jax.nn.silu, jax.nn.softmax


def positional(p: Any, y: Any, w: Any) -> Any:
    """NeRF's encoding: a concatenation with a reshaped part under a product."""
    a = (p[:, None, :] * jnp.array([1.0, 2.0, 4.0, 8.0])[:, None]).reshape(p.shape[0], -1)
    return jnp.concatenate([p, a, y], -1) @ w


def two_slices(x: Any, w: Any, v: Any) -> Any:
    y = x @ w
    return y[:, 16:], y[:, :16] @ v


def slice_and_whole(n: int) -> Function:
    """The first columns of a product beside all of it."""

    def function(x: Any, w: Any) -> Any:
        h = x @ w
        return h[:, :n] * 2, h

    return function


def gate(d: int, act: Function = silu) -> Function:
    def function(x: Any, w: Any) -> Any:
        h = x @ w
        return act(h[:, :d]) * h[:, d:]

    return function


def swiglu(d: int) -> Function:
    return lambda x, w, v: gate(d)(x, w) @ v


def fused_qkv(d: int) -> Function:
    """One product for queries, keys and values; the keys are a result."""

    def function(x: Any, w: Any, o: Any) -> Any:
        y = x @ w
        q, k, v = y[:, :d], y[:, d : 2 * d], y[:, 2 * d :]
        return softmax(q @ k.T) @ v @ o, k

    return function


def split_qkv(x: Any, w: Any) -> Any:
    q, k, v = jnp.split(x @ w, 3, -1)
    return softmax(q @ k.T * 0.1) @ v


def sampled(x: Any, w: Any, e: Any) -> Any:
    """A mean and a deviation of one product, as in a variational encoder."""
    h = x @ w
    mu, log = jnp.split(h, 2, -1)
    return mu + jnp.exp(0.5 * log) * e, mu, log


def two_heads(x: Any, w: Any) -> Any:
    h = x @ w
    return softmax(h[:, :10]), jnp.tanh(h[:, 10:])


def logits(x: Any, w: Any) -> Any:
    h = x @ w
    return h, h[:, :7].max(-1)


def cell(x: Any, w: Any, c: Any) -> Any:
    """The gates of an LSTM."""
    i, f, g, o = jnp.split(x @ w, 4, -1)
    s = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(s), s


def edge_of_einsum(x: Any, w: Any) -> Any:
    return jnp.pad(jnp.einsum("bij,bjk->ibk", x, w), ((1, 0), (0, 0), (0, 0)), mode="edge")


def edges_of_product(x: Any, w: Any) -> Any:
    return softmax(jnp.pad(x @ w, ((0, 0), (1, 2), (1, 1)), mode="edge"), 1)


def softmax_of_slice(x: Any, w: Any) -> Any:
    h = x @ w
    return softmax(h[..., :2], -1), h


def normed_by_query(x: Any, q: Any, w: Any) -> Any:
    """Products of one vector with keys that differ from row to row, normed, under a product."""
    found = q @ x
    return (found * jax.lax.rsqrt(jnp.mean(found * found, 1, keepdims=True) + 1e-5)) @ w


CASES: dict[str, tuple[Function, Shapes]] = {
    # nests of a whole result ran over the points of its slice
    "two slices": (two_slices, ((24, 32), (32, 48), (16, 32))),
    "slice and whole": (slice_and_whole(24), ((64, 32), (32, 48))),
    **{
        f"first {n} of {m}": (slice_and_whole(n), ((24, 16), (16, m)))
        for n, m in ((1, 33), (16, 40), (17, 49), (32, 100), (40, 65))
    },
    "gated layer": (swiglu(24), ((64, 32), (32, 48), (24, 32))),
    "gate of 100": (gate(100, jax.nn.sigmoid), ((16, 32), (32, 200))),
    "gated layer of 172": (swiglu(172), ((8, 24), (24, 344), (172, 24))),
    "queries, keys, values of 40": (fused_qkv(40), ((24, 32), (32, 120), (40, 40))),
    "queries, keys, values of 36": (split_qkv, ((20, 24), (24, 108))),
    "queries, keys, values of 100": (split_qkv, ((20, 24), (24, 300))),
    "mean and deviation": (sampled, ((16, 24), (24, 40), (16, 20))),
    "two heads": (two_heads, ((16, 24), (24, 50))),
    "logits and a slice": (logits, ((16, 24), (24, 50))),
    "gates of a cell": (cell, ((8, 12), (12, 80), (8, 20))),
    "softmax of a slice": (softmax_of_slice, ((4, 2, 33), (33, 33))),
    # a loop that occurs in bounds alone was no loop of its factor
    "stack under a product": (
        lambda x, w: jnp.stack([jnp.sin(x), jnp.cos(x)], 1) @ w, ((64, 32), (32, 48))),
    "positional encoding": (positional, ((256, 3), (256, 64), (79, 64))),
    "edge of an einsum": (edge_of_einsum, ((2, 65, 17), (2, 17, 16))),
    "edges of a product": (edges_of_product, ((56, 56, 2), (2, 56))),
    # a sum of products forgot which of them is chosen
    "sum of a stack": (lambda x, y: jnp.stack([x * 2, y * 2], 1).sum(1), ((17,), (17,))),
    "einsum over a stack": (
        lambda x, y, z: jnp.einsum("abc,eab->ae", jnp.stack([x * 2, y * 2], 2), z),
        ((3, 5), (3, 5), (4, 3, 5))),
    # a row block took the queries for the keys, where the product names them first
    "normed products of keys per row": (normed_by_query, ((15, 16, 3), (16,), (3, 60))),
    "normed products of many keys": (normed_by_query, ((15, 16, 33), (16,), (33, 33))),
    # a table that is unpacked in another shape than it is gathered from
    "rows of a product by number": (
        lambda x, w: jnp.take(x @ w, jnp.array([1, 0]), axis=2), ((2, 2, 2), (2, 2))),
    # the only place there is, and an index beyond it
    "an update beyond one place": (
        lambda x, y: x.at[(jnp.abs(y[0, :1]) < 0).astype(jnp.int32) + 1].add(y),
        ((1, 2), (1, 2))),
    # pieces of one buffer were blocks of different shapes (`pallas`)
    "roll of two rows": (lambda x: jnp.roll(x, -1, 1), ((3, 3, 2, 2),)),
    # a loop along two dims of a buffer has no block (`pallas`)
    "diagonal": (lambda x: jnp.diagonal(x, offset=-1), ((4, 3),)),
    "diagonals of a batch": (lambda x: jnp.diagonal(x) * 2, ((4, 4, 5),)),
}  # fmt: skip
