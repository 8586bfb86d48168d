"""One decoder block as in StableLM: LayerNorm, partly rotary positions, SwiGLU side by side.

`stablelm` has the sizes of a 1.6B model (Bellagente et al. 2024): 2048 wide, 32 heads of 64 whose
first quarter is rotary, feed-forward 5632, biases on queries, keys and values. Attention and
feed-forward read the same normalised input, and both are added to the residual. Weights are
arguments, known by their shapes; matrices [in, out].
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

stablelm_weights = ("params",)


@dataclass(frozen=True)
class Config:
    """Sizes of a block and of its prompt."""

    width: int = 2048
    heads: int = 32
    hidden: int = 5632
    rotary: float = 0.25  # share of a head
    tokens: int = 128
    base: float = 10_000.0
    epsilon: float = 1e-5

    @property
    def size(self):
        """Of a head."""
        return self.width // self.heads


BLOCK = Config()


def shapes(c: Config):
    """Every weight as a `jax.ShapeDtypeStruct`."""
    found = {"scale": (c.width,), "shift": (c.width,), "o": (c.width, c.width)}
    found |= {name: (c.width, c.width) for name in ("q", "k", "v")}
    found |= {f"{name}_bias": (c.width,) for name in ("q", "k", "v")}
    found |= {"gate": (c.width, c.hidden), "up": (c.width, c.hidden), "down": (c.hidden, c.width)}
    return {k: jax.ShapeDtypeStruct(s, "float32") for k, s in found.items()}


def layer_norm(x, scale, shift, epsilon):
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + epsilon) * scale + shift


def rotated(x, c: Config):
    """The first elements of every head turned by the token's place; [tokens, heads, size]."""
    turning = int(c.size * c.rotary)
    angles = np.arange(c.tokens)[:, None] * c.base ** (-np.arange(0, turning, 2) / turning)
    cos, sin = (np.float32(f(angles))[:, None] for f in (np.cos, np.sin))
    a, b, rest = jnp.split(x, [turning // 2, turning], axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)


def attention(x, p, c: Config):
    q, k, v = (
        (x @ p[n] + p[f"{n}_bias"]).reshape(c.tokens, c.heads, c.size) for n in ("q", "k", "v")
    )
    scores = jnp.einsum("qhd,khd->hqk", rotated(q, c), rotated(k, c))
    scores = scores / np.sqrt(c.size, dtype="f4")
    allowed = jnp.tril(jnp.ones((c.tokens, c.tokens), bool))
    weights = jax.nn.softmax(jnp.where(allowed, scores, jnp.finfo("f4").min), axis=-1)
    return jnp.einsum("hqk,khd->qhd", weights, v).reshape(c.tokens, c.width) @ p["o"]


def block(x, p, c: Config):
    y = layer_norm(x, p["scale"], p["shift"], c.epsilon)
    forward = (jax.nn.silu(y @ p["gate"]) * (y @ p["up"])) @ p["down"]
    return x + attention(y, p, c) + forward


def stablelm(x, params):
    """f32[128, 2048] to the same."""
    return block(x, params, BLOCK)


def stablelm_example():
    return jax.ShapeDtypeStruct((BLOCK.tokens, BLOCK.width), "float32"), shapes(BLOCK)
