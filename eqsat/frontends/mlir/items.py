"""What an SSA value is while a function is read, and how operations get at it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat.frontends.mlir.elements import DYNAMIC, Dims, ranked_type
from eqsat.frontends.mlir.parser import place_of
from eqsat.frontends.mlir.source import ModuleText
from eqsat.frontends.values import Context, Tensor
from eqsat.model.affine import Map
from eqsat.model.attr import Shape
from eqsat.model.diag import EqsatError, Span, fail
from eqsat.model.extents import Extent, is_symbolic
from eqsat.model.layout import Border


@dataclass(frozen=True)
class Undefined:
    """A tensor that is not written yet (`tensor.empty`): it has a shape, and no elements."""

    shape: Shape
    dtype: str


@dataclass(frozen=True)
class Nothing:
    """A value without elements: a fence, a device, an argument not yet a tensor."""

    number: int = -1  # of the argument


Item = Tensor | Undefined | int | Nothing


@dataclass
class Environment:
    """The program being built, and the values of the function being read.

    contractions: extents of the loops of those whose operands are encoded, by their maps' text;
    () if two differ. A first reading finds them, a second writes them into the encodings.
    """

    source: ModuleText
    ctx: Context
    values: dict[Any, Item] = field(default_factory=dict)
    contractions: dict[str, tuple[int, ...]] = field(default_factory=dict)
    borders: dict[Border, Span] = field(default_factory=dict)  # where encoded ones are
    # attributes and types are unique in their context: what was read of one holds for the next op
    maps: dict[Any, list[Map]] = field(default_factory=dict)
    reduced: dict[Any, list[bool]] = field(default_factory=dict)
    _types: dict[Any, tuple[Dims, str]] = field(default_factory=dict)

    def where(self, op: Any) -> Span | None:
        return place_of(self.source, op.location)

    def fail(self, code: str, message: str, op: Any, **extra: Any) -> EqsatError:
        return fail(code, message, self.where(op), **extra)

    def item(self, value: Any, op: Any) -> Item:
        if value not in self.values:
            raise self.fail("E375", f"`{op.name}` reads a value from outside its function", op)
        return self.values[value]

    def tensor(self, value: Any, op: Any) -> Tensor:
        """The value as a tensor or scalar with elements; E375 if it has none."""
        item = self.item(value, op)
        if is_symbolic(item):
            raise self.unknown_number(op)
        if isinstance(item, int | Extent):
            return Tensor((), "i32", constant=item)
        if isinstance(item, Undefined):
            why = f"`{op.name}` reads an uninitialised tensor"
            raise self.fail("E375", why, op, help="fill it first, with `linalg.fill`")
        if isinstance(item, Nothing):
            raise self.fail("E375", f"`{op.name}` reads something that is no tensor", op)
        return item

    def unknown_number(self, op: Any) -> EqsatError:
        why = f"`{op.name}` computes with a size that is not known"
        return self.fail("E375", why, op, help="give it: an argument's type names its sizes")

    def shaped(self, value: Any, op: Any) -> Tensor | Undefined:
        """The value with its shape, whether anybody has written it or not."""
        item = self.item(value, op)
        return item if isinstance(item, Undefined) else self.tensor(value, op)

    def index(self, value: Any, op: Any) -> int:
        """A size or position; E376 if it is not known while reading."""
        item = self.item(value, op)
        if isinstance(item, int | Extent):
            return item
        if isinstance(item, Tensor) and item.is_constant and not item.shape:
            return int(item.constant)
        raise self.fail("E376", f"`{op.name}` needs a size or position that the data decide", op)

    def mixed(self, static: Any, dynamic: Sequence[Any], op: Any) -> list[int]:
        """A list of sizes some of which are SSA values."""
        rest = iter(dynamic)
        found = [int(s) for s in static]
        return [self.index(next(rest), op) if s == DYNAMIC else s for s in found]

    def type(self, value: Any, op: Any) -> tuple[Dims, str]:
        known = value.type
        if known not in self._types:  # where it is wrong is asked for the first time only
            self._types[known] = ranked_type(known, self.where(op))
        return self._types[known]


Handler = Callable[[Environment, Any], "list[Item]"]


def numbers(op: Any, name: str) -> list[int]:
    """An array attribute of integers, [] where it is absent."""
    if name not in op.attributes:
        return []
    return [int(getattr(v, "value", v)) for v in op.attributes[name]]


def segments(op: Any) -> list[list[Any]]:
    """The operands by `operandSegmentSizes`."""
    rest = list(op.operands)
    found = []
    for count in numbers(op, "operandSegmentSizes"):
        found.append(rest[:count])
        rest = rest[count:]
    return found
