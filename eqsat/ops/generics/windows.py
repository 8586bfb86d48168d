"""Parts of a generic: what it reads of its operands, and itself over some of its iterations.

A lowering to arrays cuts each operand to what its map reaches; every dim that is left is one loop,
or a window sum such as `2*d0 + d4`. Loops may begin later, take steps and end earlier.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eqsat.model.affine import Affine, Map, affine, dim, map_loops
from eqsat.model.attr import Shape
from eqsat.model.generic import Generic
from eqsat.model.movement import Move
from eqsat.ops.generics.canonical import canonical_generic
from eqsat.ops.movement.moves import slice_of

# ---- windows -------------------------------------------------------------------------------------
Block = tuple[int, ...]  # loops that make up one dim


# ---- parts of operands ---------------------------------------------------------------------------
@dataclass(frozen=True)
class ReadPart:
    """The part of an operand that a map reads, and the map of that part.

    ranges: (lowest index, highest + 1, step) per axis; read backwards where the step is below 0.
    axes: those that stay, as the others are read at one place. map: over these.
    """

    ranges: tuple[tuple[int, int, int], ...]
    axes: tuple[int, ...]
    map: Map


def read_part(m: Map, sizes: Sequence[int]) -> ReadPart:
    """The part of an operand that loops of these sizes read by a map."""
    ends = [_ends(e, sizes) for e in m]
    steps = [e.terms[0][1] if len(e.terms) == 1 else 1 for e in m]
    axes = tuple(axis for axis, e in enumerate(m) if e.terms)
    left = (
        dim(m[axis].terms[0][0])
        if len(m[axis].terms) == 1
        else m[axis]._replace(constant=m[axis].constant - ends[axis][0])
        for axis in axes
    )
    ranges = tuple((low, high + 1, s) for (low, high), s in zip(ends, steps, strict=True))
    return ReadPart(ranges, axes, tuple(left))


def _ends(e: Affine, sizes: Sequence[int]) -> tuple[int, int]:
    ends = [s * (sizes[d] - 1) for d, s in e.terms]
    low = e.constant + sum(min(v, 0) for v in ends)
    return low, e.constant + sum(max(v, 0) for v in ends)


def indices(m: Map, sizes: Sequence[int]) -> tuple[list[int], list[Any]]:
    """The loops that a map reads, and per axis a NumPy array of its indices over these loops."""
    used = sorted(map_loops(m))
    grid = np.indices([sizes[d] for d in used])
    return used, [
        sum((s * grid[used.index(d)] for d, s in e.terms), np.full(grid.shape[1:], e.constant))
        for e in m
    ]


def bare_loops(m: Map) -> list[int] | None:
    """The loop of every dim, if each is a loop of its own; else None."""
    loops = [e.dim for e in m]
    bare = [d for d in loops if d is not None]
    return bare if len(set(bare)) == len(m) else None


# ---- windows -------------------------------------------------------------------------------------
def window_loops(g: Generic) -> list[int]:
    """Reduction loops inside sums such as `2*d0 + d4`."""
    summed = {d for m in g.maps for e in m if len(e.terms) > 1 for d, _ in e.terms}
    return sorted(summed & set(g.reductions))


@dataclass(frozen=True)
class Window:
    """One spatial dim: input = stride * position + dilation * offset."""

    axis: int  # of the image
    position: int  # loops
    offset: int
    stride: int
    dilation: int


def windows(g: Generic, m: Map) -> tuple[Window, ...]:
    """Every sum of one result loop and one reduction loop with positive strides.

    () if there are other sums, or if two dims share a loop.
    """
    sums = []
    for axis, e in enumerate(m):
        if e.dim is not None:
            continue
        if len(e.terms) != 2 or e.constant or any(s <= 0 for _, s in e.terms):
            return ()
        (p, stride), (w, dilation) = sorted(e.terms)
        if p >= g.rank or w < g.rank:
            return ()
        sums.append(Window(axis, p, w, stride, dilation))
    loops = [d for e in m for d, _ in e.terms]
    return tuple(sums) if len(set(loops)) == len(loops) else ()


def fixed_at(g: Generic, point: Mapping[int, int]) -> Generic:
    """The generic with some reduction loops held at one place: loop -> where."""
    loops = [d for d in range(len(g.sizes)) if d not in point]
    new = {d: i for i, d in enumerate(loops)}
    maps = tuple(tuple(_held(e, point).rename(new) for e in m) for m in g.maps)
    reduces = len(loops) > g.rank
    yields = tuple(replace(y, combine=y.combine if reduces else "") for y in g.yields)
    return replace(g, sizes=tuple(g.sizes[d] for d in loops), maps=maps, yields=yields)


def _held(e: Affine, point: Mapping[int, int]) -> Affine:
    constant = sum(s * point[d] for d, s in e.terms if d in point)
    return Affine(tuple(t for t in e.terms if t[0] not in point), e.constant + constant)


# ---- convolutions --------------------------------------------------------------------------------
@dataclass(frozen=True)
class ConvolutionRoles:
    """Loops of a convolution; image and kernel name the operands."""

    image: int
    kernel: int
    batch: Block
    groups: Block  # in image, kernel and result
    inputs: Block
    outputs: Block
    windows: tuple[Window, ...]


def convolution_roles(g: Generic) -> ConvolutionRoles | None:
    """The roles if this reads as one convolution, grouped or not, else None."""
    for image in (0, 1):
        if all(e.dim is not None for e in g.maps[1 - image]):
            return _roles(g, image)
    return None


def _roles(g: Generic, image: int) -> ConvolutionRoles | None:
    filters = bare_loops(g.maps[1 - image])
    sliding = windows(g, g.maps[image])
    bare = [e.dim for e in g.maps[image] if e.dim is not None]
    if not sliding or filters is None or len(set(bare)) != len(bare):
        return None
    positions, offsets = [w.position for w in sliding], [w.offset for w in sliding]
    shared = [d for d in bare if d in filters]
    groups = tuple(d for d in shared if d < g.rank)
    inputs = tuple(d for d in shared if d >= g.rank)
    batch = tuple(d for d in bare if d not in filters)
    outputs = tuple(d for d in filters if d not in bare and d not in offsets)
    fits = (
        set(offsets) <= set(filters)
        and sorted([*inputs, *offsets]) == list(g.reductions)
        and sorted([*batch, *groups, *outputs, *positions, *_unread(g)]) == list(range(g.rank))
        and len(bare) + len(sliding) == len(g.maps[image])
    )
    if not fits:
        return None
    return ConvolutionRoles(image, 1 - image, batch, groups, inputs, outputs, sliding)


def _unread(g: Generic) -> list[int]:
    """Result loops of extent 1 that no operand names."""
    read = set().union(*map(map_loops, g.maps))
    return [d for d in range(g.rank) if g.sizes[d] == 1 and d not in read]


# ---- some of the iterations ----------------------------------------------------------------------
@dataclass(frozen=True)
class LoopRange:
    """Part of a loop, or of a dim: `start`, `start + step`, …, so many."""

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
    """Slice of an operand that the loops that are left read, and its map."""
    pieces = [
        _piece(e, sizes, cuts) if any(d in cuts for d, _ in e.terms) else (LoopRange(0, 1, size), e)
        for e, size in zip(m, shape, strict=True)
    ]
    ranges = [c for c, _ in pieces]
    limit = [c.start + (c.extent - 1) * c.step + 1 for c in ranges]
    move = slice_of(shape, [c.start for c in ranges], limit, [c.step for c in ranges])
    return move, tuple(e for _, e in pieces)


def _piece(
    e: Affine, sizes: Sequence[int], cuts: Mapping[int, LoopRange]
) -> tuple[LoopRange, Affine]:
    """The indices that a sum of loops takes, and their places among these."""
    ranges = {d: cuts.get(d, LoopRange(0, 1, sizes[d])) for d, _ in e.terms}
    first = e.constant + sum(s * ranges[d].start for d, s in e.terms)
    terms = [(d, s * ranges[d].step) for d, s in e.terms if sizes[d] > 1]
    if not terms:  # one index: any loop of extent 1 walks it
        return LoopRange(first, 1, 1), dim(e.terms[0][0])
    back = sum(-s * (sizes[d] - 1) for d, s in terms if s < 0)
    reach = sum(abs(s) * (sizes[d] - 1) for d, s in terms)
    step = math.gcd(*(s for _, s in terms))
    places = affine([(d, s // step) for d, s in terms], back // step)
    return LoopRange(first - back, step, reach // step + 1), places
