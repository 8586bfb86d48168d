"""Weights that are known to hold 0, 1, 2 …: by their content, never by their name."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from eqsat.model.leaves import Leaf
from eqsat.model.tensor import DTYPES, TensorType
from eqsat.ops.meaning.programs import element_dtype

KEY_DIGITS = 16  # of a SHA-256 in hex
LARGEST = 2**20  # numbers of a line that are looked at


def weight_key(array: Any) -> str:
    """Content hash of an array: 16 hex digits of SHA-256 over type, shape and bytes."""
    value = np.ascontiguousarray(array)
    digest = key_digest(value.dtype, np.shape(array))
    digest.update(value.tobytes())
    return digest.hexdigest()[:KEY_DIGITS]


def key_digest(dtype: Any, shape: Sequence[int]) -> Any:
    """Hash that the bytes of an array of this type are added to for its key."""
    return hashlib.sha256(f"{dtype}{list(shape)}".encode())


def is_iota(leaf: Leaf) -> bool:
    """Whether this weight holds 0, 1, … of an integer type."""
    t = leaf.type
    return bool(leaf.key) and is_line(t) and leaf.key == iota_key(t)


def is_line(t: TensorType) -> bool:
    """Whether a tensor of this type can hold 0, 1, … one number each."""
    return t.rank == 1 and DTYPES[t.dtype][1] in "iu" and 0 < t.shape[0] <= LARGEST


@lru_cache(maxsize=1_000)
def iota_key(t: TensorType) -> str:
    """The key of the weight of this type that holds 0, 1, …"""
    return weight_key(np.arange(t.shape[0]).astype(element_dtype(t.dtype)))
