"""What a nest is made of while it is built: values, stages and stores over indices, not strides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from eqsat.model.attr import Shape
from eqsat.model.expr import Expr
from eqsat.model.generic import Generic
from eqsat.model.nest import Scalar
from eqsat.ops.nests.loops import Point
from eqsat.ops.nests.reading import Layer


class Element(NamedTuple):
    """Of a buffer, seen in this shape."""

    buffer: int
    dtype: str
    shape: Shape
    at: Point


class Constant(NamedTuple):
    value: Scalar
    dtype: str


class ReadValue(NamedTuple):
    """What is read at a point: an element, a constant, or the value of stage number `source`."""

    source: Element | Constant | int
    layers: tuple[Layer, ...]  # outermost first

    def points(self) -> Iterator[Point]:
        """Where an element lies, and what its layers look at."""
        if isinstance(self.source, Element):
            yield self.source.at
        yield from (at for layer in self.layers for at, _ in layer.bounds)


class ComputedValue(NamedTuple):
    """The value of a result of a generic at a point."""

    node: int
    op: Generic
    result: int
    at: Point
    layers: tuple[Layer, ...]


class LookupNumber(NamedTuple):
    """An integer that a gather looks up by: `body` over elements of buffers, as `dtype`."""

    body: Expr
    arguments: tuple[ReadValue, ...]
    dtype: str


@dataclass
class Made:
    """A stage. choice: where this layer's bounds hold it is its first argument, else the second."""

    node: int
    result: int  # of a node with several
    at: Point
    reduced: Point
    body: Expr
    arguments: tuple[ReadValue, ...]
    dtype: str
    combine: str = ""
    shape: Shape = ()  # of the whole result
    choice: Layer | None = None


class Piece(NamedTuple):
    """A box of a tensor that is written."""

    node: int
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


class Written(NamedTuple):
    piece: Piece
    shape: Shape
    dtype: str
    at: Point  # in the piece
    value: ReadValue
