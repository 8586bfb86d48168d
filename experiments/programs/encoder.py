"""One transformer encoder layer: 12 heads, 384 wide, feed-forward 1536, 128 tokens."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

TOKENS, WIDTH, HEADS, HIDDEN = 128, 384, 12, 1536


@cache
def params():
    """Weights by name, random and always the same."""
    rng = np.random.default_rng(0)
    shapes = {name: (WIDTH, WIDTH) for name in ("query", "key", "value", "output")}
    shapes |= {"up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH)}
    found = {k: rng.standard_normal(s, "f4") / np.sqrt(s[0], dtype="f4") for k, s in shapes.items()}
    biases = {f"{k}_bias": rng.standard_normal(s[1], "f4") * 0.1 for k, s in shapes.items()}
    norms = {k: 1 + rng.standard_normal(WIDTH, "f4") * 0.1 for k in ("scale1", "scale2")}
    shifts = {k: rng.standard_normal(WIDTH, "f4") * 0.1 for k in ("shift1", "shift2")}
    return {k: v.astype("f4") for k, v in (found | biases | norms | shifts).items()}


def layer_norm(x, scale, shift):
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + shift


def heads(x):
    return x.reshape(TOKENS, HEADS, WIDTH // HEADS).transpose(1, 0, 2)


def attention(x, p):
    q, k, v = (heads(x @ p[n] + p[f"{n}_bias"]) for n in ("query", "key", "value"))
    scores = jnp.einsum("hqd,hkd->hqk", q, k) / np.sqrt(WIDTH // HEADS, dtype="f4")
    mixed = jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, axis=-1), v)
    return mixed.transpose(1, 0, 2).reshape(TOKENS, WIDTH) @ p["output"] + p["output_bias"]


def layer(x, p):
    """Post-norm encoder layer with these weights."""
    x = layer_norm(x + attention(x, p), p["scale1"], p["shift1"])
    hidden = jax.nn.gelu(x @ p["up"] + p["up_bias"])
    return layer_norm(x + hidden @ p["down"] + p["down_bias"], p["scale2"], p["shift2"])


def encoder(x):
    """One layer over f32[128, 384]."""
    return layer(x, params())


def encoder_example():
    return (jax.ShapeDtypeStruct((TOKENS, WIDTH), "float32"),)
