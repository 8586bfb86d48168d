"""Scalar bodies as JAX: an `Expr` and arrays that broadcast → one array, in the element types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from eqsat.model.expr import BottomUp, Expr
from eqsat.ops.meaning.programs import element_dtype
from eqsat.ops.meaning.scalar import FUNCTIONS


@cache
def _functions() -> dict[str, Callable[..., Any]]:
    """Name → JAX function of operands that have one shape (built on first use: JAX is heavy)."""
    import jax.numpy as jnp
    from jax import lax

    return {name: getattr(lax, name) for name in FUNCTIONS if hasattr(lax, name)} | {
        "and": lax.bitwise_and,
        "or": lax.bitwise_or,
        "xor": lax.bitwise_xor,
        "not": lax.bitwise_not,
        "is_finite": jnp.isfinite,  # lax refuses integers
        "round_even": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
        "round_away": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    }


def evaluate_body_in_jax(expr: Expr, operands: Sequence[Any]) -> Any:
    """The body with JAX's own functions, so that rounding and gradients are JAX's."""
    return evaluator(operands)(expr)


def evaluator(
    operands: Sequence[Any], instead: Mapping[str, Callable[..., Any]] | None = None
) -> BottomUp[Expr, Any]:
    """`evaluate_body` for several bodies over these operands: each part is computed once.

    instead: functions that are computed in another way than JAX's, by name.
    """
    functions = _functions() | dict(instead or {})

    def step(e: Expr, values: Sequence[Any]) -> Any:
        if e.fn == "arg":
            return operands[e.value]
        if e.fn == "const":
            return e.value
        if e.fn == "cast":
            return convert(values[0], e.value)
        return functions[e.fn](*_aligned(e.fn, values))

    return BottomUp(step)


def convert(x: Any, dtype: str) -> Any:
    """A conversion as `lax.convert_element_type` does it; bools are x ≠ 0."""
    import jax.numpy as jnp
    from jax import lax

    wanted = element_dtype(dtype)
    value = jnp.asarray(x)
    return value if value.dtype == wanted else lax.convert_element_type(value, wanted)


def _aligned(fn: str, values: Sequence[Any]) -> list[Any]:
    """One shape and one element type: Python scalars take the type of the arrays beside them."""
    import jax.numpy as jnp

    first = 1 if fn == "select" else 0
    strong = [v.dtype for v in values[first:] if hasattr(v, "dtype")]
    typed = [v if hasattr(v, "dtype") else _typed(v, strong) for v in values[first:]]
    head = [jnp.asarray(v) for v in values[:first]]
    return list(jnp.broadcast_arrays(*head, *typed))


def _typed(value: bool | int | float, peers: list[Any]) -> Any:
    import jax.numpy as jnp

    return jnp.asarray(value, peers[0] if peers else None)
