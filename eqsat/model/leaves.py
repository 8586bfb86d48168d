"""Attributes of what a program starts from: arguments, weights and constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from eqsat.model.attr import Attr, require
from eqsat.model.layout import Encoding, Layout
from eqsat.model.tensor import TensorType


@dataclass(frozen=True, eq=True)
class Leaf(Attr):
    """`input` (argument number `index`), or `weight` (content hash `key`).

    `type` is what arrives. `layout` says how the caller lays out an input. Of a `Layout`, `type` is
    the packed type; lanes of padding `0` hold zeros, the caller promises, those of `?` anything.
    Of an `Encoding`, which a target turns into a layout or into nothing, `type` is the plain type.
    """

    kind: ClassVar[str] = "leaf"
    name: str
    type: TensorType
    index: int = -1
    key: str = ""
    layout: Layout | Encoding | None = None
    __hash__ = Attr.__hash__

    @property
    def plain(self) -> TensorType:
        """The type of the tensor itself, whatever layout it arrives in."""
        return self.type if self.layout is None else self.type.with_shape(self.layout.source)

    def infer(self, op: str, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        require(not operands, f"`{op}` takes no operands")
        if self.layout is not None:
            self.layout.verify()
            held = self.layout
            shape = held.packed_shape if isinstance(held, Layout) else held.source
            require(shape == self.type.shape, f"{self.type} is not in the layout of `{self.name}`")
        return (self.type,)

    def to_json(self) -> Any:
        data = super().to_json()
        return {k: v for k, v in data.items() if k != "layout" or v is not None}


@dataclass(frozen=True, eq=True)
class Fill(Attr):
    """A tensor that holds one value everywhere."""

    kind: ClassVar[str] = "fill"
    value: bool | int | float
    type: TensorType
    __hash__ = Attr.__hash__

    def infer(self, op: str, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        require(not operands, "`fill` takes no operands")
        return (self.type,)
