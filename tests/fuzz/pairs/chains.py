"""Products of several operands, in a poor and in the best order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise

import jax
import jax.numpy as jnp

from .catalogue import Function, Pair, Sizes, pair, real

# rows and columns of the matrices; the orders are those of dynamic programming
FOUR = (1024, 64, 1024, 64, 1024)
FIVE = (512, 1024, 64, 1024, 512, 32)
SIX = (512, 64, 512, 128, 1024, 64, 512)
EIGHT = (512, 64, 512, 128, 1024, 64, 512, 256, 64)


def best_order(dims: Sequence[int]) -> Function:
    """A product of matrices in the order of fewest multiply-adds (dynamic programming)."""
    count = len(dims) - 1
    cost = {(i, i): 0 for i in range(count)}
    cut: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            price = {
                k: cost[i, k] + cost[k + 1, j] + dims[i] * dims[k + 1] * dims[j + 1]
                for k in range(i, j)
            }
            cut[i, j] = min(price, key=price.__getitem__)
            cost[i, j] = price[cut[i, j]]

    def product(*matrices: jax.Array) -> jax.Array:
        def part(i: int, j: int) -> jax.Array:
            return matrices[i] if i == j else part(i, cut[i, j]) @ part(cut[i, j] + 1, j)

        return part(0, count - 1)

    return product


def _chain(n: Sizes, dims: Sequence[int]) -> Pair:
    inputs = tuple(real(n(a), n(b)) for a, b in pairwise(dims))
    return Pair(lambda *ms: reduce(jnp.matmul, ms), best_order(dims), inputs)


@pair("PyTorch's and NumPy's multi_dot; pymc-devs/pytensor#2060")
def product_with_vector(n: Sizes) -> Pair:
    """(a b) v is a (b v)."""
    return Pair(
        lambda a, b, v: (a @ b) @ v,
        lambda a, b, v: a @ (b @ v),
        (real(n(1024), n(1024)), real(n(1024), n(1024)), real(n(1024))),
    )


@pair("LoRA, Hu et al., ICLR 2022")
def low_rank_weight(n: Sizes) -> Pair:
    """x (a b) is (x a) b where a is narrow."""
    return Pair(
        lambda x, a, b: x @ (a @ b),
        lambda x, a, b: (x @ a) @ b,
        (real(n(512), n(1024)), real(n(1024), 16), real(16, n(1024))),
    )


@pair("LoRA, Hu et al., ICLR 2022; peft's merged and unmerged adapters")
def low_rank_update(n: Sizes) -> Pair:
    """x (w + a b) for few rows: the update is not added to the weight."""
    return Pair(
        lambda x, w, a, b: x @ (w + a @ b),
        lambda x, w, a, b: x @ w + (x @ a) @ b,
        (real(8, n(2048)), real(n(2048), n(2048)), real(n(2048), 16), real(16, n(2048))),
    )


@pair("multi_dot of jax-ml/jax#2726, with its sizes halved")
def chain_of_four(n: Sizes) -> Pair:
    """Four matrices from left to right."""
    return _chain(n, FOUR)


@pair("matrix chain order, Cormen et al., Introduction to Algorithms, 15.2")
def chain_of_five(n: Sizes) -> Pair:
    """Five matrices from left to right."""
    return _chain(n, FIVE)


@pair("matrix chain order, Cormen et al., Introduction to Algorithms, 15.2; eqsat issue 16, J.5")
def chain_of_six(n: Sizes) -> Pair:
    """Six matrices from left to right."""
    return _chain(n, SIX)


@pair("jax-ml/jax#25051: multi_dot of many matrices; eqsat issue 16, J.5")
def chain_of_eight(n: Sizes) -> Pair:
    """Eight matrices from left to right."""
    return _chain(n, EIGHT)


@pair("opt_einsum, Smith and Gray, JOSS 2018: batched contractions")
def batched_chain(n: Sizes) -> Pair:
    """A chain of three in every element of a batch."""
    return Pair(
        lambda a, b, c: (a @ b) @ c,
        lambda a, b, c: a @ (b @ c),
        (real(8, n(256), n(256)), real(8, n(256), n(256)), real(8, n(256), 4)),
    )


@pair("linear attention, Katharopoulos et al., ICML 2020, equation 6")
def linear_attention(n: Sizes) -> Pair:
    """(q kᵀ) v is q (kᵀ v) without a softmax between."""
    return Pair(
        lambda q, k, v: jnp.einsum("hts,hsd->htd", jnp.einsum("htk,hsk->hts", q, k), v),
        lambda q, k, v: jnp.einsum("htk,hkd->htd", q, jnp.einsum("hsk,hsd->hkd", k, v)),
        (real(4, n(512), n(64)), real(4, n(512), n(64)), real(4, n(512), n(64))),
    )


@pair("normalised linear attention, Katharopoulos et al., ICML 2020, equation 5")
def normalised_linear_attention(n: Sizes) -> Pair:
    """Positive features, rows divided by their sums: two products in place of a square matrix."""

    def naive(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        scores = jnp.exp(q) @ jnp.exp(k).T
        return (scores @ v) / scores.sum(1, keepdims=True)

    def better(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        fq, fk = jnp.exp(q), jnp.exp(k)
        return (fq @ (fk.T @ v)) / (fq @ fk.sum(0))[:, None]

    return Pair(naive, better, (real(n(1024), n(64)), real(n(1024), n(64)), real(n(1024), n(64))))


@pair("Gauss-Newton products Jᵀ (J v), Schraudolph 2002; JAX's autodiff cookbook")
def gram_times_vector(n: Sizes) -> Pair:
    """(jᵀ j) v is two products with a vector."""
    return Pair(
        lambda j, v: (j.T @ j) @ v,
        lambda j, v: j.T @ (j @ v),
        (real(n(1024), n(512)), real(n(512))),
    )


@pair("matrix chains with diagonal scales between, as in D⁻½ A D⁻½ X W of graph convolutions")
def scaled_chain(n: Sizes) -> Pair:
    """a diag(d) b x with elementwise scales between: from the right."""
    return Pair(
        lambda a, d, b, x: ((a * d) @ b) @ x,
        lambda a, d, b, x: a @ (d[:, None] * (b @ x)),
        (real(n(1024), n(1024)), real(n(1024)), real(n(1024), n(1024)), real(n(1024), 8)),
    )


@pair("graph convolutions: transform before propagating, pyg-team and DGL's GraphConv")
def propagate_narrow(n: Sizes) -> Pair:
    """(A X) W is A (X W) where W makes rows shorter."""
    return Pair(
        lambda a, x, w: (a @ x) @ w,
        lambda a, x, w: a @ (x @ w),
        (real(n(1024), n(1024)), real(n(1024), n(512)), real(n(512), 16)),
    )


@pair("NumPy's einsum_path documentation: one loop nest against pairs of operands")
def einsum_of_four(n: Sizes) -> Pair:
    """A tensor of order three times a matrix per dim (Tucker): the narrowest matrix first."""
    return Pair(
        lambda g, a, b, c: jnp.einsum(
            "kjx,xc->kjc",
            jnp.einsum("jkx,jy->ykx", jnp.einsum("abc,ka->kbc", g, a).transpose(1, 0, 2), b)
            .transpose(1, 0, 2),
            c,
        ),
        lambda g, a, b, c: jnp.einsum(
            "abk,ja->jbk",
            jnp.einsum("abk,bj->ajk", jnp.einsum("abc,ck->abk", g, c), b),
            a,
        ),
        (real(n(64), n(64), n(64)), real(n(256), n(64)), real(n(64), n(64)), real(n(64), 4)),
    )  # fmt: skip


@pair("traces of products, the trace trick of Gaussian likelihoods; pymc-devs/pytensor#2301")
def quadratic_form(n: Sizes) -> Pair:
    """xᵀ (a b) x per row: the matrices are applied to the rows one after another."""
    return Pair(
        lambda x, a, b: jnp.einsum("ti,ij,tj->t", x, a @ b, x),
        lambda x, a, b: ((x @ a) * (x @ b.T)).sum(1),
        (real(16, n(512)), real(n(512), n(512)), real(n(512), n(512))),
    )
