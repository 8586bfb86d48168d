"""The precision that a jaxpr's contraction names → its name in a program."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.frontends.values import dtype_name
from eqsat.model.precision import DEFAULT, LEVELS, algorithm_name, most_accurate


def precision_of(given: Any) -> str | None:
    """The name of the parameter `precision` of `dot_general` and `conv_general_dilated`.

    Of two precisions, one per operand, the more accurate one. None for a `jax.lax.DotAlgorithm`
    that is no preset: a program has no name for it.
    """
    from jax import lax

    if given is None:
        return DEFAULT
    if isinstance(given, lax.DotAlgorithmPreset):
        return given.name.lower()
    if isinstance(given, lax.DotAlgorithm):
        return _preset(given)
    return most_accurate(p.name.lower() for p in given)


def _preset(given: Any) -> str | None:
    """The preset with these fields; parts are counted by products, as in the presets."""
    types = (given.lhs_precision_type, given.rhs_precision_type, given.accumulation_type)
    lhs, rhs, accumulator = (dtype_name(np.dtype(t)) for t in types)
    if None in (lhs, rhs, accumulator):
        return None
    if (given.lhs_component_count, given.rhs_component_count) != (1, 1):
        return None
    fast = bool(given.allow_imprecise_accumulation)
    return algorithm_name(lhs, rhs, accumulator, given.num_primitive_operations, fast)


def matmul_precision(name: str) -> Any:
    """A context in which JAX's products that name no precision have this one."""
    import jax

    return jax.default_matmul_precision(name if name in LEVELS else name.upper())
