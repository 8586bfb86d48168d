"""Loops and branches as JAX functions, and what their searches share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import eqsat
from eqsat.model.control import every_program
from eqsat.model.program import Program

FORCED = ("tiles_forced=true",)


def array(seed: int, *shape: int) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) * 0.3).astype(np.float32)


W, U = array(0, 16, 16), array(1, 16, 16)
STACK = {"a": array(2, 4, 16, 32), "b": array(3, 4, 32, 16), "g": array(4, 4, 16)}


def cell(c: Any, x: Any) -> Any:
    h = jnp.tanh(c @ W + x @ U)
    return h, h * 2.0


def rnn(x: Any) -> Any:
    return jax.lax.scan(cell, jnp.zeros((8, 16)), x)


def backwards(x: Any) -> Any:
    return jax.lax.scan(cell, x[0], x, reverse=True)


def layers(x: Any) -> Any:
    def layer(h: Any, p: Any) -> Any:
        return h + jax.nn.relu(h * p["g"] @ p["a"]) @ p["b"], None

    return jax.lax.scan(layer, x, STACK)[0]


def power(v: Any) -> Any:
    def step(i: Any, v: Any) -> Any:
        u = W @ W.T @ v
        return u / jnp.linalg.norm(u)

    return jax.lax.fori_loop(0, 6, step, v)


def counted(x: Any, n: Any) -> Any:
    return jax.lax.fori_loop(0, jnp.abs(n), lambda i, c: jnp.tanh(c @ W) + i, x)


def collatz(n: Any) -> Any:
    def step(s: Any) -> Any:
        return jnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1

    return jax.lax.while_loop(lambda s: s[0] > 1, step, (jnp.abs(n) + 1, jnp.int32(0)))[1]


def either(p: Any, x: Any) -> Any:
    return jax.lax.cond(p > 0, lambda x: x @ W, lambda x: -x, x)


def one_of(i: Any, x: Any) -> Any:
    looped = lambda x: jax.lax.fori_loop(0, 3, lambda i, c: jnp.sin(c @ W), x)  # noqa: E731
    return jax.lax.switch(i, [lambda x: x @ W, lambda x: -x, looped], x)


def nested(p: Any, x: Any) -> Any:
    def row(c: Any, r: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda i, c: jnp.sin(c + r), c), c

    return jax.lax.cond(p > 0, lambda x: jax.lax.scan(row, x[0], x)[1], lambda x: x * 2, x)


def mapped(x: Any) -> Any:
    return jax.lax.map(lambda r: jnp.sum(r) * W[0], x)


def no_steps(x: Any) -> Any:
    return jax.lax.scan(lambda c, _: (c + 1, c), x, None, length=0)


def swapped(x: Any) -> Any:
    """Carries that change places, and one that is handed on as a slice."""
    return jax.lax.scan(lambda c, y: ((c[1], c[0] + y), c[0]), (x[0], x[1]), x)


X, ROWS, FLAG, COUNT = array(5, 8, 16), array(6, 5, 8, 16), np.float32(1), np.int32(3)
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], set[str]]] = {
    "rnn": (rnn, (ROWS,), {"scan"}),
    "backwards": (backwards, (ROWS,), {"scan"}),
    "layers": (layers, (X,), {"scan"}),
    "power": (power, (X[0],), {"scan"}),
    "counted": (counted, (X, COUNT), {"while_loop"}),
    "collatz": (collatz, (COUNT,), {"while_loop"}),
    "either": (either, (FLAG, X), {"cond"}),
    "one_of": (one_of, (COUNT, X), {"cond", "scan"}),
    "nested": (nested, (FLAG, X), {"cond", "scan"}),
    "mapped": (mapped, (X,), {"scan"}),
    "no_steps": (no_steps, (X,), {"scan"}),
    "swapped": (swapped, (ROWS,), {"scan"}),
}


def ops(p: Program) -> set[str]:
    return {n.op for q in every_program(p) for n in q.nodes}


def search(name: str, **given: Any) -> eqsat.Run:
    function, args, _ = FUNCTIONS[name]
    shapes = [jax.ShapeDtypeStruct(np.shape(a), a.dtype) for a in args]
    # no clock may decide what a test sees: bodies get shares of the limit
    options: dict[str, Any] = {"target": "avx512-xla", "time_limit": 600.0} | given
    return eqsat.optimize(function, *shapes, **options)
