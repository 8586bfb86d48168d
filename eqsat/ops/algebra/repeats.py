"""Loops that run backwards, and operands of a concat that are there twice.

Source: XLA's AlgebraicSimplifier (dot of concatenate, of reverse).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from eqsat.model.affine import Affine, Map, affine, map_loops
from eqsat.model.expr import arg, call
from eqsat.model.generic import Generic, Yield
from eqsat.model.movement import Move
from eqsat.model.precision import NONE
from eqsat.ops.algebra.einsum import einsum_of
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_generic, compose_maps, identity
from eqsat.ops.generics.restrict import LoopRange, restricted
from eqsat.ops.movement.moves import concat_of


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
    found = _turned(g, g.reductions)
    return None if found is None else found.inner


def _turned(g: Generic, allowed: range) -> Turned | None:
    """With those of these loops turned round that run backwards wherever they are read."""
    if _is_copy(g) or len(g.yields) != 1 or g.tile or 0 in g.sizes:
        return None
    strides: dict[int, list[int]] = {}
    for m in g.maps:
        for e in m:
            for d, s in e.terms:
                strides.setdefault(d, []).append(s)
    back = {d for d, found in strides.items() if max(found) < 0 and g.sizes[d] > 1}
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
    """What reads the result of `inner` by this map, in the shape of the result of g."""
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


FUNCTIONS = attr_functions(
    turn_round,
    turn_sum_round,
    undoes,
    result_of_equal_parts,
    split_sum,
)
