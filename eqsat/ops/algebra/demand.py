"""Parts of a result are computed from parts of the operands: slices and gathers in front of an op.

Of any op with loops, contractions and convolutions too. There is no end to products of parts of
products, so rules ask whether the rest is read at all (`wasted`, `ops.programs.facts`).
Source: XLA's AlgebraicSimplifier (slice of dot, of reduce); LLVM's demanded elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.model.affine import Map, dim
from eqsat.model.attr import Shape
from eqsat.model.expr import arg, call, const
from eqsat.model.generic import Generic, Yield
from eqsat.model.movement import Move, Reshape
from eqsat.model.tensor import DTYPES, NONE
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_generic, identity
from eqsat.ops.generics.windows import LoopRange, restricted
from eqsat.ops.movement.moved_generics import MovedOperands
from eqsat.ops.movement.moves import gather_of, slice_of, unless_identity


@dataclass(frozen=True)
class PickedIndices:
    """The gather of indices, and the gather that they name."""

    indices: Move
    move: Move


@dataclass(frozen=True)
class SlicedGather:
    """Slices of a table and of its indices, and the gather of those."""

    table: Move | None
    indices: Move | None
    move: Move


@dataclass(frozen=True)
class FlatRows:
    """The row numbers of indices into flattened rows, the gather by them, and what is computed."""

    rows: Generic
    move: Move
    sig: Generic


# ---- slices --------------------------------------------------------------------------------------
def narrow_operands(g: Generic, cut: Move) -> MovedOperands | None:
    """slice(generic(xs)) = generic(slice(xs)): the iterations whose results are kept, and no other.

    Any steps. Of a dim that several loops walk, as in a convolution, what the rest of them reads.
    """
    if len(g.yields) != 1 or g.tile or 0 in cut.shape or 0 in g.sizes:
        return None
    start, _, step = cut.args
    cuts = {
        d: LoopRange(start[d], step[d], cut.shape[d])
        for d in range(g.rank)
        if cut.shape[d] != g.sizes[d]
    }
    if not cuts:
        return None
    narrowed = restricted(g, cuts)
    return MovedOperands(tuple(map(unless_identity, narrowed.operands)), narrowed.sig)


# ---- gathers -------------------------------------------------------------------------------------
def gather_operands(g: Generic, move: Move) -> MovedOperands | None:
    """gather(generic(xs)) = generic(gather(xs)) along the loop that is picked from.

    Where there are fewer indices than the loop is long. Of what is the same along it, none is read.
    """
    (loop,) = move.args
    indices = move.sources[1]
    if len(g.yields) != 1 or g.tile or 0 in g.sizes or math.prod(indices) >= g.sizes[loop]:
        return None
    more = len(indices) - 1
    new = {d: d if d < loop else d + more for d in range(len(g.sizes)) if d != loop}
    picked = [dim(loop + n) for n in range(len(indices))]
    moves: list[Move | None] = []
    maps: list[Map] = []
    for m, shape in zip(g.maps, g.shapes, strict=True):
        at = [q for q, e in enumerate(m) if any(d == loop for d, _ in e.terms)]
        # an index beyond the end picks the last slice: that has to be the same one
        if len(at) > 1 or any(m[q].dim != loop or shape[q] != g.sizes[loop] for q in at):
            return None
        moves.append(gather_of(shape, indices, at[0]) if at else None)
        parts = [picked if q in at else [e.rename(new)] for q, e in enumerate(m)]
        maps.append(tuple(e for part in parts for e in part))
    shapes = [m.shape if m else s for m, s in zip(moves, g.shapes, strict=True)]
    sizes = [*g.sizes[:loop], *indices, *g.sizes[loop + 1 :]]
    sig = canonical_generic(
        sizes, range(g.rank + more), maps, shapes, g.yields, (), g.dtypes, precision=g.precision
    )
    return MovedOperands(tuple(moves), sig)


def gather_flat(g: Generic, flat: Reshape, e: Generic, move: Move) -> FlatRows | None:
    """gather(flat(f(x, row)), i) = f(gather(flat(x), i), gather(row, i / columns)).

    i, computed by e, names elements of all rows behind each other; row has one element per row.
    """
    index = e.yields[0].dtype
    if len(g.sizes) != 2 or g.rank != 2 or len(g.yields) != 1 or g.tile or 0 in g.sizes:
        return None
    lines, columns = g.sizes
    if g.maps != ((dim(0), dim(1)), (dim(0),)) or flat.shape != (lines * columns,):
        return None
    bits, kind = DTYPES[index]
    fits = kind in "iu" and columns < 2 ** (bits - 1)
    if len(e.yields) != 1 or e.tile or not fits or math.prod(move.shape) > lines:
        return None
    straight = identity(e.rank)
    number = Yield(call("div", arg(0), const(columns)), index)
    rows = canonical_generic(
        e.result_shape, range(e.rank), [straight], [e.result_shape], [number], (), [index],
        precision=NONE,
    )  # fmt: skip
    everywhere = identity(len(move.shape))
    sig = canonical_generic(
        move.shape, range(len(move.shape)), [everywhere] * 2, [move.shape] * 2, g.yields, (),
        g.dtypes, precision=g.precision,
    )  # fmt: skip
    return FlatRows(rows, gather_of((lines,), move.sources[1], 0), sig)


def gather_of_gather(inner: Move, outer: Move) -> PickedIndices | None:
    """gather(gather(x, i), j) = gather(x, gather(i, j)) where j picks from the dims of i."""
    (axis,), (picked,) = inner.args, outer.args
    table, indices = inner.sources
    if not axis <= picked < axis + len(indices) or 0 in table or 0 in inner.shape:
        return None
    index_move = gather_of(indices, outer.sources[1], picked - axis)
    return PickedIndices(index_move, gather_of(table, index_move.shape, axis))


def slice_of_gather(gather: Move, cut: Move) -> SlicedGather | None:
    """slice(gather(x, i)) = gather(slice(x), slice(i)): slices that are read, of fewer rows."""
    (axis,) = gather.args
    table, indices = gather.sources
    behind = axis + len(indices)
    if 0 in cut.shape or 0 in table:
        return None

    def part(source: Shape, dims: Sequence[int | None]) -> Move:
        """The slice of a tensor each of whose dims is one of the result, or is left whole."""
        bounds = [
            (0, size, 1) if d is None else tuple(v[d] for v in cut.args)
            for d, size in zip(dims, source, strict=True)
        ]
        start, limit, stride = zip(*bounds, strict=True) if bounds else ((), (), ())
        return slice_of(source, start, limit, stride)

    rows = part(table, [*range(axis), None, *range(behind, len(cut.shape))])
    picked = part(indices, range(axis, behind))
    move = gather_of(rows.shape, picked.shape, axis)
    return SlicedGather(unless_identity(rows), unless_identity(picked), move)


FUNCTIONS = attr_functions(
    narrow_operands, gather_operands, gather_flat, gather_of_gather, slice_of_gather
)
