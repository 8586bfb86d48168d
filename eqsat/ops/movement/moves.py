"""Pads, slices, concats and gathers: how they are made, and slices of concats.

Pure functions on attributes; None means that the condition behind the function does not hold. A
column that is None means that this op is not needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.model.attr import Attr, Shape
from eqsat.model.expr import read_literal
from eqsat.model.limits import MOST_OPERANDS
from eqsat.model.movement import Move
from eqsat.model.tensor import cdiv
from eqsat.ops.declare import attr_functions


@dataclass(frozen=True)
class SlicedConcat:
    """A shorter concat, what is cut from its operands, and what is cut from its result."""

    operands: tuple[Move | None, ...]
    concat: Move | None
    slice: Move | None


# ---- making moves ------------------------------------------------------------------------------
def pad_of(source: Shape, low: Sequence[int], high: Sequence[int], value: str) -> Move:
    """`pad` of a tensor of this shape; value is the text of a literal."""
    shape = tuple(s + a + b for s, a, b in zip(source, low, high, strict=True))
    return Move("pad", (tuple(source),), (tuple(low), tuple(high), value), shape)


def slice_of(
    source: Shape, start: Sequence[int], limit: Sequence[int], stride: Sequence[int]
) -> Move:
    """`slice` of a tensor of this shape, in one spelling.

    It ends behind its last element, and one element or none has stride 1; else a class that is a
    slice of itself would be composed with itself under ever new names.
    """
    bounds = [_bound(a, b, k) for a, b, k in zip(start, limit, stride, strict=True)]
    first, last, step = (tuple(v[i] for v in bounds) for i in range(3))
    shape = tuple(cdiv(b - a, k) for a, b, k in bounds)
    return Move("slice", (tuple(source),), (first, last, step), shape)


def slice_along(shape: Shape, axis: int, low: int, high: int) -> Move:
    """`slice` of the elements low ≤ i < high of one dim."""
    start = [low if q == axis else 0 for q in range(len(shape))]
    limit = [high if q == axis else n for q, n in enumerate(shape)]
    return slice_of(shape, start, limit, [1] * len(shape))


def _bound(start: int, limit: int, stride: int) -> tuple[int, int, int]:
    n = cdiv(limit - start, stride)
    if n <= 1:
        return (start, start + 1, 1) if n else (0, 0, 1)
    return start, start + (n - 1) * stride + 1, stride


def concat_of(sources: Sequence[Shape], axis: int) -> Move:
    """`concat` of tensors of these shapes, equal but for `axis`."""
    whole = sum(s[axis] for s in sources)
    shape = (*sources[0][:axis], whole, *sources[0][axis + 1 :])
    return Move("concat", tuple(tuple(s) for s in sources), (axis,), shape)


def gather_of(source: Shape, indices: Shape, axis: int) -> Move:
    """`gather` along `axis` of a tensor of this shape."""
    shape = (*source[:axis], *indices, *source[axis + 1 :])
    return Move("gather", (tuple(source), tuple(indices)), (axis,), shape)


def unless_identity(move: Move) -> Move | None:
    """None for a pad of nothing and a slice of everything."""
    return None if moves_nothing(move) else move


def moves_nothing(move: Move) -> bool:
    """A pad or slice whose result has the shape of its operand: it cannot have changed it."""
    return move.op in ("pad", "slice") and move.shape == move.sources[0]


def pad_value(text: str) -> str:
    """One text per value, as `Layout.pads` writes it: `0` for `0.0` and `false`; -0.0 stays."""
    value = read_literal(text)
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and float.is_integer(value) and abs(value) < 2**53:
        return "-0.0" if math.copysign(1, value) < 0 and value == 0 else str(int(value))
    return repr(value)


def pads_with_zeros(attr: Attr) -> bool:
    """Whether an op is a pad, and what it pads with is 0 or false."""
    return isinstance(attr, Move) and attr.op == "pad" and pad_value(attr.args[2]) == "0"


# ---- slices and concats ----------------------------------------------------------------------
def respell_slice(cut: Move) -> Move | None:
    """The one spelling of a slice, see `slice_of`; None if this is it."""
    canonical = slice_of(cut.sources[0], *cut.args)
    return None if canonical == cut else canonical


def _range(concat: Move, operand: int) -> tuple[int, int]:
    """Where an operand of a concat lies in its result, along the axis."""
    (axis,) = concat.args
    begin = sum(s[axis] for s in concat.sources[:operand])
    return begin, begin + concat.sources[operand][axis]


def _cut(cut: Move, axis: int) -> tuple[int, int, int]:
    """First element, last element + 1, and stride of a slice along one dim."""
    start, stride, n = cut.args[0][axis], cut.args[2][axis], cut.shape[axis]
    return start, start + (n - 1) * stride + 1, stride


def slice_concat(concat: Move, cut: Move) -> SlicedConcat | None:
    """slice(concat(xs)) = concat(slice(xs)) where something is left of every operand."""
    (axis,) = concat.args
    first, last, stride = _cut(cut, axis)
    if stride != 1:
        return None
    operands: list[Move] = []
    for i, source in enumerate(concat.sources):
        begin, end = _range(concat, i)
        start, limit = list(cut.args[0]), list(cut.args[1])
        start[axis] = max(first, begin) - begin
        limit[axis] = min(last, end) - begin
        if start[axis] >= limit[axis]:
            return None
        operands.append(slice_of(source, start, limit, cut.args[2]))
    joined = concat_of([o.shape for o in operands], axis)
    return SlicedConcat(tuple(unless_identity(o) for o in operands), joined, None)


def slice_operands(concat: Move, before: int, behind: int, cut: Move) -> SlicedConcat | None:
    """slice(concat(*a, *xs, *b)) without the operands a and b, which it does not read.

    before, behind: how many these are. The slice begins in the first operand kept, and ends in the
    last one, where any are left out.
    """
    (axis,) = concat.args
    read = concat.sources[before : len(concat.sources) - behind]
    if not read or not cut.shape[axis] or 1 < len(read) == len(concat.sources):
        return None
    (begin, inside), (outside, end) = _range(concat, before), _range(concat, before + len(read) - 1)
    first, last, _ = _cut(cut, axis)
    if (before and not begin <= first < inside) or (behind and not outside < last <= end):
        return None
    start, limit = list(cut.args[0]), list(cut.args[1])
    start[axis], limit[axis] = first - begin, last - begin
    joined = concat_of(read, axis)
    rest = unless_identity(slice_of(joined.shape, start, limit, cut.args[2]))
    return SlicedConcat((), None if len(read) == 1 else joined, rest)


def flatten_concat(outer: Move, operand: int, inner: Move) -> Move | None:
    """concat(*a, concat(*b), *c) as one concat, up to MOST_OPERANDS operands."""
    sources = (*outer.sources[:operand], *inner.sources, *outer.sources[operand + 1 :])
    if outer.args != inner.args or len(sources) > MOST_OPERANDS:
        return None
    return concat_of(sources, outer.args[0])


def join_slices(concat: Move, a: Move, b: Move) -> SlicedConcat | None:
    """concat(slice(x), slice(x)) as one slice of x, if the second begins where the first ends."""
    (axis,) = concat.args
    for d, (one, two) in enumerate(zip(_bounds(a), _bounds(b), strict=True)):
        if d != axis and one != two:
            return None
    (first, _, stride), (second, last, other) = _cut(a, axis), _cut(b, axis)
    if not a.shape[axis] or not b.shape[axis] or stride != other:
        return None
    if second != first + a.shape[axis] * stride:
        return None
    limit = list(a.args[1])
    limit[axis] = last
    whole = slice_of(a.sources[0], a.args[0], limit, a.args[2])
    return SlicedConcat((), None, unless_identity(whole))


def _bounds(cut: Move) -> list[tuple[int, int, int]]:
    return list(zip(cut.args[0], cut.shape, cut.args[2], strict=True))


FUNCTIONS = attr_functions(
    ("is_identity", moves_nothing), respell_slice, slice_operands, slice_concat, flatten_concat,
    join_slices,
)  # fmt: skip
