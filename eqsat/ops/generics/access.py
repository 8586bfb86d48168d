"""Which element of a value one run of a reader's body reads, composed through what lies between.

An op that computes reads through its indexing maps; conversions, copies and moves between it and
a value are further maps, and views change none. All of them compose. A composed index is a number
in mixed radix, most significant digit first, whose digits are parts of the reader's loops: so a
pack and its unpack, a transpose and its inverse, or a reshape there and back compose to nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from eqsat.model.affine import Affine
from eqsat.model.attr import Attr, Shape
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.leaves import Custom
from eqsat.model.movement import Move, Reshape, Transpose
from eqsat.model.tensor import DTYPES, cdiv


class Digit(NamedTuple):
    """`source // div % extent`; div 1 and an extent of the whole source is the source itself."""

    source: int | Computed  # a loop of the reader, or an index that is computed from loops
    div: int
    extent: int


Index = tuple[Digit, ...]  # most significant first; () is 0


@dataclass(frozen=True)
class Computed:
    """An index that is no part of a loop.

    shift: `offset + stride * part`, of one part: what slices, pads and concats read. lookup: an
    element of an index tensor that is read at `parts`. other: anything else, such as a window.
    """

    how: str  # shift | lookup | other
    parts: tuple[Index, ...]
    offset: int = 0
    stride: int = 1


class LaneAccess(NamedTuple):
    """How a reader with these loops reads a value: an index for every dim of it."""

    loops: Shape  # extents
    indices: tuple[Index, ...]

    @property
    def relation(self) -> str:
        """How the reader's loops relate to the value's dims.

        identity: all loops are the dims in order, however these are shaped. permutation: every
        dim is read by loops of its own: bare, cut or joined as tiles and reshapes do, shifted, or
        looked up; loops may be left out. any: all else, such as windows and diagonals.
        """
        if self.is_in_step(range(len(self.loops)), range(len(self.indices))):
            return "identity"
        every = [d for index in self.indices for d in index]
        return "permutation" if _are_apart(_normal(every, self.loops)) else "any"

    def is_in_step(self, steps: Sequence[int], dims: Sequence[int]) -> bool:
        """Whether loops executed in the order `steps` want one element of the value after another.

        dims: the value's, in the order in which its elements are computed, slowest first. A loop
        among them that is no dim is a reduction outside of one: no element is there in between.
        """
        if any(i >= len(self.indices) for i in dims):
            return False
        flat = _normal([d for i in dims for d in self.indices[i]], self.loops)
        return flat == _normal([_loop(d, self.loops[d]) for d in steps], self.loops)


# ---- ops that compute nothing, or next to nothing ------------------------------------------------
def is_copy(attr: Attr) -> bool:
    """Whether a generic computes nothing: its only result is an operand, read by some map."""
    if not isinstance(attr, Generic) or attr.rank < len(attr.sizes) or len(attr.yields) != 1:
        return False
    return attr.body.fn == "arg"


def widens(attr: Attr) -> bool:
    """Whether an elementwise op makes wide elements of few bits each, as a dequantisation does.

    Its largest operand has fewer bits per element than its result (IREE's `isBitExtendOp`).
    """
    if not isinstance(attr, Generic) or attr.rank < len(attr.sizes) or len(attr.yields) != 1:
        return False
    sides = [(math.prod(s), DTYPES[t][0]) for s, t in zip(attr.shapes, attr.dtypes, strict=True)]
    return bool(sides) and max(sides)[1] < DTYPES[attr.yields[0].dtype][0]


def is_cheap(attr: Attr) -> bool:
    """Whether computing an elementwise op again reads no more than its result would.

    At most one operand has as many elements as the result; the others are broadcast.
    """
    if not isinstance(attr, Generic) or attr.rank < len(attr.sizes) or len(attr.yields) != 1:
        return False
    return sum(math.prod(s) >= math.prod(attr.result_shape) for s in attr.shapes) <= 1


# ---- what one op reads ---------------------------------------------------------------------------
@lru_cache(maxsize=100_000)
def access(op: str, attr: Attr, operand: int, shape: Shape) -> LaneAccess | None:
    """The map by which an op reads operand `operand`, which has this shape.

    The loops are those of a generic, else the dims of the (first) result. None: nobody knows, of
    an opaque op or one of a plug-in, unless it is elementwise.
    """
    if attr.is_in_place(op):
        return LaneAccess(shape, _whole(shape))
    match attr:
        case Generic():
            sides = zip(attr.maps[operand], shape, strict=True)
            return LaneAccess(attr.sizes, tuple(_affine(e, attr.sizes, size) for e, size in sides))
        case Transpose():
            indices = {p: (_loop(i, shape[p]),) for i, p in enumerate(attr.perm)}
            return LaneAccess(attr.result_shape, tuple(indices[d] for d in range(len(shape))))
        case Reshape():
            return LaneAccess(
                attr.shape, _reshaped(_whole(attr.shape), attr.shape, shape, attr.shape)
            )
        case Layout():
            return _of_layout(op, attr)
        case Move():
            return LaneAccess(attr.shape, _of_move(attr, operand))
        case Custom():
            in_step = attr.fusion == "elementwise" and shape == attr.shape
            return LaneAccess(shape, _whole(shape)) if in_step else None
    return None


def through(
    above: LaneAccess, op: str, attr: Attr, operand: int, shape: Shape
) -> LaneAccess | None:
    """The access to an operand of an op whose result is read so; None if it is unknown.

    >>> through(access("generic", consumer, 0, b), "transpose", turned, 0, a)
    """
    below = access(op, attr, operand, shape)
    if below is None:
        return None
    if len(below.loops) != len(
        above.indices
    ):  # a reduction below: the reader sees its result alone
        return None
    put = [_put(i, above, s) for i, s in zip(below.indices, shape, strict=True)]
    return LaneAccess(above.loops, tuple(_normal(i, above.loops) for i in put))


def seen_as(above: LaneAccess, shown: Shape, shape: Shape) -> LaneAccess:
    """The access to a value of shape `made` that is read in the shape `shown`: a free reshape."""
    if shown == shape:
        return above
    indices = _reshaped(above.indices, shown, shape, above.loops)
    return LaneAccess(above.loops, tuple(_normal(i, above.loops) for i in indices))


def _loop(d: int, extent: int) -> Digit:
    return Digit(d, 1, extent)


def _whole(shape: Shape) -> tuple[Index, ...]:
    return tuple((_loop(d, s),) for d, s in enumerate(shape))


def _affine(e: Affine, loops: Shape, size: int) -> Index:
    """An index of a map; a single loop with a stride or an offset is shifted."""
    if not e.terms and e.constant == 0 and size == 1:
        return ()
    if len(e.terms) > 1:
        parts = tuple((_loop(d, loops[d]),) for d, _ in e.terms)
        return (Digit(Computed("other", parts), 1, size),)
    part = tuple(_loop(d, loops[d]) for d, _ in e.terms)
    stride = e.terms[0][1] if e.terms else 1
    return _shifted(part, e.constant, stride, size)


def _of_layout(op: str, attr: Layout) -> LaneAccess:
    rank, tile = len(attr.source), dict(zip(attr.pos, attr.tiles, strict=True))
    blocks = [cdiv(s, tile.get(d, 1)) for d, s in enumerate(attr.source)]
    if op == "pack":
        packed = attr.packed_shape
        indices: list[Index] = []
        for d in range(rank):
            index = (_loop(attr.outer.index(d), blocks[d]),)
            if d in tile:
                index = (*index, _loop(rank + attr.pos.index(d), tile[d]))
            indices.append(index)
        return LaneAccess(packed, tuple(indices))
    outer = [(Digit(d, tile.get(d, 1), blocks[d]),) for d in attr.outer]
    inner = [(Digit(d, 1, tile[d]),) for d in attr.pos]
    return LaneAccess(attr.source, (*outer, *inner))


def _of_move(attr: Move, operand: int) -> tuple[Index, ...]:
    source, whole = attr.sources[operand], _whole(attr.shape)
    match attr.op:
        case "slice":
            start, _, step = attr.args
            at = zip(whole, start, step, source, strict=True)
            return tuple(_shifted(i, a, k, size) for i, a, k, size in at)
        case "pad":
            low, _, _ = attr.args
            return tuple(_shifted(i, -a, 1, s) for i, a, s in zip(whole, low, source, strict=True))
        case "concat":
            (axis,) = attr.args
            before = sum(s[axis] for s in attr.sources[:operand])
            moved = _shifted(whole[axis], -before, 1, source[axis])
            return (*whole[:axis], moved, *whole[axis + 1 :])
    (axis,) = attr.args
    end = axis + len(attr.sources[1])
    if operand == 1:
        return whole[axis:end]
    row: Index = (Digit(Computed("lookup", whole[axis:end]), 1, source[axis]),)
    return (*whole[:axis], row, *whole[end:])


# ---- numbers in mixed radix ----------------------------------------------------------------------
def index_loops(index: Index) -> frozenset[int]:
    """The reader's loops that an index depends on; those of extent 1 are none."""
    return frozenset(d.source for d in _digits(index) if isinstance(d.source, int) and d.extent > 1)


def joined(digits: Iterable[Digit], loops: Shape) -> Index:
    """Digits joined to one number: two that choose the same among as many are equal."""
    return _normal(digits, loops)


def _size(index: Iterable[Digit]) -> int:
    return math.prod(d.extent for d in index)


def _shifted(part: Index, offset: int, stride: int, size: int) -> Index:
    """`offset + stride * part` as an index of a dim of this size, shifts of shifts as one."""
    while len(part) == 1 and isinstance(c := part[0].source, Computed) and c.how == "shift":
        if part[0].div != 1:
            break
        (inner,) = c.parts
        part, offset, stride = inner, offset + stride * c.offset, stride * c.stride
    if (offset, stride) == (0, 1) and _size(part) == size:
        return part
    return (Digit(Computed("shift", (part,), offset, stride), 1, size),)


def _put(index: Index, above: LaneAccess, size: int) -> Index:
    """An index over an op's own loops, with what its reader reads each of them at."""
    digits: list[Digit] = []
    for d in index:
        whole = size if len(index) == 1 and d.div == 1 else d.div * d.extent
        if isinstance(d.source, int):
            inner = above.indices[d.source]
        else:
            inner = _put_computed(d.source, above, whole)
        digits += _part(inner, d.div, d.extent, above.loops)
    return tuple(digits)


def _put_computed(c: Computed, above: LaneAccess, size: int) -> Index:
    parts = tuple(_put(p, above, _size(p)) for p in c.parts)
    if c.how == "shift":
        return _shifted(_normal(parts[0], above.loops), c.offset, c.stride, size)
    return (Digit(Computed(c.how, parts, c.offset, c.stride), 1, size),)


def _part(index: Index, div: int, extent: int, loops: Shape) -> Index:
    """`index // div % extent`; if it cuts a digit unevenly, an index nobody can tile along."""
    digits: list[Digit] = []
    low, end = 1, div * extent  # the value of the digit at hand; where the part ends
    for n, d in enumerate(reversed(index)):
        high = low * d.extent
        first, last = max(low, div), min(high, end)
        if first < last:
            down, up = first // low, last // first if end < high else cdiv(high, first)
            even = first % low == 0 and (end >= high or end % first == 0)
            is_top = n == len(index) - 1 and _is_top(d, loops)
            if not even or (d.extent % (down * up) and not is_top):
                return (Digit(Computed("other", (index,)), div, extent),)
            digits.append(Digit(d.source, d.div * down, up))
        low = high
    return tuple(reversed(digits))


def _is_top(d: Digit, loops: Shape) -> bool:
    """Whether nothing of the loop lies above a digit."""
    return isinstance(d.source, int) and d.div * d.extent >= loops[d.source]


def _normal(index: Iterable[Digit], loops: Shape) -> Index:
    """Digits of extent 1 gone, and neighbours that are parts of one number joined again."""
    digits: list[Digit] = []
    for d in index:
        if d.extent == 1:
            continue
        if digits and digits[-1].source == d.source and digits[-1].div == d.div * d.extent:
            above = digits.pop()
            extent = above.extent * d.extent
            if isinstance(d.source, int):  # the last tile may reach beyond the loop
                extent = min(extent, cdiv(loops[d.source], d.div))
            digits.append(Digit(d.source, d.div, extent))
        else:
            digits.append(d)
    return tuple(digits)


def _reshaped(
    indices: Sequence[Index], shown: Shape, shape: Shape, loops: Shape
) -> tuple[Index, ...]:
    """The indices of a row-major tensor of shape `shown`, as those of the same bytes as `made`.

    An index of the outermost dim may reach beyond it, as padding does; so does the new one.
    """
    flat: list[Digit] = []
    for index, size in zip(indices, shown, strict=True):
        if _size(index) == size or (_size(index) > size and _size(flat) == 1):
            flat += index
        else:
            flat.append(Digit(Computed("other", (index,)), 1, size))
    parts, below = [], math.prod(shape)
    outermost = next((i for i, size in enumerate(shape) if size > 1), -1)
    for i, size in enumerate(shape):
        below //= max(size, 1)
        most = max(size, cdiv(_size(flat), below)) if i == outermost else size
        parts.append(_part(tuple(flat), below, most, loops))
    return tuple(parts)


def _digits(index: Iterable[Digit]) -> Iterator[Digit]:
    """The parts of loops in an index, also those below a shift or a lookup."""
    for d in index:
        if isinstance(d.source, int):
            yield d
        else:
            for part in d.source.parts:
                yield from _digits(part)


def _has_other(index: Iterable[Digit]) -> bool:
    computed = [d.source for d in index if isinstance(d.source, Computed)]
    return any(c.how == "other" or any(map(_has_other, c.parts)) for c in computed)


def _are_apart(flat: Index) -> bool:
    """Whether no part of a loop is used twice, and all reads can be tiled."""
    if _has_other(flat):
        return False
    spans: dict[int, list[tuple[int, int]]] = {}
    for d in _digits(flat):
        assert isinstance(d.source, int)
        spans.setdefault(d.source, []).append((d.div, d.div * d.extent))
    for parts in spans.values():
        parts.sort()
        if any(end > start for (_, end), (start, _) in pairwise(parts)):
            return False
    return True
