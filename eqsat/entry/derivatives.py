"""Reverse mode of a jitted function whose forward and backward pass are searched like the function.

JAX splits a derivative in two: a forward pass that returns residuals, and a backward pass from
these residuals and the cotangents. Each is a function of arrays, and so a program.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

Jit = Callable[..., Callable[..., Any]]  # a function and the weights among its arguments → jitted


def in_reverse(
    function: Callable[..., Any], primal: Callable[..., Any], jit: Jit, weights: tuple[str, ...]
) -> Callable[..., Any]:
    """`primal`, which computes `function`, under `jax.grad` by two searched programs.

    Custom derivatives and stop_gradient of the function are kept. JAX refuses forward mode
    (`jax.jvp`) for functions with a reverse mode of their own.
    """
    import jax

    passes = _Passes(function, jit, weights)

    wrapped = jax.custom_vjp(lambda args, kwargs: primal(*args, **kwargs))
    wrapped.defvjp(passes.forward, passes.backward)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return wrapped(args, kwargs)

    return call


class _Passes:
    """The two passes; a backward pass belongs to one shape of residuals."""

    def __init__(self, function: Callable[..., Any], jit: Jit, weights: tuple[str, ...]):
        self.function = function
        self.jit = jit
        self.pulls: dict[Any, Any] = {}  # tree and types of the arguments → tree of the residuals
        self.jitted: dict[Any, Callable[..., Any]] = {}  # the same → the backward pass
        first = functools.partial(_Passes._first, self)
        self.first = jit(functools.wraps(function)(first), weights=weights)

    def forward(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The results; the residuals, and what they are of."""
        out, residuals = self.first(*args, **kwargs)
        return out, (residuals, (args, kwargs))

    def backward(self, kept: tuple[Any, Any], cotangents: Any) -> tuple[Any, Any]:
        """The cotangents of both; None for integers."""
        import jax

        residuals, given = kept
        key = _key(given)
        if key not in self.jitted:
            self.jitted[key] = self.jit(functools.partial(self._second, self.pulls[key]))
        leaves, tree = jax.tree_util.tree_flatten(given)
        found = iter(self.jitted[key](residuals, cotangents))
        return _unflatten(tree, [next(found) if _is_real(x) else None for x in leaves])

    def _first(self, *args: Any, **kwargs: Any) -> tuple[Any, list[Any]]:
        import jax

        out, pull = jax.vjp(lambda args, kwargs: self.function(*args, **kwargs), args, kwargs)
        residuals, self.pulls[_key((args, kwargs))] = jax.tree_util.tree_flatten(pull)
        return out, residuals

    def _second(self, tree: Any, residuals: list[Any], cotangents: Any) -> list[Any]:
        import jax

        found = jax.tree_util.tree_leaves(jax.tree_util.tree_unflatten(tree, residuals)(cotangents))
        return [x for x in found if x.dtype != jax.dtypes.float0]


def _key(args: Any) -> Any:
    import jax

    leaves, tree = jax.tree_util.tree_flatten(args)
    return tree, tuple((x.shape, x.dtype) for x in map(jax.typeof, leaves))


def _is_real(x: Any) -> bool:
    import jax
    import jax.numpy as jnp

    return bool(jnp.issubdtype(jax.typeof(x).dtype, jnp.inexact))


def _unflatten(tree: Any, leaves: list[Any]) -> Any:
    """Leaves in their tree, where None is a leaf."""
    import jax

    marked = jax.tree_util.tree_unflatten(tree, list(range(len(leaves))))
    return jax.tree_util.tree_map(lambda i: leaves[i], marked)
