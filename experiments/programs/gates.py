"""Three levels of a diffusion model's UNet gated by one vector: small weights, large features.

Squeeze and excitation (Hu et al. 2018) across levels: the features of every level are scaled,
shifted and activated (FiLM, Perez et al. 2018), their means say together how much each channel of
each level is worth, and the features are gated by that. They are needed before the vector is known
and again behind it: to keep a level takes its bytes, to compute it again takes time. Which levels
are kept is the trade-off of time and memory.
"""

import jax
import jax.numpy as jnp

LEVELS = ((32, 64), (64, 32), (128, 16))  # channels; height and width
INNER = 64  # of the vector

gates_weights = ("params",)


def shapes():
    """Every weight as a `jax.ShapeDtypeStruct`."""
    found = {"squeeze": (sum(c for c, _ in LEVELS), INNER)}
    for n, (channels, _) in enumerate(LEVELS):
        found |= {f"scale{n}": (channels,), f"shift{n}": (channels,)}
        found[f"excite{n}"] = (INNER, channels)
    return {k: jax.ShapeDtypeStruct(s, "float32") for k, s in found.items()}


def gates(maps, params):
    """f32[channels, height, width] per level to the same, gated."""
    p, features = params, []
    for n, x in enumerate(maps):
        scaled = x * p[f"scale{n}"][:, None, None] + p[f"shift{n}"][:, None, None]
        features.append(jax.nn.gelu(scaled, approximate=False))
    means = jnp.concatenate([f.mean((1, 2)) for f in features])
    vector = jax.nn.silu(means @ p["squeeze"])
    found = []
    for n, f in enumerate(features):
        worth = jax.nn.sigmoid(vector @ p[f"excite{n}"])
        found.append(f * worth[:, None, None])
    return tuple(found)


def gates_example():
    maps = tuple(jax.ShapeDtypeStruct((c, s, s), "float32") for c, s in LEVELS)
    return maps, shapes()
