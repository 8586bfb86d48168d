"""Unit roundoffs and ranges: what a rounding of an element type, or of a product, may change.

Unit roundoff u of a type with p significant bits is 2^-p (Higham, Accuracy and Stability of
Numerical Algorithms, 2nd ed., §2.1); products in fewer bits have that of their operands' bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.model.generic import Generic
from eqsat.model.precision import ALGORITHMS, NONE, SIGNIFICAND, significand_bits


@dataclass(frozen=True)
class Rounding:
    """u: unit roundoff. tiny: below it, rounding moves a value by up to `step`, whatever its size
    (gradual underflow, or a flush to zero). most: the largest finite value."""

    u: float
    tiny: float
    step: float
    most: float


def _format(dtype: str, low: int, most: float, flushes: bool = False) -> Rounding:
    """low: exponent of the smallest normal value."""
    tiny, u = 2.0**low, 2.0 ** -SIGNIFICAND[dtype]
    return Rounding(u, tiny, tiny if flushes else tiny * u, most)


# XLA flushes subnormals of f32, and computes bf16 in it
FORMATS: dict[str, Rounding] = {
    "f64": _format("f64", -1022, float("inf"), flushes=True),
    "f32": _format("f32", -126, (2 - 2.0**-23) * 2.0**127, flushes=True),
    "bf16": _format("bf16", -126, (2 - 2.0**-7) * 2.0**127, flushes=True),
    "f16": _format("f16", -14, 65504.0),
    "f8e4m3fn": _format("f8e4m3fn", -6, 448.0),
    "f8e5m2": _format("f8e5m2", -14, 57344.0),
    "f8e4m3fnuz": _format("f8e4m3fnuz", -7, 240.0),
    "f8e5m2fnuz": _format("f8e5m2fnuz", -15, 57344.0),
    "f8e8m0fnu": _format("f8e8m0fnu", -127, 2.0**127),
    "f6e2m3fn": _format("f6e2m3fn", 0, 7.5),
    "f6e3m2fn": _format("f6e3m2fn", -2, 28.0),
    "f4e2m1fn": _format("f4e2m1fn", 0, 6.0),
}
EXACT_U = 2.0**-40  # of float64 sums in any order, and of constants written to a dozen digits

# roundings of one evaluation, where XLA's functions are no better than that; others are rounded
# once. Its elementary functions are polynomials with errors of a few units in the last place.
ULPS = dict.fromkeys(
    ("exp", "exp2", "log", "log1p", "expm1", "cbrt", "tanh", "logistic", "sin", "cos", "atan"), 4
) | dict.fromkeys(
    ("pow", "tan", "sinh", "cosh", "asin", "acos", "atan2", "asinh", "acosh", "atanh", "erf"), 8
) | {"erfc": 16, "erf_inv": 16, "rsqrt": 2}  # fmt: skip
# functions whose result is an operand, or a whole number: nothing is rounded
UNROUNDED = frozenset(
    {
        "neg", "abs", "sign", "max", "min", "clamp", "select", "floor", "ceil", "round_even",
        "round_away", "rem", "nextafter", "and", "or", "xor", "not",
    }
)  # fmt: skip


def product_u(g: Generic, platform: str) -> float:
    """Unit roundoff of what a platform rounds the operands of a contraction to; 0 if it does not.

    XLA:CPU computes every precision in the operands' own type.
    """
    if g.precision == NONE or platform == "cpu":
        return 0.0
    wide = g.yields[0].dtype
    operands = [d for d in g.dtypes if d in SIGNIFICAND]
    left = {d: significand_bits(g.precision, _wider(d, wide), platform) for d in operands}
    return max((2.0**-bits for d, bits in left.items() if bits < SIGNIFICAND[d]), default=0.0)


def _wider(a: str, b: str) -> str:
    return max(a, b, key=lambda d: SIGNIFICAND[d])


def sum_u(g: Generic, dtype: str, platform: str) -> float:
    """Unit roundoff of the additions of a sum: XLA adds narrow floats as f32, but in steps over a
    window, and as an algorithm says."""
    own = FORMATS[dtype].u
    if g.precision in ALGORITHMS and platform != "cpu":
        return FORMATS[ALGORITHMS[g.precision].accumulator or dtype].u
    has_window = any(len(e.terms) > 1 for m in g.maps for e in m)
    return own if has_window else min(own, FORMATS["f32"].u)
