"""Gathers, one-hots, updates, and reductions of what was moved or repeated."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from .catalogue import Input, Pair, Sizes, pair, real, whole


@pair("ALBERT's factorized embedding, Lan et al., ICLR 2020")
def embedding_then_project(n: Sizes) -> Pair:
    """(table w)[ids] projects the rows that are read only."""
    return Pair(
        lambda table, w, ids: (table @ w)[ids],
        lambda table, w, ids: table[ids] @ w,
        (real(n(8192), n(128)), real(n(128), n(512)), whole(n(8192), n(128))),
    )


@pair("BERT's gather_indexes in front of its masked language model, google-research/bert")
def masked_positions(n: Sizes) -> Pair:
    """A dense layer of which a few positions are read."""
    return Pair(
        lambda x, w, b, ids: jax.nn.gelu(x @ w + b)[ids],
        lambda x, w, b, ids: jax.nn.gelu(x[ids] @ w + b),
        (real(n(1024), n(512)), real(n(512), n(512)), real(n(512)), whole(n(1024), n(64))),
    )


@pair("embedding tables kept in bf16; jax-ml/jax#3206, what is around a take is not fused")
def converted_table(n: Sizes) -> Pair:
    """A table of bf16 is converted and scaled; few rows are read."""
    table = Input((n(16384), n(512)), dtype="bfloat16")
    return Pair(
        lambda table, ids: (table.astype(jnp.float32) * 2.0)[ids],
        lambda table, ids: table[ids].astype(jnp.float32) * 2.0,
        (table, whole(n(16384), n(1024))),
    )


@pair("normalised embeddings, as nearest-neighbour search and word vectors look them up")
def normalised_table(n: Sizes) -> Pair:
    """Rows of a table divided by their norms; few rows are read."""

    def normalised(t: jax.Array) -> jax.Array:
        return t * lax.rsqrt((t * t).sum(-1, keepdims=True) + 1e-6)

    return Pair(
        lambda table, ids: normalised(table)[ids],
        lambda table, ids: normalised(table[ids]),
        (real(n(8192), n(512)), whole(n(8192), n(512))),
    )


@pair("permuted tables; XLA's and Enzyme-JAX's gather of a gather")
def gather_of_gather(n: Sizes) -> Pair:
    """Rows of permuted rows: the indices are looked up."""
    return Pair(
        lambda table, order, ids: table[order][ids],
        lambda table, order, ids: table[order[ids]],
        (real(n(4096), n(512)), whole(n(4096), n(4096)), whole(n(4096), n(2048))),
    )


@pair("sums per row, some of which are read; XLA's gather of a reduce")
def gather_of_sums(n: Sizes) -> Pair:
    """Row sums of a large matrix, few of which are read."""
    return Pair(
        lambda x, ids: (x * x).sum(1)[ids],
        lambda x, ids: (x[ids] ** 2).sum(1),
        (real(n(8192), n(1024)), whole(n(8192), n(512))),
    )


@pair("google-research/bert#1065, onnx/tensorflow-onnx#730, snowkylin/line#5")
def one_hot_embedding(n: Sizes) -> Pair:
    """A one-hot times a table is a look-up."""
    return Pair(
        lambda ids, table: jax.nn.one_hot(ids, table.shape[0], dtype=table.dtype) @ table,
        lambda ids, table: table[ids],
        (whole(n(2048), n(512)), real(n(2048), n(512))),
    )


@pair("cross entropy with one-hot labels; Optax's integer labels against one-hot ones")
def one_hot_pick(n: Sizes) -> Pair:
    """A logit per row picked from a product by a one-hot."""

    def naive(x: jax.Array, w: jax.Array, ids: jax.Array) -> jax.Array:
        return ((x @ w) * jax.nn.one_hot(ids, w.shape[1], dtype=w.dtype)).sum(-1)

    return Pair(
        naive,
        lambda x, w, ids: (x * w.T[ids]).sum(-1),
        (real(n(1024), n(256)), real(n(256), n(2048)), whole(n(2048), n(1024))),
    )


@pair("log-probabilities of labels, selective_log_softmax of huggingface/trl")
def label_of_log_softmax(n: Sizes) -> Pair:
    """One element per row of a log-softmax: the logit less the log of the sum."""

    def naive(x: jax.Array, ids: jax.Array) -> jax.Array:
        return jnp.take_along_axis(jax.nn.log_softmax(x), ids[:, None], 1, mode="clip")[:, 0]

    def better(x: jax.Array, ids: jax.Array) -> jax.Array:
        picked = jnp.take_along_axis(x, ids[:, None], 1, mode="clip")[:, 0]
        return picked - jax.nn.logsumexp(x, axis=1)

    return Pair(naive, better, (real(n(1024), n(4096)), whole(n(4096), n(1024))))


@pair("XLA's algebraic simplifier: a slice of a reduce; eqsat issue 16, J.3")
def slice_of_sums(n: Sizes) -> Pair:
    """Eight of many row sums."""
    return Pair(
        lambda x: jnp.exp(x).sum(1)[:8],
        lambda x: jnp.exp(x[:8]).sum(1),
        (real(n(4096), n(1024)),),
    )


@pair("softmax rows that are read; XLA's slices move above elementwise ops")
def slice_of_softmax(n: Sizes) -> Pair:
    """The last row of a softmax."""
    return Pair(
        lambda x: jax.nn.softmax(x)[-1:],
        lambda x: jax.nn.softmax(x[-1:]),
        (real(n(2048), n(2048)),),
    )


@pair("Enzyme-JAX issue 54 and XLA's algebraic simplifier: a reduce of a broadcast")
def sum_of_broadcast(n: Sizes) -> Pair:
    """The sum over a repeated dim is a multiple, behind a function that costs."""
    count = 16
    return Pair(
        lambda x: jnp.tanh(jnp.broadcast_to(x, (count, *x.shape))).sum(0),
        lambda x: jnp.tanh(x) * count,
        (real(n(1024), n(512)),),
    )


@pair("XLA's algebraic simplifier: a reduce of a broadcast by max")
def max_of_broadcast(n: Sizes) -> Pair:
    """The maximum over a repeated dim is the value."""
    count = 16
    return Pair(
        lambda x: jnp.tanh(jnp.broadcast_to(x, (count, *x.shape))).max(0),
        jnp.tanh,
        (real(n(1024), n(512)),),
    )


@pair("XLA's algebraic simplifier: a reduce of a pad with zeros")
def sum_of_pad(n: Sizes) -> Pair:
    """Zeros that are padded on add nothing."""
    width = n(1024)
    return Pair(
        lambda x: jnp.pad(x, ((0, 0), (width, width))).sum(1),
        lambda x: x.sum(1),
        (real(n(1024), width),),
    )


@pair("Enzyme-JAX's concat_reduce; XLA's reduce of a concatenate")
def sum_of_concat(n: Sizes) -> Pair:
    """The sum over concatenated inputs without the copy."""
    return Pair(
        lambda x, y: jnp.concatenate([x, y], 0).sum(0),
        lambda x, y: x.sum(0) + y.sum(0),
        (real(n(2048), n(1024)), real(n(2048), n(1024))),
    )


@pair("Enzyme-JAX: a function of a broadcast; XLA sinks broadcasts below elementwise ops")
def function_of_broadcast(n: Sizes) -> Pair:
    """exp and tanh of a row before it is repeated, not behind."""
    m = n(2048)
    return Pair(
        lambda x, y: jnp.exp(jnp.tanh(jnp.broadcast_to(x, (m, x.shape[0])))) @ y,
        lambda x, y: jnp.broadcast_to(jnp.exp(jnp.tanh(x)) @ y, (m, y.shape[1])),
        (real(n(1024)), real(n(1024), n(256))),
    )


@pair("XLA's algebraic simplifier: a dynamic-update-slice of its own slice")
def update_with_itself(n: Sizes) -> Pair:
    """A block written back to where it was read."""

    def naive(x: jax.Array, i: jax.Array) -> jax.Array:
        block = lax.dynamic_slice_in_dim(x, i, 8)
        return lax.dynamic_update_slice_in_dim(x, block, i, 0) + 1.0

    return Pair(naive, lambda x, i: x + 1.0, (real(n(4096), n(1024)), whole(8)))


@pair("a cache that is read where it was written; XLA's slice of a dynamic-update-slice")
def read_what_was_written(n: Sizes) -> Pair:
    """The block that was just written, read again from the large array."""

    def naive(x: jax.Array, u: jax.Array, i: jax.Array) -> jax.Array:
        written = lax.dynamic_update_slice_in_dim(x, u, i, 0)
        return jnp.tanh(lax.dynamic_slice_in_dim(written, i, u.shape[0]))

    return Pair(
        naive,
        lambda x, u, i: jnp.tanh(u),
        (real(n(4096), n(1024)), real(n(512), n(1024)), whole(8)),
    )
