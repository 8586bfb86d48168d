"""stable-code-3b as a program: its weights are arguments, known by their shapes.

Sizes are those of the public model card and `config.json` of stabilityai/stable-code-3b: 32 layers,
2560 wide, 32 heads of 80 whose first quarter is rotary (base 1,000,000), feed-forward 6912, 50,304
words, layer norms with a shift, no other biases, two tables. `stable_code` reads a prompt of 128
tokens and gives the scores of the last one's successor; `stable_code_block` is one of its layers.
"""

import jax
import jax.numpy as jnp
import numpy as np
from stablelm import Config, layer_norm, rotated

stable_code_weights = stable_code_block_weights = ("params",)

LAYERS, WORDS = 32, 50_304
SIZES = Config(width=2560, heads=32, hidden=6912, rotary=0.25, tokens=128, base=1_000_000.0)


def layer_shapes(c: Config):
    """The weights of one layer as `jax.ShapeDtypeStruct`."""
    w = c.width
    found = {name: (w, w) for name in ("q", "k", "v", "o")}
    found |= {"gate": (w, c.hidden), "up": (w, c.hidden), "down": (c.hidden, w)}
    found |= {f"{n}.{part}": (w,) for n in ("norm1", "norm2") for part in ("scale", "shift")}
    return {k: jax.ShapeDtypeStruct(s, "float32") for k, s in found.items()}


def shapes(c: Config, layers: int = LAYERS, words: int = WORDS):
    """Every weight; the table of words and that of scores are not tied."""
    table = jax.ShapeDtypeStruct((words, c.width), "float32")
    norm = jax.ShapeDtypeStruct((c.width,), "float32")
    return {
        "words": table, "layers": [layer_shapes(c)] * layers, "norm.scale": norm,
        "norm.shift": norm, "scores": jax.ShapeDtypeStruct((c.width, words), "float32"),
    }  # fmt: skip


def normalised(x, p, name, c: Config):
    return layer_norm(x, p[f"{name}.scale"], p[f"{name}.shift"], c.epsilon)


def attention(x, p, c: Config):
    """Causal attention of [tokens, width]."""
    q, k, v = ((x @ p[n]).reshape(c.tokens, c.heads, c.size) for n in ("q", "k", "v"))
    scores = jnp.einsum("qhd,khd->hqk", rotated(q, c), rotated(k, c))
    allowed = jnp.tril(jnp.ones((c.tokens, c.tokens), bool))
    scores = jnp.where(allowed, scores / np.sqrt(c.size, dtype="f4"), jnp.finfo("f4").min)
    mixed = jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores, axis=-1), v)
    return mixed.reshape(c.tokens, c.width) @ p["o"]


def layer(x, p, c: Config):
    x = x + attention(normalised(x, p, "norm1", c), p, c)
    y = normalised(x, p, "norm2", c)
    return x + (jax.nn.silu(y @ p["gate"]) * (y @ p["up"])) @ p["down"]


def complete(ids, p, c: Config):
    """i32[tokens] to the scores of the next word, f32[1, words]."""
    x = p["words"][ids]
    for own in p["layers"]:
        x = layer(x, own, c)
    return normalised(x[-1:], p, "norm", c) @ p["scores"]


def stable_code(ids, params):
    """i32[128] to f32[1, 50304]."""
    return complete(ids, params, SIZES)


def stable_code_example():
    return jax.ShapeDtypeStruct((SIZES.tokens,), "int32"), shapes(SIZES)


def stable_code_block(x, params):
    """f32[128, 2560] to the same."""
    return layer(x, params, SIZES)


def stable_code_block_example():
    shape = SIZES.tokens, SIZES.width
    return jax.ShapeDtypeStruct(shape, "float32"), layer_shapes(SIZES)
