"""Products and convolutions that share an operand, or that are alike."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .catalogue import Pair, Sizes, pair, real


@pair("merged QKV of attention layers; XLA's dot merger")
def query_key_value(n: Sizes) -> Pair:
    """Three projections of one input by one product, weights joined ahead of time."""

    def better(x: jax.Array, q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(jnp.split(x @ jnp.concatenate([q, k, v], 1), 3, axis=1))

    weights = (real(n(512), n(512)),) * 3
    return Pair(
        lambda x, q, k, v: (x @ q, x @ k, x @ v),
        better,
        (real(n(64), n(512)), *weights),
        ("q", "k", "v"),
    )


@pair("gate and up projection of SwiGLU, Shazeer 2020; merged as vLLM's gate_up_proj")
def gate_and_up(n: Sizes) -> Pair:
    """Two projections of one input, multiplied."""

    def better(x: jax.Array, gate: jax.Array, up: jax.Array) -> jax.Array:
        both = x @ jnp.concatenate([gate, up], 1)
        g, u = jnp.split(both, 2, axis=1)
        return jax.nn.silu(g) * u

    return Pair(
        lambda x, gate, up: jax.nn.silu(x @ gate) * (x @ up),
        better,
        (real(n(128), n(512)), real(n(512), n(1024)), real(n(512), n(1024))),
        ("gate", "up"),
    )


@pair("XLA's dot merger: dots with the same operand on the right side")
def stacked_inputs(n: Sizes) -> Pair:
    """Eight inputs of a few rows go through one weight: stacked, it is read once."""
    rows, k, width = 8, n(1024), n(1024)

    def better(w: jax.Array, *xs: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(jnp.split(jnp.concatenate(xs) @ w, len(xs)))

    return Pair(
        lambda w, *xs: tuple(x @ w for x in xs),
        better,
        (real(k, width), *(real(rows, k) for _ in range(8))),
    )


@pair("heads in a Python loop, against one batched product; minGPT and many tutorials")
def heads_in_a_loop(n: Sizes) -> Pair:
    """A projection per head, joined afterwards."""
    heads, d = 8, n(64)

    def naive(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.concatenate([x @ w[i] for i in range(heads)], axis=1)

    def better(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.einsum("tk,hkd->thd", x, w).reshape(x.shape[0], heads * d)

    return Pair(naive, better, (real(n(128), n(512)), real(heads, n(512), d)), ("w",))


@pair("the output projection of attention as a sum over heads, Elhage et al. 2021")
def sum_over_heads(n: Sizes) -> Pair:
    """A sum of one product per head is one product with heads joined along k."""
    heads, d = 8, n(64)

    def naive(o: jax.Array, w: jax.Array) -> jax.Array:
        return sum((o[:, i] @ w[i] for i in range(1, heads)), start=o[:, 0] @ w[0])

    def better(o: jax.Array, w: jax.Array) -> jax.Array:
        return o.reshape(o.shape[0], heads * d) @ w.reshape(heads * d, w.shape[2])

    return Pair(naive, better, (real(n(256), heads, d), real(heads, d, n(512))))


@pair("TASO, Jia et al., SOSP 2019: parallel convolutions of one input; Inception's 1×1 branches")
def parallel_convolutions(n: Sizes) -> Pair:
    """Three 1×1 convolutions of one image by one."""
    weights = (real(1, 1, n(256), n(64)),) * 3

    def better(x: jax.Array, a: jax.Array, b: jax.Array, c: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(jnp.split(convolve(x, jnp.concatenate([a, b, c], 3)), 3, axis=3))

    return Pair(
        lambda x, a, b, c: (convolve(x, a), convolve(x, b), convolve(x, c)),
        better,
        (real(1, 14, 14, n(256)), *weights),
        ("a", "b", "c"),
    )


@pair("RepVGG, Ding et al., CVPR 2021: branches joined into one 3×3 filter")
def parallel_filters(n: Sizes) -> Pair:
    """A 3×3 and a 1×1 convolution that are added are one 3×3 convolution."""

    def better(x: jax.Array, w: jax.Array, v: jax.Array) -> jax.Array:
        return convolve(x, w + jnp.pad(v, ((1, 1), (1, 1), (0, 0), (0, 0))))

    return Pair(
        lambda x, w, v: convolve(x, w) + convolve(x, v),
        better,
        (real(1, 28, 28, n(64)), real(3, 3, n(64), n(64)), real(1, 1, n(64), n(64))),
        ("w", "v"),
    )


@pair("experts in a Python loop over all tokens, against one batched product")
def experts_in_a_loop(n: Sizes) -> Pair:
    """Gated experts that all see all tokens: weights are mixed per token, or products batched."""

    def naive(x: jax.Array, w: jax.Array, g: jax.Array) -> jax.Array:
        return sum((g[:, i, None] * (x @ w[i]) for i in range(1, 4)), g[:, 0, None] * (x @ w[0]))

    def better(x: jax.Array, w: jax.Array, g: jax.Array) -> jax.Array:
        scaled = (g[:, :, None] * x[:, None, :]).reshape(x.shape[0], -1)
        return scaled @ w.reshape(-1, w.shape[2])

    return Pair(naive, better, (real(n(256), n(256)), real(4, n(256), n(512)), real(n(256), 4)))


def convolve(x: jax.Array, w: jax.Array) -> jax.Array:
    """x [N, H, W, C] with w [R, S, C, K], padded to the same size."""
    from jax import lax

    return lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
