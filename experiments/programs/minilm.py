"""MiniLM-L6 as a sentence encoder: tokens to one vector of length 1.

`make models` fetches its weights and its tokenizer, 87 MiB. Without them the weights are random
ones of the same shapes, and standard error says so.
"""

import sys
import zlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from bert import Config, encode, shapes

CONFIG = Config(layers=6, width=384, heads=12, hidden=1536)
FOLDERS = (Path(__file__).resolve().parents[2] / "models" / "minilm", Path("models/minilm"))
minilm_weights = ("params",)


def embed(ids, mask, params, config):
    """Mean of the vectors of the tokens that `mask` keeps, scaled to length 1; f32[batch, width]"""
    x = encode(ids, mask, None, params, config)
    kept = (mask != 0).astype("f4")[:, :, None]
    mean = (x * kept).sum(1) / jnp.maximum(kept.sum(1), 1e-9)
    length = jnp.sqrt(jnp.square(mean).sum(-1, keepdims=True))
    return mean / jnp.maximum(length, 1e-12)


def weight_shapes(config):
    """The weights an embedding reads: BERT's without the pooler."""
    return {k: s for k, s in shapes(config).items() if not k.startswith("pooler.")}


def model_folder():
    """Where `model.safetensors` and `tokenizer.json` lie, None if they were never fetched."""
    return next((f for f in FOLDERS if (f / "model.safetensors").is_file()), None)


def weights(config=CONFIG):
    """The published weights, or random ones, always the same, where there are none."""
    folder = model_folder()
    if folder is None:
        print("minilm: random weights, as `make models` was not run", file=sys.stderr)
        return random_weights(config)
    from safetensors.numpy import load_file

    held = load_file(folder / "model.safetensors")
    return {k: held[k] for k in weight_shapes(config)}


def random_weights(config):
    """Normal, matrices scaled so that activations keep their size, norms near 1."""
    return {k: _random(k, s.shape) for k, s in weight_shapes(config).items()}


def _random(name, shape):
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if name.endswith("LayerNorm.weight"):
        return 1 + rng.standard_normal(shape, "f4") * np.float32(0.1)
    scale = 0.1 if len(shape) == 1 else 1 / np.sqrt(shape[1])
    return rng.standard_normal(shape, "f4") * np.float32(scale)


def minilm(ids, mask, params):
    """i32[1, 128] tokens and their mask to f32[1, 384]."""
    return embed(ids, mask, params, CONFIG)


def minilm_example():
    tokens = jax.ShapeDtypeStruct((1, CONFIG.tokens), "int32")
    return tokens, tokens, weights()
