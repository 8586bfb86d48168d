"""A loop nest over some of its iterations: loops that begin later, take steps and end earlier."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eqsat.model.affine import Affine, Map, affine, dim
from eqsat.model.attr import Shape
from eqsat.model.generic import Generic
from eqsat.model.movement import Move
from eqsat.ops.generics.canonical import canonical_generic
from eqsat.ops.movement.moves import slice_of


@dataclass(frozen=True)
class LoopRange:
    """What is left of a loop, or of a dim: `start`, `start + step`, …, so many."""

    start: int
    step: int
    extent: int


@dataclass(frozen=True)
class Restricted:
    """The nest over what is left, and the slice of each operand that it reads."""

    operands: tuple[Move, ...]
    sig: Generic


def restricted(g: Generic, cuts: Mapping[int, LoopRange]) -> Restricted:
    """The nest over these parts of loops, each of one iteration at least; others stay whole.

    Of a dim that several loops walk it reads what the rest of them walks.
    """
    sizes = [cuts[d].extent if d in cuts else s for d, s in enumerate(g.sizes)]
    read = [_read(m, shape, sizes, cuts) for m, shape in zip(g.maps, g.shapes, strict=True)]
    sig = canonical_generic(
        sizes, range(g.rank), [m for _, m in read], [move.shape for move, _ in read],
        g.yields, (), g.dtypes, precision=g.precision,
    )  # fmt: skip
    return Restricted(tuple(move for move, _ in read), sig)


def _read(
    m: Map, shape: Shape, sizes: Sequence[int], cuts: Mapping[int, LoopRange]
) -> tuple[Move, Map]:
    """What the loops that are left read of an operand, and how they read that."""
    found = [
        _piece(e, sizes, cuts) if any(d in cuts for d, _ in e.terms) else (LoopRange(0, 1, size), e)
        for e, size in zip(m, shape, strict=True)
    ]
    kept = [c for c, _ in found]
    limit = [c.start + (c.extent - 1) * c.step + 1 for c in kept]
    move = slice_of(shape, [c.start for c in kept], limit, [c.step for c in kept])
    return move, tuple(e for _, e in found)


def _piece(
    e: Affine, sizes: Sequence[int], cuts: Mapping[int, LoopRange]
) -> tuple[LoopRange, Affine]:
    """The indices that a sum of loops takes, and their places among these."""
    own = {d: cuts.get(d, LoopRange(0, 1, sizes[d])) for d, _ in e.terms}
    first = e.constant + sum(s * own[d].start for d, s in e.terms)
    terms = [(d, s * own[d].step) for d, s in e.terms if sizes[d] > 1]
    if not terms:  # one index: any loop of extent 1 walks it
        return LoopRange(first, 1, 1), dim(e.terms[0][0])
    back = sum(-s * (sizes[d] - 1) for d, s in terms if s < 0)
    reach = sum(abs(s) * (sizes[d] - 1) for d, s in terms)
    step = math.gcd(*(s for _, s in terms))
    places = affine([(d, s // step) for d, s in terms], back // step)
    return LoopRange(first - back, step, reach // step + 1), places
