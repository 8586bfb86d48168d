"""The attribute classes that ops have of their own, and the kinds of these ops."""

from __future__ import annotations

from typing import Any

from eqsat.model.attr import Attr
from eqsat.model.control import Control
from eqsat.model.devices import Transfer
from eqsat.model.extents import NO_SYMBOLS, Symbols
from eqsat.model.generic import Generic, Result
from eqsat.model.layout import Encoding, Layout
from eqsat.model.leaves import Custom, Fill, Leaf, Opaque
from eqsat.model.movement import Move, Reshape, Transpose

_CLASSES: tuple[type[Attr], ...] = (
    Leaf, Fill, Generic, Transpose, Reshape, Layout, Move, Encoding, Transfer, Opaque, Result,
    Control,
)  # fmt: skip
# op -> attribute class; every other op is `Custom`
ATTR_CLASSES: dict[str, type[Attr]] = {op: c for c in _CLASSES for op in c.ops}
_BY_KIND = {c.kind: c for c in (*_CLASSES, Custom)}


def _of(kind: str) -> frozenset[str]:
    return frozenset(op for op, c in ATTR_CLASSES.items() if c.ops[op] == kind)


LEAVES = _of("leaf")
VIEWS = _of("view")  # no data moves
CONVERSIONS = _of("conversion")
SAME_BYTES = VIEWS - {"result"}  # their result lies as their operand does
TILINGS = CONVERSIONS - {"transpose"}  # blocks, or what asks for them


def permutes(op: str, attr: Attr) -> bool:
    """Whether a conversion changes the order of elements."""
    return attr.moves if isinstance(attr, Transpose) else op in ("pack", "unpack")


def attr_from_json(data: Any, symbols: Symbols = NO_SYMBOLS) -> Attr:
    """Undo `Attr.to_json`; symbols: extents by name."""
    return _BY_KIND[data["kind"]].from_json(data, symbols)
