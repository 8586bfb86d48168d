"""Programs of 2,000 ops, for what has to hold of the search itself: that it ends, and when.

`deep` is 52 encoder layers of `encoder.py`, each with weights of its own: equal blocks. `mixed` has
no two equal blocks: layers of attention, convolution over tokens and gated feed-forward, whose
widths follow a fixed random sequence, with sums that reach back over several layers. Weights are
arguments, known by their shapes; both hold 2,000 ops and more after elementwise chains are merged.
"""

import random

import jax
import jax.numpy as jnp
import numpy as np
from encoder import encoder_example, layer, layer_norm, params

LAYERS = 52
TOKENS, WIDTH, MIXED = 64, 128, 124

deep_weights = mixed_weights = ("weights",)


def deep(x, weights):
    """f32[128, 384] to the same."""
    for p in weights:
        x = layer(x, p)
    return x


def deep_example():
    found = {k: jax.ShapeDtypeStruct(v.shape, "float32") for k, v in params().items()}
    return *encoder_example(), [found] * LAYERS


def plan():
    """Per layer of `mixed`: its kind, its inner width, and how far back its sum reaches."""
    rng = random.Random(0)
    kinds = ("attention", "tokens", "gated")
    return [
        (rng.choice(kinds), 8 * rng.randint(4, 40), rng.randint(1, min(6, i + 1)))
        for i in range(MIXED)
    ]


def attention(x, p):
    q, k, v = (x @ p[name] for name in ("q", "k", "v"))
    weights = jax.nn.softmax(q @ k.T / np.sqrt(q.shape[-1], dtype="f4"), axis=-1)
    return weights @ v @ p["o"]


def tokens(x, p):
    """A sum over a token and its two neighbours, per channel, between two matrices."""
    y = jnp.pad(x @ p["into"], ((1, 1), (0, 0)))
    y = sum(y[i : i + TOKENS] * p["filter"][i] for i in range(3))
    return jax.nn.relu(y) @ p["out"]


def gated(x, p):
    return (jax.nn.silu(x @ p["gate"]) * (x @ p["up"])) @ p["down"]


LAYER = {"attention": attention, "tokens": tokens, "gated": gated}


def shapes(kind, inner):
    """The weights of one layer of `mixed`."""
    into, out = (WIDTH, inner), (inner, WIDTH)
    found = {
        "attention": {"q": into, "k": into, "v": into, "o": out},
        "tokens": {"into": into, "filter": (3, inner), "out": out},
        "gated": {"gate": into, "up": into, "down": out},
    }[kind]
    found = found | {"scale": (WIDTH,), "shift": (WIDTH,)}
    return {k: jax.ShapeDtypeStruct(s, "float32") for k, s in found.items()}


def mixed(x, weights):
    """f32[64, 128] to the same."""
    before = [x]
    for (kind, _, back), p in zip(plan(), weights, strict=True):
        y = layer_norm(before[-1], p["scale"], p["shift"])
        before.append(before[-back] + LAYER[kind](y, p))
    return before[-1]


def mixed_example():
    weights = [shapes(kind, inner) for kind, inner, _ in plan()]
    return jax.ShapeDtypeStruct((TOKENS, WIDTH), "float32"), weights
