"""Requested layouts: whose operand a tensor is, carried along as it moves, and resolved to packs.

Pure functions on attributes; None means that the encoding cannot be carried there. An encoding
changes no value, so every move is true; what a move must not lose is which dim of the tensor is
which loop of the contraction, or the pack it becomes is not the one the contraction reads.
Source: IREE Dialect/Encoding, DispatchCreation/SetEncoding.cpp and HoistEncodingOps.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from eqsat.model.affine import Map, dim
from eqsat.model.attr import Shape
from eqsat.model.expr import Expr, arg, cast
from eqsat.model.generic import Generic, Yield
from eqsat.model.layout import ROLES, Encoding, Layout
from eqsat.model.movement import Move, Reshape
from eqsat.model.target import Target, Tile
from eqsat.model.tensor import DEFAULT
from eqsat.ops.contractions.packing import pack_loops
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_generic
from eqsat.ops.movement.layout import make_layout, reassociation
from eqsat.ops.movement.lists import inverse
from eqsat.ops.targets.tiles import tiles_of

LARGE = 1 << 20  # an extent that is not known counts as large and divisible, as in IREE
Encodings = tuple[Encoding | None, ...]  # per operand; None: nothing is requested of it


@dataclass(frozen=True)
class EncodedContraction:
    """Encodings that a contraction requests of its operands and of its result."""

    left: Encoding
    right: Encoding
    result: Encoding


@dataclass(frozen=True)
class EncodedOperands:
    """Encodings that a generic requests of its operands, so that its result has one."""

    operands: Encodings


@dataclass(frozen=True)
class EncodedResult:
    """A generic that reads one operand encoded; `before` and `after` are the operands around it."""

    before: Encodings
    after: Encodings
    result: Encoding


# ---- the contraction behind an encoding --------------------------------------------------------
def explicit(e: Encoding) -> Encoding | None:
    """The encoding with its maps and the extents this tensor shows written out."""
    maps = e.maps or _plain_maps(e)
    if maps is None:
        return None
    operand_map = maps[ROLES.index(e.role)]
    loops = {d for m in maps for a in m for d, _ in a.terms}
    sizes = list(e.sizes or (0,) * (max(loops, default=-1) + 1))
    for size, d in zip(e.source, e.held, strict=True):
        loop = operand_map[d].dim if d >= 0 else None
        if loop is not None and not sizes[loop]:
            sizes[loop] = size
    return replace(e, sizes=tuple(sizes), maps=maps)


def _plain_maps(e: Encoding) -> tuple[Map, ...] | None:
    """Of a matmul: batch dims, then m and k, k and n, m and n."""
    rank = len(e.source)
    if e.role not in ROLES or e.contraction != "matmul" or e.dims or rank < 2:
        return None
    batch, (m, n, k) = range(rank - 2), range(rank - 2, rank + 1)
    sides = ((m, k), (k, n), (m, n))
    return tuple(tuple(dim(d) for d in (*batch, *side)) for side in sides)


def encoded_contraction(e: Encoding) -> Generic | None:
    """The contraction an encoding speaks of; None if its maps or element types are not known."""
    full = explicit(e)
    if full is None or len(full.dtypes) != len(ROLES):
        return None
    result_loops = [a.dim for a in full.maps[-1]]
    loops = [d for d in result_loops if d is not None]
    if len(loops) < len(result_loops) or len(set(loops)) < len(loops):
        return None
    sizes = [s or LARGE for s in full.sizes]
    shapes = [_extents(m, sizes) for m in full.maps[:2]]
    dtype = full.dtypes[-1]
    factors = [arg(i) if t == dtype else cast(arg(i), dtype) for i, t in enumerate(full.dtypes[:2])]
    product = Yield(Expr("mul", tuple(factors)), dtype, "add")
    maps = full.maps[:2]
    return canonical_generic(
        sizes, loops, maps, shapes, (product,), (), full.dtypes[:2], precision=DEFAULT
    )


def _extents(m: Map, sizes: Sequence[int]) -> Shape:
    """The smallest operand a map stays inside of."""
    return tuple(1 + a.constant + sum(s * (sizes[d] - 1) for d, s in a.terms) for a in m)


def encode_contraction(g: Generic) -> EncodedContraction | None:
    """Encodings that an unpacked contraction requests of its operands and of its result.

    After IREE's SetEncoding, which sets all of them.
    """
    roles = contraction_roles(g)
    if roles is None or g.tile or not roles.k:
        return None
    name = "conv2d" if roles.other else "matmul"
    maps = (*g.maps, tuple(dim(d) for d in range(g.rank)))
    dtypes = (*g.dtypes, g.yields[0].dtype)
    shapes = (*g.shapes, g.result_shape)
    encodings = [
        Encoding(shape, role, name, dtypes, g.sizes, maps)
        for shape, role in zip(shapes, ROLES, strict=True)
    ]
    return EncodedContraction(*encodings)


def encode_for_tile(g: Generic, tile: Tile) -> EncodedContraction | None:
    """`encode_contraction`, if the contraction can be packed by this tile."""
    return encode_contraction(g) if pack_loops(g, tile) is not None else None


def is_plain_contraction(g: Generic) -> bool:
    """At most one batch, m, n and k loop beyond size 1, no window: what IREE gives encodings."""
    roles = contraction_roles(g)
    if roles is None or roles.other or not roles.k:
        return False
    return all(
        sum(g.sizes[d] > 1 for d in loops) <= 1
        for loops in (roles.batch, roles.m, roles.n, roles.k)
    )


# ---- into packs ----------------------------------------------------------------------------------
def encoding_tiles(target: Target, e: Encoding) -> tuple[Tile, ...]:
    """The target's tiles for the contraction behind an encoding; none if it does no data tiling."""
    g = encoded_contraction(e)
    return () if g is None else tiles_of(target, g)


def no_encoding_tiles(_: Encoding) -> tuple[Tile, ...]:
    """The target's tiles for the contraction behind an encoding."""
    return ()


def encoding_layout(e: Encoding, tile: Tile) -> Layout | None:
    """The layout the contraction would read (or write) this tensor in at a tile (mmt4d's).

    None if the tile cuts no dim that this tensor has.
    """
    g = encoded_contraction(e)
    packed = None if g is None else pack_loops(g, tile)
    if packed is None:
        return None
    whole = (*packed.operands, packed.result)[ROLES.index(e.role)]
    return None if whole is None else _restricted(whole, e)


def _restricted(layout: Layout, e: Encoding) -> Layout | None:
    """A layout of the operand, for a tensor with some of its dims: what propagation induces."""
    at = {d: q for q, d in enumerate(e.held) if d >= 0}
    tiled = [i for i, d in enumerate(layout.pos) if d in at]
    if not tiled:
        return None
    order = list(range(len(e.source)))
    by_place = [at[d] for d in layout.outer if d in at]
    for slot, q in zip(sorted(at.values()), by_place, strict=True):
        order[slot] = q
    pos = [at[layout.pos[i]] for i in tiled]
    tiles = [layout.tiles[i] for i in tiled]
    return make_layout(e.source, pos, tiles, order, [layout.pads[i] for i in tiled])


# ---- along movement ------------------------------------------------------------------------------
def _carried(e: Encoding, source: Shape, held: Sequence[int]) -> Encoding | None:
    """The encoding on another tensor; None if nothing of it would be left."""
    if all(d < 0 for d in held):
        return None
    plain = tuple(held) == tuple(range(len(source)))
    return replace(e, source=source, dims=() if plain else tuple(held))


def encoding_before(e: Encoding, by: tuple[int, ...] | Reshape | Move) -> Encoding | None:
    """E' with set_encoding(f(x), E) = f(set_encoding(x, E')) for a transpose, reshape, pad …"""
    if isinstance(by, tuple):
        return _permuted(e, inverse(by))
    if isinstance(by, Reshape):
        return _across(e, by.shape, by.source)
    return _resized(e, by, by.shape, by.sources[0])


def encoding_after(e: Encoding, by: tuple[int, ...] | Reshape | Move) -> Encoding | None:
    """E' with f(unset_encoding(y, E)) = unset_encoding(f(y), E'), for the same f."""
    if isinstance(by, tuple):
        return _permuted(e, by)
    if isinstance(by, Reshape):
        return _across(e, by.source, by.shape)
    return _resized(e, by, by.sources[0], by.shape)


def _permuted(e: Encoding, perm: tuple[int, ...]) -> Encoding | None:
    full = explicit(e)
    if full is None:
        return None
    source = tuple(e.source[i] for i in perm)
    return _carried(full, source, [e.held[i] for i in perm])


def encode_operands(g: Generic, e: Encoding) -> EncodedOperands | None:
    """Encodings of the operands of an elementwise generic for its result to be encoded.

    The element type may change on the way: the encoding stays that of the contraction.
    """
    full = explicit(e)
    if full is None or not _is_parallel(g):
        return None
    operands = tuple(_through_map(full, e.held, g, j) for j in range(len(g.maps)))
    return EncodedOperands(operands) if any(operands) else None


def encode_result(g: Generic, i: int, e: Encoding) -> EncodedResult | None:
    """Read operand i encoded: the encodings of the other operands and of the result.

    Every dim the encoding knows must be a loop of its own, or it would not be known afterwards.
    """
    full = explicit(e)
    if full is None or not _is_parallel(g):
        return None
    held = [-1] * g.rank
    for q, d in enumerate(e.held):
        loop = g.maps[i][q].dim
        if d < 0:
            continue
        if loop is None or held[loop] >= 0 or g.sizes[loop] != g.shapes[i][q]:
            return None
        held[loop] = d
    result = _carried(full, g.result_shape, held)
    if result is None:
        return None
    others = tuple(_through_map(full, held, g, j) for j in range(len(g.maps)))
    return EncodedResult(others[:i], others[i + 1 :], result)


def _is_parallel(g: Generic) -> bool:
    return g.rank == len(g.sizes) and len(g.yields) == 1 and not g.tile


def _through_map(e: Encoding, held: Sequence[int], g: Generic, j: int) -> Encoding | None:
    """Encoding of operand j if the loops hold the dims `held`; an absent dim is a broadcast."""
    dims = []
    for a, size in zip(g.maps[j], g.shapes[j], strict=True):
        full = a.dim is not None and g.sizes[a.dim] == size
        dims.append(held[a.dim] if full and a.dim is not None else -1)
    mine = [d for d in dims if d >= 0]
    return _carried(e, g.shapes[j], dims) if len(set(mine)) == len(mine) else None


def _across(e: Encoding, mine: Shape, other: Shape) -> Encoding | None:
    """A dim that is known must stay whole: only dims of size 1 may come, go or stand beside it."""
    full, pairs = explicit(e), reassociation(mine, other)
    if full is None or pairs is None:
        return None
    held = [-1] * len(other)
    for left, right in pairs:
        tied = [q for q in left if e.held[q] >= 0]
        large = [[q for q in left if mine[q] != 1], [q for q in right if other[q] != 1]]
        if not tied:
            continue
        if max(map(len, large)) > 1:
            return None
        for q, r in zip(*large, strict=True):
            held[r] = e.held[q]
        units = [q for q in tied if mine[q] == 1]
        for q, r in zip(units, (r for r in right if other[r] == 1), strict=False):
            held[r] = e.held[q]
    return _carried(full, other, held)


def _resized(e: Encoding, move: Move, mine: Shape, other: Shape) -> Encoding | None:
    """Only dims that are no loop of the contraction may change: windows (spatial dims) and others.

    A padded m, n or k dim is refused: the encoding speaks of the padded extent.
    """
    full = explicit(e)
    if full is None or move.op not in ("pad", "slice"):
        return None
    operand_map = full.maps[ROLES.index(e.role)]
    for d, a, b in zip(e.held, mine, other, strict=True):
        if a != b and d >= 0 and operand_map[d].dim is not None:
            return None
    return _carried(full, other, e.held)


FUNCTIONS = attr_functions(
    ("target.encoding_tiles", no_encoding_tiles),
    encoding_layout,
    encode_for_tile,
    is_plain_contraction,
    ("write_behind", encode_operands),
    ("read_before", encode_result),
    encoding_before,
    encoding_after,
)
