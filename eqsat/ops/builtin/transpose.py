"""`transpose`: dims in another order."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.model.attr import Shape
from eqsat.model.movement import Transpose
from eqsat.ops.movement.regions import read_by_view
from eqsat.ops.op import Op, Values


def _make(sources: Sequence[Shape], given: Values) -> Transpose:
    return Transpose(sources[0], given["perm"], given.get("order", ()))


OPS = (
    Op(
        "transpose", "Result dim i is dim perm[i].", 1, {"perm": "ints", "order": "ints"},
        numpy=lambda t, x: x.transpose(t.perm), attr=Transpose, make=_make, optional=("order",),
        reads=read_by_view,
    ),
)  # fmt: skip
