"""Whole networks as their papers state them, for `networks.py`; weights are arguments."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

LIBRARY = Path(__file__).parent.parent / "experiments" / "programs"
SEED = 11
GRID, ORDER = 5, 3  # intervals and degree of a KAN's splines

Shapes = Any  # a tree of `jax.ShapeDtypeStruct`


@dataclass(frozen=True)
class Network:
    """A function whose last argument, `params`, is its weights; source: who states it and where."""

    function: Callable[..., Any]
    specs: tuple[Shapes, ...]
    source: str

    def draw(self) -> list[Any]:
        """The same arrays at every call: numbers of products' unit size, whole numbers are 1."""
        rng = np.random.default_rng(SEED)

        def one(spec: Any) -> Any:
            if not np.issubdtype(spec.dtype, np.floating):
                return np.ones(spec.shape, spec.dtype)
            scale = max(spec.shape or (1,)) ** -0.5
            return (rng.standard_normal(spec.shape) * scale).astype(spec.dtype)

        return [jax.tree.map(one, s) for s in self.specs]


def real(*shape: int) -> Any:
    """f32[shape], without numbers."""
    return jax.ShapeDtypeStruct(shape, "float32")


# ---- recurrent layers ----------------------------------------------------------------------------
def nas_cell(x: jax.Array, h: jax.Array, p: Any) -> jax.Array:
    """One step: eight sums of two products, and a tree of functions that was found by search."""
    t = [x @ w + h @ u for w, u in p]
    sigmoid, tanh, relu = jax.nn.sigmoid, jnp.tanh, jax.nn.relu
    first, second = relu(t[0]) + sigmoid(t[3]), sigmoid(t[1]) + tanh(t[2])
    third, fourth = sigmoid(t[4]) * tanh(t[5]), sigmoid(t[6]) * relu(t[7])
    return tanh(tanh(sigmoid(second) + tanh(third)) * tanh(tanh(first) * tanh(fourth)))


def nas_rnn(xs: jax.Array, h: jax.Array, params: Any) -> jax.Array:
    """Steps with weights of their own over f32[steps, 1, hidden]."""
    for x, p in zip(xs, params, strict=True):
        h = nas_cell(x, h, p)
    return h


def nas_rnn_shapes(steps: int = 5, hidden: int = 512) -> tuple[Shapes, ...]:
    square = real(hidden, hidden)
    weights = [[(square, square)] * 8 for _ in range(steps)]
    return real(steps, 1, hidden), real(1, hidden), weights


def lstm(xs: jax.Array, params: Any) -> jax.Array:
    """Every hidden state of one layer over f32[steps, batch, hidden], a product per gate."""
    p, zero = params, jnp.zeros(xs.shape[1:], xs.dtype)

    def step(state: Any, x: jax.Array) -> Any:
        h, c = state
        i, f, g, o = (x @ p[f"w{n}"] + h @ p[f"u{n}"] + p[f"b{n}"] for n in "ifgo")
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(step, (zero, zero), xs)[1]


def lstm_shapes(steps: int = 25, batch: int = 16, hidden: int = 512) -> tuple[Shapes, ...]:
    shapes = {"w": (hidden, hidden), "u": (hidden, hidden), "b": (hidden,)}
    return real(steps, batch, hidden), {k + g: real(*s) for g in "ifgo" for k, s in shapes.items()}


# ---- other layers --------------------------------------------------------------------------------
def splines(x: jax.Array) -> jax.Array:
    """B-splines over [-1, 1] by the recurrence of Cox and de Boor, f32[..., GRID + ORDER]."""
    knots = np.arange(-ORDER, GRID + ORDER + 1, dtype=np.float32) * (2 / GRID) - 1
    x = x[..., None]
    found = ((x >= knots[:-1]) & (x < knots[1:])).astype(jnp.float32)
    for k in range(1, ORDER + 1):
        left = (x - knots[: -k - 1]) / (knots[k:-1] - knots[: -k - 1])
        right = (knots[k + 1 :] - x) / (knots[k + 1 :] - knots[1:-k])
        found = left * found[..., :-1] + right * found[..., 1:]
    return found


def kan(x: jax.Array, params: Any) -> jax.Array:
    """Layers whose edges are functions: each is evaluated for all pairs, then they are added up."""
    for p in params:
        curves = jnp.einsum("nik,iok->nio", splines(x), p["coef"])
        edges = p["base"] * jax.nn.silu(x)[..., None] + p["spline"] * curves
        x = edges.sum(1)
    return x


def kan_shapes(batch: int = 64, widths: tuple[int, ...] = (784, 64, 10)) -> tuple[Shapes, ...]:
    def layer(i: int, o: int) -> Shapes:
        return {"coef": real(i, o, GRID + ORDER), "base": real(i, o), "spline": real(i, o)}

    layers = [layer(i, o) for i, o in pairwise(widths)]
    return real(batch, widths[0]), layers


def switch(x: jax.Array, params: Any) -> jax.Array:
    """Experts one after the other for all tokens; each token keeps that of its best gate."""
    gates = jax.nn.softmax(x @ params["router"])
    kept = jnp.where(gates == gates.max(-1, keepdims=True), gates, 0.0)
    found = jnp.zeros_like(x)
    for e, (up, down) in enumerate(params["experts"]):
        found = found + kept[:, e, None] * (jax.nn.relu(x @ up) @ down)
    return x + found


def switch_shapes(
    tokens: int = 16, width: int = 768, hidden: int = 3072, experts: int = 8
) -> tuple[Shapes, ...]:
    pairs = [(real(width, hidden), real(hidden, width)) for _ in range(experts)]
    return real(tokens, width), {"router": real(width, experts), "experts": pairs}


def of_library(module: str, name: str, source: str) -> Network:
    """A program of `experiments/programs`."""
    if str(LIBRARY) not in sys.path:
        sys.path.append(str(LIBRARY))
    found = import_module(module)
    return Network(getattr(found, name), getattr(found, f"{name}_example")(), source)


def networks() -> dict[str, Network]:
    """Name → network, in the sizes that their sources use."""
    return {
        "nas_rnn": Network(nas_rnn, nas_rnn_shapes(), "NasRNN of TASO (Jia et al. 2019), 5 steps"),
        "lstm": Network(lstm, lstm_shapes(), "DeepBench: 512 units, batch 16, 25 steps"),
        "kan": Network(kan, kan_shapes(), "KAN (Liu et al. 2024), 784-64-10, grid 5, order 3"),
        "switch": Network(switch, switch_shapes(), "Switch-Base-8 (Fedus et al. 2021), 16 tokens"),
        "llama": of_library("llama", "llama_64", "a block of Llama 3.2 1B, 64 tokens"),
        "bert": of_library("bert", "bert", "BERT-Base (Devlin et al. 2018), 128 tokens"),
    }
