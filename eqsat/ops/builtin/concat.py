"""`concat`: tensors one after another along a dim."""

from __future__ import annotations

from functools import partial

import numpy as np

from eqsat.model.movement import Move, make_move
from eqsat.ops.movement.regions import read_by_concat
from eqsat.ops.op import Op

OPS = (
    Op(
        "concat", "Tensors one after another along a dim.", None, {"axis": "int"},
        numpy=lambda move, *xs: np.concatenate(xs, axis=move.args[0]),
        attr=Move, make=partial(make_move, "concat"), whole="move",
        reads=read_by_concat,
    ),
)  # fmt: skip
