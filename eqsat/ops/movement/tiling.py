"""Cutting the loops of a generic: every operand gets the layout its loops ask for.

The one mechanism behind packing contractions and moving packs through generics (`linalg::pack`,
and "pack info on the iteration domain" of MLIR's DataLayoutPropagation.cpp).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eqsat.model.affine import Map, dim
from eqsat.model.attr import Shape
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.tensor import cdiv
from eqsat.ops.contractions.roles import mixed_dims
from eqsat.ops.generics.canonical import canonical_generic

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
