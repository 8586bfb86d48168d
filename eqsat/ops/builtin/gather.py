"""`gather`: the slices of a dim that an index tensor names."""

from __future__ import annotations

from functools import partial

import numpy as np

from eqsat.model.movement import Move, make_move
from eqsat.ops.movement.regions import read_by_gather
from eqsat.ops.op import Array, Op


def _taken(move: Move, x: Array, indices: Array) -> Array:
    """Indices are clipped into range, as XLA's gather does."""
    return np.take(x, indices, axis=move.args[0], mode="clip")


OPS = (
    Op(
        "gather", "The slices along a dim that indices name.", 2, {"axis": "int"},
        numpy=_taken, attr=Move, make=partial(make_move, "gather"), whole="move",
        reads=read_by_gather,
    ),
)  # fmt: skip
