"""Relayout: one layout turned into another one without going through the plain tensor.

What comes in is a pair of layouts of one tensor, what goes out is how to get from the data packed
by the first to the data packed by the second: a reshape, a transpose, a reshape, each left out
where it does nothing.

A pack strip-mines its dims, pads, and permutes the pieces. If the pieces that are larger than 1
stay in order, nothing moves in memory: the pack is a reshape, or a pad. After MLIR's
`populateSimplifyPackAndUnpackPatterns`, which knows the innermost, the 1-D and the unit-dim case;
here it is one condition.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from eqsat.model.attr import Shape
from eqsat.model.layout import Layout
from eqsat.model.movement import Move, Reshape
from eqsat.ops.declare import attr_functions
from eqsat.ops.movement.layout import Perm, keeps_order, moves_units_only, whole_tiles
from eqsat.ops.movement.lists import is_open, same_tiles
from eqsat.ops.movement.moves import concat_of, pad_of, slice_of
from eqsat.ops.movement.view import Rearrangement, as_steps, view_of


@dataclass(frozen=True)
class Relayout:
    """How pack(unpack(y, m), n) is reached: reshape, transpose, reshape, relax y."""

    split: Reshape | None
    order: tuple[int, ...] | None
    join: Reshape | None
    relaxed: Layout | None  # n where it lets lanes hold anything: y may hold something there


def relayout(m: Layout, n: Layout) -> Relayout | None:
    """How data packed by m becomes data packed by n by one transpose, or by none.

    Either every tile is the same, then blocks move among themselves and tile dims among themselves;
    or the order of elements stays, then only the shape changes. The lanes beyond the end hold what
    n asks for. None otherwise, and where nothing moves at all (`pack-of-unpack`).
    """
    if m.source != n.source or same_tiles(m, n) or not _keeps_pads(m, n):
        return None
    relaxed = n if is_open(n) else None
    if order_of_elements(m) == order_of_elements(n):
        shapes = m.packed_shape, n.packed_shape
        return Relayout(Reshape(*shapes) if shapes[0] != shapes[1] else None, None, None, relaxed)
    perm = block_order(m, n)
    return None if perm is None else Relayout(None, perm, None, relaxed)


def retile(m: Layout, n: Layout) -> Relayout | None:
    """How data packed by m becomes data packed by n if tiles are cut or put together.

    Per dim one tile divides the other and both complete the same padded extent; the lanes beyond
    the end hold what n asks for. None where `relayout` knows better.
    """
    steps = None if block_order(m, n) is not None else _steps(m, n)
    if steps is None or steps.order is None:
        return None
    return Relayout(steps.split, steps.order, steps.join, n if is_open(n) else None)


@lru_cache(maxsize=10_000)
def order_of_elements(layout: Layout) -> tuple[tuple[int, int, int], ...]:
    """The runs of the packed data, outermost first: (dim, distance of neighbours, extent).

    Layouts whose runs are equal hold the elements of one tensor in one order. What runs on from
    one dim of the packed tensor to the next is one run; lanes beyond the end count as elements.
    """
    tile = dict(zip(layout.pos, layout.tiles, strict=True))
    dims = [(d, tile.get(d, 1)) for d in layout.outer] + [(d, 1) for d in layout.pos]
    runs: list[tuple[int, int, int]] = []
    for (d, step), extent in zip(dims, layout.packed_shape, strict=True):
        if extent == 1:
            continue
        goes_on = bool(runs) and runs[-1][:2] == (d, step * extent)
        around = runs.pop()[2] if goes_on else 1
        runs.append((d, step, around * extent))
    return tuple(runs)


def _steps(m: Layout, n: Layout) -> Rearrangement | None:
    """How the lanes move, those beyond the end too: these hold what n asks for."""
    if m.source != n.source or same_tiles(m, n) or not _keeps_pads(m, n):
        return None
    plain, packed = view_of("unpack", whole_tiles(m)), view_of("pack", whole_tiles(n))
    lanes = None if plain is None or packed is None else plain.then(packed)
    return None if lanes is None else as_steps(lanes)


def _keeps_pads(m: Layout, n: Layout) -> bool:
    """Whether every lane beyond the end holds what n asks for, if it holds what m says."""
    held, asked = (dict(zip(x.pos, x.pads, strict=True)) for x in (m, n))
    dims = held.keys() | asked.keys()
    return all(asked.get(d, "-") in ("?", held.get(d, "-")) for d in dims)


def block_order(m: Layout, n: Layout) -> tuple[int, ...] | None:
    """The permutation with pack(x, n) = transpose(pack(x, m), perm), outer and tile dims apart.

    None if some dim has another tile; paddings are not looked at.
    """
    tiles = dict(zip(m.pos, m.tiles, strict=True))
    if m.source != n.source or tiles != dict(zip(n.pos, n.tiles, strict=True)):
        return None
    rank = len(m.source)
    return (
        *(m.outer.index(d) for d in n.outer),
        *(rank + m.pos.index(d) for d in n.pos),
    )


def closed(layout: Layout) -> Layout | None:
    """The layout if no lane beyond the end may hold anything: then equal values are equal data."""
    return None if is_open(layout) else layout


# ---- packs that leave the order of elements alone ------------------------------------------------
@dataclass(frozen=True)
class PaddedReshape:
    """A pack that moves nothing: pad, reshape, and forget the padding that may hold anything.

    slice: what undoes the pad. None: not needed.
    """

    pad: Move | None
    groups: Reshape
    relaxed: Layout | None
    slice: Move | None


@dataclass(frozen=True)
class UnitTiles:
    """A layout without its tiles of 1: what is left of it, and the reshape that adds them.

    layout None: nothing but unit tiles; then `perm` transposes (None: it does not).
    """

    layout: Layout | None
    perm: Perm | None
    groups: Reshape


def padded_reshape(layout: Layout) -> PaddedReshape | None:
    """pack(x) = reshape(pad(x)) if nothing moves and one value fills all padding.

    Lanes that may hold anything are written with that value, and then forgotten.
    """
    values = sorted(set(layout.pads) - {"-", "?"})
    if len(values) > 1 or not keeps_order(layout):
        return None
    padded = whole_tiles(layout).source
    groups = Reshape(padded, layout.packed_shape)
    if not layout.is_padded:
        return PaddedReshape(None, groups, None, None)
    high = [p - s for p, s in zip(padded, layout.source, strict=True)]
    none = [0] * len(high)
    return PaddedReshape(
        pad_of(layout.source, none, high, values[0] if values else "0"),
        groups,
        layout if "?" in layout.pads else None,
        slice_of(padded, none, layout.source, [1] * len(high)),
    )


def drop_unit_tiles(layout: Layout) -> UnitTiles | None:
    """pack(x, layout) = reshape(pack(x, rest)) where the tiles of 1 are left out."""
    large = [i for i, t in enumerate(layout.tiles) if t != 1]
    if len(large) == len(layout.tiles):
        return None
    if not large:
        moved = tuple(layout.source[d] for d in layout.outer)
        perm = None if layout.outer == tuple(range(len(layout.outer))) else layout.outer
        return UnitTiles(None, perm, Reshape(moved, layout.packed_shape))
    rest = Layout(
        layout.source,
        tuple(layout.pos[i] for i in large),
        tuple(layout.tiles[i] for i in large),
        layout.outer,
        tuple(layout.pads[i] for i in large),
    )
    return UnitTiles(rest, None, Reshape(rest.packed_shape, layout.packed_shape))


def transpose_as_reshape(shape: Shape, perm: Perm) -> Reshape | None:
    """The reshape that a transpose is if it moves dims of extent 1 only; None for the identity."""
    if not moves_units_only(shape, perm) or perm == tuple(range(len(perm))):
        return None
    return Reshape(shape, tuple(shape[p] for p in perm))


@dataclass(frozen=True)
class Stacked:
    """A concat of operands without dims of extent 1, and the reshapes around it."""

    operands: tuple[Reshape, ...]
    move: Move
    result: Reshape


def stack_above(move: Move, perm: Perm) -> Stacked | None:
    """What a transpose behind a concat is, if that of each operand moves dims of extent 1 only.

    Stacked in front of a dim is concatenated along it; None where the stack goes innermost.
    """
    axis, shape = move.args[0], tuple([move.shape[p] for p in perm])
    if moves_units_only(move.shape, perm):
        return None
    if any(s[axis] != 1 or not moves_units_only(s, perm) for s in move.sources):
        return None
    large = tuple([s for p, s in zip(perm, shape, strict=True) if p != axis and s != 1])
    place = sum(move.shape[p] != 1 for p in perm[: perm.index(axis)])
    if place == len(large):
        return None
    joined = concat_of([large] * len(move.sources), place)
    return Stacked(
        tuple([Reshape(s, large) for s in move.sources]), joined, Reshape(joined.shape, shape)
    )


FUNCTIONS = attr_functions(
    stack_above, closed, relayout, retile, padded_reshape, drop_unit_tiles, transpose_as_reshape
)
