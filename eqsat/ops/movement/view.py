"""Views, one record for all movement: what every element of the result reads, or holds instead.

A transpose, reshape, slice, pad, pack, unpack, relax and retype is one `View`, so is a reversal or
a broadcast, and so is what they are one after another: views compose, and are recognised again as
the nouns of the field. Equal movement is an equal record. Lanes that may hold anything are held by
"?": two views are equal only if they leave the same lanes open.

Not held: a reshape that cuts a dim unevenly, and tiles that cut one another so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate

from eqsat.model.affine import Affine, affine, dim
from eqsat.model.attr import Attr, Shape
from eqsat.model.layout import Layout
from eqsat.model.movement import Move, Reshape, Transpose
from eqsat.model.tensor import cdiv
from eqsat.ops.declare import attr_functions
from eqsat.ops.movement.layout import common_dims
from eqsat.ops.movement.moves import pad_of, pad_value, slice_of
from eqsat.ops.movement.viewform import ZERO, Digits, Groups, Guard, normal_form

Piece = tuple[int, int]  # of a digit: (extent, weight)


@dataclass(frozen=True)
class View:
    """result[digits] = source[index of the digits], unless a guard says what it is instead.

    A result dim is a number in mixed radix, whose digits are counted through all dims; the
    outermost one ends early where the extent of the dim is no multiple. The first guard that does
    not hold decides.
    """

    source: Shape
    shape: Shape
    digits: Groups  # per result dim: extents of its digits, outermost first
    index: tuple[Affine, ...]  # per source dim
    guards: tuple[Guard, ...] = ()

    def then(self, outer: View) -> View | None:
        """First this, then `outer`; None if one cuts a digit of the other unevenly."""
        pieces = _pieces(self, outer)
        return None if pieces is None else _composed(self, outer, pieces)


def normal_view(
    source: Shape,
    shape: Shape,
    digits: Sequence[Sequence[int]],
    index: Iterable[Affine],
    guards: Iterable[Guard] = (),
) -> View:
    """The view in its normal form."""
    return View(tuple(source), tuple(shape), *normal_form(source, shape, digits, index, guards))


# ---- nouns as views ------------------------------------------------------------------------------
@lru_cache(maxsize=10_000)
def view_of(op: str, attr: Attr) -> View | None:
    """View of an op; None of one that moves nothing, or a reshape that cuts dims unevenly."""
    match attr:
        case Transpose(source=source, perm=perm):
            index = [dim(perm.index(d)) for d in range(len(perm))]
            return normal_view(source, attr.result_shape, _whole(attr.result_shape), index)
        case Reshape(source=source, shape=shape):
            return _reshape(source, shape)
        case Move(op="slice", sources=(source,), args=(start, _, step), shape=shape):
            index = [affine([(d, k)], a) for d, (a, k) in enumerate(zip(start, step, strict=True))]
            return normal_view(source, shape, _whole(shape), index)
        case Move(op="pad", sources=(source,), args=(low, _, text), shape=shape):
            index = [affine([(d, 1)], -a) for d, a in enumerate(low)]
            value = pad_value(text)
            guards = [Guard(e, 0, s, value) for e, s in zip(index, source, strict=True)]
            return normal_view(source, shape, _whole(shape), index, guards)
        case Layout():
            return _LAYOUTS[op](attr)
    return None


def _whole(shape: Shape) -> Groups:
    return tuple([(s,) for s in shape])


def _reshape(source: Shape, shape: Shape) -> View | None:
    """Both shapes cut at every place where one of them is."""
    if 0 in shape:
        return normal_view(source, shape, _whole(shape), [ZERO] * len(source))
    apart = common_dims(source, shape)
    if apart is None:
        return None
    places = list(zip(apart, _weights(apart), strict=True))
    index = []
    for size, low in zip(source, _weights(source), strict=True):
        within = [(d, w // low) for d, (_, w) in enumerate(places) if low <= w < low * size]
        index.append(Affine(tuple(within)))
    groups = [
        [e for e, w in places if low <= w < low * size]
        for size, low in zip(shape, _weights(shape), strict=True)
    ]
    return normal_view(source, shape, groups, index)


def _weights(shape: Sequence[int]) -> list[int]:
    """How many elements lie below one of each dim."""
    return [math.prod(shape[d + 1 :]) for d in range(len(shape))]


def _lanes(layout: Layout) -> list[Affine]:
    """The index into the source, over the dims of the packed tensor."""
    tile = dict(zip(layout.pos, layout.tiles, strict=True))
    rank = len(layout.source)
    lanes = [[(layout.outer.index(d), tile.get(d, 1))] for d in range(rank)]
    for n, d in enumerate(layout.pos):
        lanes[d].append((rank + n, 1))
    return [affine(terms) for terms in lanes]


def _padding(layout: Layout, open_only: bool = False) -> list[Guard]:
    """Guards of a layout's padding; the last padding decides."""
    lanes = _lanes(layout)
    paddings = [(d, p) for d, _, p in reversed(layout.padded_dims) if p == "?" or not open_only]
    return [Guard(lanes[d], 0, layout.source[d], p) for d, p in paddings if p != "-"]


def _pack(layout: Layout) -> View:
    packed = layout.packed_shape
    return normal_view(layout.source, packed, _whole(packed), _lanes(layout), _padding(layout))


def _unpack(layout: Layout) -> View:
    tile = dict(zip(layout.pos, layout.tiles, strict=True))
    groups: list[list[int]] = []
    outer: dict[int, int] = {}
    inner: dict[int, int] = {}
    count = 0
    for d, size in enumerate(layout.source):
        t = tile.get(d, 1)
        outer[d], inner[d] = count, count + 1
        groups.append([cdiv(size, t), t])
        count += 2
    index = [*(dim(outer[d]) for d in layout.outer), *(dim(inner[d]) for d in layout.pos)]
    return normal_view(layout.packed_shape, layout.source, groups, index)


def _masked(layout: Layout, open_only: bool) -> View:
    packed = layout.packed_shape
    same = [dim(d) for d in range(len(packed))]
    return normal_view(packed, packed, _whole(packed), same, _padding(layout, open_only))


_LAYOUTS = {
    "pack": _pack,
    "unpack": _unpack,
    "relax": lambda layout: _masked(layout, open_only=True),
    "retype": lambda layout: _masked(layout, open_only=False),
}


# ---- one view behind another ---------------------------------------------------------------------
def _pieces(inner: View, outer: View) -> list[list[Piece]] | None:
    """The digits of `outer`, cut where the dims they index have digits of their own."""
    digits = Digits(outer.shape, outer.digits)
    pieces: list[list[Piece]] = [[(e, 1)] for e in digits.extents]
    for group, e in zip(inner.digits, outer.index, strict=True):
        radix = sorted(_weights(group))
        for d, s in e.terms if len(group) > 1 else ():
            cut = _cut(pieces[d], abs(s), radix, is_top=digits.home[d][1] == 0)
            if cut is None:
                return None
            pieces[d] = cut
    return pieces


def _cut(pieces: list[Piece], stride: int, radix: list[int], is_top: bool) -> list[Piece] | None:
    """A digit of this stride, cut so that every piece counts within one digit of the radix."""
    cut: list[Piece] = []
    for n, piece in enumerate(pieces):
        extent, weight = piece
        parts: list[Piece] = []
        while True:
            low = stride * weight
            bound = next((w for w in radix if w > low), None)
            if bound is None or low * extent <= bound:
                parts.append((extent, weight))
                break
            count, rest = divmod(bound, low)
            if rest or (extent % count and not (is_top and n == 0)):
                return None
            parts.append((count, weight))
            extent, weight = cdiv(extent, count), weight * count
        cut += reversed(parts)
    return cut


def _composed(inner: View, outer: View, pieces: list[list[Piece]]) -> View | None:
    first = [0, *accumulate(map(len, pieces))]
    extents = [e for run in pieces for e, _ in run]

    def fine(e: Affine) -> Affine:
        terms = [(first[d] + n, s * w) for d, s in e.terms for n, (_, w) in enumerate(pieces[d])]
        return Affine(tuple(terms), e.constant)

    put: list[Affine] = []  # of the digits of `inner`
    for group, e in zip(inner.digits, outer.index, strict=True):
        run = [fine(e)] if len(group) == 1 else _parts(fine(e), group, extents)
        if run is None:
            return None
        put += run
    at = iter(pieces)
    groups = [[e for run in (next(at) for _ in g) for e, _ in run] for g in outer.digits]
    return normal_view(
        inner.source,
        outer.shape,
        groups,
        [_put(e, put) for e in inner.index],
        [
            *(g._replace(number=fine(g.number)) for g in outer.guards),
            *(g._replace(number=_put(g.number, put)) for g in inner.guards),
        ],
    )


def _put(e: Affine, digits: Sequence[Affine]) -> Affine:
    terms = [(d, s * w) for at, s in e.terms for d, w in digits[at].terms]
    return affine(terms, e.constant + sum(s * digits[at].constant for at, s in e.terms))


def _parts(e: Affine, radix: Sequence[int], extents: Sequence[int]) -> list[Affine] | None:
    """The digits of a number in this radix; None where one of them carries over to the next."""
    rest = e.constant + sum(s * (extents[d] - 1) for d, s in e.terms if s < 0)
    digits: list[Affine] = []
    above = None
    for r, w in zip(radix, _weights(radix), strict=True):
        mine = [(d, s) for d, s in e.terms if w <= abs(s) and (above is None or abs(s) < above)]
        constant, rest = divmod(rest, w)
        largest = constant + sum(abs(s) // w * (extents[d] - 1) for d, s in mine)
        if any(s % w for _, s in mine) or (above is not None and largest >= r):
            return None
        back = sum(-s // w * (extents[d] - 1) for d, s in mine if s < 0)
        digits.append(Affine(tuple([(d, s // w) for d, s in mine]), constant + back))
        above = w
    return digits


# ---- views as nouns ------------------------------------------------------------------------------
@dataclass(frozen=True)
class Rearrangement:
    """A reshape, a transpose and a reshape; None: not needed."""

    split: Reshape | None
    order: tuple[int, ...] | None
    join: Reshape | None


def as_steps(v: View) -> Rearrangement | None:
    """How every element gets to its place in memory, if none is left out, doubled or made."""
    places = _places(v)
    if places is None:
        return None
    extents = [e for g in v.digits for e in g]
    runs: list[list[int]] = []  # digits that stay together, in the order of the source
    for d in sorted(places, key=lambda d: -places[d]):
        if runs and runs[-1][-1] == d - 1:
            runs[-1].append(d)
        else:
            runs.append([d])
    split = tuple([math.prod([extents[d] for d in run]) for run in runs])
    order = tuple(sorted(range(len(runs)), key=lambda i: runs[i][0]))
    if len(runs) < 2:
        return Rearrangement(
            None, None, None if v.source == v.shape else Reshape(v.source, v.shape)
        )
    moved = tuple([split[i] for i in order])
    return Rearrangement(
        None if split == v.source else Reshape(v.source, split),
        order,
        None if moved == v.shape else Reshape(moved, v.shape),
    )


def _places(v: View) -> dict[int, int] | None:
    """Per digit: how far apart in memory its neighbours are; None if not all of it is read."""
    digits = Digits(v.shape, v.digits)
    ranges = zip(map(digits.range, v.index), v.source, strict=True)
    if v.guards or any(low < 0 or high >= size for (low, high), size in ranges):
        return None
    places = dict.fromkeys(range(len(digits.extents)), 0)
    for e, weight in zip(v.index, _weights(v.source), strict=True):
        for d, s in e.terms:
            places[d] += s * weight
    below = 1
    for d in sorted(places, key=places.__getitem__):
        if places[d] != below:
            return None
        below *= digits.extents[d]
    return places if below == math.prod(v.source) == math.prod(v.shape) else None


@dataclass(frozen=True)
class PaddedSlice:
    """`pad(slice(x))`; None: there is nothing to do."""

    slice: Move | None
    pad: Move | None


def as_padded_slice(v: View) -> PaddedSlice | None:
    """The view as a slice of a value, and one value around it."""
    if len(v.source) != len(v.shape) or len({g.fill for g in v.guards}) > 1:
        return None
    home = [k for k, g in enumerate(v.digits) for _ in g]
    if len(home) != len(set(home)):
        return None
    held = [(0, s) for s in v.shape]
    for g in v.guards:
        if [s for _, s in g.number.terms] != [1]:
            return None
        held[home[g.number.terms[0][0]]] = g.low, g.high
    start, limit, step = [], [], []
    for k, (e, (low, high)) in enumerate(zip(v.index, held, strict=True)):
        if any(home[d] != k or s < 1 for d, s in e.terms):
            return None
        stride = e.terms[0][1] if e.terms else 1
        if not e.terms and high - low > 1:
            return None
        start.append(e.constant + (stride * low if e.terms else 0))
        limit.append(start[-1] + (high - low - 1) * stride + 1)
        step.append(stride)
    inside = slice_of(v.source, start, limit, step)
    above = [s - high for s, (_, high) in zip(v.shape, held, strict=True)]
    value = v.guards[0].fill if v.guards else "0"
    around = pad_of(inside.shape, [low for low, _ in held], above, value)
    return PaddedSlice(None if inside.shape == v.source else inside, around if v.guards else None)


# ---- what rules ask ------------------------------------------------------------------------------
def compose_moves(inner: Move, outer: Move) -> PaddedSlice | None:
    """Pads and slices, one behind another, as a slice and a pad; None of two paddings.

    None too where nothing is left of the value.
    """
    first, second = view_of(inner.op, inner), view_of(outer.op, outer)
    both = None if first is None or second is None else first.then(second)
    padded = None if both is None else as_padded_slice(both)
    if padded is None or padded.pad is None:
        return padded
    low, high, value = padded.pad.args
    text = next(t for m in (inner, outer) for t in m.padding() if pad_value(t) == value)
    return replace(padded, pad=pad_of(padded.pad.sources[0], low, high, text))


FUNCTIONS = attr_functions(compose_moves)
