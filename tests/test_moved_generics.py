"""Constants and movement through generics, against the NumPy meaning of both sides."""

from __future__ import annotations

import numpy as np
from movement import Count, a_fill, a_generic, cases, close, do, fill_array, move, same, transpose

from eqsat.model.affine import dim
from eqsat.model.expr import arg, call, const
from eqsat.model.generic import Generic, Yield
from eqsat.model.leaves import Fill
from eqsat.model.movement import Reshape
from eqsat.model.tensor import TensorType
from eqsat.ops.meaning.programs import evaluate_node
from eqsat.ops.movement import moved_generics
from eqsat.ops.movement.moves import concat_of, pad_of, slice_of


def test_moved_fills():
    packed, padded, joined = Count(), Count(), Count()
    for make in cases(20):
        fill = a_fill(make, make.shape())
        x = fill_array(fill)
        layout = make.layout(x.shape)
        found = moved_generics.moved_fill(fill, layout)
        if packed(found):
            moved = do("relax", found.relaxed, fill_array(found.fill))
            same(do("pack", layout, x), moved)
        y = fill_array(Fill(fill.value, TensorType("f32", layout.packed_shape)))
        unpacked = moved_generics.moved_fill(Fill(fill.value, TensorType("f32", y.shape)), layout)
        same(do("unpack", layout, y), fill_array(unpacked.fill))
        perm = make.perm(x.ndim)
        same(transpose(x, perm), fill_array(moved_generics.moved_fill(fill, perm).fill))
        cut, pad = make.slice(x.shape), make.pad(x.shape)
        same(move(cut, x), fill_array(moved_generics.moved_fill(fill, cut).fill))
        found = moved_generics.moved_fill(fill, pad)
        if padded(found):
            same(move(pad, x), fill_array(found.fill))
        r = Reshape(x.shape, (x.size,))
        same(do("reshape", r, x), fill_array(moved_generics.moved_fill(fill, r).fill))
        other = a_fill(make, x.shape)
        concat = concat_of([x.shape, x.shape], make.int(0, x.ndim - 1))
        found = moved_generics.concat_fills(fill, other, concat)
        if joined(found):
            same(move(concat, x, fill_array(other)), fill_array(found))
        z = make.array(x.shape)
        same(move(concat, z, x), move(moved_generics.pad_for_fill(concat, 1, fill), z))
        same(move(concat, x, z), move(moved_generics.pad_for_fill(concat, 0, fill), z))
    for count in (packed, padded, joined):
        assert count.met > 15 and count.missed > 15


def test_fills_of_another_sign_or_type_are_not_joined():
    zero = Fill(0.0, TensorType("f32", (2,)))
    concat = concat_of([(2,), (2,)], 0)
    assert moved_generics.concat_fills(zero, Fill(-0.0, zero.type), concat) is None
    assert moved_generics.concat_fills(zero, Fill(0.0, TensorType("f16", (2,))), concat) is None
    nan = Fill(float("nan"), zero.type)
    assert moved_generics.concat_fills(nan, nan, concat) is not None
    assert moved_generics.moved_fill(Fill(-0.0, zero.type), pad_of((2,), [1], [0], "0.0")) is None


def test_fills_read_by_generics():
    copied, folded = Count(), Count()
    for make in cases(21, 500):
        g = a_generic(make)
        xs = [make.array(s) for s in g.shapes]
        i = make.int(0, len(xs) - 1)
        fill = a_fill(make, g.shapes[i])
        xs[i] = fill_array(fill)
        want = do("generic", g, *xs)
        if len(xs) == 1:
            found = moved_generics.moved_fill(fill, g)
            if copied(found):
                same(want, fill_array(found.fill))
        found = moved_generics.fold_fill(g, i, fill)
        if folded(found):
            close(want, do("generic", found, *xs[:i], *xs[i + 1 :]))
    assert copied.met > 6 and copied.missed > 15
    assert folded.met > 30 and folded.missed > 30


def test_a_constant_decides_no_type():
    fill = Fill(3, TensorType("i8", (4,)))
    body = call("add", call("mul", arg(1), const(100)), arg(0))  # 300 wraps in i8
    yields = (Yield(body, "i8"),)
    g = Generic((4,), 1, ((dim(0),), (dim(0),)), ((4,), (4,)), yields, (), ("i8", "i8"))
    assert moved_generics.fold_fill(g, 1, fill) is None
    found = moved_generics.fold_fill(g, 0, fill)
    x = np.array([1, 2, 100, -7], np.int8)
    assert found is not None
    want = evaluate_node("generic", g, [fill_array(fill), x])[0]
    same(want, evaluate_node("generic", found, [x])[0])


# ---- moves through generics ----------------------------------------------------------------------
def test_slices_through_generics():
    above, below = Count(), Count()
    for make in cases(22, 660):
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
        assert count.met > 30 and count.missed > 30


def test_pads_through_generics():
    above, below = Count(), Count()
    for make in cases(23, 1000):
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
        assert count.met > 30 and count.missed > 30
