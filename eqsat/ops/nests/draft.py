"""Draft of a nest while it is built: values, stages and stores over indices, not strides.

An op that computes nothing is one step down: at which point of its operand it reads. Views,
conversions, moves and copies are such ops. What a pad or an open lane puts in the place of an
element is a layer above it: bounds, and the value where one of them fails.

The number by which a gather looks up is one body over elements of buffers: stages that compute it
are put into one another, as they are read at that point alone. A lookup so needs nothing but
buffers, and who reads what a gather takes computes the number where it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from eqsat.model.affine import Affine
from eqsat.model.attr import Attr, Shape
from eqsat.model.expr import Expr, arg, cast, const, read_literal
from eqsat.model.generic import Generic
from eqsat.model.layout import Encoding, Layout
from eqsat.model.movement import Move, Reshape, Transpose
from eqsat.model.nest import NoNest, Scalar
from eqsat.ops.meaning import scalar
from eqsat.ops.movement.layout import large_groups
from eqsat.ops.nests.loops import ZERO, Loops, Point, affine_sum


# ---- one step down -------------------------------------------------------------------------------
class Layer(NamedTuple):
    """Where an index is not one of 0 … size - 1, the value is `fill` (None: any will do)."""

    bounds: tuple[tuple[Point, Shape], ...]  # as the indices of a point and the extents there
    fill: Scalar | None


class Step(NamedTuple):
    operand: int
    at: Point
    layers: tuple[Layer, ...] = ()  # outermost first


def mapped(g: Generic, operand: int, at: Sequence[Affine]) -> Point:
    """The index of every dim of an operand, with the loops of the op at these indices."""
    return tuple(
        [
            at[e.terms[0][0]]
            if len(e.terms) == 1 and e.terms[0][1] == 1 and not e.constant
            else affine_sum([(at[d], s) for d, s in e.terms], e.constant)
            for e in g.maps[operand]
        ]
    )


def step(op: str, attr: Attr, at: Point, loops: Loops) -> Step | None:
    """Element read below a conversion, view, pad, slice or copy; None of any other op."""
    match attr:
        case Transpose(perm=perm):
            return Step(0, tuple([at[perm.index(d)] for d in range(len(perm))]))
        case Reshape(source=source, shape=shape):
            return _reshaped(at, shape, source, loops)
        case Layout():
            return _LAYOUTS[op](attr, at, loops)
        case Move(op="slice", args=(start, _, strides)):
            parts = zip(at, start, strides, strict=True)
            return Step(0, tuple([affine_sum([(i, k)], a) for i, a, k in parts]))
        case Move(op="pad", args=(low, _, text)):
            moved = tuple([affine_sum([(i, 1)], -a) for i, a in zip(at, low, strict=True)])
            layer = Layer(((moved, attr.sources[0]),), read_literal(str(text)))
            return Step(0, moved, (layer,))
        case Generic(yields=(only,)) if only.body.fn == "arg" and not attr.reductions:
            operand = int(only.body.value)
            if only.dtype == attr.dtypes[operand]:
                return Step(operand, mapped(attr, operand, at))
        case Encoding():
            return Step(0, at)
    return None


# ---- layouts
def _layers(layout: Layout, at: Point) -> tuple[Layer, ...]:
    """Of the lanes a pack leaves open: what is padded last is what counts."""
    return tuple(
        Layer((((at[d],), (layout.source[d],)),), None if text == "?" else read_literal(text))
        for d, _, text in reversed(layout.padded_dims)
        if text != "-"
    )


def _unpacked_point(layout: Layout, at: Point) -> Point:
    """The source's indices of an element of the packed tensor."""
    rank, indices = len(layout.source), []
    for d in range(rank):
        index = at[layout.outer.index(d)]
        if d in layout.pos:
            n = layout.pos.index(d)
            index = affine_sum([(index, layout.tiles[n]), (at[rank + n], 1)])
        indices.append(index)
    return tuple(indices)


def _pack(layout: Layout, at: Point, _: Loops) -> Step:
    below = _unpacked_point(layout, at)
    return Step(0, below, _layers(layout, below))


def _retype(layout: Layout, at: Point, _: Loops) -> Step:
    return Step(0, at, _layers(layout, _unpacked_point(layout, at)))


def _unpack(layout: Layout, at: Point, loops: Loops) -> Step:
    cut = {d: loops.divided(at[d], t) for d, t in zip(layout.pos, layout.tiles, strict=True)}
    outer = [cut[d][0] if d in cut else at[d] for d in layout.outer]
    return Step(0, (*outer, *(cut[d][1] for d in layout.pos)))


_LAYOUTS = {
    "pack": _pack,
    "retype": _retype,
    "unpack": _unpack,
    "relax": lambda _, at, __: Step(0, at),
}


# ---- reshapes
def _reshaped(at: Point, shape: Shape, source: Shape, loops: Loops) -> Step:
    """Dims of equal products belong together: joined to a number, then taken apart again."""
    indices, layers = [ZERO] * len(source), []
    for dims, below in large_groups(shape, source) or ():
        if len(dims) == len(below) == 1:
            indices[below[0]] = at[dims[0]]
            continue
        joined = joined_index([at[d] for d in dims], [shape[d] for d in dims])
        layers.append((tuple(at[d] for d in dims), tuple(shape[d] for d in dims)))
        for n, d in enumerate(reversed(below)):
            if n == len(below) - 1:
                indices[d] = joined
            else:
                joined, indices[d] = loops.divided(joined, source[d])
    return Step(0, tuple(indices), (Layer(tuple(layers), None),) if layers else ())


def joined_index(at: Sequence[Affine], sizes: Sequence[int]) -> Affine:
    """The number of an element of a row-major tensor."""
    parts, stride = [], 1
    for index, size in zip(reversed(at), reversed(sizes), strict=True):
        parts.append((index, stride))
        stride *= size
    return affine_sum(parts)


# ---- the draft -----------------------------------------------------------------------------------
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
    """Value read at a point: an element, a constant, or the value of stage number `source`."""

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
class StageDraft:
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


# ---- numbers of a gather -------------------------------------------------------------------------
class TypedBody(NamedTuple):
    body: Expr
    dtype: str


@dataclass(eq=False)
class Numbers:
    """reach: what is read of a node at a point. operands: those of a node."""

    reach: Callable[[int, Point], ReadValue | ComputedValue]
    operands: Callable[[int], tuple[int, ...]]
    loops: Loops
    arguments: list[ReadValue] = field(init=False, default_factory=list)
    typed: dict[tuple[int, int, Point], TypedBody] = field(init=False, default_factory=dict)

    def number(self, node: int, at: Point) -> LookupNumber:
        """The number a node holds at a point; NoNest if no body over elements is that."""
        typed = self._typed(node, at)
        return LookupNumber(typed.body, tuple(self.arguments), typed.dtype)

    def _typed(self, node: int, at: Point) -> TypedBody:
        value = self.reach(node, at)
        if isinstance(value, ComputedValue):
            return self._computed(value)
        source = value.source
        if isinstance(source, int) or (isinstance(source, Constant) and value.layers):
            raise NoNest("looks up by indices that a pad or concat chooses inside")
        if isinstance(source, Constant):
            return TypedBody(cast(const(source.value), source.dtype), source.dtype)
        value = _now(value, self.loops)
        if value not in self.arguments:
            self.arguments.append(value)
        return TypedBody(arg(self.arguments.index(value)), source.dtype)

    def _computed(self, c: ComputedValue) -> TypedBody:
        if c.op.reductions:
            raise NoNest("looks up by indices that a reduction computes inside")
        if any(layer.fill is not None for layer in c.layers):
            raise NoNest("looks up by indices that are computed and padded inside")
        key = (c.node, c.result, self.loops.all_now(c.at))
        if key not in self.typed:
            self.typed[key] = self._body(c, c.op)
        return self.typed[key]

    def _body(self, c: ComputedValue, g: Generic) -> TypedBody:
        y = g.yields[c.result]
        parts = {
            i: self._typed(self.operands(c.node)[i], mapped(g, i, c.at)).body
            for i in y.body.operands()
        }
        dtype = scalar.result_dtype(y.body, g.dtypes)
        body = y.body.substitute(parts)
        return TypedBody(body if dtype == y.dtype else cast(body, y.dtype), y.dtype)


def _now(v: ReadValue, loops: Loops) -> ReadValue:
    """A value over the loops there are now."""
    source = v.source
    assert not isinstance(source, int | Constant)
    layers = tuple(
        [
            k._replace(bounds=tuple([(loops.all_now(at), shape) for at, shape in k.bounds]))
            for k in v.layers
        ]
    )
    return ReadValue(source._replace(at=loops.all_now(source.at)), layers)


def number_now(number: LookupNumber, loops: Loops) -> LookupNumber:
    """A number over the loops there are now."""
    return number._replace(arguments=tuple([_now(v, loops) for v in number.arguments]))
