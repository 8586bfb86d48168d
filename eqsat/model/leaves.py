"""Attributes of leaves (arguments, weights, constants) and of ops without a class of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from eqsat.model.attr import Attr, Shape, check_operands, require, value_text
from eqsat.model.expr import literal
from eqsat.model.extents import Symbols
from eqsat.model.layout import Encoding, Layout
from eqsat.model.tensor import DTYPES, KIND_NAMES, TensorType


@dataclass(frozen=True, eq=True)
class Leaf(Attr):
    """`input` (argument number `index`), or `weight` (content hash `key`).

    `type` is the type of the array that is passed; `layout` is the layout of an input. With a
    `Layout`, `type` is the packed type; the caller promises zeros in lanes of padding `0`, and
    those of `?` are open. Of an `Encoding`, which a target turns into a layout or into nothing,
    `type` is the plain type.

    donated: of an input, that the caller reads it no more, so that a result may lie in its bytes.
    """

    kind: ClassVar[str] = "leaf"
    ops: ClassVar[Mapping[str, str]] = {"input": "leaf", "weight": "leaf"}
    name: str
    type: TensorType
    index: int = -1
    key: str = ""
    layout: Layout | Encoding | None = None
    donated: bool = False
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

    def operand_shapes(self, op: str) -> tuple[Shape, ...]:
        return ()

    def value_shape(self, op: str) -> Shape:
        return self.type.shape

    def to_json(self) -> Any:
        data = super().to_json()
        return {k: v for k, v in data.items() if k not in ("layout", "donated") or v}

    @classmethod
    def from_json(cls, data: dict[str, Any], symbols: Symbols) -> Self:
        held = data.get("layout")
        if held is not None:
            held = (Layout if held["kind"] == Layout.kind else Encoding).from_json(held, symbols)
        return super().from_json(
            data | {"type": TensorType.parse(data["type"], symbols), "layout": held}, symbols
        )


def is_donated(attr: object) -> bool:
    """Whether an op's attribute is that of an argument whose caller reads it no more."""
    return isinstance(attr, Leaf) and attr.donated


@dataclass(frozen=True, eq=True)
class Fill(Attr):
    """A tensor that holds one value everywhere."""

    kind: ClassVar[str] = "fill"
    ops: ClassVar[Mapping[str, str]] = {"fill": "leaf"}
    value: bool | int | float
    type: TensorType
    __hash__ = Attr.__hash__

    def infer(self, op: str, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        require(not operands, "`fill` takes no operands")
        return (self.type,)

    def operand_shapes(self, op: str) -> tuple[Shape, ...]:
        return ()

    def value_shape(self, op: str) -> Shape:
        return self.type.shape

    def text(self, op: str) -> str:
        return f"value={literal(self.value)}"

    @classmethod
    def from_json(cls, data: dict[str, Any], symbols: Symbols) -> Self:
        return super().from_json(data | {"type": TensorType.parse(data["type"], symbols)}, symbols)


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
