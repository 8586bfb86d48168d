"""Slices, pads, concats, broadcasts and reversals behind and in front of a contraction."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from .catalogue import Pair, Sizes, pair, real, whole


@pair("karpathy/nanoGPT#42, huggingface/transformers#38977, tenstorrent/tt-mlir#8811")
def last_token_logits(n: Sizes) -> Pair:
    """Logits of the last token: one row of the product."""
    return Pair(
        lambda h, w: (h @ w)[-1],
        lambda h, w: h[-1] @ w,
        (real(n(256), n(512)), real(n(512), n(4096))),
    )


@pair("TRL's num_logits_to_keep, huggingface/trl#2683")
def last_rows(n: Sizes) -> Pair:
    """The last rows of a batched product."""
    return Pair(
        lambda h, w: (h @ w)[:, -8:],
        lambda h, w: h[:, -8:] @ w,
        (real(4, n(256), n(512)), real(n(512), n(1024))),
    )


@pair("ROCm/AMDMIGraphX#3267: a slice of a GEMM's columns in RNNs")
def columns_of_product(n: Sizes) -> Pair:
    """Some columns of a product."""
    part = n(64)
    return Pair(
        lambda x, w: (x @ w)[:, :part],
        lambda x, w: x @ w[:, :part],
        (real(n(1024), n(512)), real(n(512), n(1024))),
    )


@pair("strided reads behind a dot; Enzyme-JAX issue 54, slice of dot_general")
def every_fourth_row(n: Sizes) -> Pair:
    """Every fourth row of a product."""
    return Pair(
        lambda x, w: (x @ w)[::4],
        lambda x, w: x[::4] @ w,
        (real(n(1024), n(512)), real(n(512), n(1024))),
    )


@pair("EnzymeAD/Enzyme-JAX#1811: patterns of slices also for dynamic slices")
def dynamic_rows(n: Sizes) -> Pair:
    """Eight rows of a product from a place that is known at run time."""
    return Pair(
        lambda x, w, i: lax.dynamic_slice_in_dim(x @ w, i, 8),
        lambda x, w, i: lax.dynamic_slice_in_dim(x, i, 8) @ w,
        (real(n(1024), n(512)), real(n(512), n(1024)), whole(8)),
    )


@pair("a slice of an elementwise layer over a product; vision transformers read the class token")
def first_row_of_layer(n: Sizes) -> Pair:
    """The class token behind a dense layer with its activation."""
    return Pair(
        lambda x, w, b: jax.nn.gelu(x @ w + b)[:, 0],
        lambda x, w, b: jax.nn.gelu(x[:, 0] @ w + b),
        (real(8, n(256), n(512)), real(n(512), n(1024)), real(n(1024))),
    )


@pair("attention of the last query, as decoders with a prompt need it; karpathy/nanoGPT#42")
def last_query(n: Sizes) -> Pair:
    """Attention of which only the last row is read."""

    def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return jax.nn.softmax(q @ k.T) @ v

    return Pair(
        lambda q, k, v: attention(q, k, v)[-1:],
        lambda q, k, v: attention(q[-1:], k, v),
        (real(n(2048), n(128)), real(n(2048), n(128)), real(n(2048), n(128))),
    )


@pair("XLA's algebraic simplifier and Enzyme-JAX#59: a pad in front of a dot")
def padded_then_cut(n: Sizes) -> Pair:
    """Operands rounded up to tiles, the result cut to size again."""
    m, k, w = n(512) + 1, n(512) + 1, n(512) + 1
    up = n(512) // 2 - 1
    return Pair(
        lambda x, y: (jnp.pad(x, ((0, up), (0, up))) @ jnp.pad(y, ((0, up), (0, up))))[:m, :w],
        lambda x, y: x @ y,
        (real(m, k), real(k, w)),
    )


@pair("EnzymeAD/Enzyme-JAX#59, dot_general of a pad along the summed dim")
def padded_along_k(n: Sizes) -> Pair:
    """A product with zeros along k reads only the rows of the weight that meet no zeros."""
    k = n(256)
    return Pair(
        lambda x, w: jnp.pad(x, ((0, 0), (0, 3 * k))) @ w,
        lambda x, w: x @ w[:k],
        (real(n(1024), k), real(4 * k, n(512))),
    )


@pair("EnzymeAD/Enzyme-JAX#59, dot_general of a pad along a free dim")
def padded_rows(n: Sizes) -> Pair:
    """Rows of zeros are padded behind the product."""
    m = n(256)
    return Pair(
        lambda x, w: jnp.pad(x, ((m, 2 * m), (0, 0))) @ w,
        lambda x, w: jnp.pad(x @ w, ((m, 2 * m), (0, 0))),
        (real(m, n(1024)), real(n(1024), n(512))),
    )


@pair("XLA's algebraic simplifier: a dot of a broadcast; JAX's vmap over a shared input")
def broadcast_operand(n: Sizes) -> Pair:
    """A product of a batch whose elements are all the same."""
    shape = (16, n(256), n(512))
    return Pair(
        lambda x, w: jnp.broadcast_to(x, shape) @ w,
        lambda x, w: jnp.broadcast_to(x @ w, (*shape[:2], w.shape[1])),
        (real(n(256), n(512)), real(n(512), n(512))),
    )


@pair("tiles of one batch, as beam search and classifier-free guidance make them")
def tiled_rows(n: Sizes) -> Pair:
    """Rows repeated four times: repeated behind the layer."""
    return Pair(
        lambda x, w: jnp.tanh(jnp.tile(x, (4, 1)) @ w),
        lambda x, w: jnp.tile(jnp.tanh(x @ w), (4, 1)),
        (real(n(256), n(512)), real(n(512), n(512))),
    )


@pair("nearest upsampling in front of a 1×1 convolution, feature pyramids, Lin et al., CVPR 2017")
def repeated_rows(n: Sizes) -> Pair:
    """Every row four times in turn: repeated behind the product."""
    return Pair(
        lambda x, w: jnp.repeat(x, 4, axis=0) @ w,
        lambda x, w: jnp.repeat(x @ w, 4, axis=0),
        (real(n(256), n(512)), real(n(512), n(512))),
    )


@pair("grouped queries, Ainslie et al., EMNLP 2023; AI-Hypercomputer/jetstream-pytorch#171")
def grouped_queries(n: Sizes) -> Pair:
    """Keys of 2 heads repeated for 8 of queries, against products per group."""
    t, d = n(8192), n(64)

    def better(q: jax.Array, k: jax.Array) -> jax.Array:
        return jnp.einsum("tgrd,sgd->tgrs", q.reshape(1, 2, 4, d), k).reshape(1, 8, t)

    return Pair(
        lambda q, k: jnp.einsum("thd,shd->ths", q, jnp.repeat(k, 4, axis=1)),
        better,
        (real(1, 8, d), real(t, 2, d)),
    )


@pair("TASO, Jia et al., SOSP 2019: a product with concatenated operands is a sum of products")
def concat_along_k(n: Sizes) -> Pair:
    """concat(x, y) w without the copy, where the result is narrow."""
    k = n(1024)
    return Pair(
        lambda x, y, w: jnp.concatenate([x, y], 1) @ w,
        lambda x, y, w: x @ w[:k] + y @ w[k:],
        (real(n(2048), k), real(n(2048), k), real(2 * k, 8)),
    )


@pair("conditioning by concatenation (CVAE, DCGAN): a row broadcast beside the features")
def concat_of_broadcast(n: Sizes) -> Pair:
    """One condition for all rows is projected once."""
    m, k = n(1024), n(512)
    return Pair(
        lambda x, c, w: jnp.concatenate([x, jnp.broadcast_to(c, (m, k))], 1) @ w,
        lambda x, c, w: x @ w[:k] + (c @ w[k:])[None, :],
        (real(m, k), real(k), real(2 * k, n(512))),
    )


@pair("graph attention, Veličković et al., ICLR 2018; pyg-team/pytorch_geometric#2029")
def scores_of_pairs(n: Sizes) -> Pair:
    """a · concat(h_i, h_j) for all pairs: two vectors, added as an outer sum."""
    t, d = n(256), n(64)

    def naive(h: jax.Array, a: jax.Array) -> jax.Array:
        left = jnp.broadcast_to(h[:, None, :], (t, t, d))
        right = jnp.broadcast_to(h[None, :, :], (t, t, d))
        return jnp.concatenate([left, right], -1) @ a

    return Pair(
        naive, lambda h, a: (h @ a[:d])[:, None] + (h @ a[d:])[None, :], (real(t, d), real(2 * d))
    )


@pair("relation networks, Santoro et al., NeurIPS 2017; ds4dm/learn2branch#4")
def layer_over_pairs(n: Sizes) -> Pair:
    """The first layer over concatenated pairs is a sum of two layers over the items."""
    t, d = n(128), n(64)

    def naive(h: jax.Array, w: jax.Array) -> jax.Array:
        left = jnp.broadcast_to(h[:, None, :], (t, t, d))
        right = jnp.broadcast_to(h[None, :, :], (t, t, d))
        return jax.nn.relu(jnp.concatenate([left, right], -1) @ w)

    return Pair(
        naive,
        lambda h, w: jax.nn.relu((h @ w[:d])[:, None, :] + (h @ w[d:])[None, :, :]),
        (real(t, d), real(2 * d, n(64))),
    )


@pair("a concat of which one part is read; XLA's slice of a concatenate, through a dot")
def concat_then_first_part(n: Sizes) -> Pair:
    """Rows of one input behind a product of two stacked inputs."""
    m = n(512)
    return Pair(
        lambda x, y, w: jnp.tanh(jnp.concatenate([x, y], 0) @ w)[:m],
        lambda x, y, w: jnp.tanh(x @ w),
        (real(m, n(512)), real(3 * m, n(512)), real(n(512), n(512))),
    )


@pair("Enzyme-JAX: reverses on both sides of a dot; XLA's reverse of a reverse")
def both_reversed(n: Sizes) -> Pair:
    """Both operands reversed along k."""
    return Pair(
        lambda x, w: x[:, ::-1] @ w[::-1],
        lambda x, w: x @ w,
        (real(n(2048), n(1024)), real(n(1024), 8)),
    )


@pair("EnzymeAD/Enzyme-JAX issue 54; eqsat issue 16, J.1: equal values across transposes")
def transposed_twin(n: Sizes) -> Pair:
    """(x w)ᵀ beside wᵀ xᵀ: one product."""

    def better(x: jax.Array, w: jax.Array) -> jax.Array:
        p = (x @ w).T
        return jnp.tanh(p) + p

    return Pair(
        lambda x, w: jnp.tanh((x @ w).T) + w.T @ x.T,
        better,
        (real(n(512), n(512)), real(n(512), n(512))),
    )


@pair("heads split before and after a projection; eqsat issue 16, J.1: across reshapes and splits")
def twin_by_heads(n: Sizes) -> Pair:
    """The same projection as a matrix and per head."""
    d = n(64)

    def naive(x: jax.Array, w: jax.Array) -> jax.Array:
        heads = jnp.einsum("tk,khd->thd", x, w.reshape(w.shape[0], 8, d))
        return jnp.tanh(x @ w) + heads.reshape(x.shape[0], 8 * d)

    def better(x: jax.Array, w: jax.Array) -> jax.Array:
        p = x @ w
        return jnp.tanh(p) + p

    return Pair(naive, better, (real(n(512), n(512)), real(n(512), 8 * d)))
