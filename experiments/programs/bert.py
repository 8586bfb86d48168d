"""BERT (Devlin et al. 2018): embeddings and post-norm encoder layers, for a batch of sentences.

`bert` is the base model. Weights are arguments by the names of the `model.safetensors` files that
are published for this architecture, matrices as [out, in].
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

bert_weights = ("params",)


@dataclass(frozen=True)
class Config:
    """Sizes of a model; `tokens` is the length a sentence is padded to."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    hidden: int = 3072
    vocabulary: int = 30522
    positions: int = 512
    types: int = 2
    tokens: int = 128
    epsilon: float = 1e-12


BASE = Config()


def shapes(c: Config):
    """Every weight as a `jax.ShapeDtypeStruct`, by its name in the file."""
    tables = {"word": c.vocabulary, "position": c.positions, "token_type": c.types}
    found = {f"embeddings.{k}_embeddings.weight": (n, c.width) for k, n in tables.items()}
    found |= _norm("embeddings.LayerNorm", c.width)
    for i in range(c.layers):
        at = f"encoder.layer.{i}"
        for name in ("query", "key", "value"):
            found |= _dense(f"{at}.attention.self.{name}", c.width, c.width)
        found |= _dense(f"{at}.attention.output.dense", c.width, c.width)
        found |= _norm(f"{at}.attention.output.LayerNorm", c.width)
        found |= _dense(f"{at}.intermediate.dense", c.width, c.hidden)
        found |= _dense(f"{at}.output.dense", c.hidden, c.width)
        found |= _norm(f"{at}.output.LayerNorm", c.width)
    found |= _dense("pooler.dense", c.width, c.width)
    return {k: jax.ShapeDtypeStruct(s, "float32") for k, s in found.items()}


def _dense(name, inner, outer):
    return {f"{name}.weight": (outer, inner), f"{name}.bias": (outer,)}


def _norm(name, width):
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def dense(x, p, name):
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def layer_norm(x, p, name, epsilon):
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    scale, shift = p[f"{name}.weight"], p[f"{name}.bias"]
    return (x - mean) * jax.lax.rsqrt(variance + epsilon) * scale + shift


def take(table, rows):
    return jnp.take(table, rows, axis=0, mode="clip")


def embeddings(ids, types, p, c: Config):
    """Word, position and type vectors, added and normalised; f32[batch, tokens, width].

    Without `types` every token is of the first one, as in a single sentence.
    """
    words = take(p["embeddings.word_embeddings.weight"], ids)
    places = p["embeddings.position_embeddings.weight"][: ids.shape[1]]
    kinds = take(p["embeddings.token_type_embeddings.weight"], 0 if types is None else types)
    return layer_norm(words + places + kinds, p, "embeddings.LayerNorm", c.epsilon)


def attention(x, allowed, p, at, c: Config):
    """Attention of every token to the tokens that `allowed` marks, bool[batch, 1, 1, tokens]."""
    batch, tokens, width = x.shape
    q, k, v = (
        dense(x, p, f"{at}.self.{n}").reshape(batch, tokens, c.heads, -1).transpose(0, 2, 1, 3)
        for n in ("query", "key", "value")
    )
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(width // c.heads, dtype="f4")
    scores = jnp.where(allowed, scores, jnp.finfo("f4").min)
    mixed = jax.nn.softmax(scores, axis=-1) @ v
    return dense(mixed.transpose(0, 2, 1, 3).reshape(x.shape), p, f"{at}.output.dense")


def layer(x, allowed, p, at, c: Config):
    y = x + attention(x, allowed, p, f"{at}.attention", c)
    x = layer_norm(y, p, f"{at}.attention.output.LayerNorm", c.epsilon)
    hidden = jax.nn.gelu(dense(x, p, f"{at}.intermediate.dense"), approximate=False)
    y = x + dense(hidden, p, f"{at}.output.dense")
    return layer_norm(y, p, f"{at}.output.LayerNorm", c.epsilon)


def encode(ids, mask, types, p, c: Config):
    """The last layer's vectors, f32[batch, tokens, width]; `mask` is 0 where a token is padding."""
    x = embeddings(ids, types, p, c)
    allowed = mask[:, None, None, :] != 0
    for i in range(c.layers):
        x = layer(x, allowed, p, f"encoder.layer.{i}", c)
    return x


def pooled(x, p):
    """The first token's vector through the pooler, f32[batch, width]."""
    return jnp.tanh(dense(x[:, 0], p, "pooler.dense"))


def bert(ids, mask, types, params):
    """BERT-base, i32[1, 128] each; the last vectors and the pooled one."""
    x = encode(ids, mask, types, params, BASE)
    return x, pooled(x, params)


def bert_example():
    tokens = jax.ShapeDtypeStruct((1, BASE.tokens), "int32")
    return tokens, tokens, tokens, shapes(BASE)
