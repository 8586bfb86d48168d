"""Small programs whose dispatches, or parts of them, kernels may have no plan for.

None was looked at while the price and the plans were made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from clockprograms import layer_norm
from jax import lax

Listed = dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    """An argument of this shape."""
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _conv(x: Any, w: Any, groups: int = 1, nhwc: bool = False, pads: str = "SAME") -> Any:
    names = ("NHWC", "HWIO", "NHWC") if nhwc else ("NCHW", "OIHW", "NCHW")
    return lax.conv_general_dilated(
        x, w, (1, 1), pads, dimension_numbers=names, feature_group_count=groups
    )


# ---- channels ------------------------------------------------------------------------------------
def _shuffled(x: Any, groups: int) -> Any:
    b, c, h, w = x.shape
    return x.reshape(b, groups, c // groups, h, w).swapaxes(1, 2).reshape(b, c, h, w)


def _shuffle_unit(x: Any, w: Any, d: Any, v: Any, groups: int = 2) -> Any:
    y = jax.nn.relu(_conv(x, w, groups))
    y = _conv(_shuffled(y, groups), d, x.shape[1])
    return jax.nn.relu(_conv(y, v, groups) + x)


def _unit_args(width: int, groups: int, size: int) -> tuple[Any, ...]:
    narrow = width // groups
    return (
        f32(1, width, size, size), f32(width, narrow, 1, 1), f32(width, 1, 3, 3),
        f32(width, narrow, 1, 1),
    )  # fmt: skip


def _squeezed(x: Any, w: Any, v: Any) -> Any:
    s = jax.nn.sigmoid(jax.nn.relu(x.mean((2, 3)) @ w) @ v)
    return _shuffled(x * s[:, :, None, None], 4)


# ---- pixels --------------------------------------------------------------------------------------
def _to_space(x: Any, r: int) -> Any:
    b, c, h, w = x.shape
    y = x.reshape(b, c // r**2, r, r, h, w).transpose(0, 1, 4, 2, 5, 3)
    return y.reshape(b, c // r**2, h * r, w * r)


def _to_depth(x: Any, r: int) -> Any:
    b, c, h, w = x.shape
    y = x.reshape(b, c, h // r, r, w // r, r).transpose(0, 1, 3, 5, 2, 4)
    return y.reshape(b, c * r**2, h // r, w // r)


def _to_space_nhwc(x: Any, r: int) -> Any:
    b, h, w, c = x.shape
    y = x.reshape(b, h, w, r, r, c // r**2).transpose(0, 1, 3, 2, 4, 5)
    return y.reshape(b, h * r, w * r, c // r**2)


def _nearest(x: Any, r: int, axes: tuple[int, int] = (2, 3)) -> Any:
    return jnp.repeat(jnp.repeat(x, r, axes[0]), r, axes[1])


def _espcn(x: Any, w: Any, v: Any) -> Any:
    return jnp.tanh(_to_space(_conv(jax.nn.relu(_conv(x, w)), v), 3))


def _super_resolution_nhwc(x: Any, w: Any, v: Any) -> Any:
    y = jax.nn.relu(_to_space_nhwc(_conv(x, w, nhwc=True), 2))
    return _conv(y, v, nhwc=True)


def _thrice(x: Any, w: Any) -> Any:
    return _conv(jnp.pad(_nearest(x, 3), ((0, 0), (0, 0), (2, 2), (2, 2))), w, pads="VALID")


def _checkerboard(x: Any, y: Any) -> Any:
    """Columns of two images by turns, then a smoothing product."""
    both = jnp.stack([x, y], -1).reshape(*x.shape[:-1], 2 * x.shape[-1])
    return jnp.pad(both, ((0, 0), (1, 1)))[:, :-1]


# ---- tokens --------------------------------------------------------------------------------------


def _unpatched(x: Any, w: Any, p: int = 4) -> Any:
    b, n, _ = x.shape
    side = round(n**0.5)
    y = (layer_norm(x) @ w).reshape(b, side, side, p, p, 3)
    return y.transpose(0, 5, 1, 3, 2, 4).reshape(b, 3, side * p, side * p)


def _windows(x: Any, w: Any, size: int = 7) -> Any:
    b, h, k, c = x.shape
    y = layer_norm(x).reshape(b, h // size, size, k // size, size, c).transpose(0, 1, 3, 2, 4, 5)
    return y.reshape(-1, size * size, c) @ w


def _shifted_windows(x: Any, w: Any, size: int = 7) -> Any:
    return _windows(jnp.roll(x, (-3, -3), (1, 2)), w, size)


def _merged_patches(x: Any, w: Any) -> Any:
    parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
    return layer_norm(jnp.concatenate(parts, -1)) @ w


def _unfolded(x: Any, w: Any) -> Any:
    """Pixels of 2 x 2 patches beside each other, as MobileViT has them, and a product."""
    b, c, h, k = x.shape
    y = x.reshape(b * c * h // 2, 2, k // 2, 2).swapaxes(1, 2)
    return y.reshape(b, c, h * k // 4, 4).transpose(0, 3, 2, 1) @ w


def _local_attention(q: Any, k: Any, v: Any, size: int = 16) -> Any:
    t, d = q.shape
    blocks = [y.reshape(t // size, size, d) for y in (q, k, v)]
    near = [jnp.concatenate([jnp.roll(y, 1, 0), y], 1) for y in blocks[1:]]
    return (jax.nn.softmax(blocks[0] @ near[0].swapaxes(1, 2)) @ near[1]).reshape(t, d)


def _relative(q: Any, r: Any) -> Any:
    """Scores of relative positions, moved to absolute ones by a pad and a reshape."""
    h, t, _ = q.shape
    s = jnp.pad(jnp.einsum("htd,hrd->htr", q, r), ((0, 0), (0, 0), (1, 0)))
    return jax.nn.softmax(s.reshape(h, t + 1, t)[:, 1:])


# ---- statistics ----------------------------------------------------------------------------------


def _both_softmaxes(x: Any) -> Any:
    return jax.nn.softmax(x, 0) * jax.nn.softmax(x, 1)


def _gram_scaled(x: Any, w: Any) -> Any:
    y = x @ w
    s = jnp.sqrt((y**2).sum(0))
    return y / s, (y.T @ y) / s


def _instance_norm_up(x: Any, w: Any) -> Any:
    centred = x - x.mean((2, 3), keepdims=True)
    y = centred * lax.rsqrt((centred**2).mean((2, 3), keepdims=True) + 1e-5)
    return _conv(_nearest(jax.nn.relu(y), 2), w)


def _sums_read_twice(x: Any, w: Any) -> Any:
    y = (x @ w).reshape(8, -1, w.shape[1])
    return y.sum(1), jax.nn.relu(y).swapaxes(0, 1)


def _halves_of_rows(x: Any, w: Any) -> Any:
    y = x @ w
    s = y.sum(-1, keepdims=True)
    return (y / s)[: x.shape[0] // 2], (y * s)[x.shape[0] // 4 :]


# ---- numbers -------------------------------------------------------------------------------------
def _butterflies(x: Any) -> Any:
    n = x.shape[-1]
    for _ in range(3):
        a, b = x[..., : n // 2], x[..., n // 2 :]
        x = jnp.stack([a + b, a - b], -1).reshape(x.shape)
    return x


def _polyphase(x: Any, taps: Any) -> Any:
    phases, length = taps.shape
    moved = jnp.stack([jnp.roll(x, i, -1) for i in range(length)], -1)
    return (moved @ taps.T).reshape(x.shape[0], phases * x.shape[1])


def _kronecker(a: Any, b: Any, x: Any) -> Any:
    n, k = a.shape[0], b.shape[0]
    product = jnp.einsum("ij,kl->ikjl", a, b).reshape(n * k, n * k)
    return x @ product


def _im2col(x: Any, w: Any) -> Any:
    h, k, c = x.shape
    parts = [x[i : i + h - 2, j : j + k - 2] for i in range(3) for j in range(3)]
    return jnp.stack(parts, -1).reshape(h - 2, k - 2, c * 9) @ w


def _sorted_rows(x: Any, w: Any) -> Any:
    order = jnp.argsort(x[:, 0])
    return layer_norm(x[order]) @ w


def _flipped(x: Any, w: Any) -> Any:
    return jnp.concatenate([x, x[:, ::-1]], 0) @ w


PROGRAMS: Listed = {
    "shuffle_g3": (lambda *a: _shuffle_unit(*a, groups=3), _unit_args(48, 3, 28)),
    "squeezed": (_squeezed, (f32(1, 64, 28, 28), f32(64, 16), f32(16, 64))),
    "espcn": (_espcn, (f32(1, 1, 40, 40), f32(16, 1, 5, 5), f32(27, 16, 3, 3))),
    "super_resolution_nhwc": (
        _super_resolution_nhwc,
        (f32(1, 24, 24, 16), f32(3, 3, 16, 64), f32(3, 3, 16, 3)),
    ),
    "to_depth_by_4": (lambda x, w: jax.nn.relu(_conv(_to_depth(x, 4), w)),
                      (f32(1, 3, 96, 96), f32(32, 48, 3, 3))),
    "thrice": (_thrice, (f32(1, 8, 18, 18), f32(8, 8, 5, 5))),
    "instance_norm_up": (_instance_norm_up, (f32(1, 24, 20, 20), f32(12, 24, 3, 3))),
    "checkerboard": (_checkerboard, (f32(96, 80), f32(96, 80))),
    "unpatched": (_unpatched, (f32(1, 196, 192), f32(192, 48))),
    "shifted_windows": (_shifted_windows, (f32(1, 28, 28, 64), f32(64, 192))),
    "merged_patches": (_merged_patches, (f32(1, 28, 28, 64), f32(256, 128))),
    "unfolded": (_unfolded, (f32(1, 48, 24, 24), f32(48, 96))),
    "local_attention": (
        _local_attention, (f32(256, 64), f32(256, 64), f32(256, 64)),
    ),
    "relative": (_relative, (f32(4, 64, 32), f32(4, 64, 32))),
    "both_softmaxes": (_both_softmaxes, (f32(96, 160),)),
    "gram_scaled": (_gram_scaled, (f32(256, 64), f32(64, 48))),
    "sums_read_twice": (_sums_read_twice, (f32(128, 96), f32(96, 80))),
    "halves_of_rows": (_halves_of_rows, (f32(96, 64), f32(64, 112))),
    "butterflies": (_butterflies, (f32(32, 512),)),
    "polyphase": (_polyphase, (f32(8, 480), f32(3, 8))),
    "kronecker": (_kronecker, (f32(12, 12), f32(16, 16), f32(32, 192))),
    "im2col": (_im2col, (f32(30, 34, 8), f32(72, 24))),
    "sorted_rows": (_sorted_rows, (f32(200, 64), f32(64, 64))),
    "flipped": (_flipped, (f32(48, 72), f32(72, 56))),
}  # fmt: skip
