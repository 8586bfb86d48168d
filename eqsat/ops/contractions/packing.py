"""Packing contractions by the tiles of a target.

A loop of a contraction is an m, n, k or batch loop; a tile cuts one loop per role. What comes in
is a contraction and a tile, what goes out is the packed contraction with the layouts of what it
reads and writes. After `linalg::packMatmulGreedily`, mmt4d and tpp-mlir's block layouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from eqsat.model.affine import map_loops
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.target import Tile
from eqsat.model.tensor import NO_ZERO, cdiv
from eqsat.ops.contractions.convolution import block_order_of, block_rank, convolution, panel_rank
from eqsat.ops.contractions.roles import (
    Roles,
    contraction_roles,
    inner_loops,
    is_streamed,
    tile_dims,
)
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.propagate import permute_operand
from eqsat.ops.movement.layout import Layouts, tile_domain
from eqsat.ops.movement.lists import is_open
from eqsat.ops.movement.relayout import block_order

Cuts = dict[str, tuple[int, int]]  # role (m, n, k) -> the loop that is cut, and its tile
ROLES = ("m", "n", "k")
PANEL = ("k", "m", "n")  # tile dims of panels: what is summed over comes before what is cut


@dataclass(frozen=True)
class PackedLoops:
    """A contraction packed by a tile."""

    operands: Layouts
    sig: Generic
    result: Layout


@dataclass(frozen=True)
class PackedTwice:
    """A contraction on operands packed a second time, so that some k elements lie together."""

    lhs: Layout
    lhs_again: Layout
    rhs: Layout
    rhs_again: Layout
    sig: Generic
    result: Layout


@dataclass(frozen=True)
class ReadLoops:
    """A contraction packed so that one operand is read in `layout`; the others lie around it."""

    before: Layouts
    layout: Layout
    after: Layouts
    sig: Generic
    result: Layout


@dataclass(frozen=True)
class _Packing:
    """How a tile packs a contraction: extents per role, the order of tile dims and of blocks.

    tile: as the target has it; its kernel may ask for an order.
    """

    roles: Roles
    extents: dict[str, int]
    order: tuple[str, ...]  # of tile dims, by role
    rank: dict[int, int]  # loop -> its place among blocks
    tile: Tile


def pack_loops(g: Generic, tile: Tile) -> PackedLoops | None:
    """Pack a contraction by a tile: the last m, n and k loop that is not of extent 1.

    Blocks lie in the order batch, m, n, k, those of a convolution as `convolution` says. K
    tiles demand zeros, M and N tiles may hold anything. None if `g` is no contraction, is packed
    by another tile than the one that this one lies inside of, or the tile leaves its result alone.
    """
    plan = None if tile.vnni > 1 else _plan(g, tile)
    return None if plan is None else _packed_by(g, tile, tuple(_innermost(g, plan).items()))


def pack_other_loops(g: Generic, tile: Tile) -> list[PackedLoops]:
    """The ways to pack where a role has several loops: one of them is not the last.

    One role at a time, and only loops that the tile pads less than the last one: every other way
    would give each value between contractions one more layout, and those multiply.
    """
    plan = _plan(g, tile) if tile.is_single else None
    if plan is None:
        return []
    first = _innermost(g, plan)
    ways = [
        _packed(g, plan, first | {role: (d, extent)})
        for role, (last, extent) in first.items()
        for d in getattr(plan.roles, role)
        if g.sizes[d] > 1 and _waste(g, d, extent) < _waste(g, last, extent)
    ]
    return [p for p in ways if p is not None]


def swap_loops(g: Generic, tile: Tile) -> PackedLoops | None:
    """Pack by the tile with m and n exchanged: mmt4d(B, A) is mmt4d(A, B) transposed twice.

    A kernel for 8x16 tiles also serves 16x8 ones. Only where the exchanged tile pads the result
    less (a narrow n), or every contraction would have every tile twice. A panel serves so where
    it cuts nothing otherwise, a matrix times a vector, and where the result has rows of m: there
    the operands may as well be exchanged. A tile whose kernel asks for an order is what it says.
    """
    m, n, k = tile.extents
    is_bound = not tile.is_single or "c" in dict(tile.sizes) or tile.lhs or tile.rhs
    plan = None if is_bound else _plan(g, tile)
    if plan is None or m == n or (tile.panel and _innermost(g, plan) and not _has_rows_of_m(g)):
        return None
    extents = {"m": n, "n": m, "k": k}
    exchanged = tuple({"m": "n", "n": "m"}.get(r, r) for r in tile.order)
    order = plan.order if tile.panel else exchanged
    roles = plan.roles
    rank = _ranks(roles.batch, roles.n, roles.m, roles.k)
    swapped = _Packing(roles, extents, order, rank, tile)
    cuts = _innermost(g, swapped)
    if not tile.panel and _padded_size(g, cuts) >= _padded_size(g, _innermost(g, plan)):
        return None
    return _packed(g, swapped, cuts)


def _has_rows_of_m(g: Generic) -> bool:
    """Whether the last loop of the result is one of the left operand alone."""
    lhs, rhs = (map_loops(m) for m in g.maps)
    large = [d for d in range(g.rank) if g.sizes[d] > 1]
    return bool(large) and large[-1] in lhs and large[-1] not in rhs


def pack_loops_twice(g: Generic, tile: Tile) -> PackedTwice | None:
    """Pack by a tile whose `vnni` keeps v elements of k together innermost.

    The right operand becomes [N][K][k/v][n][v] (tpp-mlir's VNNI form), the left one
    [M][K][m][k/v][v], which is only another view of [M][K][m][k].
    """
    plan = None if tile.vnni == 1 else _plan(g, tile)
    once = None if plan is None else _packed(g, plan, _innermost(g, plan))
    if once is None or tile.extents[2] % tile.vnni or None in once.operands:
        return None
    roles = contraction_roles(once.sig)
    if roles is None or once.sig.sizes[roles.k[-1]] != tile.extents[2]:
        return None
    k = roles.k[-1]
    sig = once.sig
    twice = tile_domain(
        sig, [(k, tile.vnni)], lambda j: _k_first(sig, j, k), lambda _, __: "-", range(sig.rank)
    )
    if twice is None:
        return None
    (lhs, rhs), (lhs_again, rhs_again) = once.operands, twice.operands
    if lhs is None or rhs is None or lhs_again is None or rhs_again is None:
        return None
    return PackedTwice(lhs, lhs_again, rhs, rhs_again, twice.sig, once.result)


def _k_first(g: Generic, operand: int, k: int) -> tuple[int, ...]:
    """The order of a packed right operand's dims with the k tile before the n tile."""
    dims = list(range(len(g.maps[operand])))
    if operand == 0:
        return tuple(dims)
    blocks = len(dims) - tile_dims(g, operand)
    (at,) = (q for q in dims if g.maps[operand][q].dim == k)
    return (*dims[:blocks], at, *(q for q in dims[blocks:] if q != at))


@lru_cache(maxsize=100_000)
def _packed_by(
    g: Generic, tile: Tile, cuts: tuple[tuple[str, tuple[int, int]], ...]
) -> PackedLoops | None:
    """`_packed` by the tile's own plan; asked for again by every layout an operand is read in."""
    plan = _plan(g, tile)
    return None if plan is None else _packed(g, plan, dict(cuts))


# ---- plans ----------------------------------------------------------------------------------
@lru_cache(maxsize=100_000)
def _plan(g: Generic, tile: Tile) -> _Packing | None:
    roles = contraction_roles(g)
    if roles is None or g.tile != tile.inside or not roles.k:
        return None
    if g.tile:
        return _plan_inside(g, roles, tile)
    m, n, k = tile.extents
    if "c" not in dict(tile.sizes):
        rank = _ranks(roles.batch, roles.m, roles.n, roles.k)
        order = PANEL if tile.panel else tile.order
        return _Packing(roles, {"m": m, "n": n, "k": k}, order, rank, tile)
    conv = convolution(g)
    if conv is None:
        return None
    extents = {"m": m, "n": n, "k": k} if conv.image == 0 else {"m": n, "n": m, "k": k}
    rank = panel_rank(conv) if tile.panel else block_rank(conv)
    return _Packing(roles, extents, ("k", "m", "n"), rank, tile)


def _ranks(*groups: Sequence[int]) -> dict[int, int]:
    return {d: i for i, d in enumerate(d for g in groups for d in g)}


def _plan_inside(g: Generic, roles: Roles, tile: Tile) -> _Packing | None:
    """How a tile cuts the inner loops of a packed contraction; None if it would cut others.

    Blocks stay around what lies inside, in both in the order m, n, k.
    """
    inner = inner_loops(g)
    depth = {d: i for r in ROLES for i, d in enumerate(getattr(roles, r))}
    order = [*roles.batch, *roles.m, *roles.n, *roles.k]
    rank = _ranks(sorted(order, key=lambda d: (d in inner, depth.get(d, -1))))
    plan = _Packing(roles, dict(zip(ROLES, tile.extents, strict=True)), PANEL, rank, tile)
    return plan if all(d in inner for d, _ in _innermost(g, plan).values()) else None


def _innermost(g: Generic, plan: _Packing) -> Cuts:
    """Per role the last loop that is not of extent 1, if the tile cuts the role at all."""
    cuts: Cuts = {}
    for role, extent in plan.extents.items():
        loops = [d for d in getattr(plan.roles, role) if g.sizes[d] > 1]
        if loops and extent > 1:
            cuts[role] = (loops[-1], extent)
    return cuts


def _waste(g: Generic, d: int, extent: int) -> float:
    """Padded extent of a loop, as a multiple of its own."""
    return cdiv(g.sizes[d], extent) * extent / g.sizes[d]


def _padded_size(g: Generic, cuts: Cuts) -> int:
    size = 1
    for role in ("m", "n"):
        if role in cuts:
            d, t = cuts[role]
            size *= g.sizes[d] + -g.sizes[d] % t
    return size


def _packed(g: Generic, plan: _Packing, cuts: Cuts) -> PackedLoops | None:
    tiling = [cuts[r] for r in plan.order if r in cuts]
    if not tiling:
        return None
    padded = any(d >= g.rank and g.sizes[d] % t for d, t in tiling)
    if padded and not NO_ZERO.isdisjoint(g.dtypes):
        return None  # nothing can stand beyond the end of k
    rank = plan.rank
    tiled = tile_domain(
        g,
        tiling,
        lambda j: block_order_of(g.maps[j], rank),
        lambda _, d: "0" if d >= g.rank else "?",
        sorted(range(g.rank), key=lambda d: rank.get(d, -1)),
        tuple(plan.extents[r] for r in ROLES),
    )
    if tiled is None or tiled.result is None or not _is_streamed(tiled.sig, plan):
        return None
    return PackedLoops(tiled.operands, tiled.sig, tiled.result)


def _is_streamed(g: Generic, plan: _Packing) -> bool:
    return is_streamed(g, plan.tile, plan.extents)


# ---- reading an operand as it lies ----------------------------------------------------------
def pack_loops_reading(g: Generic, i: int, layout: Layout, tile: Tile) -> ReadLoops | None:
    """Pack a contraction so that operand i is read in the layout it has.

    The layout must have the tile's extents on an m or n loop; on a k loop any multiple will do,
    because a kernel walks a longer k tile step by step. So the result of one contraction, whose
    tile dims are m and n, is an operand of the next one wherever its k divides n. Blocks and tile
    dims may come in any order among themselves. The row's layout has zeros beyond the end of k.
    """
    plan = _plan(g, tile) if tile.is_single else None
    cuts = None if plan is None else _cuts_of(g, plan, i, layout)
    packed = None if cuts is None else _packed_by(g, tile, tuple(cuts.items()))
    mine = None if packed is None else packed.operands[i]
    if packed is None or mine is None:
        return None
    order = block_order(layout, mine)
    sig = None if order is None else permute_operand(packed.sig, i, order)
    if sig is None or plan is None or not _is_streamed(sig, plan):
        return None
    others = packed.operands
    return ReadLoops(others[:i], _with_zeros(layout, mine), others[i + 1 :], sig, packed.result)


def pack_loops_reading_data(g: Generic, i: int, layout: Layout, tile: Tile) -> ReadLoops | None:
    """`pack_loops_reading` for data that is there and needs no padding written.

    Where lanes are open, values that differ there are different data, and every reader would come
    once per value: then the operand is read as the pack they all serve as.
    """
    packed = None if is_open(layout) else pack_loops_reading(g, i, layout, tile)
    return None if packed is None or packed.layout != layout else packed


def pack_loops_reading_pack(g: Generic, i: int, layout: Layout, tile: Tile) -> ReadLoops | None:
    """`pack_loops_reading` for data with open lanes or with other padding than zeros along k."""
    packed = pack_loops_reading(g, i, layout, tile)
    return None if packed is None or (packed.layout == layout and not is_open(layout)) else packed


def _cuts_of(g: Generic, plan: _Packing, i: int, layout: Layout) -> Cuts | None:
    """The cuts a layout of operand i stands for; the other operand's role is cut by the tile."""
    role_of = {d: r for r in ROLES for d in getattr(plan.roles, r)}
    cuts: Cuts = {}
    for q, t in zip(layout.pos, layout.tiles, strict=True):
        d = g.maps[i][q].dim
        role = None if d is None else role_of.get(d)
        if d is None or role is None or role in cuts or g.sizes[d] == 1 or t == 1:
            return None
        if t % plan.extents[role] or (role != "k" and t != plan.extents[role]):
            return None
        if plan.tile.panel and t != plan.extents[role]:
            return None
        cuts[role] = (d, t)
    for role, cut in _innermost(g, plan).items():
        if role in cuts:
            continue
        if role != ("m" if i else "n"):
            return None
        cuts[role] = cut
    return cuts


def _with_zeros(layout: Layout, wanted: Layout) -> Layout:
    """The layout with zeros beyond the end of k."""
    needs = {d for d, p in zip(wanted.pos, wanted.pads, strict=True) if p == "0"}
    held = zip(layout.pos, layout.pads, strict=True)
    return replace(layout, pads=tuple("0" if d in needs else p for d, p in held))


FUNCTIONS = attr_functions(
    pack_loops, pack_other_loops, swap_loops, pack_loops_twice, pack_loops_reading,
    pack_loops_reading_data, pack_loops_reading_pack,
)  # fmt: skip
