"""Programs whose weights are arguments, for meshes: an MLP, an encoder layer, a Llama block.

8 sequences, features of 2,048 and 8,192, in bf16. With 16 tokens each, reading
weights takes the time; with 256, computing does.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

mlp_weights = encoder_weights = llama_weights = ("p",)
mlp_many_weights = encoder_many_weights = llama_many_weights = ("p",)
BATCH, WIDTH, HIDDEN, HEAD = 8, 2048, 8192, 128
Params = dict[str, Any]


def mlp(x: Any, p: Params) -> Any:
    """Two products with a ReLU between."""
    return jnp.maximum(x @ p["w1"], 0) @ p["w2"]


def encoder(x: Any, p: Params) -> Any:
    """Attention and MLP, each with a residual and a layer norm behind it."""
    x = _layer_norm(x + _attention(x, p), p["g1"])
    return _layer_norm(x + jax.nn.gelu(x @ p["w1"]) @ p["w2"], p["g2"])


def llama(x: Any, p: Params) -> Any:
    """Causal attention and a gated MLP, each behind an RMS norm, with residuals."""
    x = x + _attention(_rms_norm(x, p["g1"]), p, is_causal=True)
    h = _rms_norm(x, p["g2"])
    return x + (jax.nn.silu(h @ p["w1"]) * (h @ p["w3"])) @ p["w2"]


def _attention(h: Any, p: Params, *, is_causal: bool = False) -> Any:
    batch, tokens, width = h.shape
    heads = (batch, tokens, width // HEAD, HEAD)
    q, k, v = ((h @ p[name]).reshape(heads) for name in ("wq", "wk", "wv"))
    a = jnp.einsum("bqhd,bkhd->bhqk", q, k) * HEAD**-0.5
    if is_causal:
        a = jnp.where(jnp.tril(jnp.ones((tokens, tokens), bool)), a, -1e9)
    a = jax.nn.softmax(a, axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", a, v).reshape(h.shape) @ p["wo"]


def _layer_norm(x: Any, gain: Any) -> Any:
    y = x - jnp.mean(x, -1, keepdims=True)
    return y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-5) * gain


def _rms_norm(x: Any, gain: Any) -> Any:
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * gain


_SHAPES = {
    "mlp": {"w1": (WIDTH, HIDDEN), "w2": (HIDDEN, WIDTH)},
    "encoder": dict.fromkeys(("wq", "wk", "wv", "wo"), (WIDTH, WIDTH))
    | {"g1": (WIDTH,), "g2": (WIDTH,), "w1": (WIDTH, HIDDEN), "w2": (HIDDEN, WIDTH)},
}
_SHAPES["llama"] = _SHAPES["encoder"] | {"w3": (WIDTH, HIDDEN)}


def _arguments(name: str, tokens: int) -> tuple[Any, Params]:
    def shape(*dims: int) -> Any:
        return jax.ShapeDtypeStruct(dims, "bfloat16")

    return shape(BATCH, tokens, WIDTH), {k: shape(*s) for k, s in _SHAPES[name].items()}


def mlp_example() -> tuple[Any, ...]:
    return _arguments("mlp", 16)


def encoder_example() -> tuple[Any, ...]:
    return _arguments("encoder", 16)


def llama_example() -> tuple[Any, ...]:
    return _arguments("llama", 16)


def mlp_many(x: Any, p: Params) -> Any:
    """`mlp`, of 256 tokens."""
    return mlp(x, p)


def encoder_many(x: Any, p: Params) -> Any:
    """`encoder`, of 256 tokens."""
    return encoder(x, p)


def llama_many(x: Any, p: Params) -> Any:
    """`llama`, of 256 tokens."""
    return llama(x, p)


def mlp_many_example() -> tuple[Any, ...]:
    return _arguments("mlp", 256)


def encoder_many_example() -> tuple[Any, ...]:
    return _arguments("encoder", 256)


def llama_many_example() -> tuple[Any, ...]:
    return _arguments("llama", 256)
