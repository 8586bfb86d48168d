"""Leaves of a program: arguments, weights, and tensors of one value."""

from __future__ import annotations

import numpy as np

from eqsat.model.leaves import Fill, Leaf
from eqsat.ops.meaning.scalar import held_dtype
from eqsat.ops.op import Array, Op


def _filled(fill: Fill) -> Array:
    return np.full(fill.type.shape, fill.value, held_dtype(fill.type.dtype))


OPS = (
    Op("input", "An argument of the program.", 0, attr=Leaf, in_rules=False),
    Op("weight", "A tensor that is known by the hash of its content.", 0, attr=Leaf, whole="leaf"),
    Op("fill", "A tensor of one value.", 0, numpy=_filled, attr=Fill, whole="fill"),
)
