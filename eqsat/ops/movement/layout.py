"""Layout algebra: how packs and unpacks act together with transposes and reshapes.

Pure functions on attributes; None means that the condition behind the function does not hold.
Sources: MLIR PackAndUnpackPatterns.cpp and DataLayoutPropagation.cpp. Packing contractions and
moving packs through generics cut the loops of a generic: every operand gets the layout that its
loops ask for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from eqsat.model.affine import Map, dim
from eqsat.model.attr import Shape
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.movement import Move, Reshape
from eqsat.model.tensor import cdiv
from eqsat.ops.contractions.roles import mixed_dims
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_generic
from eqsat.ops.movement.lists import is_block_diagonal
from eqsat.ops.movement.moves import pad_value

Layouts = tuple[Layout | None, ...]  # per operand; None: the operand is read as it is


def make_layout(
    source: Shape,
    pos: Sequence[int],
    tiles: Sequence[int],
    outer: Sequence[int],
    pads: Sequence[str],
) -> Layout:
    """A layout whose divisible tiles are marked as such, whatever padding was asked for."""
    marks = tuple(
        "-" if source[d] % t == 0 else p for d, t, p in zip(pos, tiles, pads, strict=True)
    )
    return Layout(tuple(source), tuple(pos), tuple(tiles), tuple(outer), marks)


@dataclass(frozen=True)
class Tiled:
    """A generic over cut loops and the layouts its operands and result then have."""

    sig: Generic
    operands: Layouts
    result: Layout | None


def tile_domain(
    g: Generic,
    tiling: Sequence[tuple[int, int]],
    outer_of: Callable[[int], tuple[int, ...]],
    pad_of: Callable[[int | None, int], str],
    result_order: Sequence[int],
    tile: tuple[int, ...] = (),
) -> Tiled | None:
    """Append an inner loop to every tiled loop and pack every operand accordingly.

    tiling: (loop, tile) in the order in which tile dims are appended. pad_of(operand, loop) names
    the padding, operand None being the result.
    """
    tiles, sizes, inner = dict(tiling), list(g.sizes), {}
    for d, t in tiling:
        sizes[d] = cdiv(g.sizes[d], t)
        inner[d] = len(sizes)
        sizes.append(t)
    maps: list[Map] = []
    layouts: list[Layout | None] = []
    for j, m in enumerate(g.maps):
        at = positions(g, j, tiles)
        if at is None:
            return None
        tiled = [d for d, _ in tiling if d in at]
        layout = None
        if tiled:
            pads = [pad_of(j, d) for d in tiled]
            where = [at[d] for d in tiled]
            layout = make_layout(g.shapes[j], where, [tiles[d] for d in tiled], outer_of(j), pads)
            inside = tuple(dim(inner[d]) for d in tiled)
            maps.append(tuple(m[q] for q in layout.outer) + inside)
        else:
            maps.append(m)
        layouts.append(layout)
    parallel = [d for d, _ in tiling if d < g.rank]
    result = None
    if parallel:
        pads = [pad_of(None, d) for d in parallel]
        result = make_layout(
            g.result_shape, parallel, [tiles[d] for d in parallel], result_order, pads
        )
    shapes = [s if a is None else a.packed_shape for s, a in zip(g.shapes, layouts, strict=True)]
    loops = [*result_order, *(inner[d] for d in parallel)]
    sig = canonical_generic(
        tuple(sizes), loops, maps, shapes, g.yields, tile or g.tile, g.dtypes,
        precision=g.precision,
    )  # fmt: skip
    return Tiled(sig, tuple(layouts), result)


def positions(g: Generic, operand: int, tiles: dict[int, int]) -> dict[int, int] | None:
    """Dim of the operand that each tiled loop indexes; None if one is not a bare, full dim."""
    m = g.maps[operand]
    if mixed_dims(m) & tiles.keys():
        return None
    at: dict[int, int] = {}
    for q, e in enumerate(m):
        d = e.dim
        if d is None or d not in tiles:
            continue
        if d in at or g.shapes[operand][q] != g.sizes[d]:
            return None
        at[d] = q
    return at


def induced(rank: dict[int, int], m: Map) -> tuple[int, ...]:
    """Outer order of an operand: its ranked dims by rank, in increasing slots; others stay."""
    slots = [q for q, e in enumerate(m) if e.dim in rank]
    order = list(range(len(m)))
    for slot, q in zip(slots, sorted(slots, key=lambda q: rank[m[q].dim or 0]), strict=True):
        order[slot] = q
    return tuple(order)


Perm = tuple[int, ...]
PackedReshape = tuple[Layout, Reshape, Perm | None]  # order of blocks, if they change places


@dataclass(frozen=True)
class FoldedPad:
    """The layout that pads as a pad did, and what it knows but may not say (None: nothing)."""

    layout: Layout
    relaxed: Layout | None


def whole_tiles(layout: Layout) -> Layout:
    """The layout of a tensor that is as large as its tiles."""
    tiles = dict(zip(layout.pos, layout.tiles, strict=True))
    padded = [cdiv(s, tiles.get(d, 1)) * tiles.get(d, 1) for d, s in enumerate(layout.source)]
    return replace(layout, source=tuple(padded), pads=("-",) * len(layout.pads))


def keeps_order(layout: Layout) -> bool:
    """Whether the strip-mined order equals the packed order, once extents of 1 are dropped."""
    rank = len(layout.source)
    at = {d: rank + i for i, d in enumerate(layout.pos)}
    slots = [s for d in range(rank) for s in (layout.outer.index(d), at.get(d)) if s is not None]
    large = [s for s in slots if layout.packed_shape[s] != 1]
    return large == sorted(large)


# ---- transposes ------------------------------------------------------------------------------
def moves_units_only(shape: Shape, perm: Perm) -> bool:
    """Whether the dims larger than 1 stay in order."""
    large = [p for p in perm if shape[p] != 1]
    return large == sorted(large)


def before_transpose(layout: Layout, perm: tuple[int, ...]) -> Layout:
    """The layout L' with pack(x, L') = pack(transpose(x, perm), L)  (F1).

    By the inverse it is the L' with unpack(y, L') = transpose(unpack(y, L), perm)  (F3).
    """
    source = [0] * len(perm)
    for i, p in enumerate(perm):
        source[p] = layout.source[i]
    return Layout(
        tuple(source),
        tuple(perm[d] for d in layout.pos),
        layout.tiles,
        tuple(perm[d] for d in layout.outer),
        layout.pads,
    )


def packed_transpose(layout: Layout, perm: tuple[int, ...]) -> Layout | None:
    """The layout L' with pack(x, L') = transpose(pack(x, L), perm), perm block-diagonal  (F2)."""
    n = len(layout.source)
    if not is_block_diagonal(perm, n):
        return None
    order = [p - n for p in perm[n:]]
    return Layout(
        layout.source,
        tuple(layout.pos[j] for j in order),
        tuple(layout.tiles[j] for j in order),
        tuple(layout.outer[p] for p in perm[:n]),
        tuple(layout.pads[j] for j in order),
    )


# ---- reshapes ------------------------------------------------------------------------------------
def reassociation(a: Shape, b: Shape) -> list[tuple[list[int], list[int]]] | None:
    """Groups of dims of a and b with equal products, in order; unit dims go to the left group."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(a) or j < len(b):
        left, right, x, y = [], [], 1, 1
        if i < len(a):
            left, x, i = [i], a[i], i + 1
        if j < len(b):
            right, y, j = [j], b[j], j + 1
        while x != y:
            if x < y:
                if i >= len(a):
                    return None
                left.append(i)
                x, i = x * a[i], i + 1
            else:
                if j >= len(b):
                    return None
                right.append(j)
                y, j = y * b[j], j + 1
        while i < len(a) and a[i] == 1 and (j >= len(b) or b[j] != 1):
            left.append(i)
            i += 1
        while j < len(b) and b[j] == 1 and (i >= len(a) or a[i] != 1):
            right.append(j)
            j += 1
        groups.append((left, right))
    return groups


def common_dims(a: Shape, b: Shape) -> Shape | None:
    """The shape of dims that both shapes are made of; None where they cut across one another."""
    strides = {math.prod(s[d:]) for s in (a, b) for d in range(len(s))} | {1}
    points = sorted(strides)
    if 0 in points or any(q % p for p, q in pairwise(points)):
        return None
    return tuple([q // p for p, q in pairwise(points)][::-1])


def large_groups(a: Shape, b: Shape) -> list[tuple[list[int], list[int]]] | None:
    """The reassociation of the dims above extent 1 alone."""
    left, right = ([d for d, s in enumerate(v) if s != 1] for v in (a, b))
    pairs = reassociation(tuple([a[d] for d in left]), tuple([b[d] for d in right]))
    if pairs is None:
        return None
    return [([left[i] for i in dims], [right[j] for j in other]) for dims, other in pairs]


def _through(layout: Layout, a: Shape, b: Shape) -> Layout | None:
    """`layout` packs b, one side of a reshape a ↔ b: the layout of a that holds the same blocks.

    None too for a layout that moves nothing, or has a tile of 1. It is a reshape itself, or holds
    one, and would be created again and again: a pack of its own result, by the same tile, adds a
    dim of size 1 (growth, not soundness).
    """
    groups = reassociation(a, b)
    if groups is None or 1 in layout.tiles or keeps_order(layout):
        return None
    pos: list[int] = []
    for d, t in zip(layout.pos, layout.tiles, strict=True):
        left, right = next(g for g in groups if d in g[1])
        if not left or any(b[q] != 1 for q in right[right.index(d) + 1 :]):
            return None  # a tiled dim is the innermost of its group
        q = next((q for q in reversed(left) if a[q] != 1), left[-1])
        trivial = a[q] == b[d] and _units(a, left) and _units(b, right)
        if (b[d] % t or a[q] % t) and not trivial:
            return None
        if a[q] == t:
            return None  # one block: a transpose that adds a dim of size 1, again and again
        pos.append(q)
    order = _group_order(layout, [right for _, right in groups])
    if order is None:
        return None
    outer = [d for i in order for d in groups[i][0]]
    if len(outer) != len(a) or len(set(pos)) != len(pos):
        return None
    return make_layout(a, pos, layout.tiles, outer, layout.pads)


def _group_order(layout: Layout, groups: list[list[int]]) -> list[int] | None:
    """The groups in the order of the layout's outer dims; None if it takes a group apart.

    Dims of one block may stand anywhere, as they do not move memory.
    """
    blocks = dict(zip(layout.outer, layout.packed_shape, strict=False))
    large = [d for d in layout.outer if blocks[d] != 1]
    of = {d: i for i, dims in enumerate(groups) for d in dims}
    first = {of[d]: layout.outer.index(d) for d in reversed(layout.outer)}
    first |= {of[d]: layout.outer.index(d) for d in reversed(large)}
    order = sorted(first, key=lambda i: first[i])
    ordered = [d for i in order for d in groups[i] if blocks[d] != 1]
    return order if ordered == large else None


def _units(shape: Shape, dims: list[int]) -> bool:
    """At most one of these dims is larger than 1."""
    return sum(shape[d] != 1 for d in dims) <= 1


def pack_reshape(layout: Layout, groups: Reshape) -> PackedReshape | None:
    """pack(reshape(x), layout) = transpose(reshape(pack(x, L'), …), order)."""
    grouped = _grouped(layout, groups.source, groups.shape)
    inner = _through(grouped, groups.source, groups.shape)
    if inner is None:
        return None
    view = Reshape(inner.packed_shape, grouped.packed_shape)
    return inner, view, _block_order(grouped, layout)


def unpack_reshape(groups: Reshape, layout: Layout) -> PackedReshape | None:
    """reshape(unpack(y, layout)) = unpack(reshape(transpose(y, order), …), L')."""
    grouped = _grouped(layout, groups.shape, groups.source)
    outer = _through(grouped, groups.shape, groups.source)
    if outer is None:
        return None
    view = Reshape(grouped.packed_shape, outer.packed_shape)
    return outer, view, _block_order(layout, grouped)


def _grouped(layout: Layout, a: Shape, b: Shape) -> Layout:
    """The layout itself, or with the blocks of every group of dims together and in order."""
    groups = reassociation(a, b)
    if groups is None or _group_order(layout, [right for _, right in groups]) is not None:
        return layout
    first = {i: min(layout.outer.index(d) for d in r) for i, (_, r) in enumerate(groups) if r}
    outer = [d for i in sorted(first, key=lambda i: first[i]) for d in groups[i][1]]
    return replace(layout, outer=tuple(outer))


def _block_order(m: Layout, n: Layout) -> tuple[int, ...] | None:
    """The permutation with pack(x, n) = transpose(pack(x, m), perm); None if it is the identity."""
    if m.outer == n.outer:
        return None
    rank = len(m.outer)
    tiles = range(rank, rank + len(m.tiles))
    return (*(m.outer.index(d) for d in n.outer), *tiles)


# ---- pads that complete the tile: F5 -----------------------------------------------------------
def fold_pad(layout: Layout, pad: Move) -> FoldedPad | None:
    """pack(pad(x), layout) = pack(x, L) where L pads by the pad's value.

    The pad is on the high side of tiled dims only, and adds no whole tile ("artificial padding").
    What layout itself pads must be the same value, or may hold anything; then the pad writes lanes
    that are open here.
    """
    low, high, value = pad.args
    source, text = pad.sources[0], pad_value(value)
    if any(low) or not any(high) or any(p not in ("-", "?", text) for p in layout.pads):
        return None
    if not _completes(layout, source, pad):
        return None
    pads = [text if high[d] else p for d, p in zip(layout.pos, layout.pads, strict=True)]
    inner = make_layout(source, layout.pos, layout.tiles, layout.outer, pads)
    return FoldedPad(inner, layout if "?" in layout.pads else None)


def unfold_pad(pad: Move, layout: Layout) -> Layout | None:
    """pad(unpack(y, layout)) = unpack(y, L) if the lanes that L shows hold the pad's value."""
    low, high, value = pad.args
    if any(low) or not any(high) or any(p not in ("-", pad_value(value)) for p in layout.pads):
        return None  # where two paddings meet, the other one may have been written last
    if not _completes(layout, pad.sources[0], pad):
        return None
    return make_layout(pad.shape, layout.pos, layout.tiles, layout.outer, layout.pads)


def _completes(layout: Layout, source: Shape, pad: Move) -> bool:
    """Whether a pad on the high side stays inside of the last tiles."""
    tiles = dict(zip(layout.pos, layout.tiles, strict=True))
    ends = zip(source, pad.shape, strict=True)
    return all(cdiv(s, tiles.get(d, 1)) * tiles.get(d, 1) >= n for d, (s, n) in enumerate(ends))


# ---- forgetting ----------------------------------------------------------------------------------
def forgets_more(first: Layout, second: Layout) -> bool:
    """Whether every lane that `first` leaves open is open in `second` too."""
    if (first.pos, first.tiles, first.outer) != (second.pos, second.tiles, second.outer):
        return False
    pads = zip(first.pos, first.pads, second.pads, strict=True)
    open_dims = [(d, q) for d, p, q in pads if p == "?"]
    return first.packed_shape == second.packed_shape and all(
        q == "?" and second.source[d] <= first.source[d] for d, q in open_dims
    )


FUNCTIONS = attr_functions(before_transpose, packed_transpose, fold_pad, unfold_pad, forgets_more)
