"""Packs, unpacks and transposes that leave the element order alone: reshapes, and pads.

A pack strip-mines its dims, pads, and permutes the pieces. If the pieces that are larger than 1
stay in order, nothing moves in memory. After MLIR's `populateSimplifyPackAndUnpackPatterns`, which
knows the innermost, the 1-D and the unit-dim case; here it is one condition.
"""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.model.attr import Shape
from eqsat.model.layout import Layout
from eqsat.model.movement import Move, Reshape
from eqsat.model.tensor import cdiv
from eqsat.ops.declare import attr_functions
from eqsat.ops.layout import keeps_order
from eqsat.ops.lists import inverse
from eqsat.ops.moves import pad_of, slice_of
from eqsat.ops.permuted_moves import Perm, moves_units_only


@dataclass(frozen=True)
class PadReshape:
    """A padding pack as a pad and a reshape; `relaxed` if its own padding may hold anything."""

    pad: Move
    groups: Reshape
    relaxed: Layout | None


@dataclass(frozen=True)
class ReshapeSlice:
    """An unpack that cuts padding off as a reshape and a slice."""

    groups: Reshape
    slice: Move


@dataclass(frozen=True)
class UnitTiles:
    """A layout without its tiles of 1: what is left of it, and the reshape that adds them.

    layout None: nothing but unit tiles; then `perm` transposes (None: it does not).
    """

    layout: Layout | None
    perm: Perm | None
    groups: Reshape


def pack_as_reshape(layout: Layout) -> Reshape | None:
    """The reshape that an unpadded pack is, if it moves nothing."""
    if layout.is_padded or not keeps_order(layout):
        return None
    return Reshape(layout.source, layout.packed_shape)


def unpack_as_reshape(layout: Layout) -> Reshape | None:
    """The reshape that an unpadded unpack is, if it moves nothing."""
    found = pack_as_reshape(layout)
    return None if found is None else Reshape(found.shape, found.source)


def _padded_shape(layout: Layout) -> Shape:
    tiles = dict(zip(layout.pos, layout.tiles, strict=True))
    return tuple(cdiv(s, tiles.get(d, 1)) * tiles.get(d, 1) for d, s in enumerate(layout.source))


def pack_as_pad(layout: Layout) -> PadReshape | None:
    """pack(x) = reshape(pad(x)) if nothing moves and one value fills all padding.

    Lanes that may hold anything are written with that value, and then forgotten.
    """
    values = sorted(set(layout.pads) - {"-", "?"})
    if not layout.is_padded or len(values) > 1 or not keeps_order(layout):
        return None
    padded = _padded_shape(layout)
    high = [p - s for p, s in zip(padded, layout.source, strict=True)]
    pad = pad_of(layout.source, [0] * len(high), high, values[0] if values else "0")
    relaxed = layout if "?" in layout.pads else None
    return PadReshape(pad, Reshape(padded, layout.packed_shape), relaxed)


def unpack_as_slice(layout: Layout) -> ReshapeSlice | None:
    """unpack(y) = slice(reshape(y)) if nothing moves and something is cut off."""
    if not layout.is_padded or not keeps_order(layout):
        return None
    padded = _padded_shape(layout)
    rank = len(padded)
    cut = slice_of(padded, [0] * rank, layout.source, [1] * rank)
    return ReshapeSlice(Reshape(layout.packed_shape, padded), cut)


def drop_unit_tiles(layout: Layout) -> UnitTiles | None:
    """pack(x, layout) = reshape(pack(x, rest)) where the tiles of 1 are left out."""
    kept = [i for i, t in enumerate(layout.tiles) if t != 1]
    if len(kept) == len(layout.tiles):
        return None
    if not kept:
        moved = tuple(layout.source[d] for d in layout.outer)
        perm = None if layout.outer == tuple(range(len(layout.outer))) else layout.outer
        return UnitTiles(None, perm, Reshape(moved, layout.packed_shape))
    rest = Layout(
        layout.source,
        tuple(layout.pos[i] for i in kept),
        tuple(layout.tiles[i] for i in kept),
        layout.outer,
        tuple(layout.pads[i] for i in kept),
    )
    return UnitTiles(rest, None, Reshape(rest.packed_shape, layout.packed_shape))


def unpack_unit_tiles(layout: Layout) -> UnitTiles | None:
    """unpack(y, layout) = unpack(reshape(y), rest) where the tiles of 1 are left out."""
    found = drop_unit_tiles(layout)
    if found is None:
        return None
    perm = None if found.perm is None else inverse(found.perm)
    return UnitTiles(found.layout, perm, Reshape(found.groups.shape, found.groups.source))


def transpose_as_reshape(shape: Shape, perm: Perm) -> Reshape | None:
    """The reshape that a transpose is if it moves dims of extent 1 only; None for the identity."""
    if not moves_units_only(shape, perm) or perm == tuple(range(len(perm))):
        return None
    return Reshape(shape, tuple(shape[p] for p in perm))


FUNCTIONS = attr_functions(
    pack_as_reshape, unpack_as_reshape, pack_as_pad, unpack_as_slice, drop_unit_tiles,
    unpack_unit_tiles, transpose_as_reshape,
)  # fmt: skip
