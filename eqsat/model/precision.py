"""Precision of a contraction: the names that programs use, and what they mean.

A precision is `default`, `high` or `highest`, which leave the rest to the machine, or an algorithm,
which names it. The names are those of `jax.lax.Precision` and `jax.lax.DotAlgorithmPreset`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

DEFAULT, HIGH, HIGHEST = LEVELS = ("default", "high", "highest")  # from fast to accurate
NONE = ""  # of an op that is no contraction, and of one that comes from none

# significand bits, the leading one included; rounding to nearest is off by 2^-bits at most
SIGNIFICAND = {"f64": 53, "f32": 24, "tf32": 11, "f16": 11, "bf16": 8} | {
    "f8e4m3fn": 4, "f8e4m3fnuz": 4, "f8e5m2": 3, "f8e5m2fnuz": 3, "f8e8m0fnu": 1,
    "f6e2m3fn": 4, "f6e3m2fn": 3, "f4e2m1fn": 2,
}  # fmt: skip

_F8 = frozenset(t for t in SIGNIFICAND if t.startswith("f8")) - {"f8e8m0fnu"}  # that is a scale


@dataclass(frozen=True)
class Algorithm:
    """How the operands of a contraction are rounded, and how its products are added.

    operands: each is rounded to this type, or to a sum of `parts` numbers of it; "": it keeps its
    own type, which has 8 bits.
    accumulator: the type that products are added in; "": that of the result.
    products: how many products of parts make up one product.
    fast: sums may be less accurate than the accumulator.
    """

    operands: str
    accumulator: str
    products: int = 1
    fast: bool = False

    @property
    def parts(self) -> int:
        """Numbers an operand is split into: the least of 2 parts are not multiplied with each
        other, of 3 parts neither (6 products), or all with all (9)."""
        return {1: 1, 3: 2, 6: 3, 9: 3}[self.products]


def finer(a: str, b: str) -> str | None:
    """The more accurate of two precisions; None where an algorithm leaves it open."""
    if a == b or NONE in (a, b):
        return a or b
    are_levels = a in LEVELS and b in LEVELS
    return max(a, b, key=LEVELS.index) if are_levels else None


# after `jax.lax.DotAlgorithmPreset`
ALGORITHMS: dict[str, Algorithm] = {
    "any_f8_any_f8_f32": Algorithm("", "f32"),
    "any_f8_any_f8_f32_fast_accum": Algorithm("", "f32", fast=True),
    "any_f8_any_f8_any": Algorithm("", ""),
    "any_f8_any_f8_any_fast_accum": Algorithm("", "", fast=True),
    "f16_f16_f16": Algorithm("f16", "f16"),
    "f16_f16_f32": Algorithm("f16", "f32"),
    "bf16_bf16_bf16": Algorithm("bf16", "bf16"),
    "bf16_bf16_f32": Algorithm("bf16", "f32"),
    "bf16_bf16_f32_x3": Algorithm("bf16", "f32", 3),
    "bf16_bf16_f32_x6": Algorithm("bf16", "f32", 6),
    "bf16_bf16_f32_x9": Algorithm("bf16", "f32", 9),
    "tf32_tf32_f32": Algorithm("tf32", "f32"),
    "tf32_tf32_f32_x3": Algorithm("tf32", "f32", 3),
    "f32_f32_f32": Algorithm("f32", "f32"),
    "f64_f64_f64": Algorithm("f64", "f64"),
}
PRECISIONS = (*LEVELS, *ALGORITHMS)

# what an operand of f32 becomes for a level, per JAX platform (documentation of
# `jax.lax.Precision`): one pass of bf16, three (two parts each), or six (three parts) on a TPU,
# TF32 on a GPU that has it; a CPU computes in f32
_OF_F32 = {
    "tpu": {DEFAULT: ("bf16", 1), HIGH: ("bf16", 2), HIGHEST: ("bf16", 3)},
    "gpu": {DEFAULT: ("tf32", 1), HIGH: ("tf32", 1), HIGHEST: ("f32", 1)},
}


def significand_bits(precision: str, dtype: str, platform: str = "cpu") -> int:
    """Bits that are left of an operand of this floating type when a contraction multiplies it.

    Rounding it is off by 2^-bits of it at most. platform: cpu, gpu or tpu, as JAX calls them.
    """
    bits = SIGNIFICAND[dtype]
    if precision in ALGORITHMS:
        kind, parts = ALGORITHMS[precision].operands, ALGORITHMS[precision].parts
    else:
        levels = _OF_F32.get(platform, {}) if dtype == "f32" else {}
        kind, parts = levels.get(precision, (dtype, 1))
    return min(bits, parts * SIGNIFICAND[kind or dtype])


def algorithm_name(
    lhs: str | None, rhs: str | None, accumulator: str | None, products: int, fast: bool = False
) -> str | None:
    """The algorithm that rounds operands to these types and adds products in that one.

    None if there is no name for it, so that a program cannot say it.
    """
    if lhs in _F8 and rhs in _F8:
        lhs = rhs = ""
    wanted = Algorithm(lhs or "", accumulator or "", products, fast)
    return next((name for name, a in ALGORITHMS.items() if a == wanted and lhs == rhs), None)


def most_accurate(levels: Iterable[str]) -> str:
    """The most accurate of these levels: a contraction has one precision for both operands."""
    return max(levels, key=LEVELS.index)
