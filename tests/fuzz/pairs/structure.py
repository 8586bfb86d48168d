"""Diagonals, identities, rank one, Kronecker products and blocks; traces."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .catalogue import Pair, Sizes, pair, real


@pair("ScalingIntelligence/KernelBench#21 and #45: diag(a) @ b")
def diagonal_times_matrix(n: Sizes) -> Pair:
    """diag(d) x scales rows."""
    return Pair(
        lambda d, x: jnp.diag(d) @ x,
        lambda d, x: d[:, None] * x,
        (real(n(1024)), real(n(1024), n(1024))),
    )


@pair("cornellius-gp/gpytorch#991: a diagonal operand is multiplied elementwise")
def matrix_times_diagonal(n: Sizes) -> Pair:
    """x diag(d) scales columns."""
    return Pair(
        lambda x, d: x @ jnp.diag(d),
        lambda x, d: x * d,
        (real(n(1024), n(1024)), real(n(1024))),
    )


@pair("scales between two products, as an SVD is put together: u diag(s) vᵀ")
def diagonal_between(n: Sizes) -> Pair:
    """u diag(s) v with the scale on the smaller operand."""
    return Pair(
        lambda u, s, v: u @ jnp.diag(s) @ v,
        lambda u, s, v: (u * s) @ v,
        (real(n(512), n(1024)), real(n(1024)), real(n(1024), n(512))),
    )


@pair("jax-ml/jax#9215: the Jacobian of a linear function")
def jacobian_of_linear(n: Sizes) -> Pair:
    """jacfwd of w x multiplies w by an identity."""
    return Pair(
        lambda w, x: jax.jacfwd(lambda v: w @ v)(x),
        lambda w, x: w,
        (real(n(1024), n(1024)), real(n(1024))),
    )


@pair("regularised matrices, (a + λ I) x, in conjugate gradients")
def shifted_by_identity(n: Sizes) -> Pair:
    """(a + I) x is a x + x."""
    return Pair(
        lambda a, x: (a + jnp.eye(a.shape[0], dtype=a.dtype)) @ x,
        lambda a, x: a @ x + x,
        (real(n(1024), n(1024)), real(n(1024), 8)),
    )


@pair("Householder reflections, Golub and Van Loan, Matrix Computations, 5.1")
def householder(n: Sizes) -> Pair:
    """(I - u uᵀ) x by two products with a vector."""
    return Pair(
        lambda u, x: (jnp.eye(u.shape[0], dtype=u.dtype) - u[:, None] * u[None, :]) @ x,
        lambda u, x: x - u[:, None] * (u @ x)[None, :],
        (real(n(1024)), real(n(1024), n(256))),
    )


@pair("rank-one weights, BatchEnsemble, Wen et al., ICLR 2020")
def rank_one_times_matrix(n: Sizes) -> Pair:
    """(u vᵀ) x is u (vᵀ x)."""
    return Pair(
        lambda u, v, x: (u[:, None] * v[None, :]) @ x,
        lambda u, v, x: u[:, None] * (v @ x)[None, :],
        (real(n(1024)), real(n(1024)), real(n(1024), n(256))),
    )


@pair("BatchEnsemble, Wen et al., ICLR 2020, equation 5")
def rank_one_modulation(n: Sizes) -> Pair:
    """x (w ∘ r sᵀ) is ((x ∘ r) w) ∘ s: no second weight for a few rows."""
    return Pair(
        lambda x, w, r, s: x @ (w * (r[:, None] * s[None, :])),
        lambda x, w, r, s: ((x * r) @ w) * s,
        (real(8, n(2048)), real(n(2048), n(2048)), real(n(2048)), real(n(2048))),
    )


@pair("pymc-devs/pytensor#1043, stan-dev/math#393, JuliaArrays/LazyArrays.jl#65")
def kronecker_times_vector(n: Sizes) -> Pair:
    """(a ⊗ b) x is a X bᵀ."""
    return Pair(
        lambda a, b, x: jnp.kron(a, b) @ x,
        lambda a, b, x: (a @ x.reshape(a.shape[1], b.shape[1]) @ b.T).reshape(-1),
        (real(n(64), n(64)), real(n(64), n(64)), real(n(64) * n(64))),
    )


@pair("pymc-devs/pytensor#1090: dot of kron with the columns of a matrix")
def kronecker_times_matrix(n: Sizes) -> Pair:
    """(a ⊗ b) x for several columns."""

    def better(a: jax.Array, b: jax.Array, x: jax.Array) -> jax.Array:
        cube = x.reshape(a.shape[1], b.shape[1], x.shape[1])
        return jnp.einsum("ij,kl,jlc->ikc", a, b, cube, optimize="optimal").reshape(x.shape)

    return Pair(
        lambda a, b, x: jnp.kron(a, b) @ x,
        better,
        (real(n(32), n(32)), real(n(32), n(32)), real(n(32) * n(32), n(64))),
    )


@pair("SimplexLab/TorchJD#456 and monarch matrices, Dao et al., ICML 2022")
def block_diagonal_weight(n: Sizes) -> Pair:
    """A weight of four blocks on the diagonal: four small products."""
    k = n(256)

    def better(x: jax.Array, *blocks: jax.Array) -> jax.Array:
        parts = [x[:, i * k : (i + 1) * k] @ b for i, b in enumerate(blocks)]
        return jnp.concatenate(parts, axis=1)

    return Pair(
        lambda x, a, b, c, d: x @ jax.scipy.linalg.block_diag(a, b, c, d),
        better,
        (real(n(512), 4 * k), *(real(k, k) for _ in range(4))),
    )


@pair("pymc-devs/pytensor#2301, cornellius-gp/gpytorch#847 and #993")
def diagonal_of_product(n: Sizes) -> Pair:
    """diag(a b) is a row-wise dot product."""
    return Pair(
        lambda a, b: jnp.diagonal(a @ b),
        lambda a, b: (a * b.T).sum(1),
        (real(n(1024), n(256)), real(n(256), n(1024))),
    )


@pair("the trace of a product, Petersen and Pedersen, The Matrix Cookbook, 1.1")
def trace_of_product(n: Sizes) -> Pair:
    """tr(a b) is a sum of elementwise products."""
    return Pair(
        lambda a, b: jnp.trace(a @ b),
        lambda a, b: (a * b.T).sum(),
        (real(n(1024), n(512)), real(n(512), n(1024))),
    )


@pair("cyclic traces, Petersen and Pedersen, The Matrix Cookbook, 1.1")
def trace_of_three(n: Sizes) -> Pair:
    """tr(a b c) with c narrow: the small matrix c a first."""
    return Pair(
        lambda a, b, c: jnp.trace((a @ b) @ c),
        lambda a, b, c: ((c @ a) * b.T).sum(),
        (real(n(1024), 16), real(16, n(1024)), real(n(1024), n(1024))),
    )


@pair("differences by a matrix of ones beside the diagonal; sparse stencils as jnp.eye(k=1)")
def shift_matrix(n: Sizes) -> Pair:
    """A matrix with ones above its diagonal moves rows up by one."""
    return Pair(
        lambda x: jnp.eye(x.shape[0], k=1, dtype=x.dtype) @ x,
        lambda x: jnp.pad(x[1:], ((0, 1), (0, 0))),
        (real(n(1024), n(512)),),
    )


@pair("centring matrices I - 1 1ᵀ / n, Gretton et al., ALT 2005 (HSIC)")
def centring_matrix(n: Sizes) -> Pair:
    """(I - 1 1ᵀ / n) x takes the mean off the columns."""
    m = n(1024)
    return Pair(
        lambda x: (jnp.eye(m, dtype=x.dtype) - jnp.full((m, m), 1.0 / m, x.dtype)) @ x,
        lambda x: x - x.mean(0),
        (real(m, n(256)),),
    )
