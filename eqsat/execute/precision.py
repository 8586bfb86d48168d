"""Products of tensors as accurate as a contraction asks for, on the device that runs them."""

from __future__ import annotations

from typing import Any

from eqsat.model.precision import ALGORITHMS, HIGHEST

# every platform computes these; XLA:CPU ignores all other algorithms or JAX refuses them there
_EVERYWHERE = frozenset({"f32_f32_f32", "f64_f64_f64"})


def level(precision: str) -> Any:
    """`jax.lax.Precision`; what is no contraction in the program is computed in full.

    An algorithm says how products of matrices are computed; XLA's convolutions take none, and JAX
    asks for `default` there.
    """
    from jax import lax

    if precision in ALGORITHMS:
        return lax.Precision.DEFAULT
    return lax.Precision[(precision or HIGHEST).upper()]


def dot_general(a: Any, b: Any, numbers: Any, precision: str, dtype: Any) -> Any:
    """`lax.dot_general` with sums in `dtype`.

    An algorithm that rounds operands is asked for where it exists; a CPU computes in the operands'
    own type, which is at least as accurate.
    """
    from jax import lax

    def asking(p: Any) -> Any:
        return lambda x, y: lax.dot_general(
            x, y, numbers, precision=p, preferred_element_type=dtype
        )

    if precision not in ALGORITHMS:
        return asking(level(precision))(a, b)
    asked = asking(lax.DotAlgorithmPreset[precision.upper()])
    if precision in _EVERYWHERE:
        return asked(a, b)
    return lax.platform_dependent(a, b, cpu=asking(lax.Precision.HIGHEST), default=asked)
