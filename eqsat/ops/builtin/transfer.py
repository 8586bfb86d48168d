"""`transfer`: a copy on another device."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.model.attr import Shape
from eqsat.model.devices import Transfer
from eqsat.ops.movement.regions import read_alike
from eqsat.ops.op import Op, Values


def _make(sources: Sequence[Shape], given: Values) -> Transfer:
    return Transfer(sources[0], given.get("origin", ""), given["device"])


OPS = (
    Op(
        "transfer", "A copy on another device.", 1, {"origin": "str", "device": "str"},
        numpy=lambda t, x: x, attr=Transfer, make=_make, whole="border",
        reads=read_alike,
    ),
)  # fmt: skip
