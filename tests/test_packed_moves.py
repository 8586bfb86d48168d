"""Packs through movement: both sides of every rule have the same value on the same lanes."""

from __future__ import annotations

import numpy as np
from movement import Count, Maker, cases, do, move, same, transpose

from eqsat.model.attr import Shape
from eqsat.model.layout import Layout
from eqsat.model.movement import Move
from eqsat.ops.movement import layout as layouts_of
from eqsat.ops.movement import relayout
from eqsat.ops.movement.crossing import above as form_above
from eqsat.ops.movement.crossing import below as form_below
from eqsat.ops.movement.layout import make_layout
from eqsat.ops.movement.lists import inverse, undone
from eqsat.ops.movement.moves import pad_of, slice_of


# ---- packs that move nothing ---------------------------------------------------------------------
def test_packs_as_reshapes_are_all_there_are():
    """Where the function refuses an unpadded pack, the pack does move elements."""
    count = Count()
    for make in cases(11, 330):
        layout = make.layout(make.shape())
        x = make.array(layout.source)
        y = do("pack", layout, x)
        found = None if layout.is_padded else relayout.padded_reshape(layout)
        if count(found):
            assert found.pad is None and found.slice is None and found.relaxed is None
            same(y, do("reshape", found.groups, x))
            same(x, do("reshape", undone(found.groups), y))
        elif not layout.is_padded:
            assert not np.array_equal(x.reshape(y.shape), y)
    assert count.met > 30 and count.missed > 30


def test_padding_packs_as_pads():
    count = Count()
    for make in cases(12, 330):
        layout = make.layout(make.shape())
        x = make.array(layout.source)
        y = do("pack", layout, x)
        found = relayout.padded_reshape(layout)
        if count(found):
            padded = do("reshape", found.groups, move(found.pad, x))
            same(y, do("relax", found.relaxed, padded))
            same(x, move(found.slice, do("reshape", undone(found.groups), y)))
    assert count.met > 30 and count.missed > 30


def test_unit_tiles():
    count = Count()
    for make in cases(13):
        layout = make.layout(make.shape())
        x = make.array(layout.source)
        y = do("pack", layout, x)
        found = relayout.drop_unit_tiles(layout)
        if count(found):
            inner = do("pack", found.layout, transpose(x, found.perm))
            same(y, do("reshape", found.groups, inner))
            inner = do("unpack", found.layout, do("reshape", undone(found.groups), y))
            same(x, transpose(inner, found.perm and inverse(found.perm)))
        assert (found is None) == (1 not in layout.tiles)
    assert count.met > 30 and count.missed > 30


def test_transposes_as_reshapes_are_all_there_are():
    count = Count()
    for make in cases(14, 500):
        x = make.array(make.shape())
        perm = make.perm(x.ndim)
        found = relayout.transpose_as_reshape(x.shape, perm)
        if count(found):
            same(transpose(x, perm), do("reshape", found, x))
        elif perm != tuple(range(x.ndim)):
            assert not np.array_equal(x.reshape([x.shape[p] for p in perm]), x.transpose(perm))
    assert count.met > 30 and count.missed > 30


# ---- packs through moves -----------------------------------------------------------------------
def aligned(make: Maker, layout: Layout, source: Shape) -> Move:
    """A pad that has a chance to fit the tiles of a layout."""
    tiles = dict(zip(layout.pos, layout.tiles, strict=True))
    low, high = [], []
    for d, size in enumerate(source):
        t = tiles.get(d, 1)
        low.append(int(make.one(0, 0, t)))
        rest = -size % t
        high.append(int(make.one(0, 0, t, rest, make.int(0, rest), rest + 1)))
    return pad_of(source, low, high, str(make.one("0", "0.0", "5")))


def on(make: Maker, layout: Layout, source: Shape) -> Layout:
    """The tiles of a layout on another shape, which may need padding where the first did not."""
    own = [str(make.one("?", "0", "5")) if p == "-" else p for p in layout.pads]
    return make_layout(source, layout.pos, layout.tiles, layout.outer, own)


def test_fold_pad():
    fold, unfold = Count(), Count()
    for make in cases(15, 1660):
        model = make.layout(make.shape())
        pad = aligned(make, model, model.source)
        pads = [str(make.one("?", pad.args[2][0])) for _ in model.pos]
        layout = make_layout(pad.shape, model.pos, model.tiles, model.outer, pads)
        x = make.array(model.source)
        found = layouts_of.fold_pad(layout, pad)
        if fold(found):
            packed = do("pack", found.layout, x)
            assert packed.shape == layout.packed_shape
            same(do("pack", layout, move(pad, x)), do("relax", found.relaxed, packed))
        shown = layouts_of.unfold_pad(pad, model)
        if unfold(shown):
            y = do("pack", model, x)
            same(move(pad, do("unpack", model, y)), do("unpack", shown, y))
            same(do("pack", shown, do("unpack", shown, y)), y)  # y has the padding L says
    for count in (fold, unfold):
        assert count.met > 30 and count.missed > 30


def test_pack_pad_and_unpack_pad():
    above, below = Count(), Count()
    for make in cases(16, 500):
        model = make.layout(make.shape())
        pad = aligned(make, model, model.source)
        layout = on(make, model, pad.shape)
        x = make.array(model.source)
        found = form_above(pad, layout)
        if above(found):
            inner = move(found.move, do("pack", found.layout, x))
            same(do("pack", layout, move(pad, x)), do("relax", found.relaxed, inner))
        found = form_below(model, pad)
        if below(found):
            moved = move(found.move, do("relax", found.relaxed, do("pack", model, x)))
            same(move(pad, x), do("unpack", found.layout, moved))
            same(do("pack", found.layout, move(pad, x)), do("relax", found.layout, moved))
    for count in (above, below):
        assert count.met > 30 and count.missed > 30


def cut_of(make: Maker, layout: Layout, source: Shape) -> Move:
    """A slice that has a chance to begin between tiles."""
    tiles = dict(zip(layout.pos, layout.tiles, strict=True))
    start, limit, stride = [], [], []
    for d, size in enumerate(source):
        t = tiles.get(d, 1)
        a = int(make.one(0, 0, t, 2 * t, 1))
        a = a if a < size else 0
        b = int(make.one(size, size, a + t, a + 1, a + 2 * t))
        start.append(a)
        limit.append(b if b <= size else size)
        stride.append(int(make.one(1, 1, 1, 1, 2)))
    return slice_of(source, start, limit, stride)


def test_pack_slice_and_unpack_slice():
    above, below = Count(), Count()
    for make in cases(17, 500):
        model = make.layout(make.shape())
        cut = cut_of(make, model, model.source)
        layout = on(make, model, cut.shape)
        x = make.array(model.source)
        found = form_above(cut, layout)
        if above(found):
            inner = move(found.move, do("pack", found.layout, x))
            same(do("pack", layout, move(cut, x)), do("relax", found.relaxed, inner))
        found = form_below(model, cut)
        if below(found):
            moved = move(found.move, do("relax", found.relaxed, do("pack", model, x)))
            same(move(cut, x), do("unpack", found.layout, moved))
            same(do("pack", found.layout, move(cut, x)), do("relax", found.layout, moved))
    for count in (above, below):
        assert count.met > 30 and count.missed > 30


def test_pack_concat_and_unpack_concat():
    above, below = Count(), Count()
    for make in cases(18, 330):
        concat = make.concat(make.int(1, 3), int(make.one(1, 2, 4)))
        layout = make.layout(concat.shape)
        xs = [make.array(s) for s in concat.sources]
        want = move(concat, *xs)
        found = form_above(concat, layout)
        if above(found):
            packed = [do("pack", a, x) for a, x in zip(found.operands, xs, strict=True)]
            same(do("pack", layout, want), move(found.move, *packed))
        layouts = []
        for s in concat.sources:
            pads = [str(make.one("?", "0")) for _ in layout.pos] if make.int(0, 1) else layout.pads
            layouts.append(make_layout(s, layout.pos, layout.tiles, layout.outer, pads))
        if make.int(0, 3) == 0:
            layouts[0] = make.layout(concat.sources[0])
        found = form_below(tuple(layouts), concat)
        if below(found):
            ys = [do("pack", a, x) for a, x in zip(layouts, xs, strict=True)]
            moved = move(found.move, *map(do, ["relax"] * len(ys), found.forgotten, ys))
            same(want, do("unpack", found.layout, moved))
            same(do("pack", found.layout, want), do("relax", found.layout, moved))
    for count in (above, below):
        assert count.met > 30 and count.missed > 30


def test_pack_gather_and_unpack_gather():
    above, below = Count(), Count()
    for make in cases(19, 500):
        gather = make.gather()
        x, i = make.array(gather.sources[0]), make.indices(gather)
        if gather.shape:
            layout = make.layout(gather.shape)
            found = form_above(gather, layout)
            if above(found):
                packed = move(found.move, do("pack", found.layout, x), i)
                same(do("pack", layout, move(gather, x, i)), packed)
        layout = make.layout(gather.sources[0])
        found = form_below(layout, gather)
        if below(found):
            moved = move(found.move, do("relax", found.relaxed, do("pack", layout, x)), i)
            same(move(gather, x, i), do("unpack", found.layout, moved))
            same(do("pack", found.layout, move(gather, x, i)), moved)
    for count in (above, below):
        assert count.met > 30 and count.missed > 30


def test_forgets_more():
    count = Count()
    for make in cases(25):
        first = make.layout(make.shape())
        smaller = tuple(s - make.int(0, 1) if s > 1 else s for s in first.source)
        own = [str(make.one("?", "?", "?", "0")) for _ in first.pads]
        second = make_layout(smaller, first.pos, first.tiles, first.outer, own)
        if second.packed_shape != first.packed_shape:
            continue
        y = make.array(first.packed_shape)
        twice = do("relax", second, do("relax", first, y))
        equal = np.array_equal(twice, do("relax", second, y), equal_nan=True)
        if count(True if layouts_of.forgets_more(first, second) else None):
            assert equal
        assert layouts_of.forgets_more(first, first)
    assert count.met > 15 and count.missed > 6


# ---- packs through reshapes ----------------------------------------------------------------------
def test_packs_through_reshapes():
    above, below = Count(), Count()
    for make in cases(24, 660):
        r = make.reshape()
        x = make.array(r.source)
        layout = make.layout(r.shape)
        found = form_above(r, layout)
        if above(found):
            packed = do("reshape", found.groups, do("pack", found.layout, x))
            same(do("pack", layout, do("reshape", r, x)), transpose(packed, found.order))
        layout = make.layout(r.source)
        found = form_below(layout, r)
        if below(found):
            moved = do("reshape", found.groups, transpose(do("pack", layout, x), found.order))
            same(do("reshape", r, x), do("unpack", found.layout, moved))
            same(do("pack", found.layout, do("reshape", r, x)), moved)
    for count in (above, below):
        assert count.met > 30 and count.missed > 30
