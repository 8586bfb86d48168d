"""Direct relayout: one layout turned into another one without going through the plain tensor.

What comes in is a pair of layouts of one tensor, what goes out is how to get from the data packed
by the first to the data packed by the second: a reshape, a transpose, a reshape, each left out
where it does nothing. Section numbers are those of docs/rules.md.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from eqsat.model.layout import Layout
from eqsat.model.movement import Reshape
from eqsat.model.tensor import cdiv
from eqsat.ops.declare import attr_functions
from eqsat.ops.lists import is_open, same_tiles

Part = tuple[int, int, int]  # (dim of the plain tensor, its digit from the major one, extent)


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
    found = _digits(m, n)
    if found is None:
        return None
    mine, wanted, relaxed = found
    if mine == wanted:
        view = Reshape(m.packed_shape, n.packed_shape)
        return Relayout(None if view.source == view.shape else view, None, None, relaxed)
    perm = block_order(m, n)
    return None if perm is None else Relayout(None, perm, None, relaxed)


def retile(m: Layout, n: Layout) -> Relayout | None:
    """How data packed by m becomes data packed by n if tiles are cut or put together.

    Per dim one tile divides the other and both complete the same padded extent; the lanes beyond
    the end hold what n asks for. None where `relayout` knows better.
    """
    found = _digits(m, n)
    if found is None or found[0] == found[1] or block_order(m, n) is not None:
        return None
    mine, wanted, relaxed = found
    groups, order = _merged(mine, wanted)
    split = tuple(math.prod(extent for _, _, extent in g) for g in groups)
    moved = tuple(split[i] for i in order)
    return Relayout(
        Reshape(m.packed_shape, split) if split != m.packed_shape else None,
        tuple(order),
        Reshape(moved, n.packed_shape) if moved != n.packed_shape else None,
        relaxed,
    )


def _digits(m: Layout, n: Layout) -> tuple[list[Part], list[Part], Layout | None] | None:
    """Both packed indices in digits but for those of extent 1; n if it leaves lanes open."""
    if m.source != n.source or same_tiles(m, n) or not _keeps_pads(m, n):
        return None
    before, after = _parts(m, n), _parts(n, m)
    if before is None or after is None:
        return None
    mine, wanted = ([p for p in parts if p[2] != 1] for parts in (before, after))
    return mine, wanted, n if "?" in n.pads else None


def _keeps_pads(m: Layout, n: Layout) -> bool:
    """Whether every lane beyond the end holds what n asks for, if it holds what m says."""
    held, asked = (dict(zip(x.pos, x.pads, strict=True)) for x in (m, n))
    dims = held.keys() | asked.keys()
    return all(asked.get(d, "-") in ("?", held.get(d, "-")) for d in dims)


def _parts(one: Layout, other: Layout) -> list[Part] | None:
    """The digits of the packed index of `one`, cut so that `other` has the same digits."""
    mine, theirs = (dict(zip(x.pos, x.tiles, strict=True)) for x in (one, other))
    outer: list[Part] = []
    inner: dict[int, list[Part]] = {}
    for d in one.outer:
        a, b = mine.get(d, 1), theirs.get(d, 1)
        large, small = max(a, b), min(a, b)
        extent = cdiv(one.source[d], a) * a
        if large % small or extent != cdiv(one.source[d], b) * b:
            return None
        major, middle, minor = (d, 0, extent // large), (d, 1, large // small), (d, 2, small)
        outer += [major] if a == large else [major, middle]
        inner[d] = [middle, minor] if a == large else [minor]
    return outer + [p for d in one.pos for p in inner[d]]


def _merged(mine: list[Part], wanted: list[Part]) -> tuple[list[list[Part]], list[int]]:
    """Runs of digits that stay together, in the order of `mine`, and their order in `wanted`."""
    after = dict(itertools.pairwise(wanted))
    groups: list[list[Part]] = []
    for p in mine:
        if groups and after.get(groups[-1][-1]) == p:
            groups[-1].append(p)
        else:
            groups.append([p])
    heads = {g[0]: i for i, g in enumerate(groups)}
    return groups, [heads[p] for p in wanted if p in heads]


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


FUNCTIONS = attr_functions(closed, relayout, retile)
