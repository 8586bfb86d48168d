"""Arrays for the inputs and weights of a program, the same every time."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from eqsat.model.attr import Attr
from eqsat.model.program import Program
from eqsat.model.tensor import TensorType
from eqsat.ops.meaning.scalar import held_dtype, integer_range

Array = np.ndarray[Any, Any]


def leaf_values(program: Program, seed: int, exact: bool) -> dict[Attr, Array]:
    """An array in held form for every input and weight, by its attribute.

    exact: small whole numbers, integers sometimes at the ends of their range.
    """
    found: dict[Attr, Array] = {}
    for i in (*program.inputs, *program.weights):
        leaf = program.leaf(i)
        # by name, so that a program cut smaller still reads the same arrays
        rng = np.random.default_rng([seed, zlib.crc32(leaf.name.encode())])
        found[leaf] = _array(rng, leaf.type, exact)
    return found


def _array(rng: np.random.Generator, t: TensorType, exact: bool) -> Array:
    held = held_dtype(t.dtype)
    if held.kind == "b":
        return rng.integers(0, 2, t.shape).astype(bool)
    if held.kind == "f":
        return rng.integers(-3, 4, t.shape).astype(held) if exact else rng.standard_normal(t.shape)
    low, high = integer_range(t.dtype)
    small = rng.integers(max(low, -5), 6, t.shape).astype(held)
    ends = rng.choice(np.array([low, high], held), t.shape)
    return np.where(rng.random(t.shape) < 0.1, ends, small)
