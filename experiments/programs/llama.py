"""Decoder blocks of Llama's architecture: RMSNorm, rotary positions, shared heads, SwiGLU.

`llama` is one block with the sizes of a 1B model (Grattafiori et al. 2024): 2048 wide, 32 heads
that share 8 of keys and values, feed-forward 8192, a prompt of 128 tokens. `llama_64` has 64
tokens, `llama_4` has four blocks, each with weights of its own. `llama2_7b` is a whole model with
the sizes of Llama 2 7B (Touvron et al. 2023): 32 blocks, 4096 wide, 32 heads, feed-forward 11008, a
prompt of 128 tokens. `llama_decode` is the block for one token, with keys and values of up to 1,024
tokens, which four heads share; it writes the new ones at `position`. Weights are arguments, known
by their shapes; matrices are [in, out].
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

llama_weights = llama_64_weights = llama_4_weights = llama2_7b_weights = ("params",)
llama_decode_weights = ("params",)
llama_decode_state = {"cache": 1}  # the argument, and which result takes its place in the next step


@dataclass(frozen=True)
class Config:
    """Sizes of a block and of its prompt."""

    width: int = 2048
    heads: int = 32
    shared: int = 8  # heads of keys and values
    hidden: int = 8192
    tokens: int = 128
    base: float = 500_000.0
    epsilon: float = 1e-5
    layers: int = 1  # of a whole model
    vocabulary: int = 32000

    @property
    def size(self):
        """Of a head."""
        return self.width // self.heads

    @property
    def cache(self):
        """Keys and values of so many tokens."""
        return (jax.ShapeDtypeStruct((self.shared, self.tokens, self.size), "float32"),) * 2


BLOCK = Config()
SHORT = replace(BLOCK, tokens=64)
CACHED = replace(BLOCK, tokens=1024)
SEVEN = Config(width=4096, shared=32, hidden=11008, base=10_000.0, layers=32)


def shapes(c: Config):
    """Every weight as a `jax.ShapeDtypeStruct`."""
    found = {"norm1": (c.width,), "norm2": (c.width,)}
    found |= {"q": (c.width, c.width), "o": (c.width, c.width)}
    found |= {name: (c.width, c.shared * c.size) for name in ("k", "v")}
    found |= {name: (c.width, c.hidden) for name in ("gate", "up")}
    found |= {"down": (c.hidden, c.width)}
    return {k: jax.ShapeDtypeStruct(s, "float32") for k, s in found.items()}


def model_shapes(c: Config):
    """Every weight of a whole model."""
    ends = {"table": (c.vocabulary, c.width), "norm": (c.width,), "head": (c.width, c.vocabulary)}
    found = {k: jax.ShapeDtypeStruct(s, "float32") for k, s in ends.items()}
    return found | {"blocks": [shapes(c) for _ in range(c.layers)]}


def rms_norm(x, scale, epsilon):
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + epsilon) * scale


def angles(c: Config):
    """Cosines and sines per token and pair of elements, [tokens, 1, size / 2]."""
    turns = c.base ** (-np.arange(0, c.size, 2) / c.size)
    found = np.arange(c.tokens)[:, None] * turns
    return (np.float32(f(found))[:, None] for f in (np.cos, np.sin))


def rotated(x, cos, sin):
    """The two halves of every head, [tokens, heads, size], turned by the angles."""
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def attention(x, p, c: Config):
    """Causal attention; queries that share keys and values are one list, four times as long."""
    cos, sin = angles(c)
    q, k, v = ((x @ p[n]).reshape(c.tokens, -1, c.size) for n in ("q", "k", "v"))
    q, k = rotated(q, cos, sin), rotated(k, cos, sin)
    q = q.transpose(1, 0, 2).reshape(c.shared, -1, c.size)
    scores = jnp.einsum("sqd,ksd->sqk", q, k) / np.sqrt(c.size, dtype="f4")
    places = jnp.arange(c.tokens)
    allowed = jnp.tile(places, c.heads // c.shared)[:, None] >= places
    weights = jax.nn.softmax(jnp.where(allowed, scores, jnp.finfo("f4").min), axis=-1)
    mixed = jnp.einsum("sqk,ksd->sqd", weights, v).reshape(c.heads, c.tokens, c.size)
    return mixed.transpose(1, 0, 2).reshape(c.tokens, c.width) @ p["o"]


def block(x, p, c: Config):
    x = x + attention(rms_norm(x, p["norm1"], c.epsilon), p, c)
    y = rms_norm(x, p["norm2"], c.epsilon)
    return x + (jax.nn.silu(y @ p["gate"]) * (y @ p["up"])) @ p["down"]


def decode(x, position, cache, p, c: Config):
    """One token, [1, width], and the cache with its key and value at `position`."""
    y = rms_norm(x, p["norm1"], c.epsilon)
    tables = (jnp.array(table) for table in angles(c))
    cos, sin = (jnp.take(table, position, axis=0, mode="clip") for table in tables)
    q, k, v = ((y @ p[n]).reshape(-1, c.size) for n in ("q", "k", "v"))
    q, k = rotated(q, cos, sin), rotated(k, cos, sin)
    places = jnp.arange(c.tokens)
    here = (places == position)[:, None]
    keys, values = (
        jnp.where(here, new[:, None], old) for new, old in zip((k, v), cache, strict=True)
    )
    q = q.reshape(c.shared, -1, c.size)
    scores = jnp.einsum("sqd,skd->sqk", q, keys) / np.sqrt(c.size, dtype="f4")
    weights = jax.nn.softmax(jnp.where(places <= position, scores, jnp.finfo("f4").min), axis=-1)
    mixed = jnp.einsum("sqk,skd->sqd", weights, values).reshape(1, c.width)
    x = x + mixed @ p["o"]
    y = rms_norm(x, p["norm2"], c.epsilon)
    return x + (jax.nn.silu(y @ p["gate"]) * (y @ p["up"])) @ p["down"], (keys, values)


def model(ids, params, c: Config):
    """The logits of the next token."""
    x = jnp.take(params["table"], ids, axis=0, mode="clip")
    for p in params["blocks"]:
        x = block(x, p, c)
    return rms_norm(x[-1], params["norm"], c.epsilon) @ params["head"]


def llama(x, params):
    """f32[128, 2048] to the same."""
    return block(x, params, BLOCK)


def llama_example():
    return jax.ShapeDtypeStruct((BLOCK.tokens, BLOCK.width), "float32"), shapes(BLOCK)


def llama_decode(x, position, cache, params):
    """f32[1, 2048], i32[] and twice f32[8, 1024, 64] to f32[1, 2048] and the same."""
    return decode(x, position, cache, params, CACHED)


def llama_decode_example():
    x = jax.ShapeDtypeStruct((1, CACHED.width), "float32")
    return x, jax.ShapeDtypeStruct((), "int32"), CACHED.cache, shapes(CACHED)


def llama_64(x, params):
    """f32[64, 2048] to the same."""
    return block(x, params, SHORT)


def llama_64_example():
    return jax.ShapeDtypeStruct((SHORT.tokens, SHORT.width), "float32"), shapes(SHORT)


def llama_4(x, params):
    """Four blocks over f32[128, 2048]; `params` has the weights of each."""
    for p in params:
        x = block(x, p, BLOCK)
    return x


def llama_4_example():
    return jax.ShapeDtypeStruct((BLOCK.tokens, BLOCK.width), "float32"), [shapes(BLOCK)] * 4


def llama2_7b(ids, params):
    """i32[128] to f32[32000]."""
    return model(ids, params, SEVEN)


def llama2_7b_example():
    return jax.ShapeDtypeStruct((SEVEN.tokens,), "int32"), model_shapes(SEVEN)
