"""Recurrent layers, state-space models and other programs of few large ops; random weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from peerattention import dense
from peergraph import INT64, Array, Written
from peernets import model


# ---- loops --------------------------------------------------------------------------------------
@model((64, 1, 512))
def gru(x: Any, w: Any) -> Any:
    """A GRU (Cho et al. 2014) of 512 over 64 steps; the input's products are ahead of the loop."""
    rows, u, shift = dense(x, w, 1536), w(512, 1536), w(1536)

    def step(h: Any, row: Any) -> Any:
        (r, z, n), (ur, uz, un) = jnp.split(row, 3, -1), jnp.split(h @ u + shift, 3, -1)
        z = jax.nn.sigmoid(z + uz)
        h = (1 - z) * jnp.tanh(n + jax.nn.sigmoid(r + ur) * un) + z * h
        return h, h

    return lax.scan(step, jnp.zeros((1, 512)), rows)[1]


def gru_natural(ops: Written, xs: Sequence[str], weights: Sequence[Array]) -> list[str]:
    """The op `GRU`, whose gates are in the order z, r, n."""
    order = [1, 0, 2]
    w, b, u, shift = (_gates(x, order) for x in weights)
    y = ops("GRU", xs[0], w[None], u[None], np.concatenate([b, shift])[None],
            hidden_size=512, linear_before_reset=1)  # fmt: skip
    return [ops("Squeeze", y, np.array([1]))]


def _gates(x: Array, order: Sequence[int]) -> Array:
    """Parts of the last dim in another order, matrices [out, in]."""
    parts = np.split(x, len(order), -1)
    return np.concatenate([parts[i] for i in order], -1).T


@model((64, 8, 256))
def lstm8(x: Any, w: Any) -> Any:
    """An LSTM (Hochreiter & Schmidhuber 1997) of 256, batch 8; all its products are in the loop."""
    u, v, shift = w(256, 1024), w(256, 1024), w(1024)

    def step(state: Any, row: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(row @ u + h @ v + shift, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(step, (jnp.zeros((8, 256)),) * 2, x)[1]


def lstm8_natural(ops: Written, xs: Sequence[str], weights: Sequence[Array]) -> list[str]:
    """The op `LSTM`, whose gates are in the order i, o, f, g."""
    u, v, shift = (_gates(x, [0, 3, 1, 2]) for x in weights)
    both = np.concatenate([shift, np.zeros_like(shift)])[None]
    y = ops("LSTM", xs[0], u[None], v[None], both, hidden_size=256)
    return [ops("Squeeze", y, np.array([1]))]


@model((128, 256))
def mamba(x: Any, w: Any) -> Any:
    """A block of Mamba (Gu & Dao 2023): 128 places, 512 channels of 16 states."""
    u, gate = jnp.split(x @ w(256, 1024), 2, -1)
    u = lax.conv_general_dilated(
        u[None], w(4, 1, 512), (1,), [(3, 0)], feature_group_count=512,
        dimension_numbers=("NWC", "WIO", "NWC"),
    )[0]  # fmt: skip
    u = jax.nn.silu(u + w(512))
    dt, b, c = jnp.split(u @ w(512, 48), [16, 32], -1)
    dt = jax.nn.softplus(dense(dt, w, 512))
    decay = -jnp.exp(w(512, 16))

    def step(h: Any, row: Any) -> Any:
        dt, b, c, u = row
        h = jnp.exp(dt[:, None] * decay) * h + (dt * u)[:, None] * b
        return h, h @ c

    y = lax.scan(step, jnp.zeros((512, 16)), (dt, b, c, u))[1]
    return ((y + u * w(512)) * jax.nn.silu(gate)) @ w(512, 256)


# ---- data ---------------------------------------------------------------------------------------
@model((8192, 32), (64, 32))
def kmeans(x: Any, centres: Any) -> Any:
    """Two rounds of Lloyd's algorithm."""
    for _ in range(2):
        away = (x**2).sum(1)[:, None] - 2 * x @ centres.T + (centres**2).sum(1)
        near = jax.nn.one_hot(away.argmin(1), 64, dtype="float32")
        centres = near.T @ x / (near.sum(0)[:, None] + 1e-6)
    return centres


def kmeans_natural(ops: Written, xs: Sequence[str], weights: Sequence[Array]) -> list[str]:
    x, centres = xs
    far = ops("ReduceSumSquare", x, np.array([1]))
    for _ in range(2):
        near = ops("MatMul", x, ops("Transpose", centres, perm=[1, 0]))
        away = ops("Sub", far, ops("Mul", near, np.array(2, "f4")))
        away = ops("Add", away, ops("ReduceSumSquare", centres, np.array([1]), keepdims=0))
        which = ops("ArgMin", away, axis=1, keepdims=0)
        hot = ops("OneHot", which, np.array([64]), np.array([0, 1], "f4"))
        total = ops("MatMul", ops("Transpose", hot, perm=[1, 0]), x)
        count = ops("Unsqueeze", ops("ReduceSum", hot, np.array([0]), keepdims=0), np.array([1]))
        centres = ops("Div", total, ops("Add", count, np.array(1e-6, "f4")))
    return [centres]


@model((128, 13), np.random.default_rng(2).integers(0, 2000, (128, 8)).astype("i4"))
def dlrm(numbers: Any, ids: Any, w: Any) -> Any:
    """DLRM (Naumov et al. 2019): eight tables, products of all pairs, two stacks of layers."""
    x = numbers
    for width in (256, 128, 64):
        x = jax.nn.relu(dense(x, w, width))
    rows = [40 * w(2000, 64)[ids[:, t]] for t in range(8)]
    parts = jnp.stack([x, *rows], 1)
    pairs = jnp.einsum("bid,bjd->bij", parts, parts)
    below = np.tril_indices(9, -1)
    x = jnp.concatenate([x, pairs[:, below[0], below[1]]], 1)
    for width in (512, 256):
        x = jax.nn.relu(dense(x, w, width))
    return jax.nn.sigmoid(dense(x, w, 1))


def edges(number: int) -> Any:
    return np.random.default_rng(number).integers(0, 1024, 8192).astype("i4")


@model((1024, 64), edges(3), edges(4))
def gnn(x: Any, to: Any, of: Any, w: Any) -> Any:
    """Two layers of a graph convolution (Kipf & Welling 2017) over 8,192 edges."""
    for _ in range(2):
        x = jax.nn.relu(jax.ops.segment_sum(dense(x, w, 64)[of], to, 1024))
    return x


def gnn_natural(ops: Written, xs: Sequence[str], weights: Sequence[Array]) -> list[str]:
    x, to, of = xs
    places = ops("Unsqueeze", ops("Cast", to, to=INT64), np.array([1]))
    for w, b in zip(weights[::2], weights[1::2], strict=True):
        rows = ops("Gather", ops("Add", ops("MatMul", x, w), b), of)
        zeros = np.zeros((1024, 64), "f4")
        x = ops("Relu", ops("ScatterND", zeros, places, rows, reduction="add"))
    return [x]


def _added(ops: Written, xs: Sequence[str], shapes: Any) -> list[str]:
    """Rows that are added to places [edges, 1] of a matrix."""
    into, places, rows = xs
    wide = ops("Cast", places, to=INT64)
    return [ops("ScatterND", into, wide, rows, reduction="add")]


gnn_ops = {"scatter-add": _added}


def waves(x: Any, count: int) -> Any:
    """x and the sines and cosines of its multiples by powers of two."""
    angles = (x[:, None, :] * (2.0 ** np.arange(count, dtype="f4"))[:, None]).reshape(len(x), -1)
    return jnp.concatenate([x, jnp.sin(angles), jnp.cos(angles)], -1)


@model((4096, 3), (4096, 3))
def nerf(places: Any, ways: Any, w: Any) -> Any:
    """The network of NeRF (Mildenhall et al. 2020) on 4,096 places: a density and a colour."""
    p = x = waves(places, 10)
    for layer in range(8):
        x = jax.nn.relu(dense(x, w, 256))
        if layer == 4:
            x = jnp.concatenate([x, p], -1)
    density = jax.nn.relu(dense(x, w, 1))
    seen = jnp.concatenate([dense(x, w, 256), waves(ways, 4)], -1)
    colour = jax.nn.sigmoid(dense(jax.nn.relu(dense(seen, w, 128)), w, 3))
    return jnp.concatenate([density, colour], -1)


# ---- signals ------------------------------------------------------------------------------------
@model((384, 640), (384, 640))
def stencil(x: Any, right: Any) -> Any:
    """Ten steps of Jacobi's method for Poisson's equation, zero beside the grid."""
    for _ in range(10):
        p = jnp.pad(x, 1)
        x = 0.25 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] + right)
    return x


@model((4, 1, 16384))
def fir(x: Any, w: Any) -> Any:
    """A bank of eight filters of 64 taps over four signals."""
    return lax.conv_general_dilated(x, w(8, 1, 64), (1,), "VALID")
