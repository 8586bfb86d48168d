"""Programs whose values do not fit into a TPU's VMEM, for `accelbytes.py`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

MANY, WIDE = 32768, 4096
Case = tuple[Any, list[Any], tuple[str, ...]]  # a function, shapes of its arguments, its weights


def shape(*dims: int, dtype: str = "bfloat16") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, dtype)


def chain(x: Any, a: Any, b: Any, c: Any) -> Any:
    return jnp.tanh(jax.nn.relu(x @ a) @ b) @ c


def gated(x: Any, up: Any, gate: Any, down: Any) -> Any:
    return (jax.nn.silu(x @ gate) * (x @ up)) @ down


def residual(x: Any, a: Any, b: Any) -> Any:
    return x + jax.nn.gelu(x @ a) @ b


def norm(x: Any, a: Any) -> Any:
    """A product behind a layer norm."""
    centred = x - x.mean(-1, keepdims=True)
    return (centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)) @ a


def layers(x: Any, *weights: Any) -> Any:
    for w in weights:
        x = jax.nn.relu(x @ w)
    return x


def four_layers(x: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    return layers(x, a, b, c, d)


def convolutions(x: Any, f: Any, g: Any, pads: str = "VALID") -> Any:
    """Two of 3 x 3, NHWC."""
    form = ("NHWC", "HWIO", "NHWC")
    y = jax.nn.relu(lax.conv_general_dilated(x, f, (1, 1), pads, dimension_numbers=form))
    return lax.conv_general_dilated(y, g, (1, 1), pads, dimension_numbers=form)


def same_convolutions(x: Any, f: Any, g: Any) -> Any:
    return convolutions(x, f, g, "SAME")


def scores(q: Any, k: Any) -> Any:
    return jnp.einsum("bqd,bkd->bqk", q, k)


def low_rank(x: Any, a: Any, b: Any) -> Any:
    return (x @ a) @ b


def branches(x: Any, a: Any, b: Any) -> Any:
    return (x @ a) + jnp.tanh(x @ b)


def rows(x: Any, a: Any) -> Any:
    return jax.nn.relu(x @ a).sum(-1)


def skip(x: Any, a: Any, b: Any) -> Any:
    return jax.nn.relu(jax.nn.relu(x @ a) @ b + x)


def mixed(p: Any, v: Any) -> Any:
    return jnp.tanh(jnp.einsum("bqk,bkd->bqd", p, v))


def scale(x: Any, s: Any) -> Any:
    return x * s + 1


def cases() -> dict[str, Case]:
    """Name → case."""
    square, down, up = shape(2048, 2048), shape(WIDE, 1024), shape(1024, WIDE)
    images = [shape(256, 32, 32, 128), shape(3, 3, 128, 256), shape(3, 3, 256, 128)]
    sizes = ((MANY, 512), (512, 2048), (2048, 2048), (2048, 512))
    narrow = [shape(*s, dtype="float32") for s in sizes]
    wide = [shape(*s, dtype="float32") for s in ((MANY, 1024), (1024, WIDE), (WIDE, 1024))]
    long, x = shape(65536, 2048), shape(MANY, 1024)
    half, thin = shape(1024, 2048), ((65536, 1024), (1024, 1024), (1024, 1024))
    return {
        "chain": (chain, [x, up, shape(WIDE, WIDE), down], ("a", "b", "c")),
        "chain_f32": (chain, narrow, ("a", "b", "c")),
        "gated": (gated, [x, up, up, down], ("up", "gate", "down")),
        "residual": (residual, [x, up, down], ("a", "b")),
        "residual_f32": (residual, wide, ("a", "b")),
        "norm": (norm, [long, square], ("a",)),
        "layers": (four_layers, [long, *[square] * 4], ("a", "b", "c", "d")),
        "convolutions": (convolutions, images, ("f", "g")),
        "same_convolutions": (same_convolutions, images, ("f", "g")),
        "scores": (scores, [shape(64, 2048, 128), shape(64, 2048, 128)], ()),
        "low_rank": (low_rank, [shape(MANY, WIDE), shape(WIDE, 2048), shape(2048, WIDE)],
                     ("a", "b")),
        "branches": (branches, [shape(65536, 1024), half, half], ("a", "b")),
        "skip": (skip, [long, square, square], ("a", "b")),
        "mixed": (mixed, [shape(64, 2048, 2048), shape(64, 2048, 128)], ()),
        "branches_f32": (branches, [shape(*s, dtype="float32") for s in thin], ("a", "b")),
        "rows": (rows, [long, square], ("a",)),
        "scale": (scale, [long, shape(2048)], ("s",)),
    }  # fmt: skip
