"""Base of the attributes of ops: interned, complete records with their shapes in them.

An attribute knows the shapes of its operands and of its result, so a rewrite never has to
analyse shapes inside the e-graph, and two layouts cancel when they are equal records.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache, cached_property
from typing import Any, ClassVar, Self

from eqsat.model.expr import literal
from eqsat.model.extents import Symbols, extent_from_json
from eqsat.model.tensor import TensorType

Shape = tuple[int, ...]


class ShapeError(ValueError):
    """An attribute does not fit its operands; the text is a sentence for the user."""


def require(ok: bool, message: str) -> None:
    """ShapeError with this sentence unless ok."""
    if not ok:
        raise ShapeError(message)


@dataclass(frozen=True)
class Attr:
    """Base of all attributes: hash once, print as keywords, go to JSON and back.

    ops: the ops that carry it, with the kind of each as fusion sees it (`model.target.KINDS`), or
    leaf, view, transfer, structured.
    """

    kind: ClassVar[str] = ""
    ops: ClassVar[Mapping[str, str]] = {}

    @cached_property
    def _cached_hash(self) -> int:
        return hash((self.kind, *[getattr(self, name) for name in _names(type(self))]))

    def __hash__(self) -> int:
        return self._cached_hash

    def __getstate__(self) -> dict[str, Any]:
        # hashes of text and of bodies are those of one process
        return {key: value for key, value in self.__dict__.items() if key != "_cached_hash"}

    def infer(self, op: str, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        """Result types for these operand types; ShapeError if they do not fit."""
        raise NotImplementedError  # every attribute class has its own

    def operand_shapes(self, op: str) -> tuple[Shape, ...] | None:
        """Shapes of the operands that this instance stands for; None if it does not know them."""
        return None

    def value_shape(self, op: str) -> Shape | None:
        """Shape of the results that this instance stands for; None if it does not know it."""
        shapes = self.operand_shapes(op)
        return shapes[0] if shapes else None

    def typed_operands(self, op: str, dtype: str) -> tuple[TensorType, ...]:
        """Types of the operands, where the first has elements of this type."""
        return tuple(TensorType(dtype, s) for s in self.operand_shapes(op) or ())

    def is_in_place(self, op: str) -> bool:
        """Whether an op moves nothing: it reads at each index what it writes there, or masks it."""
        return False

    def padding(self) -> tuple[str, ...]:
        """Texts of the padding values of the op; none if it does not pad."""
        return ()

    def field(self, key: str) -> Any:
        """A field by its name in terms."""
        return getattr(self, key)

    def text(self, op: str) -> str:
        """The keywords of an op with this attribute, e.g. `perm=[1, 0]`; empty for leaves."""
        return ""

    def to_json(self) -> Any:
        return {"kind": self.kind} | {
            f.name: _jsonable(getattr(self, f.name)) for f in fields(self)
        }

    @classmethod
    def from_json(cls, data: dict[str, Any], symbols: Symbols) -> Self:
        """Undo `to_json`; symbols: extents by name."""
        return cls(**{k: _tuples(v, symbols) for k, v in data.items() if k != "kind"})


@dataclass(frozen=True)
class InPlace(Attr):
    """Base of attributes of ops that pass a tensor on in its layout."""

    source: Shape
    __hash__ = Attr.__hash__

    def infer(self, op: str, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        check_operands(op, (self.source,), operands)
        self.verify()
        return operands

    def verify(self) -> None:
        """ShapeError unless the fields fit one another."""

    def operand_shapes(self, op: str) -> tuple[Shape, ...]:
        return (self.source,)

    def is_in_place(self, op: str) -> bool:
        return True


@cache
def _names(kind: type[Attr]) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


def _tuples(value: Any, symbols: Symbols) -> Any:
    if isinstance(value, list):
        return tuple(_tuples(v, symbols) for v in value)
    return extent_from_json(value, symbols)


def listed(values: Iterable[object]) -> str:
    """`[1, 0]`, `[d0, 2*d1]`."""
    return f"[{', '.join(map(str, values))}]"


def value_text(value: int | float | str | tuple[int, ...]) -> str:
    """The value of a keyword; texts stand in quotes."""
    if isinstance(value, tuple):
        return listed(value)
    return json.dumps(value) if isinstance(value, str) else literal(value)


def _jsonable(value: Any) -> Any:
    if isinstance(value, TensorType):
        return str(value)
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, tuple):
        return [_jsonable(v) for v in value]
    return value


def loop_order(attr: Attr) -> tuple[int, ...]:
    """The loops of an op as it executes them, outermost first; () if in canonical order.

    Generics and transposes may have one.
    """
    return getattr(attr, "order", ())


def loop_order_text(attr: Attr) -> str:
    """` in loop order [1, 0]` behind the name of an interchanged op; nothing else."""
    order = loop_order(attr)
    return f" in loop order [{', '.join(map(str, order))}]" if order else ""


def check_order(order: tuple[int, ...], loops: int) -> None:
    """ShapeError unless this is () or an order of so many loops that is not the canonical one."""
    straight = tuple(range(loops))
    is_order = not order or (order != straight and tuple(sorted(order)) == straight)
    require(is_order, f"`order` names loops 0 … {loops - 1} once each, in another order than this")


def check_operands(op: str, shapes: tuple[Shape, ...], operands: tuple[TensorType, ...]) -> None:
    """ShapeError unless the operands have these shapes."""
    if len(shapes) != len(operands):
        raise ShapeError(f"`{op}` takes {len(shapes)} operand(s), got {len(operands)}")
    for i, (want, got) in enumerate(zip(shapes, operands, strict=True)):
        if want != got.shape:
            raise ShapeError(
                f"operand {i} of `{op}` has shape {list(got.shape)}, wanted {list(want)}"
            )
