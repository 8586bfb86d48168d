"""Parts of a result are computed from parts of the operands: slices and gathers in front of an op.

Of any op with loops, contractions and convolutions too. There is no end to products of parts of
products, so rules ask whether the rest is read at all (`wasted`, `ops.programs.facts`).
Source: XLA's AlgebraicSimplifier (slice of dot, of reduce); LLVM's demanded elements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from eqsat.model.affine import Map, dim
from eqsat.model.generic import Generic
from eqsat.model.movement import Move
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_generic
from eqsat.ops.generics.restrict import Cut, restricted
from eqsat.ops.movement.moved_generics import MovedOperands
from eqsat.ops.movement.moves import gather_of, unless_identity


@dataclass(frozen=True)
class GatheredOperand:
    """The gather of one operand, and the op that reads it."""

    move: Move
    sig: Generic


@dataclass(frozen=True)
class GatheredOperands:
    """The gathers of both operands, and the op that reads them."""

    first: Move
    second: Move
    sig: Generic


# ---- slices --------------------------------------------------------------------------------------
def narrow(g: Generic, cut: Move) -> MovedOperands | None:
    """slice(generic(xs)) = generic(slice(xs)): the iterations whose results are kept, and no other.

    Any steps. Of a dim that several loops walk, as in a convolution, what the rest of them reads.
    """
    if len(g.yields) != 1 or g.tile or 0 in cut.shape or 0 in g.sizes:
        return None
    start, _, step = cut.args
    cuts = {
        d: Cut(start[d], step[d], cut.shape[d]) for d in range(g.rank) if cut.shape[d] != g.sizes[d]
    }
    if not cuts:
        return None
    found = restricted(g, cuts)
    return MovedOperands(tuple(map(unless_identity, found.operands)), found.sig)


# ---- gathers -------------------------------------------------------------------------------------
def gather_operand(g: Generic, i: int, move: Move) -> GatheredOperand | None:
    """gather(generic(… x …)) = generic(… gather(x) …) along a loop that x alone has.

    Where there are fewer indices than the loop is long.
    """
    found = _gathered(g, move)
    if found is None or list(found.moves) != [i]:
        return None
    return GatheredOperand(found.moves[i], found.sig)


def gather_both(g: Generic, move: Move) -> GatheredOperands | None:
    """gather(generic(x, y)) = generic(gather(x), gather(y)) along a loop that both have."""
    found = _gathered(g, move)
    if found is None or list(found.moves) != [0, 1]:
        return None
    return GatheredOperands(found.moves[0], found.moves[1], found.sig)


@dataclass(frozen=True)
class _Gathers:
    moves: dict[int, Move]  # of the operands that have the loop
    sig: Generic


def _gathered(g: Generic, move: Move) -> _Gathers | None:
    """The op over the loops of the indices in place of the loop they pick from."""
    (loop,) = move.args
    indices = move.sources[1]
    if len(g.yields) != 1 or g.tile or 0 in g.sizes or math.prod(indices) >= g.sizes[loop]:
        return None
    more = len(indices) - 1
    new = {d: d if d < loop else d + more for d in range(len(g.sizes)) if d != loop}
    picked = [dim(loop + n) for n in range(len(indices))]
    moves: dict[int, Move] = {}
    maps: list[Map] = []
    for i, (m, shape) in enumerate(zip(g.maps, g.shapes, strict=True)):
        at = [q for q, e in enumerate(m) if any(d == loop for d, _ in e.terms)]
        # an index beyond the end picks the last slice: that has to be the same one
        if len(at) > 1 or any(m[q].dim != loop or shape[q] != g.sizes[loop] for q in at):
            return None
        if at:
            moves[i] = gather_of(shape, indices, at[0])
        parts = [picked if q in at else [e.rename(new)] for q, e in enumerate(m)]
        maps.append(tuple(e for part in parts for e in part))
    shapes = [moves[i].shape if i in moves else s for i, s in enumerate(g.shapes)]
    sizes = [*g.sizes[:loop], *indices, *g.sizes[loop + 1 :]]
    sig = canonical_generic(
        sizes, range(g.rank + more), maps, shapes, g.yields, (), g.dtypes, precision=g.precision
    )
    return _Gathers(moves, sig)


FUNCTIONS = attr_functions(narrow, gather_operand, gather_both)
