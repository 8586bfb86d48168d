"""`slice`: some of the elements of every dim."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.model.attr import Shape
from eqsat.model.movement import Move, make_move
from eqsat.ops.movement.regions import read_by_view
from eqsat.ops.op import Array, Op, Values


def _cut(move: Move, x: Array) -> Array:
    return x[tuple(slice(a, b, k) for a, b, k in zip(*move.args, strict=True))]


def _make(sources: Sequence[Shape], given: Values) -> Move:
    return make_move("slice", sources, {"stride": (1,) * len(sources[0]), **given})


OPS = (
    Op(
        "slice", "From `start` to `limit` in steps.", 1,
        {"start": "ints", "limit": "ints", "stride": "ints"},
        numpy=_cut, attr=Move, make=_make, whole="move",
        reads=read_by_view,
    ),
)  # fmt: skip
