"""Element types as NumPy has them, and the hash by which an array is known."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

KEY_DIGITS = 16  # of a SHA-256 in hex


def key_digest(dtype: Any, shape: Sequence[int]) -> Any:
    """Hash that the bytes of an array of this type are added to for its key."""
    return hashlib.sha256(f"{dtype}{list(shape)}".encode())


def element_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy type that stores an element type in memory (bf16 and what is below 16 bits but i8
    and u8 by ml_dtypes)."""
    if dtype not in _EXTENDED:
        return np.dtype(_NUMPY_NAMES.get(dtype, dtype))
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, _EXTENDED[dtype]))


_NUMPY_NAMES = {"bool": "bool"} | {
    f"{k}{b}": f"{n}{b}"
    for k, n, sizes in (
        ("f", "float", (16, 32, 64)),
        ("i", "int", (8, 16, 32, 64)),
        ("u", "uint", (8, 16, 32, 64)),
    )
    for b in sizes
}
_EXTENDED = {
    "bf16": "bfloat16",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2fnuz": "float8_e5m2fnuz",
    "f8e8m0fnu": "float8_e8m0fnu",
    "f6e2m3fn": "float6_e2m3fn",
    "f6e3m2fn": "float6_e3m2fn",
    "f4e2m1fn": "float4_e2m1fn",
    "i4": "int4",
    "u4": "uint4",
}
DTYPE_NAMES: dict[str, str] = {v: k for k, v in (_NUMPY_NAMES | _EXTENDED).items()}
