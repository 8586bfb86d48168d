"""Roles of the loops of a contraction (MLIR's `inferContractionDims`): batch, m, n and k.

The innermost roles of an operand decide what a kernel can stream: `kn` is a k dim and, innermost,
an n dim; `k·n32` a k dim and then a tile of 32 of n.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from eqsat.model.affine import Map, map_loops
from eqsat.model.attr import Attr
from eqsat.model.generic import Generic, factors_of
from eqsat.model.leaves import Custom
from eqsat.model.target import MOVES, Tile


@dataclass(frozen=True)
class Roles:
    """Loops by role, ascending; loops that occur in non-bare expressions (windows) are `other`."""

    batch: tuple[int, ...]
    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]
    other: tuple[int, ...]


def bare_dims(m: Map) -> set[int]:
    """Loops that are a whole result of this map."""
    return {e.dim for e in m if e.dim is not None}


def mixed_dims(m: Map) -> set[int]:
    """Loops inside expressions like `d0 + d3` or `2*d0`."""
    return {d for e in m if e.dim is None for d, _ in e.terms}


@lru_cache(maxsize=100_000)
def contraction_roles(g: Generic) -> Roles | None:
    """The roles of a sum of products of two operands, or None if `g` is not one.

    Casts around the operands and the product are allowed (mixed-precision contractions).
    """
    if len(g.maps) != 2 or len(g.yields) != 1 or g.combine != "add":
        return None
    factors = factors_of(g.body)
    if factors is None or factors[0].value == factors[1].value:
        return None
    return _roles(g)


def _roles(g: Generic) -> Roles | None:
    lhs, rhs = g.maps
    mixed = mixed_dims(lhs) | mixed_dims(rhs)
    a, b = bare_dims(lhs) - mixed, bare_dims(rhs) - mixed
    parallel, reduced = set(range(g.rank)), set(g.reductions)
    roles = [a & b & parallel, (a - b) & parallel, (b - a) & parallel, a & b & reduced]
    rest = set(range(len(g.sizes))) - set().union(*roles)
    batch, m, n, k, other = (tuple(sorted(r)) for r in (*roles, rest))
    return Roles(batch, m, n, k, other)


@lru_cache(maxsize=100_000)
def inner_loops(g: Generic) -> frozenset[int]:
    """The loops of a packed contraction that run over one tile; empty if `g` is not packed.

    A loop of a role was cut if the tile has an extent there; the cut part is the role's last loop.
    """
    roles = contraction_roles(g)
    if roles is None or len(g.tile) != 3:
        return frozenset()
    m, n, k = g.tile
    inner = [
        loops[-1]
        for loops, extent in ((roles.m, m), (roles.n, n))
        if len(loops) > 1 and extent > 1 and g.sizes[loops[-1]] == extent
    ]
    return frozenset(inner + _inner_k(g, roles.k, k, inner))


def _inner_k(g: Generic, loops: tuple[int, ...], k: int, tiles: list[int]) -> list[int]:
    """The loops a k tile became: one, of a multiple of the extent, or two (a second-level pack).

    With an extent of 1 the last k loop may be a block of another k loop; it is one of a tile if
    some operand has it behind a tile dim.
    """
    if len(loops) < 2 or g.sizes[loops[-1]] == 1:
        return []
    last = g.sizes[loops[-1]]
    if k == 1 and not any(_is_behind([e.dim for e in m], loops[-1], tiles) for m in g.maps):
        return []
    if last % k == 0:
        return [loops[-1]]
    is_split = len(loops) > 2 and g.sizes[loops[-2]] * last == k
    return list(loops[-2:]) if is_split else []


def _is_behind(dims: list[int | None], loop: int, tiles: list[int]) -> bool:
    return loop in dims and any(t in dims[: dims.index(loop)] for t in tiles)


def tile_dims(g: Generic, operand: int | None) -> int:
    """How many trailing dims of an operand (None: of the result) run over one tile."""
    inner = inner_loops(g)
    loops = range(g.rank) if operand is None else [e.dim for e in g.maps[operand]]
    return sum(d in inner for d in loops)


def kind(op: str, attr: Attr) -> str:
    """The kind of an op as fusion sees it (see `model.target.KINDS`), or view, leaf, transfer."""
    if op == "generic":
        assert isinstance(attr, Generic)
        if attr.rank == len(attr.sizes):
            return "elementwise"
        return "contraction" if contraction_roles(attr) else "reduction"
    return attr.fusion if isinstance(attr, Custom) else attr.ops[op]


def join_kind(op: str, attr: Attr, operand: int | None = None) -> str:
    """The kind by which `fusion.join` knows an op, as one that reads this operand if one is given.

    Moves are told by their names, and the table of a gather; contractions with windows are
    convolutions. If all results of a reduction or contraction read elements of their own, it is a
    `row_reduction` or a `matvec`.
    """
    what = kind(op, attr)
    if what == "move":
        return "table" if (op, operand) == ("gather", 0) else op if op in MOVES else what
    if operand is None or not isinstance(attr, Generic) or what == "elementwise":
        return what
    if any(len(a.terms) > 1 for m in attr.maps for a in m):
        return "convolution" if what == "contraction" else what
    own = {d for d in range(attr.rank) if attr.sizes[d] > 1} <= {*map_loops(attr.maps[operand])}
    return {"contraction": "matvec", "reduction": "row_reduction"}[what] if own else what


Order = tuple[tuple[str, int], ...]  # (role, extent of a tile; 0: a whole loop or its blocks)
_ONE = re.compile(r"([mnk])([1-9]\d*)?")


@lru_cache(maxsize=1_000)
def innermost(text: str) -> Order:
    """The roles that a text names, outermost first; ValueError if it is no such text.

    >>> innermost("k·n32")
    (('k', 0), ('n', 32))
    """
    plain = text.replace("·", "").replace(" ", "")
    order = tuple((role, int(extent or 0)) for role, extent in _ONE.findall(plain))
    if not order or _ONE.sub("", plain) or len({r for r, _ in order}) < len(order):
        raise ValueError(f"`{text}` is no order of roles")
    return order


def is_streamed(g: Generic, tile: Tile, extents: dict[str, int]) -> bool:
    """Whether a packed contraction lies as the kernel of its tile streams it.

    extents: per role what the tile cuts; of a convolution whose image is the right operand, m and
    n are exchanged. A panel has the dim it cuts innermost, behind the one that is summed over.
    """
    asked = dict(enumerate(o for o in (tile.lhs, tile.rhs)))
    orders = {i: innermost(o) for i, o in asked.items() if o}
    if tile.panel:
        for i, role in enumerate(("m", "n")):
            if extents[role] > 1:
                orders.setdefault(i, (("k", extents["k"] if extents["k"] > 1 else 0),
                                      (role, extents[role])))  # fmt: skip
    return all(lies_in_order(g, i, order) for i, order in orders.items())


def lies_in_order(g: Generic, operand: int, order: Order) -> bool:
    """Whether the innermost dims of an operand have these roles; those it has none of left out."""
    roles = list(_from_inside(g, operand))
    there = {role for role, _ in roles}
    wanted = [w for w in reversed(order) if w[0] in there]
    return roles[: len(wanted)] == wanted


def _from_inside(g: Generic, operand: int) -> Iterator[tuple[str, int]]:
    """Role and tile extent (0: none) of the dims, innermost first, neighbours of a role as one."""
    roles = contraction_roles(g)
    assert roles is not None, "only contractions are streamed"
    named = {d: r for r in ("batch", "m", "n", "k") for d in getattr(roles, r)}
    inside, last = inner_loops(g), ("", 0)
    for e, size in zip(reversed(g.maps[operand]), reversed(g.shapes[operand]), strict=True):
        if size == 1:
            continue
        # a window's loops are summed over, or walk the places of an image: these are no role's
        role = named.get(e.dim, "k") if e.dim is not None else "window"
        one = (role, g.sizes[e.dim] if e.dim is not None and e.dim in inside else 0)
        if one != last or one[1]:
            yield one
        last = one
