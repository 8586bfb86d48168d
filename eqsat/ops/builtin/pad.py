"""`pad`: more elements around those there are."""

from __future__ import annotations

from functools import partial

import numpy as np

from eqsat.model.expr import read_literal
from eqsat.model.movement import Move, make_move
from eqsat.ops.movement.regions import read_by_view
from eqsat.ops.op import Array, Op


def _padded(move: Move, x: Array) -> Array:
    low, high, text = move.args
    if not low:  # NumPy does not pad scalars
        return x
    widths = list(zip(low, high, strict=True))
    return np.pad(x, widths, constant_values=read_literal(str(text)))


OPS = (
    Op(
        "pad", "One value around the elements.", 1, {"low": "ints", "high": "ints", "value": "str"},
        numpy=_padded, attr=Move, make=partial(make_move, "pad"), whole="move",
        reads=read_by_view,
    ),
)  # fmt: skip
