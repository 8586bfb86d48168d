"""Movement rules: every attribute function against the NumPy meaning of both sides."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from movement import Array, Count, Maker, cases, do, move, same, transpose

from eqsat.model.movement import Move
from eqsat.ops.movement import crossing, layout, moved_generics, moves, relayout, view
from eqsat.ops.movement.moves import concat_of, slice_of


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
        found = view.compose_moves(inner, outer)
        if count(found):
            assert found.slice is None
            same(move(outer, move(inner, x)), move(found.pad, x))
            assert found.pad is None or found.pad.args[2] in (inner.args[2], outer.args[2])
        else:
            assert moves.pad_value(inner.args[2]) != moves.pad_value(outer.args[2])
    assert count.met > 30 and count.missed > 30


def test_compose_slices():
    for make in cases(2):
        x = make.array(make.shape())
        inner = make.slice(x.shape)
        outer = make.slice(inner.shape)
        both = view.compose_moves(inner, outer)
        assert both is not None and both.pad is None
        same(move(outer, move(inner, x)), move(both.slice, x))
        spelled = make.slice(x.shape)
        limit = [min(b + k - 1, s) for b, k, s in zip(*spelled.args[1:], x.shape, strict=True)]
        other = Move(
            "slice", (x.shape,), (spelled.args[0], tuple(limit), spelled.args[2]), spelled.shape
        )
        assert moves.respell_slice(other) in (None, spelled)
        assert moves.respell_slice(spelled) is None
    empty = slice_of((4,), [2], [2], [1])
    none = view.compose_moves(slice_of((9,), [1], [5], [1]), empty)
    assert none is not None and none.slice is not None and none.slice.shape == (0,)


def test_identity_moves():
    count = Count()
    for make in cases(3, 100):
        x = make.array(make.shape())
        m = make.pad(x.shape) if make.int(0, 1) else make.slice(x.shape)
        nothing = moves.moves_nothing(m)
        assert nothing == np.array_equal(move(m, x), x)
        count(True if nothing else None)
    assert count.met > 3 and count.missed > 30


def test_slice_pad():
    count = Count()
    for make in cases(4):
        x = make.array(make.shape())
        pad = make.pad(x.shape)
        cut = make.slice(pad.shape)
        found = view.compose_moves(pad, cut)
        if count(found):
            same(move(cut, move(pad, x)), move(found.pad, move(found.slice, x)))
    assert count.met > 30 and count.missed > 6


def concat_case(make: Maker, strides: bool = True) -> tuple[Move, list[Array], Move]:
    concat = make.concat(make.int(2, 4))
    return concat, [make.array(s) for s in concat.sources], make.slice(concat.shape, strides)


def test_slice_of_concat():
    inside, every, before, after = Count(), Count(), Count(), Count()
    for make in cases(5, 500):
        concat, xs, cut = concat_case(make)
        want = move(cut, move(concat, *xs))
        for i, x in enumerate(xs):
            left = len(xs) - i - 1
            one = moves.slice_operands(concat, i, left, cut)
            if inside(one):
                assert one.concat is None
                same(want, move(one.slice, x))
            front = moves.slice_operands(concat, i, 0, cut)
            if before(front):
                same(want, move(front.slice, move(front.concat, *xs[i:])))
            back = moves.slice_operands(concat, 0, left, cut)
            if after(back):
                same(want, move(back.slice, move(back.concat, *xs[: i + 1])))
        found = moves.slice_concat(concat, cut)
        if every(found):
            parts = [move(m, x) for m, x in zip(found.operands, xs, strict=True)]
            same(want, move(found.concat, *parts))
    for count in (inside, every, before, after):
        assert count.met > 15 and count.missed > 15


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
    assert count.met > 30 and count.missed > 30


def test_join_slices():
    count = Count()
    for make in cases(7, 500):
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
            same(move(concat, move(a, x), move(b, x)), move(found.slice, x))
        assert moves.join_slices(concat_of([b.shape, a.shape], axis), b, a) is None
    assert count.met > 30 and count.missed > 6


# ---- transposes --------------------------------------------------------------------------------
def test_transposes_through_moves():
    for make in cases(8):
        kind = make.int(0, 2)
        if kind == 2:
            m = make.concat(make.int(1, 3))
        else:
            shape = make.shape()
            m = make.pad(shape) if kind else make.slice(shape)
        perm = make.perm(len(m.shape))
        xs = [make.array(s) for s in m.sources]
        above = crossing.above(m, perm) if kind < 2 else None
        below = crossing.below(perm, m)
        assert (below is None) == moves.moves_nothing(m)
        if above is not None:
            same(transpose(move(m, *xs), perm), move(above.move, transpose(xs[0], above.perm)))
        if below is not None:
            zs = [np.transpose(x, np.argsort(perm)) for x in xs]
            want = move(m, *(transpose(z, perm) for z in zs))
            same(want, transpose(move(below.move, *zs), below.perm))


def test_transposes_through_gathers():
    count = Count()
    for make in cases(9):
        gather = make.gather()
        x, i = make.array(gather.sources[0]), make.indices(gather)
        perm = make.perm(len(gather.shape))
        above = crossing.above(gather, perm)
        if count(above):
            moved = move(above.move, transpose(x, above.perm), transpose(i, above.indices))
            same(transpose(move(gather, x, i), perm), moved)
        perm = make.perm(x.ndim)
        z = make.array(tuple(np.transpose(x, np.argsort(perm)).shape))
        below = crossing.below(perm, gather)
        same(move(gather, transpose(z, perm), i), transpose(move(below.move, z, i), below.perm))
        perm = make.perm(i.ndim)
        j = np.transpose(i, np.argsort(perm))
        below = crossing.indices_below(perm, gather)
        same(move(gather, x, transpose(j, perm)), transpose(move(below.move, x, j), below.perm))
    assert count.met > 30 and count.missed > 15


def test_transposes_through_reshapes():
    above, below = Count(), Count()
    for make in cases(10, 330):
        r = make.reshape()
        x = make.array(r.source)
        perm = make.perm(len(r.shape))
        found = crossing.above(r, perm)
        if above(found):
            same(
                transpose(do("reshape", r, x), perm),
                do("reshape", found.groups, transpose(x, found.perm)),
            )
        perm = make.perm(x.ndim)
        z = np.transpose(x, np.argsort(perm))
        found = crossing.below(perm, r)
        if below(found):
            same(
                do("reshape", r, transpose(z, perm)),
                transpose(do("reshape", found.groups, z), found.perm),
            )
    for count in (above, below):
        assert count.met > 30 and count.missed > 30


# ---- the tables ----------------------------------------------------------------------------------
@pytest.mark.parametrize("module", [moves, crossing, layout, relayout, moved_generics])
def test_every_function_is_in_its_table(module):
    public = {
        f for name, f in vars(module).items()
        if isinstance(f, Callable) and getattr(f, "__module__", "") == module.__name__
        and not name.startswith("_") and not isinstance(f, type)
    }  # fmt: skip
    known = {f.meaning for f in module.FUNCTIONS.values()}
    makers = {
        moves.pad_of, moves.slice_of, moves.concat_of, moves.gather_of,
        moves.unless_identity, moves.pad_value, moves.slice_along, crossing.unless_sorted,
        layout.moves_units_only, layout.keeps_order,
        layout.reassociation, layout.large_groups, layout.whole_tiles, layout.pack_reshape,
        layout.unpack_reshape, layout.make_layout, layout.tile_domain, layout.positions,
        layout.induced, layout.common_dims, relayout.block_order, relayout.order_of_elements,
        moves.pads_with_zeros, moved_generics.slice_generic, moved_generics.pad_generic,
        moved_generics.zero_text,
    }  # fmt: skip
    assert public - makers == known
    assert all(f.doc for f in module.FUNCTIONS.values())
