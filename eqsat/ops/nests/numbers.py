"""The number by which a gather looks up, as one body over elements of buffers.

Stages that compute it are put into one another, as they are read at that point alone. A lookup so
needs nothing but buffers, and who reads what a gather takes computes the number where it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from eqsat.model.expr import Expr, arg, cast, const
from eqsat.model.generic import Generic
from eqsat.model.nest import NoNest
from eqsat.ops.meaning import scalar
from eqsat.ops.nests.draft import ComputedValue, Constant, LookupNumber, ReadValue
from eqsat.ops.nests.loops import Loops, Point
from eqsat.ops.nests.reading import mapped


class TypedBody(NamedTuple):
    body: Expr
    dtype: str


class Numbers:
    """reach: what is read of a node at a point. operands: those of a node."""

    def __init__(
        self,
        reach: Callable[[int, Point], ReadValue | ComputedValue],
        operands: Callable[[int], tuple[int, ...]],
        loops: Loops,
    ):
        self.reach, self.operands, self.loops = reach, operands, loops
        self.arguments: list[ReadValue] = []
        self.known: dict[tuple[int, int, Point], TypedBody] = {}

    def found(self, node: int, at: Point) -> LookupNumber:
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
        if key not in self.known:
            self.known[key] = self._body(c, c.op)
        return self.known[key]

    def _body(self, c: ComputedValue, g: Generic) -> TypedBody:
        y = g.yields[c.result]
        parts = {
            i: self._typed(self.operands(c.node)[i], mapped(g, i, c.at)).body
            for i in y.body.operands()
        }
        known = scalar.result_dtype(y.body, g.dtypes)
        body = y.body.substitute(parts)
        return TypedBody(body if known == y.dtype else cast(body, y.dtype), y.dtype)


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


def found_now(found: LookupNumber, loops: Loops) -> LookupNumber:
    """A number over the loops there are now."""
    return found._replace(arguments=tuple([_now(v, loops) for v in found.arguments]))
