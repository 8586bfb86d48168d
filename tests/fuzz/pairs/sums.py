"""Sums, factors and divisions around contractions."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .catalogue import Pair, Sizes, pair, real


@pair("XLA's algebraic simplifier: a reduce of a dot; eqsat issue 16, J.4")
def sum_of_product(n: Sizes) -> Pair:
    """Row sums of a product: the sum moves into the operand that has the loop."""
    return Pair(
        lambda x, w: (x @ w).sum(1),
        lambda x, w: x @ w.sum(1),
        (real(n(2048), n(512)), real(n(512), n(1024))),
    )


@pair("sum over all of a product; Enzyme-JAX issue 54, sum reduce")
def sum_of_all(n: Sizes) -> Pair:
    """The sum of all elements of a product is a product of two vectors."""
    return Pair(
        lambda x, w: (x @ w).sum(),
        lambda x, w: x.sum(0) @ w.sum(1),
        (real(n(2048), n(512)), real(n(512), n(1024))),
    )


@pair("Kipf et al. and sentence encoders: pool, then project; eqsat issue 16, J.2")
def mean_then_project(n: Sizes) -> Pair:
    """Mean over tokens of projected tokens: the mean first, one row per sentence."""
    return Pair(
        lambda x, w: (x @ w).mean(1),
        lambda x, w: x.mean(1) @ w,
        (real(8, n(256), n(512)), real(n(512), n(512))),
    )


@pair("TASO, Jia et al., SOSP 2019: distributivity of matmul over addition")
def common_left(n: Sizes) -> Pair:
    """x w + x v has one product."""
    return Pair(
        lambda x, w, v: x @ w + x @ v,
        lambda x, w, v: x @ (w + v),
        (real(n(1024), n(512)), real(n(512), n(512)), real(n(512), n(512))),
    )


@pair("TASO, Jia et al., SOSP 2019: distributivity of matmul over addition")
def common_right(n: Sizes) -> Pair:
    """x w + y w has one product."""
    return Pair(
        lambda x, y, w: x @ w + y @ w,
        lambda x, y, w: (x + y) @ w,
        (real(n(512), n(512)), real(n(512), n(512)), real(n(512), n(1024))),
    )


@pair("contrastive scores of two items, user · a - user · b (BPR, Rendle et al., UAI 2009)")
def common_in_difference(n: Sizes) -> Pair:
    """x w - y w has one product."""
    return Pair(
        lambda x, y, w: x @ w - y @ w,
        lambda x, y, w: (x - y) @ w,
        (real(n(512), n(512)), real(n(512), n(512)), real(n(512), n(1024))),
    )


@pair("CondConv, Yang et al., NeurIPS 2019: mix the experts' weights, not their results")
def mixture_of_weights(n: Sizes) -> Pair:
    """A weighted sum of products with one input is a product with the weighted sum."""
    return Pair(
        lambda x, w, g: jnp.einsum("e,etn->tn", g, jnp.einsum("tk,ekn->etn", x, w)),
        lambda x, w, g: x @ jnp.einsum("e,ekn->kn", g, w),
        (real(n(512), n(512)), real(8, n(512), n(512)), real(8)),
    )


@pair("FlashAttention, Dao et al., NeurIPS 2022: rows are divided once, at the end")
def deferred_division(n: Sizes) -> Pair:
    """Softmax's division by row sums after the product, where rows are shorter."""

    def naive(s: jax.Array, v: jax.Array) -> jax.Array:
        e = jnp.exp(s - s.max(1, keepdims=True))
        return (e / e.sum(1, keepdims=True)) @ v

    def better(s: jax.Array, v: jax.Array) -> jax.Array:
        e = jnp.exp(s - s.max(1, keepdims=True))
        return (e @ v) / e.sum(1, keepdims=True)

    return Pair(naive, better, (real(n(2048), n(2048)), real(n(2048), n(64))))


@pair("XLA's algebraic simplifier: scalar multiplies move to the smaller side of a dot")
def scalar_on_larger_operand(n: Sizes) -> Pair:
    """A scalar factor of a large operand is applied to the small result."""
    return Pair(
        lambda x, w, s: (x * s) @ w,
        lambda x, w, s: (x @ w) * s,
        (real(n(4096), n(1024)), real(n(1024), 8), real()),
    )


@pair("XLA's algebraic simplifier: a scale of a dot's result moves to the smaller operand")
def scalar_on_larger_result(n: Sizes) -> Pair:
    """A scalar factor of a large result with rows of 16 is applied to an operand."""
    return Pair(
        lambda q, k, s: jnp.tanh(q @ k.T) @ jnp.tanh((q @ k.T) * s).T,
        lambda q, k, s: jnp.tanh(q @ k.T) @ jnp.tanh((q * s) @ k.T).T,
        (real(n(512), 16), real(n(4096), 16), real()),
    )


@pair("graph convolutions with D⁻¹ A X W, Kipf and Welling, ICLR 2017")
def row_scale_behind(n: Sizes) -> Pair:
    """Rows of a wide operand are scaled in the narrow result."""
    return Pair(
        lambda x, w, r: (x * r[:, None]) @ w,
        lambda x, w, r: (x @ w) * r[:, None],
        (real(n(4096), n(1024)), real(n(1024), 8), real(n(4096))),
    )


@pair("the shift of softmax cancels; XLA's algebraic simplifier folds what is subtracted twice")
def softmax_shift(n: Sizes) -> Pair:
    """A number per row added in front of a softmax changes nothing."""
    return Pair(
        lambda x, c: jax.nn.softmax(x + (x @ c)[:, None]),
        lambda x, c: jax.nn.softmax(x),
        (real(n(2048), n(512)), real(n(512))),
    )


@pair("one-pass moments, as fast layer norms take them (Flax's use_fast_variance)")
def variance_in_one_pass(n: Sizes) -> Pair:
    """Variance as the mean of squares less the square of the mean."""
    return Pair(
        lambda x: ((x - x.mean(0)) ** 2).mean(0),
        lambda x: (x * x).mean(0) - x.mean(0) ** 2,
        (real(n(4096), n(1024)),),
    )


@pair("scikit-learn's euclidean_distances: |x|² - 2 x·y + |y|²")
def squared_distances(n: Sizes) -> Pair:
    """All squared distances by one product."""
    return Pair(
        lambda x, y: ((x[:, None, :] - y[None, :, :]) ** 2).sum(-1),
        lambda x, y: (x * x).sum(1)[:, None] - 2 * (x @ y.T) + (y * y).sum(1)[None, :],
        (real(n(512), n(64)), real(n(512), n(64))),
    )


@pair("factorization machines, Rendle, ICDM 2010, equation 5")
def pairwise_interactions(n: Sizes) -> Pair:
    """The sum over all pairs of features of their inner products is a square of a sum."""
    return Pair(
        lambda v: jnp.einsum("bik,bjk->b", v, v),
        lambda v: (v.sum(1) ** 2).sum(-1),
        (real(n(512), n(128), n(64)),),
    )


@pair("outer products summed; XLA's reduce of a broadcast")
def sum_of_outer(n: Sizes) -> Pair:
    """Row sums of an outer product are a vector times a sum."""
    return Pair(
        lambda u, v: (u[:, None] * v[None, :]).sum(1),
        lambda u, v: u * v.sum(),
        (real(n(4096)), real(n(4096))),
    )


@pair("norms of LoRA's change of weights, as DoRA needs them (Liu et al., ICML 2024)")
def norm_of_low_rank(n: Sizes) -> Pair:
    """The Frobenius norm of a b from two small Gram matrices."""
    return Pair(
        lambda a, b: ((a @ b) ** 2).sum(),
        lambda a, b: ((a.T @ a) * (b @ b.T)).sum(),
        (real(n(2048), 16), real(16, n(2048))),
    )


@pair("jax.grad of a sum of a product; JAX's autodiff writes a broadcast one")
def gradient_of_sum(n: Sizes) -> Pair:
    """A contraction with ones is a sum, and its columns are all the same."""
    return Pair(
        lambda x, w: jax.grad(lambda v: (x @ v).sum())(w),
        lambda x, w: jnp.broadcast_to(x.sum(0)[:, None], w.shape),
        (real(n(2048), n(512)), real(n(512), n(512))),
    )


@pair("TASO, Jia et al., SOSP 2019: a product with a concatenated operand")
def repeated_operand(n: Sizes) -> Pair:
    """concat(x, x) w is x times the sum of the halves of w."""
    half = n(512)
    return Pair(
        lambda x, w: jnp.concatenate([x, x], 1) @ w,
        lambda x, w: x @ (w[:half] + w[half:]),
        (real(n(1024), half), real(2 * half, n(512))),
    )
