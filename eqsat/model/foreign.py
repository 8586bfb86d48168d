"""Primitives that are not modelled, and the attribute of ops without a class of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from eqsat.model.attr import Attr, Shape, check_operands, require, value_text
from eqsat.model.extents import Symbols
from eqsat.model.tensor import DTYPES, KIND_NAMES, TensorType


@dataclass(frozen=True, eq=True)
class Opaque(Attr):
    """A primitive that is not modelled: kept whole, executed as it was, a barrier for rules."""

    kind: ClassVar[str] = "opaque"
    ops: ClassVar[Mapping[str, str]] = {"opaque": "opaque"}
    primitive: str
    key: str  # hash of its exported form, which travels beside the program
    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    __hash__ = Attr.__hash__

    def infer(self, op: str, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        require(operands == self.operands, f"operands of opaque `{self.primitive}` do not fit")
        return self.results

    def text(self, op: str) -> str:
        return f'primitive="{self.primitive}", key="{self.key}"'

    @classmethod
    def from_json(cls, data: dict[str, Any], symbols: Symbols) -> Self:
        types = {
            side: tuple(TensorType.parse(t, symbols) for t in data[side])
            for side in ("operands", "results")
        }
        return super().from_json(data | types, symbols)


@dataclass(frozen=True, eq=True)
class Custom(Attr):
    """The attribute of an op that is named values and a shape, such as those of plug-ins.

    Complete, so that only running the op needs its record.
    values: what its keywords say, by key ascending; an int, a float, a text or ints. accepts: per
    operand, the kinds of element types it may have (letters of `model.tensor.DTYPES`); () is any.
    """

    kind: ClassVar[str] = "custom"
    op: str
    sources: tuple[Shape, ...]
    values: tuple[tuple[str, Any], ...]
    shape: Shape
    dtype: str = ""  # element type of the result; "" is that of operand 0
    fusion: str = "opaque"  # one of `model.target.KINDS`
    operations: int = 0  # scalar operations per element of the result
    accepts: tuple[str, ...] = ()
    __hash__ = Attr.__hash__

    def operand_shapes(self, op: str) -> tuple[Shape, ...]:
        return self.sources

    def value_shape(self, op: str) -> Shape:
        return self.shape

    def field(self, key: str) -> Any:
        return dict(self.values)[key]

    def text(self, op: str) -> str:
        return ", ".join(f"{key}={value_text(value)}" for key, value in self.values)

    def infer(self, op: str, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        require(op == self.op, f"`{self.op}` attribute on `{op}`")
        check_operands(op, self.sources, operands)
        for i, (kinds, t) in enumerate(zip(self.accepts, operands, strict=False)):
            wanted = " or ".join(KIND_NAMES[k] for k in kinds)
            ok = DTYPES[t.dtype][1] in kinds
            require(ok, f"operand {i} of `{op}` is {wanted}, not {t.dtype}")
        return (TensorType(self.dtype or operands[0].dtype, self.shape),)
