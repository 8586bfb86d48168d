"""`set_encoding` and `unset_encoding`: a layout that is asked for, not chosen yet."""

from __future__ import annotations

from eqsat.model.layout import Encoding
from eqsat.ops.movement.regions import read_alike
from eqsat.ops.op import Op

OPS = tuple(
    Op(name, doc, 1, numpy=lambda e, x: x, attr=Encoding, whole="encoding", reads=read_alike)
    for name, doc in (
        ("set_encoding", "In the layout that a contraction asks for."),
        ("unset_encoding", "Back from the layout that a contraction asks for."),
    )
)
