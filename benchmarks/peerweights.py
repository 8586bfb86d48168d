"""Models that say the shape of each weight where they use it: `w(*shape)` is the next weight."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

Function = Callable[..., Any]


def model(*inputs: Any, state: Mapping[str, int] | None = None) -> Callable[[Function], Function]:
    """A model on these inputs, arrays or shapes of f32, and on a list of weights if it takes `w`.

    Its `NAME_example`, `NAME_weights` and `NAME_state` are put beside it, as programs have them.
    """

    def make(function: Function) -> Function:
        given = [jax.ShapeDtypeStruct(x, "float32") if isinstance(x, tuple) else x for x in inputs]
        weighted = "w" in inspect.signature(function).parameters
        beside = {"example": lambda: (*given, *([_shapes(function, given)] if weighted else []))}
        said = beside | {"weights": ("w",) if weighted else (), "state": dict(state or {})}
        function.__globals__.update({f"{function.__name__}_{k}": v for k, v in said.items()})
        return _of_a_list(function) if weighted else function

    return make


def _shapes(function: Function, inputs: list[Any]) -> list[Any]:
    """The shapes that a model asks for, in order."""
    found: list[Any] = []

    def record(*shape: int) -> Any:
        found.append(jax.ShapeDtypeStruct(shape, "float32"))
        return jnp.zeros(shape)

    jax.eval_shape(lambda *xs: function(*xs, record), *inputs)
    return found


def _of_a_list(function: Function) -> Function:
    @functools.wraps(function)
    def call(*given: Any) -> Any:
        *inputs, weights = given
        left = iter(weights)

        def take(*shape: int) -> Any:
            found = next(left)
            assert found.shape == shape, (function.__name__, found.shape, shape)
            return jnp.asarray(found)

        return function(*inputs, take)

    return call
