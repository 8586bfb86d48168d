"""JAX functions in several spellings: what people write for one and the same computation.

Each family is a shape of example arguments and functions that all compute the same. The first is
the one that the others are compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from eqsat.api.reading import trace_function
from eqsat.model.program import Program
from fuzz.equal import GOALS, MACHINES, Pair, Question

Family = tuple[tuple[tuple[int, ...], ...], tuple[Callable[..., Any], ...]]


def norm(x: Any, centred: Any, g: Any, b: Any) -> Any:
    return centred * lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * g + b


def by_first_moment(x: Any, g: Any, b: Any) -> Any:
    return norm(x, x - x.mean(-1, keepdims=True), g, b)


def by_sum(x: Any, g: Any, b: Any) -> Any:
    return norm(x, x - x.sum(-1, keepdims=True) / x.shape[-1], g, b)


def scaled_last(x: Any, g: Any, b: Any) -> Any:
    c = x - x.mean(-1, keepdims=True)
    return b + g * (c * lax.rsqrt(jnp.square(c).mean(-1, keepdims=True) + 1e-5))


def plain_softmax(x: Any) -> Any:
    e = jnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def twice_exp(x: Any) -> Any:
    top = x.max(-1, keepdims=True)
    return jnp.exp(x - top) / jnp.exp(x - top).sum(-1, keepdims=True)


def conv(x: Any, w: Any) -> Any:
    dims = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, w[None, None], (1, 1), "VALID", dimension_numbers=dims)


# families by name: shapes of f32 arguments, and the spellings
FAMILIES: dict[str, Family] = {
    "matmul": (
        ((64, 128), (128, 96)),
        (
            lambda x, w: jax.nn.relu(x @ w),
            lambda x, w: jnp.maximum(jnp.tensordot(x, w, 1), 0),
            lambda x, w: jax.nn.relu((x[None] @ w[None])[0]),
            lambda x, w: jnp.einsum("mk,kn->mn", x, w).clip(0),
        ),
    ),
    "heads": (
        ((64, 128), (128, 128)),
        (
            lambda x, w: (x @ w).reshape(64, 4, 32).transpose(1, 0, 2) + 1.0,
            lambda x, w: jnp.stack(jnp.split(x @ w, 4, 1)) + 1.0,
            lambda x, w: jnp.moveaxis((x @ w).reshape(64, 4, 32), 1, 0) + 1.0,
            lambda x, w: jnp.swapaxes(jnp.reshape(x @ w, (64, 4, 32)), 0, 1) + 1.0,
        ),
    ),
    "heads-together": (
        ((4, 64, 32), (128, 64)),
        (
            lambda h, w: h.transpose(1, 0, 2).reshape(64, 128) @ w,
            lambda h, w: jnp.concatenate([h[i] for i in range(4)], axis=1) @ w,
            lambda h, w: jnp.hstack(list(h)) @ w,
        ),
    ),
    "bias": (
        ((64, 128), (128,)),
        (
            lambda x, b: jax.nn.relu(x + b),
            lambda x, b: jax.nn.relu(x + jnp.broadcast_to(b, (64, 128))),
            lambda x, b: jax.nn.relu(jnp.tile(b, (64, 1)) + x),
            lambda x, b: jax.nn.relu(x.T + b[:, None]).T,
        ),
    ),
    "layer-norm": (
        ((64, 128), (128,), (128,)),
        (by_first_moment, by_sum, scaled_last),
    ),
    "softmax": (
        ((64, 128),),
        (plain_softmax, twice_exp, jax.vmap(plain_softmax), lambda x: plain_softmax(x * 1.0)),
    ),
    "convolution-1x1": (
        ((1, 14, 14, 64), (64, 128)),
        (
            lambda x, w: x @ w,
            conv,
            lambda x, w: (x.reshape(196, 64) @ w).reshape(1, 14, 14, 128),
            lambda x, w: jnp.einsum("bhwc,co->bhwo", x, w),
        ),
    ),
    "maximum": (
        ((64, 128),),
        (
            lambda x: jnp.tanh(x).max(-1),
            lambda x: jnp.tanh(x).reshape(64, 8, 16).max(-1).max(-1),
            lambda x: jnp.tanh(x).reshape(64, 8, 16).max((1, 2)),
        ),
    ),
    "halves": (
        ((64, 128),),
        (
            jnp.exp,
            lambda x: jnp.exp(jnp.concatenate(jnp.split(x, 2))),
            lambda x: jnp.exp(jnp.pad(x, ((0, 3), (0, 0)))[:64]),
            lambda x: jnp.exp(jnp.negative(jnp.negative(x))),
        ),
    ),
}


def programs(name: str) -> list[Program]:
    """The spellings of a family, read."""
    shapes, functions = FAMILIES[name]
    args = tuple(jax.ShapeDtypeStruct(s, "float32") for s in shapes)
    found: list[Program] = []
    for k, function in enumerate(functions):

        def named(*xs: Any, function: Callable[..., Any] = function) -> Any:
            return function(*xs)

        found.append(trace_function(named, args, {}, (), f"{name}-{k}").program)
    return found


def spelled_pairs(name: str, seconds: float) -> Iterator[Pair]:
    """Every spelling of a family against the first, on every machine; the goals take turns."""
    first, *others = programs(name)
    for k, other in enumerate(others, 1):
        for n, machine in enumerate(MACHINES):
            question = Question(machine, GOALS[(n + k) % len(GOALS)], seconds)
            yield Pair(f"jax-{name}", k, question, first, other)
