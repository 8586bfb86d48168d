"""Regions of operands that an op reads for a part of its result; ops name these functions.

Each takes the op, its attribute, the number of an operand and a region of the result, and gives the
region of that operand; None: nothing of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from eqsat.model.affine import Affine, map_loops
from eqsat.model.attr import Attr, Shape
from eqsat.model.generic import Generic
from eqsat.model.movement import Move
from eqsat.model.region import Indices, Region, region_of, some_of, whole_region
from eqsat.ops.movement.view import view_of


def read_alike(op: str, attr: Attr, i: int, region: Region) -> Region | None:
    """Of an op whose result has its elements where the operand has them."""
    return region


def read_by_view(op: str, attr: Attr, i: int, region: Region) -> Region | None:
    """Of movement; all of the operand where that is no `View`."""
    v = view_of(op, attr)
    if v is None:
        shapes = attr.operand_shapes(op)
        assert shapes is not None  # movement knows them
        return whole_region(shapes[i])
    digits: list[Indices] = []
    for extents, indices in zip(v.digits, region.dims, strict=True):
        digits += [some_of(r, indices.most) for r in _digits(extents, indices.within)]
    loops = dict(enumerate(digits))
    return _clipped([_values(e, loops) for e in v.index], v.source, region.most)


def _digits(extents: Sequence[int], numbers: range) -> list[range]:
    """The values that every digit of these numbers takes, outermost first."""
    digits: list[range] = []
    for n in range(len(extents)):
        weight = math.prod(extents[n + 1 :])
        first, last = numbers[0] // weight, numbers[-1] // weight
        if first < last and numbers.step % weight:  # digits below take all their values
            return [*digits, range(first, last + 1), *map(range, extents[n + 1 :])]
        digits.append(range(first, last + 1, max(1, numbers.step // weight)))
        numbers = range(numbers[0] % weight, numbers[-1] % weight + 1, numbers.step)
    return digits


def read_by_generic(op: str, attr: Attr, i: int, region: Region) -> Region | None:
    """Of a loop nest: what these iterations read, with all of every reduction."""
    assert isinstance(attr, Generic)
    if 0 in attr.sizes:
        return None
    loops = {d: some_of(range(s)) for d, s in enumerate(attr.sizes)} | dict(enumerate(region.dims))
    m = attr.maps[i]
    times = math.prod(attr.sizes[d] for d in map_loops(m) & set(attr.reductions))
    return _clipped([_values(e, loops) for e in m], attr.shapes[i], region.most * times)


def read_by_concat(op: str, attr: Attr, i: int, region: Region) -> Region | None:
    """Of one operand of a concat: what of the region lies in it."""
    assert isinstance(attr, Move)
    (axis,) = attr.args
    before = sum(s[axis] for s in attr.sources[:i])
    r = region.dims[axis]
    indices = some_of(range(r.within.start - before, r.within.stop - before, r.within.step), r.most)
    dims = [indices if d == axis else r for d, r in enumerate(region.dims)]
    return _clipped(dims, attr.sources[i], region.most)


def read_by_gather(op: str, attr: Attr, i: int, region: Region) -> Region | None:
    """Of a gather: as many slices of the table as there are indices, any of them."""
    assert isinstance(attr, Move)
    (axis,) = attr.args
    behind = axis + len(attr.sources[1])
    indices = region_of(region.dims[axis:behind], region.most)
    if i == 1:
        return indices
    slices = some_of(range(attr.sources[0][axis]), indices.most)
    return region_of((*region.dims[:axis], slices, *region.dims[behind:]), region.most)


def _values(e: Affine, loops: Mapping[int, Indices]) -> Indices:
    """Indices that hold all values of a sum of loops."""
    low = high = e.constant
    step, most = 0, 1
    for d, s in e.terms:
        r = loops[d].within
        ends = s * r[0], s * r[-1]
        low, high, most = low + min(ends), high + max(ends), most * loops[d].most
        step = math.gcd(step, s * r.step) if len(r) > 1 else step
    return some_of(range(low, high + 1, step or 1), most)


def _clipped(dims: Sequence[Indices], shape: Shape, most: int) -> Region | None:
    """Which of these indices a value of this shape has; None: none."""
    indices = [_within(r, size) for r, size in zip(dims, shape, strict=True)]
    return region_of(indices, most) if all(r.most for r in indices) else None


def _within(indices: Indices, size: int) -> Indices:
    r = indices.within
    low = r.start if r.start >= 0 else r.start % r.step
    return some_of(range(low, min(r.stop, size), r.step), indices.most)
