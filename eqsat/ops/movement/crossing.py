"""Packs and transposes through pads, slices, concats, gathers, reshapes and borders of devices.

A form is how a value is laid out: a layout, or a permutation, which is a layout without tiles.
`above` asks for the form in front of a movement that gives a form behind it, `below` for the form
behind that one in front gives, both for the movement in between.

Two values are one only if they are defined on the same lanes: where the other side knows lanes
that this side leaves open (`?`), the column `relaxed` names the layout that forgets them. An unpack
reads no such lanes, so several packed values may stand behind one unpacked value; forgetting what
they know makes them one before they are moved, and keeps growth linear.
Sources: MLIR DataLayoutPropagation.cpp and PackAndUnpackPatterns.cpp, without their single-use
guards; tiled dims are new where blocks stay whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from eqsat.model.attr import Shape
from eqsat.model.devices import Transfer
from eqsat.model.layout import Layout
from eqsat.model.movement import Move, Reshape
from eqsat.ops.declare import attr_functions
from eqsat.ops.movement.layout import (
    Perm,
    common_dims,
    large_groups,
    make_layout,
    moves_units_only,
    pack_reshape,
    unpack_reshape,
)
from eqsat.ops.movement.lists import inverse, undone
from eqsat.ops.movement.moves import (
    concat_of,
    gather_of,
    pad_of,
    pad_value,
    slice_of,
    unless_identity,
)

Movement = Move | Reshape | Transfer
Form = Layout | Perm


@dataclass(frozen=True)
class Crossed:
    """The other side of a movement: what moves there, and the form on its other side.

    A column that is None is not needed.
    """

    move: Move | None = None
    groups: Reshape | None = None
    border: Transfer | None = None
    layout: Layout | None = None
    perm: Perm | None = None
    operands: tuple[Layout, ...] = ()  # in front of a concat
    indices: Perm | None = None  # of a gather
    order: Perm | None = None  # of blocks, next to a reshape
    relaxed: Layout | None = None
    forgotten: tuple[Layout | None, ...] = ()  # by each operand of a concat


def above(movement: Movement, form: Form) -> Crossed | None:
    """The form in front of a movement that gives this form behind it."""
    if isinstance(movement, Transfer):
        return _above_border(movement, form)
    if isinstance(form, Layout):
        if isinstance(movement, Reshape):
            return _around(pack_reshape(form, movement))
        return _ABOVE[movement.op](movement, form)
    if isinstance(movement, Reshape):
        return _transpose_above_reshape(movement, form)
    crossed = _ABOVE[movement.op](movement, _untiled(movement.shape, form))
    if crossed is None or crossed.layout is None:
        return None
    return replace(crossed, layout=None, perm=unless_sorted(crossed.layout.outer))


def below(form: Form | tuple[Layout, ...], movement: Movement) -> Crossed | None:
    """The form behind a movement that this form in front of it gives.

    Of a concat: the layout of each operand.
    """
    if isinstance(form, tuple) and form and isinstance(form[0], Layout):
        assert isinstance(movement, Move)
        return _BELOW[movement.op](cast(tuple[Layout, ...], form), movement)
    form = cast(Form, form)
    if isinstance(movement, Transfer):
        return _below_border(form, movement)
    if isinstance(form, Layout):
        if isinstance(movement, Reshape):
            return _around(unpack_reshape(movement, form))
        return _BELOW[movement.op]((form,), movement)
    if isinstance(movement, Reshape):
        return _transpose_below_reshape(form, movement)
    untiled = tuple([_untiled(s, inverse(form)) for s in movement.sources])
    crossed = _BELOW[movement.op](untiled, movement)
    if crossed is None or crossed.layout is None:
        return None
    return replace(crossed, layout=None, perm=unless_sorted(inverse(crossed.layout.outer)))


def _untiled(shape: Shape, outer: Perm) -> Layout:
    return Layout(shape, (), (), outer, ())


def unless_sorted(perm: Sequence[int]) -> Perm | None:
    """The permutation; None where it changes nothing."""
    return None if list(perm) == sorted(perm) else tuple(perm)


def _opened(layout: Layout) -> Layout | None:
    return layout if "?" in layout.pads else None


def _with(layout: Layout, source: Shape, pads: Sequence[str]) -> Layout:
    return make_layout(source, layout.pos, layout.tiles, layout.outer, pads)


# ---- pads and slices -----------------------------------------------------------------------------
def _by_blocks(move: Move, layout: Layout) -> Move | None:
    """The pad or slice between packed tensors; None if it begins inside of a tile, or skips in one.

    layout: of either side, its tiles and orders being those of both.
    """
    rank, tiles = len(layout.outer), dict(zip(layout.pos, layout.tiles, strict=True))
    is_pad = move.op == "pad"
    start = [-a for a in move.args[0]] if is_pad else list(move.args[0])
    step = [1] * rank if is_pad else list(move.args[2])
    for d, t in tiles.items():
        if step[d] != 1 or start[d] % t:
            return None
        start[d] //= t
    whole = ("?",) * len(tiles)
    source, shape = (_with(layout, s, whole).packed_shape for s in (move.sources[0], move.shape))
    inner = [0] * len(tiles)
    first = [start[d] for d in layout.outer] + inner
    steps = [step[d] for d in layout.outer] + [1] * len(tiles)
    if is_pad:
        high = [n + a - s for n, a, s in zip(shape, first, source, strict=True)]
        return pad_of(source, [-a for a in first], high, move.args[2])
    last = [a + (n - 1) * k + 1 for a, n, k in zip(first, shape, steps, strict=True)]
    return slice_of(source, first, last, steps)


def _pack_pad(pad: Move, layout: Layout) -> Crossed | None:
    """pack(pad(x), layout) = pad(pack(x, L)) where new blocks begin between tiles.

    New blocks hold the pad's value in all lanes, so own padding has to be that value or open. The
    last tile before the pad on the high side is completed by the pad's value.
    """
    text, high = pad_value(pad.args[2]), pad.args[1]
    if any(p not in ("-", "?", text) for p in layout.pads):
        return None
    move = _by_blocks(pad, layout)
    if move is None or unless_identity(move) is None:
        return None
    pads = [text if high[d] else p for d, p in zip(layout.pos, layout.pads, strict=True)]
    return Crossed(move, layout=_with(layout, pad.sources[0], pads), relaxed=_opened(layout))


def _unpack_pad(layouts: tuple[Layout, ...], pad: Move) -> Crossed | None:
    """pad(unpack(y, layout)) = unpack(pad(y), L) where new blocks begin between tiles.

    A tile that the pad completes has to hold the pad's value already.
    """
    (layout,) = layouts
    text, high = pad_value(pad.args[2]), pad.args[1]
    owned = list(zip(layout.pos, layout.pads, strict=True))
    if any(high[d] and p not in ("-", text) for d, p in owned):
        return None
    move = _by_blocks(pad, layout)
    if move is None or unless_identity(move) is None:
        return None
    pads = [text if high[d] else p if p in ("-", text) else "?" for d, p in owned]
    return Crossed(move, layout=_with(layout, pad.shape, pads), relaxed=_opened(layout))


def _cut_tiles(cut: Move, layout: Layout) -> set[int]:
    """The dims whose last tile a slice cuts in two: the rest of it holds data."""
    ends = zip(layout.pos, layout.tiles, strict=True)
    return {d for d, t in ends if cut.args[1][d] % t and cut.args[1][d] != cut.sources[0][d]}


def _pack_slice(cut: Move, layout: Layout) -> Crossed | None:
    """pack(slice(x), layout) = slice(pack(x, L)) if the slice begins between tiles.

    If it ends inside of a tile, the lanes of the rest have to be open.
    """
    move = None if cut.shape == cut.sources[0] else _by_blocks(cut, layout)
    inside = _cut_tiles(cut, layout)
    owned = list(zip(layout.pos, layout.pads, strict=True))
    if move is None or any(p != "?" for d, p in owned if d in inside):
        return None
    # padding of x that the slice cuts off may hold anything
    pads = [p if cut.args[1][d] == cut.sources[0][d] else "?" for d, p in owned]
    inner = _with(layout, cut.sources[0], pads)
    return Crossed(unless_identity(move), layout=inner, relaxed=layout if inside else None)


def _unpack_slice(layouts: tuple[Layout, ...], cut: Move) -> Crossed | None:
    """slice(unpack(y, layout)) = unpack(slice(y), L) if the slice begins between tiles."""
    (layout,) = layouts
    move = None if cut.shape == cut.sources[0] else _by_blocks(cut, layout)
    if move is None:
        return None
    inside = _cut_tiles(cut, layout)
    pads = ["?" if d in inside else p for d, p in zip(layout.pos, layout.pads, strict=True)]
    result = _with(layout, cut.shape, pads)
    return Crossed(unless_identity(move), layout=result, relaxed=_opened(layout))


# ---- concats -------------------------------------------------------------------------------------
def _whole_tiles(concat: Move, layout: Layout) -> bool:
    """Whether every operand but the last ends between tiles."""
    (axis,) = concat.args
    tile = dict(zip(layout.pos, layout.tiles, strict=True)).get(axis, 1)
    return all(s[axis] % tile == 0 for s in concat.sources[:-1])


def _concat_blocks(layouts: tuple[Layout, ...], axis: int) -> Move:
    return concat_of([a.packed_shape for a in layouts], layouts[0].outer.index(axis))


def _pack_concat(concat: Move, layout: Layout) -> Crossed | None:
    """pack(concat(xs), layout) = concat(pack(xs)) if operands meet between tiles."""
    if not _whole_tiles(concat, layout):
        return None
    operands = tuple([_with(layout, s, layout.pads) for s in concat.sources])
    return Crossed(_concat_blocks(operands, concat.args[0]), operands=operands)


def _unpack_concat(layouts: tuple[Layout, ...], concat: Move) -> Crossed | None:
    """concat(unpack(ys)) = unpack(concat(ys)) if all operands have one layout, up to padding.

    Where their padding differs, that of the result may hold anything.
    """
    first, (axis,) = layouts[0], concat.args
    like = (first.pos, first.tiles, first.outer)
    if any((a.pos, a.tiles, a.outer) != like for a in layouts) or not _whole_tiles(concat, first):
        return None
    pads: list[str] = []
    for i, d in enumerate(first.pos):
        paddings = {a.pads[i] for a in layouts}
        pads.append(
            layouts[-1].pads[i] if d == axis else paddings.pop() if len(paddings) == 1 else "?"
        )
    result = _with(first, concat.shape, pads)
    forgotten = tuple([_opened(a) for a in layouts])
    return Crossed(_concat_blocks(layouts, axis), layout=result, forgotten=forgotten)


# ---- gathers -------------------------------------------------------------------------------------
def _pack_gather(gather: Move, layout: Layout) -> Crossed | None:
    """pack(gather(x, i), layout) = gather(pack(x, L), transpose(i)).

    The index dims have to stay side by side, and none of them may be tiled; where another one is,
    indices stay as they are.
    """
    (axis,) = gather.args
    source, indices = gather.sources
    block = range(axis, axis + len(indices))
    at = [slot for slot, d in enumerate(layout.outer) if d in block]
    inside = [layout.outer[slot] - axis for slot in at]
    is_apart = at != list(range(at[0], at[0] + len(at))) if at else False
    if (
        is_apart
        or any(d in block for d in layout.pos)
        or (layout.tiles and inside != sorted(inside))
    ):
        return None

    def outside(d: int) -> int:
        return d if d < axis else d - len(indices) + 1

    begin = at[0] if at else axis  # a scalar index leaves no dim: the axis may stand anywhere
    outer = [outside(d) for d in layout.outer if d not in block]
    outer.insert(begin, axis)
    inner = make_layout(source, [outside(d) for d in layout.pos], layout.tiles, outer, layout.pads)
    move = gather_of(inner.packed_shape, tuple([indices[p] for p in inside]), begin)
    return Crossed(move, layout=inner, indices=unless_sorted(inside))


def _unpack_gather(layouts: tuple[Layout, ...], gather: Move) -> Crossed | None:
    """gather(unpack(y, layout), i) = unpack(gather(y, i), L) if the gathered axis is not tiled."""
    layout, (axis,) = layouts[0], gather.args
    indices = gather.sources[1]
    if axis in layout.pos:
        return None

    def outside(d: int) -> int:
        return d if d < axis else d + len(indices) - 1

    begin = layout.outer.index(axis)
    outer = [outside(d) for d in layout.outer if d != axis]
    outer[begin:begin] = range(axis, axis + len(indices))
    pos = [outside(d) for d in layout.pos]
    result = make_layout(gather.shape, pos, layout.tiles, outer, layout.pads)
    move = gather_of(layout.packed_shape, indices, begin)
    return Crossed(move, layout=result, relaxed=_opened(layout))


def indices_below(perm: Perm, gather: Move) -> Crossed:
    """gather(x, transpose(i, perm)) = transpose(gather(x, i))."""
    (axis,) = gather.args
    source, permuted = gather.sources
    indices = tuple([permuted[p] for p in inverse(perm)])
    behind = range(axis + len(perm), len(gather.shape))
    result = (*range(axis), *(axis + p for p in perm), *behind)
    return Crossed(gather_of(source, indices, axis), perm=unless_sorted(result))


_ABOVE = {"pad": _pack_pad, "slice": _pack_slice, "concat": _pack_concat, "gather": _pack_gather}
_BELOW = {
    "pad": _unpack_pad, "slice": _unpack_slice, "concat": _unpack_concat, "gather": _unpack_gather,
}  # fmt: skip


# ---- borders of devices --------------------------------------------------------------------------
def _above_border(border: Transfer, form: Form) -> Crossed:
    """Form in front of a transfer: the value is packed, or transposed, before."""
    if isinstance(form, Layout):
        return Crossed(border=replace(border, source=form.packed_shape), layout=form)
    return Crossed(border=_permuted(border, form), perm=form)


def _below_border(form: Form, border: Transfer) -> Crossed:
    """Form behind a transfer: the value crosses packed, or not yet transposed."""
    if isinstance(form, Layout):
        return _above_border(border, form)
    return Crossed(border=_permuted(border, inverse(form)), perm=form)


def _permuted(border: Transfer, perm: Perm) -> Transfer:
    return replace(border, source=tuple([border.source[p] for p in perm]))


# ---- reshapes ------------------------------------------------------------------------------------
def _around(parts: tuple[Layout, Reshape, Perm | None] | None) -> Crossed | None:
    if parts is None:
        return None
    layout, groups, order = parts
    return Crossed(groups=groups, layout=layout, order=order)


def _transpose_above_reshape(groups: Reshape, perm: Perm) -> Crossed | None:
    """transpose(reshape(x), perm) = reshape(transpose(x)) if perm moves whole groups.

    Dims of size 1 belong to no group, and stay where they are in x: put anywhere, they would give
    equal transposes ever new names. None for a transpose of such dims only: it is a reshape.
    """
    if moves_units_only(groups.shape, perm) or 0 in groups.shape:
        return None
    pairs = large_groups(groups.source, groups.shape)
    large = [p for p in perm if groups.shape[p] != 1]
    order = None if pairs is None else _whole_groups([right for _, right in pairs], large)
    if pairs is None or order is None:
        return None
    moved = list(range(len(groups.source)))
    slots = [d for left, _ in pairs for d in left]
    for slot, d in zip(slots, (d for g in order for d in pairs[g][0]), strict=True):
        moved[slot] = d
    source, shape = (
        tuple([s[p] for p in order]) for s, order in ((groups.source, moved), (groups.shape, perm))
    )
    return Crossed(groups=None if source == shape else Reshape(source, shape), perm=tuple(moved))


def _transpose_below_reshape(perm: Perm, groups: Reshape) -> Crossed | None:
    """reshape(transpose(x, perm)) = transpose(reshape(x)) if the reshape keeps perm's blocks."""
    back = _transpose_above_reshape(undone(groups), inverse(perm))
    if back is None or back.perm is None:
        return None
    return Crossed(groups=back.groups and undone(back.groups), perm=inverse(back.perm))


def _whole_groups(groups: list[list[int]], order: list[int]) -> list[int] | None:
    """The sequence in which the groups are visited; None if one of them is taken apart."""
    of = {d: i for i, dims in enumerate(groups) for d in dims}
    visited = list(dict.fromkeys(of[d] for d in order))
    return visited if [d for i in visited for d in groups[i]] == order else None


@dataclass(frozen=True)
class Apart:
    """A reshape, a transpose and a reshape; None: not needed."""

    split: Reshape | None
    perm: Perm | None
    join: Reshape | None


def above_apart(groups: Reshape, perm: Perm) -> Apart | None:
    """transpose(reshape(x), perm) where the reshape takes dims apart and joins others.

    They come apart first, and join behind the transpose.
    """
    apart = common_dims(groups.source, groups.shape)
    if apart is None or apart in (groups.source, groups.shape):
        return None
    above = _transpose_above_reshape(Reshape(apart, groups.shape), perm)
    split = Reshape(groups.source, apart)
    return None if above is None else Apart(split, above.perm, above.groups)


FUNCTIONS = attr_functions(above, below, indices_below, above_apart)
