"""Movement rules: every attribute function against the NumPy meaning of both sides.

Lanes that may hold anything are NaN, so a side that knows more, or less, than the other one shows:
two sides are one value only if they are defined on the same lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from eqsat.model.attrs import (
    Affine,
    Attr,
    Fill,
    Generic,
    Layout,
    Move,
    Reshape,
    Shape,
    Transpose,
    Yield,
    dim,
)
from eqsat.model.expr import Expr, arg, call, const
from eqsat.model.tensor import TensorType
from eqsat.ops import fills, moved_generics, moves, packed_moves, permuted_moves, unitdims
from eqsat.ops.canonical import canonical_generic
from eqsat.ops.layout import pack_reshape, unpack_reshape
from eqsat.ops.meaning import evaluate_node
from eqsat.ops.moves import concat_of, gather_of, pad_of, slice_of
from eqsat.ops.permuted_moves import Perm
from eqsat.ops.tiling import make_layout

Array = np.ndarray
SIZES = (1, 1, 2, 3, 4, 5, 6, 7, 8)


class Maker:
    """Random attributes and arrays, always the same ones."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)

    def int(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def one(self, *choices: object) -> object:
        return choices[self.int(0, len(choices) - 1)]

    def shape(self, low: int = 1, high: int = 4) -> Shape:
        return tuple(int(self.one(*SIZES)) for _ in range(self.int(low, high)))

    def perm(self, n: int) -> Perm:
        return tuple(int(p) for p in self.rng.permutation(n))

    def array(self, shape: Shape) -> Array:
        return self.rng.standard_normal(shape)

    def layout(self, source: Shape, pads: tuple[str, ...] = ("?", "0", "5")) -> Layout:
        pos = self.perm(len(source))[: self.int(1, len(source))]
        tiles = [int(self.one(1, 2, 2, 3, 4, 8)) for _ in pos]
        outer = self.perm(len(source)) if self.int(0, 1) else tuple(range(len(source)))
        own = [str(self.one(*pads)) for _ in pos]
        if self.int(0, 2):
            own = [own[0]] * len(pos)  # most real packs pad by one value
        return make_layout(source, pos, tiles, outer, own)

    def pad(self, source: Shape, step: int = 1) -> Move:
        low = [int(self.one(0, 0, 0, step, 2 * step)) for _ in source]
        high = [int(self.one(0, 0, 1, 2, step, 2 * step)) for _ in source]
        return pad_of(source, low, high, str(self.one("0", "0.0", "5")))

    def slice(self, source: Shape, strides: bool = True) -> Move:
        start, limit, stride = [], [], []
        for s in source:
            if self.int(0, 1):
                a, b = 0, s
            else:
                a = self.int(0, s - 1)
                b = self.int(a + 1, s)
            start.append(a)
            limit.append(b)
            stride.append(int(self.one(1, 1, 1, 2)) if strides else 1)
        return slice_of(source, start, limit, stride)

    def concat(self, operands: int, multiple: int = 1) -> Move:
        shape = self.shape()
        axis = self.int(0, len(shape) - 1)
        sources = [
            (*shape[:axis], self.int(1, 3) * multiple, *shape[axis + 1 :]) for _ in range(operands)
        ]
        return concat_of(sources, axis)

    def gather(self) -> Move:
        source = self.shape()
        return gather_of(source, self.shape(0, 2), self.int(0, len(source) - 1))

    def indices(self, gather: Move) -> Array:
        return self.rng.integers(0, gather.sources[0][gather.args[0]], gather.sources[1])

    def reshape(self) -> Reshape:
        """A shape and another one of the same elements, most of the time by whole groups."""
        source, target = [], []
        for _ in range(self.int(1, 3)):
            parts = [int(self.one(1, 2, 3, 4)) for _ in range(self.int(1, 3))]
            whole = [int(np.prod(parts))]
            a, b = (parts, whole) if self.int(0, 1) else (whole, parts)
            source += a
            target += b
        return Reshape(tuple(source), tuple(target))


def do(op: str, attr: Attr | None, *xs: Array) -> Array:
    """One op; None leaves its operand alone. The attribute has to fit its operands."""
    if attr is None:
        return xs[0]
    dtypes = ["f32" if x.dtype.kind == "f" else "i32" for x in xs]
    (t,) = attr.infer(op, tuple(TensorType(d, x.shape) for d, x in zip(dtypes, xs, strict=True)))
    (found,) = evaluate_node(op, attr, xs)
    assert found.shape == t.shape
    if op == "relax":  # forget what lies beyond the end
        assert isinstance(attr, Layout)
        open_lanes = evaluate_node("pack", attr, [np.zeros(attr.source)])[0]
        return np.where(np.isnan(open_lanes), np.nan, found)
    return found


def move(m: Move | None, *xs: Array) -> Array:
    return do(m.op if m else "", m, *xs)


def transpose(x: Array, perm: Perm | None) -> Array:
    return x if perm is None else do("transpose", Transpose(x.shape, perm), x)


def same(left: Array, right: Array) -> None:
    np.testing.assert_array_equal(left, right)


def close(left: Array, right: Array) -> None:
    """Sums may run in another order in the reference itself."""
    np.testing.assert_allclose(left, right, rtol=1e-11, atol=1e-11)


def cases(seed: int, count: int = 600) -> Iterator[Maker]:
    for i in range(count):
        yield Maker(seed * 100_000 + i)


class Count:
    """How often a function had an answer, and how often not."""

    def __init__(self) -> None:
        self.met = self.missed = 0

    def __call__(self, found: object) -> bool:
        if found is None:
            self.missed += 1
        else:
            self.met += 1
        return found is not None


# ---- moves of moves ----------------------------------------------------------------------------
def test_pad_value_is_one_text_per_value():
    texts = ["0", "0.0", "false", "-0.0", "1", "1.0", "true", "0.5", "-inf", "1e300"]
    found = [moves.pad_value(t) for t in texts]
    assert found == ["0", "0", "0", "-0.0", "1", "1", "1", "0.5", "-inf", "1e+300"]
    assert moves.pad_value("nan") == "nan"


def test_compose_pads():
    count = Count()
    for make in cases(1):
        x = make.array(make.shape())
        inner = make.pad(x.shape)
        outer = make.pad(inner.shape)
        found = moves.compose_pads(inner, outer)
        if count(found):
            same(move(outer, move(inner, x)), move(found, x))
        else:
            assert moves.pad_value(inner.args[2]) != moves.pad_value(outer.args[2])
    assert count.met > 100 and count.missed > 100


def test_compose_slices():
    for make in cases(2):
        x = make.array(make.shape())
        inner = make.slice(x.shape)
        outer = make.slice(inner.shape)
        same(move(outer, move(inner, x)), move(moves.compose_slices(inner, outer), x))
        spelled = make.slice(x.shape)
        limit = [min(b + k - 1, s) for b, k, s in zip(*spelled.args[1:], x.shape, strict=True)]
        other = Move(
            "slice", (x.shape,), (spelled.args[0], tuple(limit), spelled.args[2]), spelled.shape
        )
        assert moves.respell_slice(other) in (None, spelled)
        assert moves.respell_slice(spelled) is None
    empty = slice_of((4,), [2], [2], [1])
    assert moves.compose_slices(slice_of((9,), [1], [5], [1]), empty).shape == (0,)


def test_identity_moves():
    count = Count()
    for make in cases(3, 300):
        x = make.array(make.shape())
        m = make.pad(x.shape) if make.int(0, 1) else make.slice(x.shape)
        nothing = moves.moves_nothing(m)
        assert nothing == np.array_equal(move(m, x), x)
        count(True if nothing else None)
    assert count.met > 10 and count.missed > 100


def test_slice_pad():
    count = Count()
    for make in cases(4):
        x = make.array(make.shape())
        pad = make.pad(x.shape)
        cut = make.slice(pad.shape)
        found = moves.slice_pad(cut, pad)
        if count(found):
            same(move(cut, move(pad, x)), move(found.pad, move(found.slice, x)))
    assert count.met > 100 and count.missed > 20


def concat_case(make: Maker, strides: bool = True) -> tuple[Move, list[Array], Move]:
    concat = make.concat(make.int(2, 4))
    return concat, [make.array(s) for s in concat.sources], make.slice(concat.shape, strides)


def test_slice_of_concat():
    inside, every, before, after = Count(), Count(), Count(), Count()
    for make in cases(5, 1500):
        concat, xs, cut = concat_case(make)
        want = move(cut, move(concat, *xs))
        for i, x in enumerate(xs):
            one = moves.slice_operand(concat, i, cut)
            if inside(one):
                same(want, move(one.move, x))
            front = moves.drop_before(concat, i, cut)
            if before(front):
                same(want, move(front.slice, move(front.concat, *xs[i:])))
            back = moves.drop_after(concat, i, cut)
            if after(back):
                same(want, move(back.slice, move(back.concat, *xs[: i + 1])))
        found = moves.slice_concat(concat, cut)
        if every(found):
            parts = [move(m, x) for m, x in zip(found.operands, xs, strict=True)]
            same(want, move(found.concat, *parts))
    for count in (inside, every, before, after):
        assert count.met > 50 and count.missed > 50


def test_flatten_concat():
    count = Count()
    for make in cases(6):
        inner = make.concat(make.int(1, 4))
        others = [inner.shape] * make.int(0, 3)
        at = make.int(0, len(others))
        sources = [*others[:at], inner.shape, *others[at:]]
        outer = concat_of(sources, make.int(0, len(inner.shape) - 1))
        xs = [make.array(s) for s in sources]
        ys = [make.array(s) for s in inner.sources]
        found = moves.flatten_concat(outer, at, inner)
        if count(found):
            want = move(outer, *xs[:at], move(inner, *ys), *xs[at + 1 :])
            same(want, move(found, *xs[:at], *ys, *xs[at + 1 :]))
    assert count.met > 100 and count.missed > 100


def test_join_slices():
    count = Count()
    for make in cases(7, 1500):
        x = make.array(make.shape())
        axis = make.int(0, x.ndim - 1)
        a = make.slice(x.shape)
        start, limit, stride = (list(v) for v in a.args)
        behind = start[axis] + a.shape[axis] * stride[axis] + int(make.one(0, 0, 0, 1))
        limit[axis] = x.shape[axis]
        start[axis] = behind
        if behind >= x.shape[axis]:
            continue
        b = slice_of(x.shape, start, limit, stride)
        concat = concat_of([a.shape, b.shape], axis)
        found = moves.join_slices(concat, a, b)
        if count(found):
            same(move(concat, move(a, x), move(b, x)), move(found.move, x))
        assert moves.join_slices(concat_of([b.shape, a.shape], axis), b, a) is None
    assert count.met > 100 and count.missed > 20


# ---- transposes --------------------------------------------------------------------------------
def test_permute_move():
    for make in cases(8):
        kind = make.int(0, 2)
        if kind == 2:
            m = make.concat(make.int(1, 3))
        else:
            shape = make.shape()
            m = make.pad(shape) if kind else make.slice(shape)
        perm = make.perm(len(m.shape))
        xs = [make.array(s) for s in m.sources]
        found = permuted_moves.permute_move(m, perm)
        assert found is not None
        same(transpose(move(m, *xs), perm), move(found, *(transpose(x, perm) for x in xs)))
    assert permuted_moves.permute_move(gather_of((4,), (2,), 0), (0,)) is None


def test_transposes_through_gathers():
    count = Count()
    for make in cases(9):
        gather = make.gather()
        x, i = make.array(gather.sources[0]), make.indices(gather)
        perm = make.perm(len(gather.shape))
        above = permuted_moves.gather_above(gather, perm)
        if count(above):
            moved = move(above.move, transpose(x, above.source), transpose(i, above.indices))
            same(transpose(move(gather, x, i), perm), moved)
        perm = make.perm(x.ndim)
        z = make.array(tuple(np.transpose(x, np.argsort(perm)).shape))
        below = permuted_moves.gather_below_source(gather, perm)
        same(move(gather, transpose(z, perm), i), transpose(move(below.move, z, i), below.result))
        perm = make.perm(i.ndim)
        j = np.transpose(i, np.argsort(perm))
        below = permuted_moves.gather_below_indices(gather, perm)
        same(move(gather, x, transpose(j, perm)), transpose(move(below.move, x, j), below.result))
    assert count.met > 100 and count.missed > 50


def test_transposes_through_reshapes():
    above, below = Count(), Count()
    for make in cases(10, 1000):
        r = make.reshape()
        x = make.array(r.source)
        perm = make.perm(len(r.shape))
        found = permuted_moves.transpose_above_reshape(r, perm)
        if above(found):
            same(
                transpose(do("reshape", r, x), perm),
                do("reshape", found.groups, transpose(x, found.perm)),
            )
        perm = make.perm(x.ndim)
        z = np.transpose(x, np.argsort(perm))
        found = permuted_moves.transpose_below_reshape(perm, r)
        if below(found):
            same(
                do("reshape", r, transpose(z, perm)),
                transpose(do("reshape", found.groups, z), found.perm),
            )
    for count in (above, below):
        assert count.met > 100 and count.missed > 100


# ---- packs that move nothing ---------------------------------------------------------------------
def test_packs_as_reshapes_are_all_there_are():
    """Where the function refuses an unpadded pack, the pack does move elements."""
    count = Count()
    for make in cases(11, 1000):
        layout = make.layout(make.shape())
        x = make.array(layout.source)
        y = do("pack", layout, x)
        found, back = unitdims.pack_as_reshape(layout), unitdims.unpack_as_reshape(layout)
        assert (found is None) == (back is None)
        if count(found):
            same(y, do("reshape", found, x))
            same(x, do("reshape", back, y))
        elif not layout.is_padded:
            assert not np.array_equal(x.reshape(y.shape), y)
    assert count.met > 100 and count.missed > 100


def test_padding_packs_as_pads():
    pads, cuts = Count(), Count()
    for make in cases(12, 1000):
        layout = make.layout(make.shape())
        x = make.array(layout.source)
        y = do("pack", layout, x)
        found = unitdims.pack_as_pad(layout)
        if pads(found):
            padded = do("reshape", found.groups, move(found.pad, x))
            same(y, do("relax", found.relaxed, padded))
        cut = unitdims.unpack_as_slice(layout)
        if cuts(cut):
            same(x, move(cut.slice, do("reshape", cut.groups, y)))
    for count in (pads, cuts):
        assert count.met > 100 and count.missed > 100


def test_unit_tiles():
    count = Count()
    for make in cases(13):
        layout = make.layout(make.shape())
        x = make.array(layout.source)
        y = do("pack", layout, x)
        found, back = unitdims.drop_unit_tiles(layout), unitdims.unpack_unit_tiles(layout)
        if count(found):
            inner = do("pack", found.layout, transpose(x, found.perm))
            same(y, do("reshape", found.groups, inner))
            inner = do("unpack", back.layout, do("reshape", back.groups, y))
            same(x, transpose(inner, back.perm))
        assert (found is None) == (1 not in layout.tiles)
    assert count.met > 100 and count.missed > 100


def test_transposes_as_reshapes_are_all_there_are():
    count = Count()
    for make in cases(14, 1500):
        x = make.array(make.shape())
        perm = make.perm(x.ndim)
        found = unitdims.transpose_as_reshape(x.shape, perm)
        if count(found):
            same(transpose(x, perm), do("reshape", found, x))
        elif perm != tuple(range(x.ndim)):
            assert not np.array_equal(x.reshape([x.shape[p] for p in perm]), x.transpose(perm))
    assert count.met > 100 and count.missed > 100


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
    for make in cases(15, 5000):
        model = make.layout(make.shape())
        pad = aligned(make, model, model.source)
        pads = [str(make.one("?", pad.args[2][0])) for _ in model.pos]
        layout = make_layout(pad.shape, model.pos, model.tiles, model.outer, pads)
        x = make.array(model.source)
        found = packed_moves.fold_pad(layout, pad)
        if fold(found):
            assert found.move is None
            packed = do("pack", found.layout, x)
            assert packed.shape == layout.packed_shape
            same(do("pack", layout, move(pad, x)), do("relax", found.relaxed, packed))
        shown = packed_moves.unfold_pad(pad, model)
        if unfold(shown):
            y = do("pack", model, x)
            same(move(pad, do("unpack", model, y)), do("unpack", shown, y))
            same(do("pack", shown, do("unpack", shown, y)), y)  # y has the padding L says
    for count in (fold, unfold):
        assert count.met > 100 and count.missed > 100


def test_pack_pad_and_unpack_pad():
    above, below = Count(), Count()
    for make in cases(16, 1500):
        model = make.layout(make.shape())
        pad = aligned(make, model, model.source)
        layout = on(make, model, pad.shape)
        x = make.array(model.source)
        found = packed_moves.pack_pad(layout, pad)
        if above(found):
            inner = move(found.move, do("pack", found.layout, x))
            same(do("pack", layout, move(pad, x)), do("relax", found.relaxed, inner))
        found = packed_moves.unpack_pad(pad, model)
        if below(found):
            moved = move(found.move, do("relax", found.relaxed, do("pack", model, x)))
            same(move(pad, x), do("unpack", found.layout, moved))
            same(do("pack", found.layout, move(pad, x)), do("relax", found.layout, moved))
    for count in (above, below):
        assert count.met > 100 and count.missed > 100


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
    for make in cases(17, 1500):
        model = make.layout(make.shape())
        cut = cut_of(make, model, model.source)
        layout = on(make, model, cut.shape)
        x = make.array(model.source)
        found = packed_moves.pack_slice(layout, cut)
        if above(found):
            inner = move(found.move, do("pack", found.layout, x))
            same(do("pack", layout, move(cut, x)), do("relax", found.relaxed, inner))
        found = packed_moves.unpack_slice(cut, model)
        if below(found):
            moved = move(found.move, do("relax", found.relaxed, do("pack", model, x)))
            same(move(cut, x), do("unpack", found.layout, moved))
            same(do("pack", found.layout, move(cut, x)), do("relax", found.layout, moved))
    for count in (above, below):
        assert count.met > 100 and count.missed > 100


def test_pack_concat_and_unpack_concat():
    above, below = Count(), Count()
    for make in cases(18, 1000):
        concat = make.concat(make.int(1, 3), int(make.one(1, 2, 4)))
        layout = make.layout(concat.shape)
        xs = [make.array(s) for s in concat.sources]
        want = move(concat, *xs)
        found = packed_moves.pack_concat(layout, concat)
        if above(found):
            packed = [do("pack", a, x) for a, x in zip(found.operands, xs, strict=True)]
            same(do("pack", layout, want), move(found.move, *packed))
        layouts = []
        for s in concat.sources:
            pads = [str(make.one("?", "0")) for _ in layout.pos] if make.int(0, 1) else layout.pads
            layouts.append(make_layout(s, layout.pos, layout.tiles, layout.outer, pads))
        if make.int(0, 3) == 0:
            layouts[0] = make.layout(concat.sources[0])
        found = packed_moves.unpack_concat(concat, tuple(layouts))
        if below(found):
            ys = [do("pack", a, x) for a, x in zip(layouts, xs, strict=True)]
            moved = move(found.move, *map(do, ["relax"] * len(ys), found.relaxed, ys))
            same(want, do("unpack", found.layout, moved))
            same(do("pack", found.layout, want), do("relax", found.layout, moved))
    for count in (above, below):
        assert count.met > 100 and count.missed > 100


def test_pack_gather_and_unpack_gather():
    above, below = Count(), Count()
    for make in cases(19, 1500):
        gather = make.gather()
        x, i = make.array(gather.sources[0]), make.indices(gather)
        if gather.shape:
            layout = make.layout(gather.shape)
            found = packed_moves.pack_gather(layout, gather)
            if above(found):
                packed = move(found.move, do("pack", found.layout, x), i)
                same(do("pack", layout, move(gather, x, i)), packed)
        layout = make.layout(gather.sources[0])
        found = packed_moves.unpack_gather(gather, layout)
        if below(found):
            moved = move(found.move, do("relax", found.relaxed, do("pack", layout, x)), i)
            same(move(gather, x, i), do("unpack", found.layout, moved))
            same(do("pack", found.layout, move(gather, x, i)), moved)
    for count in (above, below):
        assert count.met > 100 and count.missed > 100


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
        if count(True if packed_moves.forgets_more(first, second) else None):
            assert equal
        assert packed_moves.forgets_more(first, first)
    assert count.met > 50 and count.missed > 20


# ---- fills ---------------------------------------------------------------------------------------
def fill_array(fill: Fill) -> Array:
    return evaluate_node("fill", fill, [])[0]


def a_fill(make: Maker, shape: Shape) -> Fill:
    return Fill(float(make.one(0.0, 5.0, -1.5)), TensorType("f32", shape))


def test_moved_fills():
    packed, padded, joined = Count(), Count(), Count()
    for make in cases(20):
        fill = a_fill(make, make.shape())
        x = fill_array(fill)
        layout = make.layout(x.shape)
        found = fills.pack_fill(layout, fill)
        if packed(found):
            moved = do("relax", found.relaxed, fill_array(found.fill))
            same(do("pack", layout, x), moved)
        y = fill_array(Fill(fill.value, TensorType("f32", layout.packed_shape)))
        same(do("unpack", layout, y), fill_array(fills.unpack_fill(fill, layout)))
        perm = make.perm(x.ndim)
        same(transpose(x, perm), fill_array(fills.permute_fill(fill, perm)))
        cut, pad = make.slice(x.shape), make.pad(x.shape)
        same(move(cut, x), fill_array(fills.slice_fill(fill, cut)))
        found = fills.pad_fill(fill, pad)
        if padded(found):
            same(move(pad, x), fill_array(found))
        r = Reshape(x.shape, (x.size,))
        same(do("reshape", r, x), fill_array(fills.reshape_fill(fill, r)))
        other = a_fill(make, x.shape)
        concat = concat_of([x.shape, x.shape], make.int(0, x.ndim - 1))
        found = fills.concat_fills(fill, other, concat)
        if joined(found):
            same(move(concat, x, fill_array(other)), fill_array(found))
        z = make.array(x.shape)
        same(move(concat, z, x), move(fills.pad_for_fill(concat, 1, fill), z))
        same(move(concat, x, z), move(fills.pad_for_fill(concat, 0, fill), z))
    for count in (packed, padded, joined):
        assert count.met > 50 and count.missed > 50


def test_fills_of_another_sign_or_type_are_not_joined():
    zero = Fill(0.0, TensorType("f32", (2,)))
    concat = concat_of([(2,), (2,)], 0)
    assert fills.concat_fills(zero, Fill(-0.0, zero.type), concat) is None
    assert fills.concat_fills(zero, Fill(0.0, TensorType("f16", (2,))), concat) is None
    nan = Fill(float("nan"), zero.type)
    assert fills.concat_fills(nan, nan, concat) is not None
    assert fills.pad_fill(Fill(-0.0, zero.type), pad_of((2,), [1], [0], "0.0")) is None


BODIES = (
    arg(0),
    call("max", arg(0), const(0.0)),
    call("neg", arg(0)),
    call("exp", arg(0)),
    call("mul", arg(0), const(2.0)),
    call("add", arg(0), const(1.0)),
    call("add", arg(0), arg(1)),
    call("mul", arg(0), arg(1)),
    call("div", arg(0), arg(1)),
    call("tanh", call("sub", arg(0), arg(1))),
)


def a_generic(make: Maker, windows: bool = True) -> Generic:
    """Elementwise or reducing, over permuted, broadcast, strided or windowed operands."""
    sizes = make.shape(1, 4)
    rank = len(sizes) if make.int(0, 2) else make.int(0, len(sizes))
    body: Expr = make.one(*BODIES)  # type: ignore[assignment]
    maps, shapes = [], []
    for _ in range(len(body.operands())):
        loops = [d for d in make.perm(len(sizes)) if make.int(0, 4)]
        m, shape = [], []
        for d in loops:
            if windows and make.int(0, 5) == 0:
                e = make.int(0, len(sizes) - 1)
                m.append(Affine(((d, 2),)) if e == d else Affine(tuple(sorted([(d, 1), (e, 1)]))))
                shape.append(2 * sizes[d] - 1 if e == d else sizes[d] + sizes[e] - 1)
            else:
                m.append(dim(d))
                shape.append(sizes[d] + int(make.one(0, 0, 0, 0, 1)))
        maps.append(tuple(m))
        shapes.append(tuple(shape))
    combine = "" if rank == len(sizes) else str(make.one("add", "max", "min", "mul"))
    yields = (Yield(body, "f32", combine),)
    dtypes = ["f32"] * len(maps)
    return canonical_generic(sizes, range(rank), maps, shapes, yields, (), dtypes)


def test_fills_read_by_generics():
    copied, folded = Count(), Count()
    for make in cases(21, 1500):
        g = a_generic(make)
        xs = [make.array(s) for s in g.shapes]
        i = make.int(0, len(xs) - 1)
        fill = a_fill(make, g.shapes[i])
        xs[i] = fill_array(fill)
        want = do("generic", g, *xs)
        if len(xs) == 1:
            found = fills.generic_fill(g, fill)
            if copied(found):
                same(want, fill_array(found))
        found = fills.fold_fill(g, i, fill)
        if folded(found):
            close(want, do("generic", found, *xs[:i], *xs[i + 1 :]))
    assert copied.met > 20 and copied.missed > 50
    assert folded.met > 100 and folded.missed > 100


def test_a_constant_decides_no_type():
    fill = Fill(3, TensorType("i8", (4,)))
    body = call("add", call("mul", arg(1), const(100)), arg(0))  # 300 wraps in i8
    yields = (Yield(body, "i8"),)
    g = Generic((4,), 1, ((dim(0),), (dim(0),)), ((4,), (4,)), yields, (), ("i8", "i8"))
    assert fills.fold_fill(g, 1, fill) is None
    found = fills.fold_fill(g, 0, fill)
    x = np.array([1, 2, 100, -7], np.int8)
    assert found is not None
    want = evaluate_node("generic", g, [fill_array(fill), x])[0]
    same(want, evaluate_node("generic", found, [x])[0])


# ---- moves through generics ----------------------------------------------------------------------
def test_slices_through_generics():
    above, below = Count(), Count()
    for make in cases(22, 2000):
        g = a_generic(make)
        xs = [make.array(s) for s in g.shapes]
        if g.rank:
            cut = make.slice(g.result_shape)
            found = moved_generics.slice_generic(g, cut)
            if above(found):
                parts = [move(m, x) for m, x in zip(found.operands, xs, strict=True)]
                want = move(cut, do("generic", g, *xs))
                close(want, do("generic", found.sig, *parts))
        i = make.int(0, len(xs) - 1)
        if not xs[i].ndim:
            continue
        whole = tuple(s + int(make.one(0, 0, 1, 2)) for s in xs[i].shape)
        start = [make.int(0, w - s) for w, s in zip(whole, xs[i].shape, strict=True)]
        limit = [a + s for a, s in zip(start, xs[i].shape, strict=True)]
        cut = slice_of(whole, start, limit, [1] * len(whole))
        y = make.array(whole)
        found = moved_generics.generic_slice(g, i, cut)
        if below(found):
            want = do("generic", g, *xs[:i], move(cut, y), *xs[i + 1 :])
            close(want, move(found.move, do("generic", found.sig, *xs[:i], y, *xs[i + 1 :])))
    for count in (above, below):
        assert count.met > 100 and count.missed > 100


def test_pads_through_generics():
    above, below = Count(), Count()
    for make in cases(23, 3000):
        g = a_generic(make, windows=bool(make.int(0, 1)))
        xs = [make.array(s) for s in g.shapes]
        if g.rank:
            pad = make.pad(g.result_shape)
            found = moved_generics.pad_generic(g, pad)
            if above(found):
                parts = [move(m, x) for m, x in zip(found.operands, xs, strict=True)]
                same(move(pad, do("generic", g, *xs)), do("generic", found.sig, *parts))
        sizes = {d: (make.int(0, 1), make.int(0, 1)) for d in range(len(g.sizes))}
        pads = []
        for m, s in zip(g.maps, g.shapes, strict=True):
            sides = [sizes[e.dim] if e.dim is not None else (0, 0) for e in m]
            if make.int(0, 9) == 0:
                sides = [(b, a) for a, b in sides]
            if any(a + b >= n for (a, b), n in zip(sides, s, strict=True)):
                sides = [(0, 0)] * len(s)
            inner = tuple(n - a - b for (a, b), n in zip(sides, s, strict=True))
            value = str(make.one("0.0", "0.0", "0.0", "5.0"))
            pads.append(pad_of(inner, [a for a, _ in sides], [b for _, b in sides], value))
        found = moved_generics.generic_pads(g, tuple(pads))
        if below(found):
            ys = [make.array(p.sources[0]) for p in pads]
            want = do("generic", g, *(move(p, y) for p, y in zip(pads, ys, strict=True)))
            same(want, move(found.move, do("generic", found.sig, *ys)))
    for count in (above, below):
        assert count.met > 100 and count.missed > 100


# ---- packs through reshapes ----------------------------------------------------------------------
def test_packs_through_reshapes():
    above, below = Count(), Count()
    for make in cases(24, 2000):
        r = make.reshape()
        x = make.array(r.source)
        layout = make.layout(r.shape)
        found = pack_reshape(layout, r)
        if above(found):
            packed = do("reshape", found.groups, do("pack", found.layout, x))
            same(do("pack", layout, do("reshape", r, x)), transpose(packed, found.order))
        layout = make.layout(r.source)
        found = unpack_reshape(r, layout)
        if below(found):
            moved = do("reshape", found.groups, transpose(do("pack", layout, x), found.order))
            same(do("reshape", r, x), do("unpack", found.layout, moved))
            same(do("pack", found.layout, do("reshape", r, x)), moved)
    for count in (above, below):
        assert count.met > 100 and count.missed > 100


# ---- the tables ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "module", [moves, permuted_moves, unitdims, packed_moves, fills, moved_generics]
)
def test_every_function_is_in_its_table(module):
    public = {
        f for name, f in vars(module).items()
        if isinstance(f, Callable) and getattr(f, "__module__", "") == module.__name__
        and not name.startswith("_") and not isinstance(f, type)
    }  # fmt: skip
    known = {f.meaning for f in module.FUNCTIONS.values()}
    makers = {
        moves.pad_of, moves.slice_of, moves.concat_of, moves.gather_of,
        moves.unless_identity, moves.pad_value, permuted_moves.moves_units_only,
    }  # fmt: skip
    assert public - makers == known
    assert all(f.doc for f in module.FUNCTIONS.values())
