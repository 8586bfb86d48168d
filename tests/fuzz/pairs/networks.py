"""Convolutions: norms, scales, pools, strides, dilation and windows around them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from .catalogue import Pair, Sizes, pair, real
from .merges import convolve

FORM = ("NHWC", "HWIO", "NHWC")


def valid(x: jax.Array, w: jax.Array, stride: int = 1, dilation: int = 1) -> jax.Array:
    """A convolution without padding."""
    return lax.conv_general_dilated(
        x,
        w,
        (stride, stride),
        "VALID",
        rhs_dilation=(dilation, dilation),
        dimension_numbers=FORM,
    )


@pair("batch norms folded into filters; Jacob et al., CVPR 2018, 3.2")
def batch_norm_into_filter(n: Sizes) -> Pair:
    """The scale behind a convolution goes into its weights ahead of time."""

    def naive(x: jax.Array, w: jax.Array, scale: jax.Array, shift: jax.Array) -> jax.Array:
        return jax.nn.relu(convolve(x, w) * scale + shift)

    return Pair(
        naive,
        lambda x, w, scale, shift: jax.nn.relu(convolve(x, w * scale) + shift),
        (real(1, 56, 56, n(64)), real(3, 3, n(64), n(64)), real(n(64)), real(n(64))),
        ("w", "scale", "shift"),
    )


@pair("scales in front of a convolution, cross-layer equalization, Nagel et al., ICCV 2019")
def scale_before_filter(n: Sizes) -> Pair:
    """Channels scaled in front of a convolution: the scale goes into its weights."""
    return Pair(
        lambda x, w, s: convolve(x * s, w),
        lambda x, w, s: convolve(x, w * s[:, None]),
        (real(1, 56, 56, n(64)), real(1, 1, n(64), n(64)), real(n(64))),
        ("w", "s"),
    )


@pair("class activation maps, Zhou et al., CVPR 2016: pool, then classify")
def pooled_then_classified(n: Sizes) -> Pair:
    """The mean over an image of a 1×1 convolution."""
    return Pair(
        lambda x, w: convolve(x, w).mean((1, 2)),
        lambda x, w: x.mean((1, 2)) @ w[0, 0],
        (real(4, 28, 28, n(256)), real(1, 1, n(256), n(512))),
    )


@pair("DenseNet's transition, pool before the 1×1 convolution; Huang et al., CVPR 2017")
def pool_before_pointwise(n: Sizes) -> Pair:
    """A 2×2 mean pool behind a 1×1 convolution: the pool first."""

    def pool(x: jax.Array) -> jax.Array:
        zero = jnp.zeros((), x.dtype)
        return lax.reduce_window(x, zero, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4

    return Pair(
        lambda x, w: pool(convolve(x, w)),
        lambda x, w: convolve(pool(x), w),
        (real(2, 56, 56, n(128)), real(1, 1, n(128), n(128))),
    )


@pair("nearest upsampling in front of a 1×1 convolution; feature pyramids, Lin et al., CVPR 2017")
def upsample_behind_pointwise(n: Sizes) -> Pair:
    """An image enlarged in front of a 1×1 convolution: enlarged behind it."""

    def larger(x: jax.Array) -> jax.Array:
        return jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2)

    return Pair(
        lambda x, w: convolve(larger(x), w),
        lambda x, w: larger(convolve(x, w)),
        (real(2, 28, 28, n(256)), real(1, 1, n(256), n(64))),
    )


@pair("strided reads of a convolution: a stride (the reverse of à trous, Holschneider et al. 1989)")
def strided_read(n: Sizes) -> Pair:
    """Every second pixel of a convolution."""
    return Pair(
        lambda x, w: valid(x, w)[:, ::2, ::2],
        lambda x, w: valid(x, w, stride=2),
        (real(1, 58, 58, n(64)), real(3, 3, n(64), n(64))),
    )


@pair("dilated convolutions, Yu and Koltun, ICLR 2016: a filter with zeros between")
def spread_filter(n: Sizes) -> Pair:
    """A filter spread out by zeros is a dilated one."""
    zero = 0.0

    def spread(w: jax.Array) -> jax.Array:
        return lax.pad(w, jnp.asarray(zero, w.dtype), [(0, 0, 1), (0, 0, 1), (0, 0, 0), (0, 0, 0)])

    return Pair(
        lambda x, w: valid(x, spread(w)),
        lambda x, w: valid(x, w, dilation=2),
        (real(1, 32, 32, n(64)), real(3, 3, n(64), n(64))),
    )


@pair("a window of a convolution, as tiled inference and receptive fields need it")
def window_of_convolution(n: Sizes) -> Pair:
    """Eight by eight pixels of a convolution read ten by ten of the image."""
    return Pair(
        lambda x, w: valid(x, w)[:, 4:12, 4:12],
        lambda x, w: valid(x[:, 4:14, 4:14], w),
        (real(1, 58, 58, n(128)), real(3, 3, n(128), n(128))),
    )


@pair("channels padded up to a multiple, as NCHWc layouts ask for; Enzyme-JAX#59 for convolutions")
def padded_channels(n: Sizes) -> Pair:
    """Channels of zeros take no part in a convolution."""
    c = n(64)
    return Pair(
        lambda x, w: valid(jnp.pad(x, ((0, 0), (0, 0), (0, 0), (0, c))), w),
        lambda x, w: valid(x, w[:, :, :c]),
        (real(1, 32, 32, c), real(3, 3, 2 * c, n(64))),
    )


@pair("low-rank convolutions in two 1×1 steps, Denton et al., NeurIPS 2014")
def pointwise_after_pointwise(n: Sizes) -> Pair:
    """Two 1×1 convolutions with a wide middle are one."""
    return Pair(
        lambda x, w, v: convolve(convolve(x, w), v),
        lambda x, w, v: convolve(x, jnp.einsum("rsck,uvkd->rscd", w, v)),
        (real(1, 56, 56, n(64)), real(1, 1, n(64), n(512)), real(1, 1, n(512), n(64))),
        ("w", "v"),
    )
