"""What every attribute of an op is: an interned, complete record with its shapes in it.

An attribute knows the shapes of its operands and of its result, so a rewrite never has to
analyse shapes inside the e-graph, and two layouts cancel when they are equal records.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache, cached_property
from typing import Any, ClassVar

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
    """Base of all attributes: hash once, print as keywords, go to JSON and back."""

    kind: ClassVar[str] = ""

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

    def to_json(self) -> Any:
        return {"kind": self.kind} | {
            f.name: _jsonable(getattr(self, f.name)) for f in fields(self)
        }


@cache
def _names(kind: type[Attr]) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


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
    known = not order or (order != straight and tuple(sorted(order)) == straight)
    require(known, f"`order` names loops 0 … {loops - 1} once each, in another order than this")


def check_operands(op: str, shapes: tuple[Shape, ...], operands: tuple[TensorType, ...]) -> None:
    """ShapeError unless the operands have these shapes."""
    if len(shapes) != len(operands):
        raise ShapeError(f"`{op}` takes {len(shapes)} operand(s), got {len(operands)}")
    for i, (want, got) in enumerate(zip(shapes, operands, strict=True)):
        if want != got.shape:
            raise ShapeError(
                f"operand {i} of `{op}` has shape {list(got.shape)}, wanted {list(want)}"
            )
