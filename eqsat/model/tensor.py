"""Element types, tensor types, and the precision of contractions of them.

A precision is `default`, `high` or `highest`, which leave the rest to the machine, or an algorithm,
which names it. The names are those of `jax.lax.Precision` and `jax.lax.DotAlgorithmPreset`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from eqsat.model.extents import NO_SYMBOLS, Symbols, read_extent

# name -> (bits, kind); kinds: f floating, i signed, u unsigned, b boolean
DTYPES: dict[str, tuple[int, str]] = {
    "f64": (64, "f"),
    "f32": (32, "f"),
    "f16": (16, "f"),
    "bf16": (16, "f"),
    "f8e4m3fn": (8, "f"),
    "f8e5m2": (8, "f"),
    "f8e4m3fnuz": (8, "f"),
    "f8e5m2fnuz": (8, "f"),
    "f8e8m0fnu": (8, "f"),  # a power of two: no sign, no zero (a scale of a block, OCP MX v1.0)
    "f6e2m3fn": (6, "f"),
    "f6e3m2fn": (6, "f"),
    "f4e2m1fn": (4, "f"),
    "i64": (64, "i"),
    "i32": (32, "i"),
    "i16": (16, "i"),
    "i8": (8, "i"),
    "i4": (4, "i"),
    "u64": (64, "u"),
    "u32": (32, "u"),
    "u16": (16, "u"),
    "u8": (8, "u"),
    "u4": (4, "u"),
    "bool": (8, "b"),
}

# floating types without a NaN (what is too large becomes the largest value), without a zero (zeros
# and what is negative become NaN), and without an infinity
NO_NAN = frozenset({"f6e2m3fn", "f6e3m2fn", "f4e2m1fn"})
NO_ZERO = frozenset({"f8e8m0fnu"})
NO_INFINITY = NO_NAN | NO_ZERO | {"f8e4m3fn", "f8e4m3fnuz", "f8e5m2fnuz"}
SHORT = frozenset({"i8", "u8", "i16"})  # of which products are summed in 32 bits
KIND_NAMES = {"f": "floating", "i": "a signed integer", "u": "an unsigned integer", "b": "bool"}

_TYPE = re.compile(r"^\s*([a-z][a-z0-9]*)\s*\[([^\]]*)\]\s*$")


def is_float(dtype: str) -> bool:
    return DTYPES[dtype][1] == "f"


def cdiv(a: int, b: int) -> int:
    """Ceiling division."""
    return -(-a // b)


@dataclass(frozen=True)
class TensorType:
    """An element type and a shape (elements, row-major); prints as `f32[64, 48]`.

    An unknown dim is an extent (`model.extents`) and prints as it is computed: `m // 16`.
    """

    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"no element type named `{self.dtype}`")
        if any(d < 0 for d in self.shape):
            raise ValueError(f"negative dimension in {list(self.shape)}")

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes in memory; sub-byte types are stored packed."""
        return cdiv(self.size * DTYPES[self.dtype][0], 8)

    def with_shape(self, shape: tuple[int, ...]) -> TensorType:
        return TensorType(self.dtype, tuple(shape))

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    @classmethod
    def parse(cls, text: str, symbols: Symbols = NO_SYMBOLS) -> TensorType:
        """`f32[64, 48]` → TensorType; symbols: extents by name. ValueError says what is wrong."""
        match = _TYPE.match(text)
        if not match:
            raise ValueError(f"`{text}` is not a tensor type; write `f32[64, 48]`")
        dims = [d.strip() for d in match[2].split(",") if d.strip()]
        extents = [int(d) if d.isdecimal() else _extent(d, symbols, text) for d in dims]
        return cls(match[1], tuple(extents))


def _extent(dim: str, symbols: Symbols, text: str) -> int:
    """A dim that is no plain number; ValueError if it is no extent either."""
    extent = read_extent(dim, symbols) if symbols else None
    if extent is None:
        raise ValueError(
            f"`{text}`: every dimension is a whole number"
            + (f" or computed from {', '.join(symbols)}" if symbols else "")
            + (f"; a comma is missing in `{dim}`" if " " in dim and not symbols else "")
        )
    return extent


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
