"""Work inside of loops that does not depend on the step, or not on the step before."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from .catalogue import Pair, Sizes, pair, real


@pair("input gates over time, Appleyard et al. 2016 (cuDNN), step 4; flax's OptimizedLSTMCell")
def gates_over_time(n: Sizes) -> Pair:
    """x W of a recurrent layer for all steps ahead of the scan."""

    def naive(x: jax.Array, w: jax.Array, u: jax.Array) -> jax.Array:
        def step(h: jax.Array, row: jax.Array) -> tuple[jax.Array, None]:
            return jnp.tanh(row @ w + h @ u), None

        return lax.scan(step, jnp.zeros((x.shape[1], u.shape[0]), x.dtype), x)[0]

    def better(x: jax.Array, w: jax.Array, u: jax.Array) -> jax.Array:
        def step(h: jax.Array, row: jax.Array) -> tuple[jax.Array, None]:
            return jnp.tanh(row + h @ u), None

        return lax.scan(step, jnp.zeros((x.shape[1], u.shape[0]), x.dtype), x @ w)[0]

    return Pair(naive, better, (real(n(64), 4, n(512)), real(n(512), n(64)), real(n(64), n(64))))


@pair("loop-invariant code motion, pytorch/xla#2084; XLA's while-loop-invariant-code-motion")
def invariant_in_scan(n: Sizes) -> Pair:
    """A product of two weights that every step computes anew."""

    def run(x: jax.Array, w: jax.Array) -> jax.Array:
        def step(h: jax.Array, row: jax.Array) -> tuple[jax.Array, None]:
            return jnp.tanh(h @ w + row), None

        return lax.scan(step, jnp.zeros_like(x[0]), x)[0]

    def naive(x: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
        def step(h: jax.Array, row: jax.Array) -> tuple[jax.Array, None]:
            return jnp.tanh(h @ (a @ b) + row), None

        return lax.scan(step, jnp.zeros_like(x[0]), x)[0]

    return Pair(
        naive,
        lambda x, a, b: run(x, a @ b),
        (real(16, 4, n(256)), real(n(256), n(256)), real(n(256), n(256))),
    )


@pair("XLA's while-loop-invariant-code-motion: a fori_loop whose body repeats itself")
def invariant_in_while(n: Sizes) -> Pair:
    """A function of a large input inside of a loop that only carries a vector."""

    def naive(x: jax.Array, h: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 16, lambda i, h: jnp.tanh(jnp.exp(x).sum(0) * 1e-3 + h), h)

    def better(x: jax.Array, h: jax.Array) -> jax.Array:
        s = jnp.exp(x).sum(0) * 1e-3
        return lax.fori_loop(0, 16, lambda i, h: jnp.tanh(s + h), h)

    return Pair(naive, better, (real(n(512), n(512)), real(n(512))))


@pair("gradient accumulation over a scan, as training loops write it; eqsat issue 16, J.7")
def products_added_in_scan(n: Sizes) -> Pair:
    """A carry to which a product is added at every step is one product with a longer k."""

    def naive(x: jax.Array, y: jax.Array) -> jax.Array:
        def step(total: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
            return total + now[0].T @ now[1], None

        start = jnp.zeros((x.shape[2], y.shape[2]), x.dtype)
        return lax.scan(step, start, (x, y))[0]

    return Pair(
        naive,
        lambda x, y: jnp.einsum("tmk,tmn->kn", x, y),
        (real(n(64), 8, n(256)), real(n(64), 8, n(256))),
    )


@pair("running sums in a scan of which the last is read; eqsat issue 16, J.7")
def sums_in_scan(n: Sizes) -> Pair:
    """A carry to which rows are added is a sum."""

    def naive(x: jax.Array) -> jax.Array:
        def step(total: jax.Array, row: jax.Array) -> tuple[jax.Array, None]:
            return total + jnp.exp(row), None

        return lax.scan(step, jnp.zeros_like(x[0]), x)[0]

    return Pair(naive, lambda x: jnp.exp(x).sum(0), (real(n(512), n(2048)),))


@pair("lax.map where vmap would do, jax-ml/jax's documentation of lax.map")
def map_over_rows(n: Sizes) -> Pair:
    """A loop over the batch of a product is a batched product."""
    return Pair(
        lambda x, w: lax.map(lambda row: row @ w, x),
        lambda x, w: x @ w,
        (real(n(128), n(512)), real(n(512), n(512))),
    )


@pair("outputs of a recurrent layer projected in every step; one product behind the scan")
def projection_in_scan(n: Sizes) -> Pair:
    """What a step returns beside its state is projected for all steps at once."""

    def run(x: jax.Array, u: jax.Array) -> jax.Array:
        def step(h: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
            h = jnp.tanh(h @ u + row)
            return h, h

        return lax.scan(step, jnp.zeros_like(x[0]), x)[1]

    def naive(x: jax.Array, u: jax.Array, v: jax.Array) -> jax.Array:
        def step(h: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
            h = jnp.tanh(h @ u + row)
            return h, h @ v

        return lax.scan(step, jnp.zeros_like(x[0]), x)[1]

    return Pair(
        naive,
        lambda x, u, v: run(x, u) @ v,
        (real(n(64), 4, n(64)), real(n(64), n(64)), real(n(64), n(512))),
    )
