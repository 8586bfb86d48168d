"""NeRF's network (Mildenhall et al. 2020): positions and directions to densities and colours.

One ray is one position and one direction; encodings are sines and cosines of multiples of each, the
fifth layer reads the encoded position again. Weights are arguments, known by their shapes.
"""

import jax
import jax.numpy as jnp
import numpy as np

RAYS, WIDTH, LAYERS, SKIP = 8192, 256, 8, 5
POSITION, DIRECTION = 10, 4  # frequencies of an encoding
nerf_weights = ("params",)


def encoded(x, count):
    """[rays, 3] to [rays, 3 + 6 * count]: x, and sines and cosines of its multiples."""
    turns = (x[:, None, :] * (2.0 ** np.arange(count, dtype="f4"))[:, None]).reshape(len(x), -1)
    return jnp.concatenate([x, jnp.sin(turns), jnp.cos(turns)], -1)


def shapes():
    """Every weight as a `jax.ShapeDtypeStruct`."""
    position, direction = (3 + 6 * n for n in (POSITION, DIRECTION))
    inner = [position] + [WIDTH] * (LAYERS - 1)
    inner[SKIP] += position
    found = {f"layer{i}": (n, WIDTH) for i, n in enumerate(inner)}
    found |= {"density": (WIDTH, 1), "feature": (WIDTH, WIDTH)}
    found |= {"view": (WIDTH + direction, WIDTH // 2), "colour": (WIDTH // 2, 3)}
    dense = {f"{k}.w": s for k, s in found.items()} | {f"{k}.b": s[1:] for k, s in found.items()}
    return {k: jax.ShapeDtypeStruct(s, "float32") for k, s in dense.items()}


def nerf(positions, directions, params):
    """f32[8192, 3] twice to f32[8192, 3] and f32[8192, 1]."""

    def dense(x, name):
        return x @ params[f"{name}.w"] + params[f"{name}.b"]

    place = encoded(positions, POSITION)
    h = place
    for i in range(LAYERS):
        h = jnp.concatenate([h, place], -1) if i == SKIP else h
        h = jax.nn.relu(dense(h, f"layer{i}"))
    density = jax.nn.relu(dense(h, "density"))
    view = jnp.concatenate([dense(h, "feature"), encoded(directions, DIRECTION)], -1)
    return jax.nn.sigmoid(dense(jax.nn.relu(dense(view, "view")), "colour")), density


def nerf_example():
    rays = jax.ShapeDtypeStruct((RAYS, 3), "float32")
    return rays, rays, shapes()
