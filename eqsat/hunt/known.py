"""What a proposer of attributes knows of the node it proposes for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from eqsat.hunt.expressions import kind_of
from eqsat.hunt.nests import Scale
from eqsat.model.attr import Attr, Shape
from eqsat.model.expr import read_literal
from eqsat.model.tensor import TensorType
from eqsat.ops.meaning.scalar import integer_range

Ints = tuple[int, ...]
DEFAULT = "default"  # of a layout's field that a pattern leaves out
PADS: dict[str, tuple[str, ...]] = {
    "f": ("1.0", "-inf", "inf", "-1.0"),
    "i": ("1", "2"),
    "b": ("true",),
}


@dataclass(frozen=True)
class Surroundings:
    """What is known of a node: operands, result, fields that are fixed, attributes near by."""

    rng: Random
    scale: Scale
    operands: tuple[TensorType | None, ...]
    result: TensorType | None
    element: str  # type of the elements, where no operand and no result says it
    fixed: Mapping[str, Any] = field(default_factory=dict)
    near: Sequence[Attr] = ()

    @property
    def source(self) -> Shape | None:
        """The shape of the only operand."""
        operand = self.operands[0] if self.operands else None
        return None if operand is None else operand.shape

    @property
    def shape(self) -> Shape | None:
        return None if self.result is None else self.result.shape

    @property
    def dtype(self) -> str:
        typed = next((t for t in (self.result, *self.operands[:1]) if t is not None), None)
        return self.element if typed is None else typed.dtype

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def relatives(self, kind: type[Attr]) -> list[Any]:
        return [a for a in self.near if isinstance(a, kind)]

    def any_shape(self, least: int = 0) -> Shape:
        """A random shape of at least this rank."""
        shape = list(self.scale.shape(self.rng))
        while len(shape) < least:
            shape.append(self.scale.extent(self.rng))
        return tuple(shape)


def can_hold(dtype: str, text: str) -> bool:
    """Whether an element type has this value."""
    value, kind = read_literal(text), kind_of(dtype)
    if kind == "f":
        return not isinstance(value, bool)
    low, high = (0, 1) if kind == "b" else integer_range(dtype)
    return math.isfinite(value) and value == int(value) and low <= value <= high
