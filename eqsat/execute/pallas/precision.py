"""Precisions of products inside of kernels: as accurate as a contraction asks for, or more."""

from __future__ import annotations

from typing import Any

from eqsat.model.precision import ALGORITHMS, DEFAULT

# algorithms that round operands to bf16 once, as a matrix unit does by itself
_ONE_PASS = frozenset({"bf16_bf16_f32", "bf16_bf16_bf16"})


def dot_precision(precision: str, dtype: Any) -> Any:
    """`jax.lax.Precision`: kernels have two of them, and what is in between is rounded up."""
    import jax.numpy as jnp
    from jax import lax

    if dtype != jnp.float32:  # exact as it is
        return lax.Precision.DEFAULT
    if precision in ALGORITHMS:
        return lax.Precision.DEFAULT if precision in _ONE_PASS else lax.Precision.HIGHEST
    return lax.Precision.DEFAULT if precision == DEFAULT else lax.Precision.HIGHEST
