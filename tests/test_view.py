"""Views against NumPy: every noun, every noun behind another one, and what is recognised again."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
from movement import Array, Count, Maker, cases, do, move, same

from eqsat.model.affine import Affine
from eqsat.model.attr import Attr, Shape
from eqsat.model.movement import Reshape, Transpose
from eqsat.ops.movement.layout import make_layout
from eqsat.ops.movement.view import (
    Rearrangement,
    View,
    as_padded_slice,
    as_steps,
    normal_view,
    view_of,
)

NOUNS = ("transpose", "reshape", "slice", "pad", "pack", "unpack", "relax", "retype")


def seen(v: View, x: Array) -> Array:
    """What the record says, element by element."""
    out = np.empty(v.shape)
    for at in np.ndindex(*v.shape):
        digits: list[int] = []
        for i, group in zip(at, v.digits, strict=True):
            rest, own = i, []
            for e in reversed(group[1:]):
                rest, digit = divmod(rest, e)
                own.append(digit)
            digits += [*([rest] if group else []), *reversed(own)]

        def value(e: Affine, digits: list[int] = digits) -> int:
            return e.constant + sum(s * digits[d] for d, s in e.terms)

        fills = [g.fill for g in v.guards if not g.low <= value(g.number) < g.high]
        held = x[tuple(map(value, v.index))] if not fills else fills[0]
        out[at] = np.nan if isinstance(held, str) and held == "?" else float(held)
    return out


def noun(make: Maker, shape: Shape) -> tuple[str, Attr]:
    """Some movement of a tensor of this shape."""
    kind = str(make.one(*NOUNS))
    if kind == "reshape":
        n = math.prod(shape)
        pairs = [(a, n // a) for a in range(2, n) if n % a == 0]
        large = tuple(s for s in shape if s > 1) or (1,)
        return kind, Reshape(shape, make.one((n,), (1, n), large, *pairs))  # type: ignore[arg-type]
    if kind == "slice":
        return kind, make.slice(shape)
    if kind == "pad":
        return kind, make.pad(shape)
    if kind == "pack":
        return kind, make.layout(shape)
    if kind == "transpose" or len(shape) < 2:
        return "transpose", Transpose(shape, make.perm(len(shape)))
    *blocks, tile = shape
    outer = make.perm(len(blocks))
    tiled = make.int(0, len(blocks) - 1)
    source = [blocks[outer.index(d)] for d in range(len(blocks))]
    source[tiled] = source[tiled] * tile - make.int(0, tile - 1)
    return kind, make_layout(source, (tiled,), (tile,), outer, (str(make.one("?", "0", "5")),))


def chain(make: Maker, length: int, sizes: tuple[int, ...] = ()) -> tuple[Array, list[View], Array]:
    """A value, the views of movement one behind another, and what it becomes."""
    shape = (
        tuple(int(make.one(*sizes)) for _ in range(make.int(1, 2))) if sizes else make.shape(1, 3)
    )
    x = y = 10.0 * np.arange(1, 1 + math.prod(shape)).reshape(shape) + 1
    views: list[View] = []
    for _ in range(length):
        op, attr = noun(make, y.shape)
        found, moved = view_of(op, attr), do(op, attr, y)
        if found is None or moved.size > 1500:
            break
        views.append(found)
        y = moved
    return x, views, y


def test_every_noun_is_a_view():
    for make in cases(40, 160):
        x, views, y = chain(make, 1)
        if views:
            same(seen(views[0], x), y)


def test_a_view_behind_another_is_one_view():
    count = Count()
    for make in cases(41, 300):
        x, views, y = chain(make, 2)
        if len(views) == 2:
            found = views[0].then(views[1])
            if count(found):
                same(seen(found, x), y)
    assert count.met > 15 * count.missed


def test_equal_movement_is_an_equal_record():
    """The order of composing does not matter, and of maps found twice few are written twice."""
    records: dict[tuple[Shape, bytes], set[View]] = defaultdict(set)
    times: dict[tuple[Shape, bytes], int] = defaultdict(int)
    orders = Count()
    for make in cases(42, 160):
        x, views, y = chain(make, 3, (1, 2, 2, 3, 4, 6))
        if len(views) < 3 or y.size > 400:
            continue
        a, b, c = views
        front, back = a.then(b), b.then(c)
        both = [front and front.then(c), back and a.then(back)]
        for v in both:
            if v is not None:
                key = (x.shape, repr(y.shape).encode() + np.nan_to_num(y, nan=-1).tobytes())
                records[key].add(v)
                times[key] += 1
        if None not in both:
            orders(both[0] == both[1] or None)
    assert orders.met > 100 * orders.missed
    twice = [k for k, n in times.items() if n > 1]
    assert len(twice) > 100
    assert sum(len(records[k]) > 1 for k in twice) * 50 < len(twice)


def test_views_that_undo_each_other_are_nothing():
    for make in cases(43, 100):
        layout = make.layout(make.shape())
        pack, unpack = view_of("pack", layout), view_of("unpack", layout)
        assert pack is not None and unpack is not None
        back = pack.then(unpack)
        assert back is not None and as_steps(back) == Rearrangement(None, None, None)
        masked = unpack.then(pack)
        assert masked == view_of("retype", layout)
        again = pack.then(masked) if masked else None
        assert again == pack


def test_nouns_are_recognised_again():
    for make in cases(44, 160):
        shape = make.shape()
        t = Transpose(shape, make.perm(len(shape)))
        v = view_of("transpose", t)
        steps = as_steps(v) if v else None
        assert steps is not None
        x = make.array(shape)
        y = do("reshape", steps.split, x)
        y = y if steps.order is None else np.transpose(y, steps.order)
        same(do("reshape", steps.join, y), np.transpose(x, t.perm))
        r = make.reshape()
        v = view_of("reshape", r)
        same_shape = r.source == r.shape
        assert v is None or as_steps(v) == Rearrangement(None, None, None if same_shape else r)
        pad = make.pad(shape)
        cut = make.slice(pad.shape)
        v = view_of("pad", pad)
        both = v.then(view_of("slice", cut)) if v else None  # type: ignore[arg-type]
        assert both is not None
        found = as_padded_slice(both)
        if found is not None:
            x = make.array(shape)
            same(move(found.pad, move(found.slice, x)), move(cut, move(pad, x)))
        else:
            assert np.isin(move(cut, move(pad, np.full(shape, np.nan))), [0, 5]).all()


def test_reversals_and_broadcasts_are_views_too():
    x = np.arange(12.0).reshape(3, 4)
    reverse = normal_view((3, 4), (3, 4), ((3,), (4,)), [Affine(((0, -1),), 2), Affine(((1, 1),))])
    same(seen(reverse, x), x[::-1])
    twice = reverse.then(reverse)
    assert twice is not None and as_steps(twice) == Rearrangement(None, None, None)
    flat = view_of("reshape", Reshape((12,), (3, 4)))
    assert flat is not None
    turned = flat.then(reverse)
    whole = normal_view((12,), (12,), ((12,),), [Affine(((0, -1),), 11)])
    assert turned is not None
    same(seen(turned, x.reshape(12)), x[::-1])
    cut = whole.then(flat)
    assert cut is not None
    same(seen(cut, x.reshape(12)), x.reshape(12)[::-1].reshape(3, 4))
    backwards = flat.then(
        normal_view((3, 4), (3, 4), ((3,), (4,)), [Affine(((0, -1),), 2), Affine(((1, -1),), 3)])
    )
    assert backwards == cut
    rows = normal_view((4,), (3, 4), ((3,), (4,)), [Affine(((1, 1),))])
    same(seen(rows, np.arange(4.0)), np.broadcast_to(np.arange(4.0), (3, 4)))
    assert as_steps(rows) is None and as_padded_slice(rows) is None and as_steps(reverse) is None
