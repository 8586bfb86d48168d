"""Repetition: loops that run backwards, equal operands of a concat, and broadcasts and repeats.

What a contraction computes of the same row several times it computes once; the result is spread out
instead. Sources: XLA's AlgebraicSimplifier (dot of concatenate, of reverse, of broadcast),
Enzyme-JAX (dot of broadcast_in_dim).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.model.affine import Affine, Map, affine, dim, map_loops
from eqsat.model.expr import arg, call
from eqsat.model.generic import Generic, Yield
from eqsat.model.movement import Move, Reshape
from eqsat.model.tensor import NONE
from eqsat.ops.algebra.einsum import einsum_of
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_generic, compose_maps, identity
from eqsat.ops.generics.windows import LoopRange, restricted
from eqsat.ops.movement.collapse import reshape_to
from eqsat.ops.movement.moves import concat_of


# ---- reverse and concat --------------------------------------------------------------------------
@dataclass(frozen=True)
class Turned:
    """An op that reads forwards, and the copy that reverses its result."""

    inner: Generic
    outer: Generic


@dataclass(frozen=True)
class RepeatedResult:
    """A contraction of one of two equal operands, and the concat of two such results."""

    sig: Generic
    concat: Move


@dataclass(frozen=True)
class SplitSum:
    """A sum in two parts: slices of the other operand, both contractions, their sum."""

    first: Move
    second: Move
    left: Generic
    right: Generic
    total: Generic


# ---- loops that run backwards --------------------------------------------------------------------
def turn_round(g: Generic) -> Turned | None:
    """The op that reads forwards what it read backwards, and the reversal of its result."""
    return _turned(g, range(g.rank))


def turn_sum_round(g: Generic) -> Generic | None:
    """The op that reduces forwards what it reduced backwards."""
    turned = _turned(g, g.reductions)
    return None if turned is None else turned.inner


def _turned(g: Generic, allowed: range) -> Turned | None:
    """With those of these loops turned round that run backwards wherever they are read."""
    if _is_copy(g) or len(g.yields) != 1 or g.tile or 0 in g.sizes:
        return None
    strides: dict[int, list[int]] = {}
    for m in g.maps:
        for e in m:
            for d, s in e.terms:
                strides.setdefault(d, []).append(s)
    back = {d for d, steps in strides.items() if max(steps) < 0 and g.sizes[d] > 1}
    back &= set(allowed)
    if not back:
        return None
    maps = [tuple(_reversed(e, back, g) for e in m) for m in g.maps]
    inner = canonical_generic(
        g.sizes, range(g.rank), maps, g.shapes, g.yields, (), g.dtypes, precision=g.precision
    )
    return Turned(inner, _copy(g, tuple(_reversed(e, back, g) for e in identity(g.rank)), inner))


def _reversed(e: Affine, loops: set[int], g: Generic) -> Affine:
    """The expression with these loops counted from their ends."""
    moved = sum(s * (g.sizes[d] - 1) for d, s in e.terms if d in loops)
    return affine([(d, -s if d in loops else s) for d, s in e.terms], e.constant + moved)


def _copy(g: Generic, m: Map, inner: Generic) -> Generic:
    """Copy that reads the result of `inner` by this map, in the shape of the result of g."""
    y = g.yields[0]
    return canonical_generic(
        g.result_shape, range(g.rank), [m], [inner.result_shape], [Yield(arg(0), y.dtype)], (),
        (y.dtype,), precision=NONE,
    )  # fmt: skip


def undoes(g: Generic, e: Generic) -> bool:
    """Whether a copy of a copy is the value itself, as a reversal of a reversal is."""
    if not (_is_copy(g) and _is_copy(e)) or g.result_shape != e.shapes[0]:
        return False
    return compose_maps(e.maps[0], g.maps[0]) == identity(g.rank)


def _is_copy(g: Generic) -> bool:
    """A generic that writes elements of its operand as they are."""
    is_one = len(g.maps) == len(g.yields) == 1 and not g.reductions and not g.tile
    return is_one and g.body == arg(0) and g.yields[0].dtype == g.dtypes[0]


# ---- operands that are there twice, or apart -----------------------------------------------------
def result_of_equal_parts(g: Generic, i: int, concat: Move) -> RepeatedResult | None:
    """concat(x, x) @ y = concat(x @ y, x @ y), along a loop that y has not."""
    loop = joined_loop(g, i, concat)
    if loop is None or loop >= g.rank or loop in map_loops(g.maps[1 - i]):
        return None
    sig = restricted(g, {loop: LoopRange(0, 1, concat.sources[0][concat.args[0]])}).sig
    return RepeatedResult(sig, concat_of([sig.result_shape] * 2, loop))


def split_sum(g: Generic, i: int, concat: Move) -> SplitSum | None:
    """concat(x, z) @ y = x @ y1 + z @ y2 where that moves less than putting x and z together."""
    is_small = 2 * math.prod(g.result_shape) < math.prod(concat.shape)
    return parts_in_sum(g, i, concat) if is_small else None


def parts_in_sum(g: Generic, i: int, concat: Move) -> SplitSum | None:
    """The sum over two operands joined as a sum over each."""
    loop = joined_loop(g, i, concat)
    if loop is None or loop < g.rank:
        return None
    extent = concat.sources[0][concat.args[0]]
    left = restricted(g, {loop: LoopRange(0, 1, extent)})
    right = restricted(g, {loop: LoopRange(extent, 1, g.sizes[loop] - extent)})
    total = _sum_of_two(g.result_shape, g.yields[0].dtype)
    return SplitSum(left.operands[1 - i], right.operands[1 - i], left.sig, right.sig, total)


def _sum_of_two(shape: tuple[int, ...], dtype: str) -> Generic:
    same = identity(len(shape))
    y = Yield(call("add", arg(0), arg(1)), dtype)
    return canonical_generic(
        shape, range(len(shape)), [same] * 2, [shape] * 2, [y], (), (dtype,) * 2, precision=NONE
    )


def joined_loop(g: Generic, i: int, concat: Move) -> int | None:
    """The loop that walks two operands joined, alone in one dim of operand i."""
    if einsum_of(g) is None or len(g.maps) != 2 or len(concat.sources) != 2:
        return None
    loop = g.maps[i][concat.args[0]].dim
    walked = sum(d == loop for e in g.maps[i] for d, _ in e.terms)
    return loop if walked == 1 and all(s[concat.args[0]] for s in concat.sources) else None


# ---- broadcasts and repeats ----------------------------------------------------------------------
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
    walked = [d for d in loops if d is not None]
    is_copy = e.body == arg(0) and e.yields[0].dtype == e.dtypes[0]
    whole = len(walked) == len(loops) and [e.sizes[d] for d in walked] == list(e.shapes[0])
    return is_copy and whole and walked == sorted(set(walked)) and len(walked) < e.rank


def spread_behind(g: Generic, i: int, joined: Reshape, e: Generic) -> SpreadBehind | None:
    """Copy moved behind for repeated dims joined with others: rows that are there n times."""
    if not _is_spread(e) or contraction_roles(g) is None or g.tile or 0 in g.sizes:
        return None
    groups = _groups(joined)
    if groups is None:
        return None
    walked = map_loops(e.maps[0])
    repeated = {q: ds for q, ds in enumerate(groups) if any(d not in walked for d in ds)}
    loops = {g.maps[i][q].dim: ds for q, ds in repeated.items()}
    if not all(_is_free(g, i, q) for q in repeated):
        return None
    inside = [math.prod(e.sizes[d] for d in ds if d in walked) for ds in groups]
    sizes = [
        math.prod(e.sizes[m] for m in loops[d] if m in walked) if d in loops else s
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
        for part in ([(e.sizes[m], m in walked) for m in loops[d]] if d in loops else [(s, True)])
    ]
    spread = _spread([s for s, _ in fine], [n for n, (_, is_kept) in enumerate(fine) if is_kept], g)
    return SpreadBehind(
        reshape_to(e.shapes[0], tuple(inside)), sig, reshape_to(sig.result_shape, spread.shapes[0]),
        spread, reshape_to(spread.result_shape, g.result_shape),
    )  # fmt: skip


def _groups(joined: Reshape) -> list[list[int]] | None:
    """Per dim of the result, the dims that were joined; None of any other reshape."""
    groups: list[list[int]] = []
    at = 0
    for size in joined.shape:
        group, extent = [], 1
        while at < len(joined.source) and (not group or extent < size):
            extent *= joined.source[at]
            group.append(at)
            at += 1
        if extent != size:
            return None
        groups.append(group)
    return groups if at == len(joined.source) else None


def _is_free(g: Generic, i: int, q: int) -> bool:
    """Whether dim q of operand i is walked by a loop of the result that nothing else has."""
    d = g.maps[i][q].dim
    walked = sum(loop == d for m in g.maps for e in m for loop, _ in e.terms)
    return d is not None and d < g.rank and walked == 1 and g.sizes[d] == g.shapes[i][q]


def _spread(sizes: Sequence[int], walked: Sequence[int], g: Generic) -> Generic:
    """The copy over these loops of a value that has some of them."""
    t = g.yields[0].dtype
    shape = tuple(sizes[d] for d in walked)
    return canonical_generic(
        sizes, range(len(sizes)), [tuple(map(dim, walked))], [shape], [Yield(arg(0), t)], (), (t,),
        precision=NONE,
    )  # fmt: skip


def split_spread(g: Generic, i: int, concat: Move, e: Generic) -> SplitSum | None:
    """concat(x, spread) @ y as a sum of two, if a part of it is spread out along free loops."""
    loop = joined_loop(g, i, concat)
    if loop is None or not _is_spread(e) or e.maps[0] == identity(e.rank):
        return None
    walked = map_loops(e.maps[0])
    idle = [d for d in range(e.rank) if d not in walked and e.sizes[d] > 1]
    if concat.args[0] not in walked or not any(_is_free(g, i, d) for d in idle):
        return None
    return parts_in_sum(g, i, concat)


FUNCTIONS = attr_functions(
    turn_round,
    turn_sum_round,
    undoes,
    result_of_equal_parts,
    split_sum,
    read_unspread,
    spread_behind,
    split_spread,
)
