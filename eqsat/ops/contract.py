"""Packing contractions by the tiles of a target."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.model.attrs import Generic, Layout
from eqsat.model.target import Tile
from eqsat.ops.contraction import contraction_roles
from eqsat.ops.tiling import Layouts, tile_domain
from eqsat.ops.vocabulary import AttrFunction


@dataclass(frozen=True)
class PackedLoops:
    """A contraction packed by a tile."""

    operands: Layouts
    sig: Generic
    result: Layout


def pack_loops(g: Generic, tile: Tile) -> PackedLoops | None:
    """Pack the last m, n and k loop of a contraction by a tile, outer dims in the order b, m, n, k.

    K tiles demand zeros, M and N tiles may hold anything. None if `g` is no contraction, is packed
    already, or the tile leaves its result alone. After `linalg::packMatmulGreedily` and mmt4d.
    """
    roles = contraction_roles(g)
    if roles is None or g.tile or not roles.k:
        return None
    extents = role_extents(tile)
    tiling = [
        (loop, extents[role])
        for role, loops in (("m", roles.m), ("n", roles.n), ("k", roles.k))
        for loop in [d for d in loops if g.sizes[d] > 1][-1:]
        if extents[role] > 1
    ]
    order = [*roles.batch, *roles.m, *roles.n, *roles.k]
    rank = {d: i for i, d in enumerate(order)}

    def outer(j: int) -> tuple[int, ...]:
        m = g.maps[j]
        if any(e.dim is None for e in m):  # windows stay where they are
            return tuple(range(len(m)))
        return tuple(sorted(range(len(m)), key=lambda q: rank.get(m[q].dim or 0, -1)))

    def pad(_: int | None, d: int) -> str:
        return "0" if d >= g.rank else "?"

    used = tuple(extents[r] for r in ("m", "n", "k"))
    tiled = tile_domain(g, tiling, outer, pad, range(g.rank), used) if tiling else None
    if tiled is None or tiled.result is None:
        return None
    return PackedLoops(tiled.operands, tiled.sig, tiled.result)


def role_extents(tile: Tile) -> dict[str, int]:
    sizes = dict(tile.sizes)
    if "c" in sizes:  # a convolution's vocabulary: input channels c, filters k
        return {"m": 1, "n": sizes["k"], "k": sizes["c"]}
    return {r: sizes.get(r, 1) for r in ("m", "n", "k")}


ROWS: dict[str, dict[str, str]] = {
    "packed-loops": {"operands": "layouts", "sig": "sig", "result": "layout"},
}
FUNCTIONS: dict[str, AttrFunction] = {
    "pack_loops": AttrFunction(
        ("sig", "tile"), "row:packed-loops", "pack m, n and k loops", pack_loops
    ),
}
