"""Scalar functions that Triton's compiler does not have, by those that it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eqsat.execute.kernels.approximations import ERF, ERF_END


def _round_even(x: Any) -> Any:
    """The nearest whole number, of two the even one."""
    import jax.numpy as jnp

    low = jnp.floor(x)
    rest = x - low
    is_odd = low - 2 * jnp.floor(low * 0.5) != 0
    return jnp.where((rest > 0.5) | ((rest == 0.5) & is_odd), low + 1, low)


def _round_away(x: Any) -> Any:
    """The nearest whole number, of two the one that is further from 0."""
    import jax.numpy as jnp

    low = jnp.floor(jnp.abs(x))
    whole = jnp.where(jnp.abs(x) - low >= 0.5, low + 1, low)
    return jnp.where(x < 0, -whole, whole)


def _erf(x: Any) -> Any:
    """x · P(x²) / Q(x²) in f32, which is no further from 0 than 1; NaN stays."""
    import jax.numpy as jnp

    wide = x.astype(jnp.float32)
    near = jnp.minimum(jnp.maximum(wide, -ERF_END), ERF_END)
    square = near * near
    found = near * _polynomial(square, ERF[0]) / _polynomial(square, ERF[1])
    found = jnp.minimum(jnp.maximum(found, -1.0), 1.0)
    return jnp.where(jnp.isnan(wide), wide, found).astype(x.dtype)


def _polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    found: Any = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        found = found * x + c
    return found


MISSING: dict[str, Callable[[Any], Any]] = {
    "round_even": _round_even,
    "round_away": _round_away,
    "erf": _erf,
}
