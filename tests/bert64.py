"""A sentence encoder of BERT's architecture in NumPy and float64, written from the paper alone.

It shares no code with eqsat or with experiments/programs/bert.py, so that it can judge both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Weights = Mapping[str, Array]
EPSILON = 1e-12


def embed(ids: Array, weights: Weights, *, layers: int, heads: int) -> Array:
    """One unit vector of float64 for the tokens of one sentence, padding left out.

    ids: i[n]. The mean is over all n tokens, so masks and padding need not be understood.
    """
    p = {k: np.asarray(v, np.float64) for k, v in weights.items()}
    x = p["embeddings.word_embeddings.weight"][ids]
    x = x + p["embeddings.position_embeddings.weight"][np.arange(len(ids))]
    x = x + p["embeddings.token_type_embeddings.weight"][0]
    x = _norm(x, p, "embeddings.LayerNorm")
    for i in range(layers):
        x = _layer(x, p, f"encoder.layer.{i}", heads)
    mean = x.mean(0)
    return mean / np.sqrt(mean @ mean)


def _layer(x: Array, p: Weights, at: str, heads: int) -> Array:
    x = _norm(x + _attention(x, p, f"{at}.attention", heads), p, f"{at}.attention.output.LayerNorm")
    hidden = _gelu(_dense(x, p, f"{at}.intermediate.dense"))
    return _norm(x + _dense(hidden, p, f"{at}.output.dense"), p, f"{at}.output.LayerNorm")


def _attention(x: Array, p: Weights, at: str, heads: int) -> Array:
    q, k, v = (_dense(x, p, f"{at}.self.{name}") for name in ("query", "key", "value"))
    size = x.shape[1] // heads
    mixed = np.empty_like(x)
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        scores = q[:, part] @ k[:, part].T / np.sqrt(size)
        share = np.exp(scores - scores.max(1, keepdims=True))
        mixed[:, part] = share / share.sum(1, keepdims=True) @ v[:, part]
    return _dense(mixed, p, f"{at}.output.dense")


def _dense(x: Array, p: Weights, name: str) -> Array:
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def _norm(x: Array, p: Weights, name: str) -> Array:
    x = x - x.mean(1, keepdims=True)
    x = x / np.sqrt((x * x).mean(1, keepdims=True) + EPSILON)
    return x * p[f"{name}.weight"] + p[f"{name}.bias"]


def _gelu(x: Array) -> Array:
    from scipy.special import erf

    return 0.5 * x * (1 + erf(x / np.sqrt(2)))
