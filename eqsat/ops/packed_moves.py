"""Packs and unpacks through pads, slices, concats and gathers.

Each function gives the layout and the move on the other side. Two values are one only if they are
defined on the same lanes: where the other side knows lanes that this side leaves open (`?`), the
column `relaxed` names the layout that forgets them, else it is None. An unpack reads no such lanes,
so several packed values may stand behind one unpacked value; forgetting what they know makes them
one before they are moved, and keeps growth linear.
Sources: MLIR DataLayoutPropagation.cpp and PackAndUnpackPatterns.cpp, without their single-use
guards; tiled dims are new where blocks stay whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.model.attr import Shape
from eqsat.model.layout import Layout
from eqsat.model.movement import Move
from eqsat.model.tensor import cdiv
from eqsat.ops.declare import attr_functions
from eqsat.ops.moves import concat_of, gather_of, pad_of, pad_value, slice_of, unless_identity
from eqsat.ops.tiling import make_layout


@dataclass(frozen=True)
class MovedLayout:
    """A layout on the other side of a move, and the move between packed tensors (None: none)."""

    layout: Layout
    move: Move | None
    relaxed: Layout | None


@dataclass(frozen=True)
class MovedLayouts:
    """A layout per operand of a concat, and the concat of packed tensors."""

    operands: tuple[Layout, ...]
    move: Move


@dataclass(frozen=True)
class ConcatLayout:
    """The layout behind a concat of packed tensors, and what each of them forgets before."""

    layout: Layout
    move: Move
    relaxed: tuple[Layout | None, ...]


def _opened(layout: Layout) -> Layout | None:
    return layout if "?" in layout.pads else None


def _tiles(layout: Layout) -> dict[int, int]:
    return dict(zip(layout.pos, layout.tiles, strict=True))


def _with(layout: Layout, source: Shape, pads: tuple[str, ...]) -> Layout:
    return make_layout(source, layout.pos, layout.tiles, layout.outer, pads)


# ---- forgetting --------------------------------------------------------------------------------
def forgets_more(first: Layout, second: Layout) -> bool:
    """Whether every lane that `first` leaves open is open in `second` too."""
    if (first.pos, first.tiles, first.outer) != (second.pos, second.tiles, second.outer):
        return False
    pads = zip(first.pos, first.pads, second.pads, strict=True)
    open_dims = [(d, q) for d, p, q in pads if p == "?"]
    return first.packed_shape == second.packed_shape and all(
        q == "?" and second.source[d] <= first.source[d] for d, q in open_dims
    )


# ---- a pad that completes the tile: F5 --------------------------------------------------------
def fold_pad(layout: Layout, pad: Move) -> MovedLayout | None:
    """pack(pad(x), layout) = pack(x, L) where L pads by the pad's value.

    The pad is on the high side of tiled dims only, and adds no whole tile ("artificial padding").
    What layout itself pads must be the same value, or may hold anything; then the pad writes lanes
    that are open here.
    """
    low, high, value = pad.args
    tiles = _tiles(layout)
    if any(low) or any(h and d not in tiles for d, h in enumerate(high)):
        return None
    source, text = pad.sources[0], pad_value(value)
    if not any(high) or any(cdiv(source[d], t) * t < pad.shape[d] for d, t in tiles.items()):
        return None
    pads = tuple(text if high[d] else p for d, p in zip(layout.pos, layout.pads, strict=True))
    if any(p not in ("-", "?", text) for p in layout.pads):
        return None
    return MovedLayout(_with(layout, source, pads), None, _opened(layout))


def unfold_pad(pad: Move, layout: Layout) -> Layout | None:
    """pad(unpack(y, layout)) = unpack(y, L) if the lanes that L shows hold the pad's value."""
    low, high, value = pad.args
    tiles = dict(zip(layout.pos, zip(layout.tiles, layout.pads, strict=True), strict=True))
    if any(low) or not any(high):
        return None
    for d, h in enumerate(high):
        tile, held = tiles.get(d, (1, "-"))
        if h and (held != pad_value(value) or cdiv(pad.sources[0][d], tile) * tile < pad.shape[d]):
            return None
    if any(p not in ("-", pad_value(value)) for p in layout.pads):
        return None  # where two paddings meet, the other one may have been written last
    return _with(layout, pad.shape, layout.pads)


# ---- pads ------------------------------------------------------------------------------------
def _pad_blocks(layout: Layout, pad: Move) -> Move | None:
    """The pad by whole blocks between packed tensors; None if there is none, or if it shifts tiles.

    The last tile before the pad on the high side has to be completed by the pad's value.
    """
    low, high, value = pad.args
    tiles = _tiles(layout)
    below, above = [], []
    for d in layout.outer:
        t, size = tiles.get(d, 1), pad.sources[0][d]
        if low[d] % t:
            return None
        below.append(low[d] // t)
        above.append(cdiv(low[d] + size + high[d], t) - low[d] // t - cdiv(size, t))
    source = _with(layout, pad.sources[0], ("?",) * len(layout.pads)).packed_shape
    inner = [0] * len(layout.tiles)
    return unless_identity(pad_of(source, below + inner, above + inner, value))


def pack_pad(layout: Layout, pad: Move) -> MovedLayout | None:
    """pack(pad(x), layout) = pad(pack(x, L)) where new blocks begin between tiles.

    New blocks hold the pad's value in all lanes, so own padding has to be that value or open.
    """
    move, text = _pad_blocks(layout, pad), pad_value(pad.args[2])
    if move is None or any(p not in ("-", "?", text) for p in layout.pads):
        return None
    high = pad.args[1]
    pads = tuple(text if high[d] else p for d, p in zip(layout.pos, layout.pads, strict=True))
    inner = _with(layout, pad.sources[0], pads)
    return MovedLayout(inner, move, _opened(layout))


def unpack_pad(pad: Move, layout: Layout) -> MovedLayout | None:
    """pad(unpack(y, layout)) = unpack(pad(y), L) where new blocks begin between tiles.

    A tile that the pad completes has to hold the pad's value already.
    """
    move, text, high = _pad_blocks(layout, pad), pad_value(pad.args[2]), pad.args[1]
    owned = list(zip(layout.pos, layout.pads, strict=True))
    if move is None or any(high[d] and p not in ("-", text) for d, p in owned):
        return None
    pads = tuple(text if high[d] else p if p in ("-", text) else "?" for d, p in owned)
    result = _with(layout, pad.shape, pads)
    return MovedLayout(result, move, _opened(layout))


# ---- slices: F6 and blocks --------------------------------------------------------------------
def _slice_blocks(layout: Layout, cut: Move) -> tuple[Move, set[int]] | None:
    """The slice between packed tensors, and the dims whose last tile it cuts in two.

    None if the slice skips elements of a tiled dim or begins inside of a tile.
    """
    start, limit, stride = (list(a) for a in cut.args)
    inside: set[int] = set()
    for d, t in _tiles(layout).items():
        if stride[d] != 1 or start[d] % t:
            return None
        if limit[d] % t and limit[d] != cut.sources[0][d]:
            inside.add(d)
        start[d], limit[d] = start[d] // t, cdiv(limit[d], t)
    source = _with(layout, cut.sources[0], ("?",) * len(layout.pads)).packed_shape
    tiles = layout.tiles
    return slice_of(
        source,
        [*(start[d] for d in layout.outer), *(0 for _ in tiles)],
        [*(limit[d] for d in layout.outer), *tiles],
        [*(stride[d] for d in layout.outer), *(1 for _ in tiles)],
    ), inside


def pack_slice(layout: Layout, cut: Move) -> MovedLayout | None:
    """pack(slice(x), layout) = slice(pack(x, L)) if the slice begins between tiles.

    If it ends inside of a tile, the rest of the tile holds data: its lanes have to be open.
    """
    found = _slice_blocks(layout, cut)
    if found is None or cut.shape == cut.sources[0]:
        return None
    move, inside = found
    own = dict(zip(layout.pos, layout.pads, strict=True))
    if any(own[d] != "?" for d in inside):
        return None
    whole = {d for d in layout.pos if cut.args[1][d] == cut.sources[0][d]}
    # padding of x that the slice cuts off may hold anything
    pads = tuple(own[d] if d in whole else "?" for d in layout.pos)
    inner = _with(layout, cut.sources[0], pads)
    return MovedLayout(inner, unless_identity(move), layout if inside else None)


def unpack_slice(cut: Move, layout: Layout) -> MovedLayout | None:
    """slice(unpack(y, layout)) = unpack(slice(y), L) if the slice begins between tiles."""
    found = _slice_blocks(layout, cut)
    if found is None or cut.shape == cut.sources[0]:
        return None
    move, inside = found
    pads = tuple("?" if d in inside else p for d, p in zip(layout.pos, layout.pads, strict=True))
    result = _with(layout, cut.shape, pads)
    return MovedLayout(result, unless_identity(move), _opened(layout))


# ---- concats -----------------------------------------------------------------------------------
def _whole_tiles(concat: Move, layout: Layout) -> bool:
    """Whether every operand but the last ends between tiles."""
    (axis,) = concat.args
    tile = _tiles(layout).get(axis, 1)
    return all(s[axis] % tile == 0 for s in concat.sources[:-1])


def _concat_blocks(layouts: tuple[Layout, ...], axis: int) -> Move:
    return concat_of([a.packed_shape for a in layouts], layouts[0].outer.index(axis))


def pack_concat(layout: Layout, concat: Move) -> MovedLayouts | None:
    """pack(concat(xs), layout) = concat(pack(xs)) if operands meet between tiles."""
    if not _whole_tiles(concat, layout):
        return None
    operands = tuple(_with(layout, s, layout.pads) for s in concat.sources)
    return MovedLayouts(operands, _concat_blocks(operands, concat.args[0]))


def unpack_concat(concat: Move, layouts: tuple[Layout, ...]) -> ConcatLayout | None:
    """concat(unpack(ys)) = unpack(concat(ys)) if all operands have one layout, up to padding.

    Where their padding differs, that of the result may hold anything.
    """
    first, (axis,) = layouts[0], concat.args
    like = (first.pos, first.tiles, first.outer)
    if any((a.pos, a.tiles, a.outer) != like for a in layouts) or not _whole_tiles(concat, first):
        return None
    pads: list[str] = []
    for i, d in enumerate(first.pos):
        found = {a.pads[i] for a in layouts}
        pads.append(layouts[-1].pads[i] if d == axis else found.pop() if len(found) == 1 else "?")
    result = _with(first, concat.shape, tuple(pads))
    return ConcatLayout(result, _concat_blocks(layouts, axis), tuple(_opened(a) for a in layouts))


# ---- gathers -----------------------------------------------------------------------------------
def pack_gather(layout: Layout, gather: Move) -> MovedLayout | None:
    """pack(gather(x, i), layout) = gather(pack(x, L), i) if the index dims stay as they are.

    None of them may be tiled, and they have to stay side by side.
    """
    (axis,) = gather.args
    source, indices = gather.sources
    block = list(range(axis, axis + len(indices)))
    if any(d in block for d in layout.pos):
        return None
    begin = layout.outer.index(axis) if block else axis
    if list(layout.outer[begin : begin + len(block)]) != block:
        return None

    def outside(d: int) -> int:
        return d if d < axis else d - len(block) + 1

    outer = [outside(d) for d in layout.outer if d not in block]
    outer.insert(begin, axis)
    pos = [outside(d) for d in layout.pos]
    inner = make_layout(source, pos, layout.tiles, outer, layout.pads)
    return MovedLayout(inner, gather_of(inner.packed_shape, indices, begin), None)


def unpack_gather(gather: Move, layout: Layout) -> MovedLayout | None:
    """gather(unpack(y, layout), i) = unpack(gather(y, i), L) if the gathered axis is not tiled."""
    (axis,) = gather.args
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
    return MovedLayout(result, gather_of(layout.packed_shape, indices, begin), _opened(layout))


FUNCTIONS = attr_functions(
    forgets_more, fold_pad, unfold_pad, pack_pad, unpack_pad, pack_slice, unpack_slice,
    pack_concat, unpack_concat, pack_gather, unpack_gather,
)  # fmt: skip
