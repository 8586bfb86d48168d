"""Scalar functions by name: `FUNCTIONS` is the table, and a front end names its entries.

JAX's primitives and MLIR's ops of one name with an entry mean it; what is called otherwise there is
a line in the front end's own table. ONNX's operators are calls of jax.numpy, so they come here as
primitives. What several sources compose of the table's entries is written here.
"""

from __future__ import annotations

from eqsat.model.expr import Expr, call, const
from eqsat.ops.meaning.scalar import FUNCTIONS

# names that do not say which of several functions is meant, or that take operands otherwise
_FORMS = frozenset({"pow", "select", "round_even", "round_away"})
SAME_NAME = tuple(name for name in FUNCTIONS if name not in _FORMS)


def integer_power(x: Expr, n: int, is_float: bool) -> Expr:
    """x^n; one over it for a negative n."""
    one = const(1.0 if is_float else 1)
    if n == 0:
        return one
    product = power(x, abs(n))
    return call("div", one, product) if n < 0 else product


def power(x: Expr, n: int) -> Expr:
    """x^n for n > 0, by repeated squaring, as XLA expands it."""
    if n == 1:
        return x
    half = power(x, n // 2)
    square = call("mul", half, half)
    return call("mul", square, x) if n % 2 else square
