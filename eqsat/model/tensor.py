"""Element types and tensor types."""

from __future__ import annotations

import math
import re
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
