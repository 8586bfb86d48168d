"""`opaque`, and ops that hold programs: what they do, the program brings along."""

from __future__ import annotations

from eqsat.model.control import COND, SCAN, WHILE, Control
from eqsat.model.leaves import Opaque
from eqsat.ops.op import Op

OPS = (
    Op("opaque", "A primitive kept whole; a barrier.", None, attr=Opaque, in_rules=False),
    Op(SCAN, "A body run step by step over slices.", None, attr=Control, in_rules=False),
    Op(WHILE, "A body run while a condition holds.", None, attr=Control, in_rules=False),
    Op(COND, "One of several bodies, by an index.", None, attr=Control, in_rules=False),
)
