"""Random transposes, reshapes and layouts, for shapes that are known on either side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from eqsat.hunt.nests import OMITTED, PADS, Ints, Misfit, Surroundings, kind_of
from eqsat.model.attr import Shape
from eqsat.model.layout import Layout
from eqsat.model.movement import Reshape, Transpose
from eqsat.model.tensor import cdiv
from eqsat.ops.movement.layout import make_layout


# ---- transpose and reshape ------------------------------------------------------------------
def random_transpose(k: Surroundings) -> Transpose:
    source, shape = k.source, k.shape
    if source is None and shape is None:
        source = k.any_shape()
    perm = k.fixed.get("perm")
    if perm is not None:
        if sorted(perm) != list(range(len(source if source is not None else shape or ()))):
            raise Misfit
    elif source is not None and shape is not None:
        perm = _matching(k.rng, source, shape)
    else:
        perm = _perm(k, len(source if source is not None else shape or ()))
    if source is None:
        assert shape is not None
        source = tuple(shape[perm.index(d)] for d in range(len(perm)))
    return Transpose(source, perm)


def _matching(rng: Random, source: Shape, shape: Shape) -> Ints:
    """A permutation that takes one shape to the other."""
    if sorted(source) != sorted(shape):
        raise Misfit
    left = list(range(len(source)))
    perm = []
    for s in shape:
        same = [d for d in left if source[d] == s]
        perm.append(same[0] if rng.random() < 0.6 else rng.choice(same))
        left.remove(perm[-1])
    return tuple(perm)


def _perm(k: Surroundings, n: int) -> Ints:
    """Any permutation; often the identity, one that is there, its inverse, or in two blocks."""
    rng = k.rng
    near = [t.perm for t in k.relatives(Transpose) if len(t.perm) == n]
    choice = rng.random()
    if near and choice < 0.4:
        perm = rng.choice(near)
        return perm if choice < 0.15 else tuple(sorted(range(n), key=perm.__getitem__))
    if choice > 0.85:
        return tuple(range(n))
    if choice > 0.55 and n > 2:  # keeps outer and tile dims of a packed tensor apart
        cut = rng.choice((cdiv(n, 2), rng.randint(1, n - 1)))
        return (*_shuffled(rng, range(cut)), *_shuffled(rng, range(cut, n)))
    return _shuffled(rng, range(n))


def _shuffled(rng: Random, values: Sequence[int]) -> Ints:
    return tuple(rng.sample(list(values), len(values)))


def random_reshape(k: Surroundings) -> Reshape:
    source, shape = k.source, k.fixed.get("shape", k.shape)
    near = [r for r in k.relatives(Reshape) if k.chance(0.4)]
    for r in near:
        for a, b in ((r.source, r.shape), (r.shape, r.source)):
            if source in (None, a) and shape in (None, b):
                return Reshape(a, b)
    if source is None and shape is None:
        source = k.any_shape()
    if source is None:
        assert shape is not None
        source = regrouped(k.rng, shape)
    if shape is None:
        shape = regrouped(k.rng, source)
    if math.prod(source) != math.prod(shape):
        raise Misfit
    return Reshape(source, tuple(shape))


def regrouped(rng: Random, shape: Shape) -> Shape:
    """The same elements in other dims: some merged, split, or of size 1 put in or left out."""
    choice = rng.random()
    if choice < 0.12:
        return shape
    dims = [list(_split(rng, s)) if rng.random() < 0.4 else [s] for s in shape]
    if choice < 0.6 and len(dims) > 1:
        at = rng.randrange(len(dims) - 1)
        dims[at : at + 2] = [[math.prod(dims[at]) * math.prod(dims[at + 1])]]
    flat = [s for d in dims for s in d]
    if rng.random() < 0.25:
        flat.insert(rng.randint(0, len(flat)), 1)
    if rng.random() < 0.25 and 1 in flat:
        flat.remove(1)
    return tuple(flat)


def _split(rng: Random, size: int) -> Ints:
    factors = [f for f in range(2, size) if size % f == 0]
    if not factors:
        return (1, size) if rng.random() < 0.3 else (size,)
    f = rng.choice(factors)
    return (f, size // f)


# ---- layouts --------------------------------------------------------------------------------
def random_pack(k: Surroundings) -> Layout:
    return _layout(k, k.source, k.shape)


def random_unpack(k: Surroundings) -> Layout:
    return _layout(k, k.shape, k.source)


def random_retype(k: Surroundings) -> Layout:
    shape = k.source if k.source is not None else k.shape
    return _layout(k, None, shape)


def _layout(k: Surroundings, source: Shape | None, packed: Shape | None) -> Layout:
    """A layout between these shapes, every second time a relative of one that is there."""
    for near in k.relatives(Layout):
        if k.chance(0.6):
            layout = related_layout(k, near, source)
            if _is_wanted(layout, source, packed, k.fixed):
                return layout
    for _ in range(3):
        if source is None and packed is not None:
            layout = _unfolded(k, packed)
        else:
            layout = _tiled(k, k.any_shape(1) if source is None else source)
        if _is_wanted(layout, source, packed, k.fixed):
            return layout
    raise Misfit


def _is_wanted(
    a: Layout, source: Shape | None, packed: Shape | None, fixed: Mapping[str, Any]
) -> bool:
    mine = {"pos": a.pos, "tiles": a.tiles, "outer": a.outer, "pad": a.pads}
    return (
        source in (None, a.source)
        and packed in (None, a.packed_shape)
        and all(mine[key] == tuple(v) for key, v in fixed.items() if key in mine and v != OMITTED)
        and (fixed.get("outer") != OMITTED or a.outer == tuple(range(len(a.outer))))
        and (fixed.get("pad") != OMITTED or not a.is_padded)
    )


def _tiled(k: Surroundings, source: Shape) -> Layout:
    rng, n = k.rng, len(source)
    pos, tiles = k.fixed.get("pos"), k.fixed.get("tiles")
    if n == 0 or (pos is not None and any(d >= n for d in pos)):
        raise Misfit
    if pos is None:
        count = len(tiles) if tiles is not None else min(n, rng.choice((1, 1, 2, 2, 2, 3)))
        if count > n:
            raise Misfit
        pos = tuple(rng.sample(range(n), count)) if k.chance(0.6) else _last(rng, n, count)
    if tiles is None:
        whole = k.fixed.get("pad") == OMITTED
        tiles = tuple(_divisor(rng, source[d]) if whole else _tile(rng, source[d]) for d in pos)
    if len(tiles) != len(pos):
        raise Misfit
    return _padded(k, source, pos, tiles, _outer(k, n))


def _last(rng: Random, n: int, count: int) -> Ints:
    return tuple(sorted(rng.sample(range(n), count)))


def _tile(rng: Random, size: int) -> int:
    """Mostly one that does not divide, so that there is padding."""
    if rng.random() < 0.55:
        open_ends = [t for t in (2, 3, 4, 5) if size % t]
        if open_ends:
            return rng.choice(open_ends)
    return rng.choice((1, 2, 2, 3, 4, size))


def _other_tile(rng: Random, size: int, tile: int) -> int:
    """Often the same, twice, or half: tiles between which blocks stay whole."""
    choice = rng.random()
    if choice < 0.3:
        return tile
    if choice < 0.7:
        return tile // 2 if tile % 2 == 0 and choice < 0.5 else 2 * tile
    return _tile(rng, size)


def _divisor(rng: Random, size: int) -> int:
    return rng.choice([t for t in range(1, size + 1) if size % t == 0])


def _outer(k: Surroundings, n: int) -> Ints:
    given = k.fixed.get("outer")
    if given == OMITTED:
        return tuple(range(n))
    if given is not None:
        if sorted(given) != list(range(n)):
            raise Misfit
        return tuple(given)
    return tuple(range(n)) if k.chance(0.5) else _shuffled(k.rng, range(n))


def _unfolded(k: Surroundings, packed: Shape) -> Layout:
    """A layout of something whose packed shape is this one."""
    rng, rank = k.rng, len(packed)
    pos = k.fixed.get("pos")
    count = len(pos) if pos is not None else rng.choice((1, 1, 2, 2, 2, 3))
    n = rank - count
    if n < count:
        raise Misfit
    outer = _outer(k, n)
    if pos is None:
        pos = tuple(rng.sample(range(n), count))
    if any(d >= n for d in pos):
        raise Misfit
    source = [packed[outer.index(d)] for d in range(n)]
    for d, t in zip(pos, packed[n:], strict=True):
        cut = rng.randrange(t) if rng.random() < 0.75 and k.fixed.get("pad") != OMITTED else 0
        source[d] = source[d] * t - cut
    return _padded(k, tuple(source), pos, packed[n:], outer)


def _padded(
    k: Surroundings, source: Shape, pos: Ints, tiles: Ints, outer: Ints, pads: Sequence[str] = ()
) -> Layout:
    """The layout with these paddings, or with any."""
    given = k.fixed.get("pad")
    pads = pads or tuple(_pad(k) for _ in pos)
    if given is not None:
        pads = ("-",) * len(pos) if given == OMITTED else given
    if len(pads) != len(pos):
        raise Misfit
    layout = make_layout(source, pos, tiles, outer, pads)
    layout.verify()
    return layout


def _pad(k: Surroundings) -> str:
    choice = k.rng.random()
    if choice < 0.45:
        return "?"
    return "0" if choice < 0.85 else k.rng.choice(PADS[kind_of(k.dtype)])


def related_layout(k: Surroundings, near: Layout, source: Shape | None) -> Layout:
    """The same layout, or with other padding, order, tiles, or source of the same blocks."""
    rng = k.rng
    if source is not None and len(source) != len(near.source):
        raise Misfit
    change = rng.choice(("same", "same", "pads", "pads", "outer", "tiles", "pos", "source"))
    base, pos, tiles, outer = list(near.source), near.pos, near.tiles, near.outer
    if change == "outer":
        outer = _shuffled(rng, outer)
    if change == "pos":
        order = _shuffled(rng, range(len(pos)))
        pos, tiles = tuple(pos[i] for i in order), tuple(tiles[i] for i in order)
    if change == "tiles":
        pairs = zip(pos, tiles, strict=True)
        tiles = tuple(_other_tile(rng, near.source[d], t) for d, t in pairs)
    if change == "source":
        for d, t in zip(pos, tiles, strict=True):
            base[d] = cdiv(base[d], t) * t - rng.randrange(t)
    if source is not None:
        base = list(source)
    pads = dict(zip(near.pos, near.pads, strict=True)) if change != "pads" else {}
    new_pads = [p if (p := pads.get(d, "-")) != "-" else _pad(k) for d in pos]
    return _padded(k, tuple(base), pos, tiles, outer, new_pads)
