"""Element types and tensor types."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

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
    "i64": (64, "i"),
    "i32": (32, "i"),
    "i16": (16, "i"),
    "i8": (8, "i"),
    "i4": (4, "i"),
    "u64": (64, "u"),
    "u32": (32, "u"),
    "u16": (16, "u"),
    "u8": (8, "u"),
    "bool": (8, "b"),
}

KIND_NAMES = {"f": "floating", "i": "a signed integer", "u": "an unsigned integer", "b": "bool"}

_TYPE = re.compile(r"^\s*([a-z][a-z0-9]*)\s*\[([^\]]*)\]\s*$")


def is_float(dtype: str) -> bool:
    return DTYPES[dtype][1] == "f"


def cdiv(a: int, b: int) -> int:
    """Ceiling division."""
    return -(-a // b)


@dataclass(frozen=True)
class TensorType:
    """An element type and a static shape (elements, row-major); prints as `f32[64, 48]`."""

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
    def parse(cls, text: str) -> TensorType:
        """`f32[64, 48]` → TensorType; ValueError says what is wrong."""
        match = _TYPE.match(text)
        if not match:
            raise ValueError(f"`{text}` is not a tensor type; write `f32[64, 48]`")
        dims = [d.strip() for d in match[2].split(",") if d.strip()]
        if not all(d.isdigit() for d in dims):
            raise ValueError(f"`{text}`: every dimension is a whole number")
        return cls(match[1], tuple(int(d) for d in dims))
