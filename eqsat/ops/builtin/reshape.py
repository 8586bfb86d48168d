"""`reshape`: the elements in their order, as other dims."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.model.attr import Shape
from eqsat.model.movement import Reshape
from eqsat.ops.movement.regions import read_by_view
from eqsat.ops.op import Op, Values


def _make(sources: Sequence[Shape], given: Values) -> Reshape:
    return Reshape(sources[0], given["shape"])


OPS = (
    Op(
        "reshape", "The elements in order, as other dims.", 1, {"shape": "ints"},
        numpy=lambda r, x: x.reshape(r.shape), attr=Reshape, make=_make, whole="groups",
        reads=read_by_view,
    ),
)  # fmt: skip
