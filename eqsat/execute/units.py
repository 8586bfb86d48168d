"""Unit roundoffs and ranges: what a rounding of an element type, or of a product, may change.

Unit roundoff u of a type with p significant bits is 2^-p (Higham, Accuracy and Stability of
Numerical Algorithms, 2nd ed., §2.1); products in fewer bits have that of their operands' bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Format:
    """u: unit roundoff. tiny: below it, rounding moves a value by up to `step`, whatever its size
    (gradual underflow, or a flush to zero). most: the largest finite value."""

    u: float
    tiny: float
    step: float
    most: float


def _format(bits: int, low: int, most: float, flushes: bool = False) -> Format:
    """bits: significant ones; low: exponent of the smallest normal value."""
    tiny = 2.0**low
    return Format(2.0**-bits, tiny, tiny if flushes else tiny * 2.0**-bits, most)


# XLA flushes subnormals of f32, and computes bf16 in it
FORMATS: dict[str, Format] = {
    "f64": _format(53, -1022, float("inf"), flushes=True),
    "f32": _format(24, -126, (2 - 2.0**-23) * 2.0**127, flushes=True),
    "bf16": _format(8, -126, (2 - 2.0**-7) * 2.0**127, flushes=True),
    "f16": _format(11, -14, 65504.0),
    "f8e4m3fn": _format(4, -6, 448.0),
    "f8e5m2": _format(3, -14, 57344.0),
    "f8e4m3fnuz": _format(4, -7, 240.0),
    "f8e5m2fnuz": _format(3, -15, 57344.0),
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

# bits of a factor of a product, by platform and precision; all of the type's where none is given
_BITS = {
    ("gpu", "default"): 11,  # TF32
    ("gpu", "high"): 11,
    ("tpu", "default"): 8,  # one pass of bf16
    ("tpu", "high"): 16,  # three
}


def product_u(dtype: str, precision: str, platform: str) -> float:
    """Unit roundoff of the factors of an f32 product on a platform; 0 if they are kept whole.

    precision: `default`, `high`, `highest`, or an algorithm such as `TF32_TF32_F32`.
    """
    if dtype != "f32":
        return 0.0
    bits = _BITS.get((platform, precision.lower()), 0) or _algorithm_bits(precision.upper())
    return 2.0**-bits if bits else 0.0


def _algorithm_bits(algorithm: str) -> int:
    """Of `lax.DotAlgorithmPreset`: `…_X3` and the like split a factor into several narrow ones."""
    for name, bits in (("BF16_BF16", 8), ("F16_F16", 11), ("TF32_TF32", 11)):
        if name in algorithm:
            passes = algorithm.rsplit("_X", 1)
            return min(24, bits * {"3": 2, "6": 3, "9": 3}.get(passes[-1], 1))
    return 0


def precision_of(attr: Any) -> str:
    """The precision of a contraction, as a word."""
    return str(getattr(attr, "precision", "") or "highest")
