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
from eqsat.ops.declare import attr_functions
from eqsat.ops.movement.layout import Perm, keeps_order, moves_units_only, whole_tiles
from eqsat.ops.movement.moves import pad_of, slice_of


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


def transpose_as_reshape(shape: Shape, perm: Perm) -> Reshape | None:
    """The reshape that a transpose is if it moves dims of extent 1 only; None for the identity."""
    if not moves_units_only(shape, perm) or perm == tuple(range(len(perm))):
        return None
    return Reshape(shape, tuple(shape[p] for p in perm))


FUNCTIONS = attr_functions(padded_reshape, drop_unit_tiles, transpose_as_reshape)
