"""Nests held against what their ops write, read and sum: by exact integer reasoning.

Nothing of how nests are built is used: only the record, the elements of each buffer, and over how
many points each reduction of an op runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from eqsat.model.expr import arg
from eqsat.model.nest import Access, Bound, Nest, Stage, Store
from eqsat.ops.nests.reached import (
    Box,
    Undecided,
    addresses_at,
    box_of,
    count,
    digits_of,
    extremes,
    fault_of,
    named,
    span,
)


def nest_faults(
    nest: Nest, elements: Mapping[int, int], summed: Mapping[int, int]
) -> tuple[list[str], list[str]]:
    """What of a nest is wrong; and what cannot be decided.

    elements: of each buffer. summed: points of the reduction of each node that has one.
    """
    faults: list[str] = []
    undecided: list[str] = []
    for question in _questions(nest, elements, summed):
        try:
            faults += question()
        except Undecided as why:
            undecided.append(str(why))
    return faults, undecided


def _questions(nest: Nest, elements: Mapping[int, int], summed: Mapping[int, int]) -> Iterator[Any]:
    yield lambda: _own_reads(nest)
    for w in nest.writes:
        yield lambda w=w: _written(nest, w, elements[w])
    for i, s in enumerate(nest.stages):
        yield lambda i=i: _dependences(nest, i)
        if s.combine:
            yield lambda s=s: _sums(nest, s, summed[s.node])
        loops = {*s.loops, *s.reduced}
        for a in s.arguments:
            if isinstance(a, Access):
                yield lambda a=a, loops=loops: _read(nest, a, loops, elements)


def _own_reads(nest: Nest) -> list[str]:
    """What is written is not read, as no order of points would be known to be right; but for
    elements that are written as they are."""
    both = {*nest.reads} & {*nest.writes}
    return [
        f"%{s.access.buffer} is read, and other elements are written to it"
        for s in nest.stores
        if s.access.buffer in both and not _is_kept(nest, s)
    ]


def _is_kept(nest: Nest, s: Store) -> bool:
    """Whether a store writes what is there already."""
    stage, w = nest.stages[s.stage], s.access
    one = stage.arguments[0] if len(stage.arguments) == 1 and stage.body is arg(0) else None
    if not isinstance(one, Access) or stage.combine or stage.bounds or w.bounds or one.lookups:
        return False
    return (one.buffer, one.strides, one.base, one.dtype) == (w.buffer, w.strides, w.base, w.dtype)


def _written(nest: Nest, buffer: int, size: int) -> list[str]:
    """Every element of a buffer is written once."""
    found: list[Box | np.ndarray[Any, Any]] = []
    for s in nest.stores:
        if s.access.buffer != buffer:
            continue
        if s.access.lookups:
            raise Undecided(f"%{buffer} is written where an index says")
        loops, stage = {*s.loops}, nest.stages[s.stage]
        needs = _named(s.access).union(*(named(b.strides) for b in s.bounds), stage.loops) - loops
        if beyond := {i for i in needs if nest.sizes[i] > 1}:
            return [f"%{buffer} is written along loops {sorted(beyond)}, which its store has not"]
        bounds = (*nest.bounds, *s.bounds)
        try:
            box = box_of(s.access, digits_of(nest.sizes, loops, bounds))
            found += [] if box is None else [box]
        except Undecided:
            about = [b for b in bounds if named(b.strides) & loops]
            addresses = addresses_at(s.access, nest.sizes, loops, about)
            found += [addresses] if addresses.size else []
    fault = fault_of(found, size) if found else "no element is written"
    return [f"%{buffer}: {fault}"] if fault else []


def _sums(nest: Nest, s: Stage, points: int) -> list[str]:
    """A reduction runs over as many points as its op's."""
    own = count(digits_of(nest.sizes, s.reduced, nest.bounds))
    if own == points:
        return []
    return [f"%{s.node} is reduced over {own} points, its op over {points}"]


def _dependences(nest: Nest, number: int) -> list[str]:
    """A stage has the loops that what it reads depends on."""
    s = nest.stages[number]
    own = {*s.loops, *s.reduced}
    needs: set[int] = set()
    for a in s.arguments:
        if isinstance(a, Access):
            needs |= _named(a)
        elif a >= number:
            return [f"stage {number} reads stage {a}, which is behind it"]
        else:
            needs.update(nest.stages[a].loops)
    for b in s.bounds:
        needs |= named(b.strides)
    missing = {i for i in needs - own if nest.sizes[i] > 1}
    if not missing and len(own) == len(s.loops) + len(s.reduced):
        return []
    return [f"stage {number} (%{s.node}) depends on loops {sorted(missing)}, which it has not"]


def _named(x: Access | Bound) -> set[int]:
    own = named(x.strides)
    if isinstance(x, Access) and (x.bounds or x.lookups):
        own = own.union(*map(_named, (*x.bounds, *x.indices)))
    return own


def _read(nest: Nest, a: Access, loops: set[int], elements: Mapping[int, int]) -> list[str]:
    """What is read lies within its buffer."""
    found = [f for x in a.indices for f in _read(nest, x, loops, elements)]
    size = elements[a.buffer]
    low, high = span(a.strides, a.base, nest.sizes)  # most lie within it wherever bounds are
    if a.lookups or low < 0 or high >= size:
        low, high = extremes(a, nest.sizes, loops, nest.bounds)
    if low >= 0 and high < size:
        return found
    if any(not named(b.strides) and not 0 <= b.base < b.extent for b in a.bounds):
        return found  # nothing is read: it is a pad everywhere
    if a.lookups:
        raise Undecided(f"%{a.buffer} is read where an index says, between {low} and {high}")
    about = [b for b in (*nest.bounds, *a.bounds) if named(b.strides) & loops]
    tied = set[int]().union(*(named(b.strides) for b in about)) & loops
    there = addresses_at(a, nest.sizes, tied, about)
    free = [s if i in loops - tied else 0 for i, s in enumerate(a.strides)]
    low, high = span(free, 0, nest.sizes)
    if there.size and not 0 <= there.min() + low <= there.max() + high < size:
        outside = there.min() + low if there.min() + low < 0 else there.max() + high
        found.append(f"%{a.buffer} is read at element {outside} of {size}")
    return found
