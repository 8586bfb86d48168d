"""Nests and plans of small functions, as a search asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.model.dispatch import Machine, Plan
from eqsat.model.nest import Nest
from eqsat.ops.nests import nest as builder
from eqsat.plan import planner

NHWC = ("NHWC", "HWIO", "NHWC")


def _convolved(x: jax.Array, w: jax.Array, groups: int = 1, rate: int = 1) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x, w, (1, 1), "SAME", rhs_dilation=(rate, rate), dimension_numbers=NHWC,
        feature_group_count=groups,
    )  # fmt: skip


def _stepped(x: jax.Array) -> jax.Array:
    p = jnp.pad(x, 1)
    return p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]


def _gated(x: jax.Array, w: jax.Array, d: jax.Array) -> jax.Array:
    h = x @ w
    return (jax.nn.silu(h[:, :24]) * h[:, 24:]) @ d


def _attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.softmax(jnp.einsum("hid,hjd->hij", q, k) / 8) @ v


def _normal(x: jax.Array) -> jax.Array:
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def _f(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.float32)


def _i(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.int8)


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "gated": (_gated, (_f(64, 32), _f(32, 48), _f(24, 32))),
    "convolution": (_convolved, (_f(2, 14, 14, 24), _f(3, 3, 24, 40))),
    "depthwise": (lambda x, w: _convolved(x, w, 40), (_f(1, 14, 14, 40), _f(3, 3, 1, 40))),
    "attention": (_attention, (_f(4, 33, 24), _f(4, 40, 24), _f(4, 40, 24))),
    "normal": (_normal, (_f(33, 70),)),
    "transposed": (lambda x: x.T * 2, (_f(100, 130),)),
    "bytes": (
        lambda x, w: jnp.dot(x, w, preferred_element_type=jnp.int32), (_i(20, 70), _i(70, 50)),
    ),
    "vector": (lambda x, w: x @ w.T, (_f(1, 300), _f(1000, 300))),
    "stencil": (_stepped, (_f(21, 150),)),
    "dilated": (lambda x, w: _convolved(x, w, rate=6), (_f(1, 13, 14, 24), _f(3, 3, 24, 40))),
    "parts": (lambda x, y: jnp.concatenate([x * 2, y + 1], 1), (_f(20, 30), _f(20, 50))),
}  # fmt: skip


@cache
def planned(name: str, target: str = "avx512-vnni") -> tuple[tuple[Nest, Plan], ...]:
    """All nests of a function that a search planned, each with its plan."""
    found: dict[Nest, Plan] = {}
    plan = planner.plan

    def noting(nest: Nest, machine: Machine) -> Plan:
        found[nest] = plan(nest, machine)
        return found[nest]

    function, arguments = FUNCTIONS[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "plan", noting)
        planner._plan.cache_clear()
        eqsat.optimize(function, *arguments, target=target, goals=["time"])
    return tuple(found.items())


@cache
def checked(name: str) -> tuple[tuple[Nest, dict[int, int], dict[int, int]], ...]:
    """All nests that a search builds for a function, as their check is asked: with the elements of
    buffers and the points of sums."""
    found: list[tuple[Nest, dict[int, int], dict[int, int]]] = []
    check = builder.nest_faults

    def noting(nest: Nest, elements: Any, summed: Any) -> Any:
        found.append((nest, dict(elements), dict(summed)))
        return check(nest, elements, summed)

    function, arguments = FUNCTIONS[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builder, "nest_faults", noting)
        builder.forget()
        eqsat.optimize(function, *arguments, target="avx512-vnni", goals=["time"])
    return tuple(found)


def changed(value: Any) -> Iterator[Any]:
    """A number, or one of a tuple's, changed by one; a tuple without an end, or backwards."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1)
    elif hasattr(value, "_fields"):
        for name in value._fields:
            yield from (value._replace(**{name: x}) for x in changed(getattr(value, name)))
    elif isinstance(value, tuple):
        for i, one in enumerate(value):
            yield from ((*value[:i], x, *value[i + 1 :]) for x in changed(one))
        if len(value) > 1:
            yield from (value[1:], value[:-1])
            if value[::-1] != value:
                yield value[::-1]
