"""GPT-2 small (Radford et al. 2019): prefill of a prompt, and the decoding of one token.

`gpt2` reads 128 tokens and returns the logits of the next one with the keys and values of all.
`gpt2_decode` reads one token, and the keys and values of each layer with room for 128; it writes
the new ones at `position`; `gpt2_decode_bf16` does so with weights of half the bytes, which become
f32 before they are used. One table is both the embedding and the last matrix. Weights are
arguments, known by their shapes; matrices are [in, out].
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

gpt2_weights = gpt2_decode_weights = gpt2_decode_bf16_weights = ("params",)
gpt2_decode_state = gpt2_decode_bf16_state = {
    "cache": 1
}  # the argument, and which result takes its place in the next step


@dataclass(frozen=True)
class Config:
    """Sizes of a model; `tokens` is the prompt, and the room of the cache."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 50257
    positions: int = 1024
    tokens: int = 128
    epsilon: float = 1e-5

    @property
    def cache(self):
        """Keys and values per layer, each [heads, tokens, size of a head]."""
        shape = self.heads, self.tokens, self.width // self.heads
        return ((jax.ShapeDtypeStruct(shape, "float32"),) * 2,) * self.layers


SMALL = Config()


def shapes(c: Config):
    """Every weight as a `jax.ShapeDtypeStruct`."""
    w = c.width
    found = {"wte": (c.vocabulary, w), "wpe": (c.positions, w), "ln_f.g": (w,), "ln_f.b": (w,)}
    for i in range(c.layers):
        found |= {f"h{i}.{ln}.{part}": (w,) for ln in ("ln_1", "ln_2") for part in "gb"}
        sizes = {"qkv": (w, 3 * w), "proj": (w, w), "up": (w, 4 * w), "down": (4 * w, w)}
        found |= {f"h{i}.{k}.w": s for k, s in sizes.items()}
        found |= {f"h{i}.{k}.b": s[1:] for k, s in sizes.items()}
    return {k: jax.ShapeDtypeStruct(s, "float32") for k, s in found.items()}


def layer_norm(x, p, name, epsilon):
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + epsilon) * p[f"{name}.g"] + p[f"{name}.b"]


def dense(x, p, name):
    return x @ p[f"{name}.w"] + p[f"{name}.b"]


def take(table, rows):
    return jnp.take(table, rows, axis=0, mode="clip")


def heads(x, c: Config):
    """[tokens, width] to [heads, tokens, size]."""
    return x.reshape(x.shape[0], c.heads, -1).transpose(1, 0, 2)


def attend(q, k, v, allowed):
    """Attention of q's tokens to those of k that `allowed` marks, bool[tokens of q, of k]."""
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1], dtype="f4")
    scores = jnp.where(allowed, scores, jnp.finfo("f4").min)
    mixed = jax.nn.softmax(scores, axis=-1) @ v
    return mixed.transpose(1, 0, 2).reshape(q.shape[1], -1)


def block(x, p, at, c: Config, attention):
    """One pre-norm layer; `attention` takes q, k and v and gives what they mix to."""
    qkv = dense(layer_norm(x, p, f"{at}.ln_1", c.epsilon), p, f"{at}.qkv")
    q, k, v = (heads(part, c) for part in jnp.split(qkv, 3, axis=-1))
    x = x + dense(attention(q, k, v), p, f"{at}.proj")
    hidden = jax.nn.gelu(dense(layer_norm(x, p, f"{at}.ln_2", c.epsilon), p, f"{at}.up"))
    return x + dense(hidden, p, f"{at}.down")


def logits(x, p, c: Config):
    return layer_norm(x, p, "ln_f", c.epsilon) @ p["wte"].T


def prefill(ids, p, c: Config):
    """Logits after the last token, and all keys and values."""
    tokens = ids.shape[0]
    places = jnp.arange(tokens)
    allowed = places[:, None] >= places[None, :]
    x = take(p["wte"], ids) + p["wpe"][:tokens]
    found = []

    def attention(q, k, v):
        found.append((k, v))
        return attend(q, k, v, allowed)

    for i in range(c.layers):
        x = block(x, p, f"h{i}", c, attention)
    return logits(x[-1:], p, c)[0], tuple(found)


def decode(token, position, cache, p, c: Config):
    """Logits after this token, and the cache with its key and value at `position`."""
    places = jnp.arange(c.tokens)
    here, allowed = places == position, places <= position
    x = take(p["wte"], token) + take(p["wpe"], position)
    found = []

    def attention(q, k, v):
        known = zip((k, v), cache[len(found)], strict=True)
        k, v = (jnp.where(here[:, None], new, old) for new, old in known)
        found.append((k, v))
        return attend(q, k, v, allowed[None])

    for i in range(c.layers):
        x = block(x, p, f"h{i}", c, attention)
    return logits(x, p, c)[0], tuple(found)


def gpt2(ids, params):
    """i32[128] to f32[50257] and the cache, twice f32[12, 128, 64] per layer."""
    return prefill(ids, params, SMALL)


def gpt2_example():
    return jax.ShapeDtypeStruct((SMALL.tokens,), "int32"), shapes(SMALL)


def gpt2_decode(token, position, cache, params):
    """i32[1], i32[] and the cache to f32[50257] and the cache."""
    return decode(token, position, cache, params, SMALL)


def gpt2_decode_example():
    token, position = (jax.ShapeDtypeStruct(s, "int32") for s in ((1,), ()))
    return token, position, SMALL.cache, shapes(SMALL)


def gpt2_decode_bf16(token, position, cache, params):
    """The same with bf16 weights; everything else is f32."""
    widened = jax.tree.map(lambda w: jax.lax.convert_element_type(w, "float32"), params)
    return decode(token, position, cache, widened, SMALL)


def gpt2_decode_bf16_example():
    *inputs, weights = gpt2_decode_example()
    narrow = {k: jax.ShapeDtypeStruct(w.shape, "bfloat16") for k, w in weights.items()}
    return *inputs, narrow
