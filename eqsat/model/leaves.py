"""Attributes of what a program starts from: arguments, weights and constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from eqsat.model.attr import Attr, require
from eqsat.model.tensor import TensorType


@dataclass(frozen=True, eq=True)
class Leaf(Attr):
    """`input` (argument number `index`), or `weight` (content hash `key`)."""

    kind: ClassVar[str] = "leaf"
    name: str
    type: TensorType
    index: int = -1
    key: str = ""
    __hash__ = Attr.__hash__

    def infer(self, op: str, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        require(not operands, f"`{op}` takes no operands")
        return (self.type,)


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
