"""Guards of other compilers before they rewrite: conditions for rule sets that reproduce them.

None of these is needed for a rewrite to be right; they are why those compilers refuse some.
Sources: MLIR DataLayoutPropagation.cpp, PackAndUnpackPatterns.cpp, TPP ToBlockLayoutAndBack.cpp.
"""

from __future__ import annotations

from dataclasses import replace

from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.movement import Move, Reshape
from eqsat.model.target import Tile
from eqsat.model.tensor import cdiv
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.declare import attr_functions
from eqsat.ops.movement.layout import reassociation
from eqsat.ops.vocabulary import AttrFunction


def is_collapse(groups: Reshape) -> bool:
    """A reshape that only merges dims (`tensor.collapse_shape`)."""
    pairs = reassociation(groups.source, groups.shape)
    return pairs is not None and all(len(right) == 1 for _, right in pairs)


def is_expand(groups: Reshape) -> bool:
    """A reshape that only splits dims (`tensor.expand_shape`)."""
    pairs = reassociation(groups.source, groups.shape)
    return pairs is not None and all(len(left) == 1 for left, _ in pairs)


def is_simple_pack(layout: Layout) -> bool:
    """A pack that `populateSimplifyPackAndUnpackPatterns` takes for a reshape.

    Without padding, and of the last dim alone, or with at most one dim and one tile beyond 1, or
    adding nothing but outer dims of size 1.
    """
    if layout.is_padded:
        return False
    last = layout.pos == (len(layout.source) - 1,) and layout.is_outer_identity
    large = sum(s > 1 for s in layout.source)
    tiles = sum(t > 1 for t in layout.tiles)
    covered = {d for d, t in zip(layout.pos, layout.tiles, strict=True) if t == layout.source[d]}
    whole = len(covered) == len(layout.source) and list(layout.pos) == sorted(layout.pos)
    return last or (large <= 1 and tiles <= 1) or whole


def pads_untiled(layout: Layout, move: Move) -> bool:
    """A pad leaves the dims alone that a layout tiles."""
    low, high = move.args[:2]
    return all(low[d] == high[d] == 0 for d in layout.pos)


def keeps_tiles(layout: Layout, move: Move) -> bool:
    """A slice from the beginning that cuts inside of last tiles only (MLIR's `canFoldSliceOp`)."""
    start, limit, stride = move.args
    tiles = dict(zip(layout.pos, layout.tiles, strict=True))
    whole = all(
        cdiv(b, tiles.get(d, 1)) == cdiv(s, tiles.get(d, 1))
        for d, (b, s) in enumerate(zip(limit, layout.source, strict=True))
    )
    return whole and not any(start) and all(s == 1 for s in stride)


def whole_tile(g: Generic, tile: Tile) -> Tile | None:
    """The tile cut down to the contraction's own extents; None if it does not divide them.

    After TPP's default block factors, which take full tiles only.
    """
    roles = contraction_roles(g)
    if roles is None or roles.other:
        return None
    sizes = []
    for role, extent in tile.sizes:
        loops = [g.sizes[d] for d in getattr(roles, role, ()) if g.sizes[d] > 1]
        if loops and loops[-1] % min(extent, loops[-1]):
            return None
        sizes.append((role, min(extent, loops[-1]) if loops else 1))
    return replace(tile, sizes=tuple(sizes))


FUNCTIONS = attr_functions(
    is_collapse, is_expand, pads_untiled, keeps_tiles, is_simple_pack, whole_tile,
) | {
    "is_unpacked": AttrFunction(
        ("tensors",),
        "bool",
        "an unpack gives one of them, as far as the search has come",
        lambda xs: any(x.unpacked for x in xs),
    )
}  # fmt: skip
