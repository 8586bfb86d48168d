"""Values that were spread out, by a broadcast or a repeat, in front of a contraction.

What a contraction computes of the same row several times it computes once; the result is spread out
instead. Source: XLA's AlgebraicSimplifier (dot of broadcast), Enzyme-JAX (dot of broadcast_in_dim).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.model.affine import dim, map_loops
from eqsat.model.attr import Shape
from eqsat.model.expr import arg
from eqsat.model.generic import Generic, Yield
from eqsat.model.movement import Move, Reshape
from eqsat.model.precision import NONE
from eqsat.ops.algebra.repeats import SplitSum, joined_loop, parts_in_sum
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_generic, compose_maps, identity


@dataclass(frozen=True)
class SpreadBehind:
    """x in other dims, the contraction of it, and how its result is split, spread and joined."""

    read: Reshape | None
    sig: Generic
    split: Reshape | None
    spread: Generic
    join: Reshape | None


def read_unspread(g: Generic, i: int, e: Generic) -> Generic | None:
    """The contraction that reads x where operand i spreads it out along loops of its result.

    Where the other operand has these loops, as grouped queries have, they are its own then; where
    it has not, nothing varies along them, and `compute-once` takes them out.
    """
    if not _is_spread(e) or contraction_roles(g) is None or g.tile or 0 in g.sizes:
        return None
    maps = list(g.maps)
    maps[i] = compose_maps(e.maps[0], g.maps[i])
    if not set(g.reductions) & map_loops(g.maps[i]) <= map_loops(maps[i]):
        return None  # what is the same along a sum is for `algebra/sums`
    shapes = [e.shapes[0] if j == i else s for j, s in enumerate(g.shapes)]
    return canonical_generic(
        g.sizes, range(g.rank), maps, shapes, g.yields, (), g.dtypes, precision=g.precision
    )


def _is_spread(e: Generic) -> bool:
    """A copy of whole dims of its operand, in order, with others between that only repeat it."""
    if len(e.maps) != 1 or len(e.yields) != 1 or e.reductions or e.tile or 0 in e.sizes:
        return False
    loops = [x.dim for x in e.maps[0]]
    kept = [d for d in loops if d is not None]
    is_copy = e.body == arg(0) and e.yields[0].dtype == e.dtypes[0]
    whole = len(kept) == len(loops) and [e.sizes[d] for d in kept] == list(e.shapes[0])
    return is_copy and whole and kept == sorted(set(kept)) and len(kept) < e.rank


def spread_behind(g: Generic, i: int, joined: Reshape, e: Generic) -> SpreadBehind | None:
    """The same where dims that repeat were joined with others: rows that are there n times."""
    if not _is_spread(e) or contraction_roles(g) is None or g.tile or 0 in g.sizes:
        return None
    groups = _groups(joined)
    if groups is None:
        return None
    kept = map_loops(e.maps[0])
    own = {q: ds for q, ds in enumerate(groups) if any(d not in kept for d in ds)}
    loops = {g.maps[i][q].dim: ds for q, ds in own.items()}
    if not all(_is_free(g, i, q) for q in own):
        return None
    inside = [math.prod(e.sizes[d] for d in ds if d in kept) for ds in groups]
    sizes = [
        math.prod(e.sizes[m] for m in loops[d] if m in kept) if d in loops else s
        for d, s in enumerate(g.sizes)
    ]
    shapes = [tuple(inside) if j == i else s for j, s in enumerate(g.shapes)]
    sig = canonical_generic(
        sizes, range(g.rank), g.maps, shapes, g.yields, (), g.dtypes, precision=g.precision
    )
    # extents of the result before it is joined, and whether they are there before it is spread
    fine = [
        part
        for d, s in enumerate(g.result_shape)
        for part in ([(e.sizes[m], m in kept) for m in loops[d]] if d in loops else [(s, True)])
    ]
    spread = _spread([s for s, _ in fine], [n for n, (_, is_kept) in enumerate(fine) if is_kept], g)
    return SpreadBehind(
        _reshape(e.shapes[0], tuple(inside)), sig, _reshape(sig.result_shape, spread.shapes[0]),
        spread, _reshape(spread.result_shape, g.result_shape),
    )  # fmt: skip


def _groups(joined: Reshape) -> list[list[int]] | None:
    """Per dim of the result, the dims that were joined; None of any other reshape."""
    found: list[list[int]] = []
    at = 0
    for size in joined.shape:
        own, extent = [], 1
        while at < len(joined.source) and (not own or extent < size):
            extent *= joined.source[at]
            own.append(at)
            at += 1
        if extent != size:
            return None
        found.append(own)
    return found if at == len(joined.source) else None


def _is_free(g: Generic, i: int, q: int) -> bool:
    """Whether dim q of operand i is walked by a loop of the result that nothing else has."""
    d = g.maps[i][q].dim
    walked = sum(loop == d for m in g.maps for e in m for loop, _ in e.terms)
    return d is not None and d < g.rank and walked == 1 and g.sizes[d] == g.shapes[i][q]


def _spread(sizes: Sequence[int], kept: Sequence[int], g: Generic) -> Generic:
    """The copy over these loops of a value that has some of them."""
    t = g.yields[0].dtype
    shape = tuple(sizes[d] for d in kept)
    return canonical_generic(
        sizes, range(len(sizes)), [tuple(map(dim, kept))], [shape], [Yield(arg(0), t)], (), (t,),
        precision=NONE,
    )  # fmt: skip


def _reshape(source: Shape, shape: Shape) -> Reshape | None:
    return None if source == shape else Reshape(source, shape)


def split_spread(g: Generic, i: int, concat: Move, e: Generic) -> SplitSum | None:
    """concat(x, spread) @ y as a sum of two, if a part of it is spread out along free loops."""
    loop = joined_loop(g, i, concat)
    if loop is None or not _is_spread(e) or e.maps[0] == identity(e.rank):
        return None
    kept = map_loops(e.maps[0])
    idle = [d for d in range(e.rank) if d not in kept and e.sizes[d] > 1]
    if concat.args[0] not in kept or not any(_is_free(g, i, d) for d in idle):
        return None
    return parts_in_sum(g, i, concat)


FUNCTIONS = attr_functions(read_unspread, spread_behind, split_spread)
