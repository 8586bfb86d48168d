"""Elements that the points of loops reach, by exact integer reasoning; the check of nests by it.

Loops that bounds cut together are one number, a digit with a first and a last value; an address is
then a sum of strides times digits. Where bounds do not allow that, few points are addresses_at.

Nests are held against what their ops write, read and sum. Nothing of how nests are built is used:
only the record, the elements of each buffer, and over how many points each reduction of an op runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from eqsat.model.expr import arg
from eqsat.model.nest import Access, Bound, Nest, Stage, Store

# ---- elements reached ----------------------------------------------------------------------------
MOST_POINTS = 1 << 16  # that are addresses_at
MOST_COUNTED = 1 << 24  # elements, after what all stores share is divided out
Strides = Sequence[int]


class Undecided(Exception):
    """A property that these limits leave undecided, in a sentence."""


class CutLoops(NamedTuple):
    """Σ weight · loop, which is one of low … end - 1 at every point that exists, each once."""

    weights: tuple[tuple[int, int], ...]  # loop, weight: those of a number, the largest first
    low: int
    end: int


class Box(NamedTuple):
    """Addresses base + Σ stride · index, of as many indices as digits, each below its extent."""

    base: int
    sides: tuple[tuple[int, int], ...]  # stride > 0, extent > 1; the smallest stride first

    @property
    def top(self) -> int:
        return self.base + sum(s * (n - 1) for s, n in self.sides)

    @property
    def is_once(self) -> bool:
        """Whether no two indices have one address, as each stride is beyond all smaller ones."""
        reach = 0
        for stride, extent in self.sides:
            if stride <= reach:
                return False
            reach += stride * (extent - 1)
        return True

    def addresses(self) -> np.ndarray[Any, Any]:
        addresses = np.array([self.base])
        for stride, extent in self.sides:
            addresses = np.add.outer(np.arange(extent) * stride, addresses)
        return addresses.ravel()


def span(strides: Strides, base: int, sizes: Sequence[int]) -> tuple[int, int]:
    """The least and the largest value of an index over whole loops."""
    low = high = base
    for s, n in zip(strides, sizes, strict=True):
        if s > 0:
            high += s * (n - 1)
        elif s:
            low += s * (n - 1)
    return low, high


def binding(bounds: Iterable[Bound], sizes: Sequence[int]) -> list[Bound]:
    """Bounds that fail at some point of whole loops."""
    cutting = []
    for b in bounds:
        low, high = span(b.strides, b.base, sizes)
        if low < 0 or high >= b.extent:
            cutting.append(b)
    return cutting


def named(strides: Strides) -> set[int]:
    return {i for i, s in enumerate(strides) if s}


# ---- points that exist ---------------------------------------------------------------------------
def digits_of(
    sizes: Sequence[int], loops: Iterable[int], bounds: Iterable[Bound]
) -> list[CutLoops]:
    """The loops as numbers that run by themselves; Undecided where bounds tie them otherwise."""
    left = {i for i in loops if sizes[i] > 1}
    ties = [b for b in binding(bounds, sizes) if named(b.strides) & left]
    digits: list[CutLoops] = []
    while ties:
        widest = max(ties, key=lambda b: len(named(b.strides)))
        together = named(widest.strides)
        alike = [b for b in ties if named(b.strides) & together]
        if not together <= left:
            raise Undecided("a bound is about these loops and others")
        digits.append(_number(widest, alike, sizes))
        ties = [b for b in ties if b not in alike]
        left -= together
    return digits + [CutLoops(((i, 1),), 0, sizes[i]) for i in sorted(left)]


def _number(widest: Bound, bounds: Sequence[Bound], sizes: Sequence[int]) -> CutLoops:
    terms = sorted(((s, i) for i, s in enumerate(widest.strides) if s), reverse=True)
    unit, step = terms[-1][0], 1
    for s, i in reversed(terms):
        if s != unit * step or unit < 0:
            raise Undecided("a bound is about a sum that counts some numbers twice")
        step *= sizes[i]
    weights = {i: s // unit for s, i in terms}
    low, end = 0, step
    for b in bounds:
        loops = named(b.strides)
        lowest = min(weights.get(i, 0) for i in loops)
        upper = {i: w // lowest for i, w in weights.items() if w >= lowest} if lowest else {}
        each = min(b.strides[i] for i in loops)
        if each < 1 or upper != {i: b.strides[i] / each for i in loops}:
            raise Undecided("two bounds cut the same loops in two ways")
        low = max(low, -(b.base // each) * lowest)
        end = min(end, ((b.extent - 1 - b.base) // each + 1) * lowest)
    return CutLoops(tuple((i, weights[i]) for _, i in terms), low, max(end, low))


def count(digits: Iterable[CutLoops]) -> int:
    """How many points there are."""
    return math.prod(d.end - d.low for d in digits)


# ---- addresses -----------------------------------------------------------------------------------
def box_of(access: Access, digits: Iterable[CutLoops]) -> Box | None:
    """The addresses at these points; None if there is no point."""
    base, sides = access.base, []
    for d in digits:
        steps = {access.strides[i] / w for i, w in d.weights}
        step, extent = steps.pop(), d.end - d.low
        if steps or step != int(step):
            raise Undecided("a number of loops is no number in the buffer")
        step = int(step)
        base += step * d.low
        if extent < 1:
            return None
        if extent > 1:
            base += min(step, 0) * (extent - 1)
            sides.append((abs(step), extent))
    return Box(base, tuple(sorted(sides)))


def addresses_at(
    access: Access, sizes: Sequence[int], loops: Iterable[int], bounds: Iterable[Bound]
) -> np.ndarray[Any, Any]:
    """The addresses at all points of few loops at which bounds hold."""
    walked = sorted(loops)
    if math.prod(sizes[i] for i in walked) > MOST_POINTS:
        raise Undecided(f"more than {MOST_POINTS:,} points have bounds of their own")
    extents = [sizes[i] for i in walked]
    at = np.indices(extents).reshape(len(walked), math.prod(extents))
    held = np.ones(at.shape[1], bool)
    for b in bounds:
        if not named(b.strides) <= set(walked):
            raise Undecided("a bound is about these loops and others")
        index = b.base + np.array([b.strides[i] for i in walked], int) @ at
        held &= (index >= 0) & (index < b.extent)
    return (access.base + np.array([access.strides[i] for i in walked], int) @ at)[held]


def _widest(b: Bound) -> int:
    return -max(map(abs, b.strides), default=0)


def extremes(
    access: Access, sizes: Sequence[int], loops: Iterable[int], bounds: Sequence[Bound]
) -> tuple[int, int]:
    """Numbers that no address is below or above, where these bounds and its own hold."""
    inside = set(loops)
    all_bounds = [b for x in (access.bounds, bounds) for b in sorted(x, key=_widest)]
    rest, base, low, high = list(access.strides), access.base, 0, 0
    for k in access.lookups:
        high += max(k.stride * (k.extent - 1), 0)
        low += min(k.stride * (k.extent - 1), 0)
    for b in all_bounds:
        if not named(b.strides) <= inside:
            continue
        i = max(range(len(rest)), key=lambda i: abs(b.strides[i]), default=-1)
        times = rest[i] // b.strides[i] if i >= 0 and b.strides[i] else 0
        left = [r - times * s for r, s in zip(rest, b.strides, strict=True)]
        if not times or any(x for x, s in zip(left, b.strides, strict=True) if s):
            continue
        first, last = span(b.strides, b.base, sizes)
        ends = times * max(first, 0), times * min(last, b.extent - 1)
        rest, base = left, base - times * b.base
        low, high = low + min(ends), high + max(ends)
    first, last = span(rest, base, sizes)
    return low + first, high + last


# ---- each element once ---------------------------------------------------------------------------
def fault_of(stores: Sequence[Box | np.ndarray[Any, Any]], size: int) -> str:
    """Which of `size` elements is not written once by these stores together; "" if all are."""
    boxes = [s for s in stores if isinstance(s, Box)]
    if len(boxes) == len(stores) == 1 and _is_whole(boxes[0], size):
        return ""
    for s in stores:
        low, high = (s.base, s.top) if isinstance(s, Box) else (int(s.min()), int(s.max()))
        if low < 0 or high >= size:
            return f"element {low if low < 0 else high} of {size} is written"
    shared = _shared(boxes, size) if len(boxes) == len(stores) else 1
    if size // shared > MOST_COUNTED:
        raise Undecided(f"stores share less than a part in {MOST_COUNTED:,} of a buffer")
    times = np.zeros(size // shared, np.int32)
    for s in stores:
        if isinstance(s, Box) and s.is_once:
            _add_box(times, s, shared)
        else:
            np.add.at(times, s.addresses() if isinstance(s, Box) else s, 1)
    wrong = np.flatnonzero(times != 1)
    if not wrong.size:
        return ""
    first = int(wrong[0])
    what = f"written {times[first]} times" if times[first] else "never written"
    return f"element {first * shared} of {size} is {what}, as are {wrong.size * shared - 1} others"


def _is_whole(box: Box, size: int) -> bool:
    step = 1
    for stride, extent in box.sides:
        if stride != step:
            return False
        step *= extent
    return box.base == 0 and step == size


def _shared(boxes: Sequence[Box], size: int) -> int:
    """Neighbouring elements that every store writes together."""
    if not all(b.is_once for b in boxes):
        return 1
    shared = size
    for b in boxes:
        first = b.sides[0][1] if b.sides and b.sides[0][0] == 1 else 1
        shared = math.gcd(shared, first, b.base, *(s for s, _ in b.sides if s > 1))
    return shared


def _add_box(times: np.ndarray[Any, Any], box: Box, shared: int) -> None:
    sides = [(s // shared, n) if s >= shared else (1, n // shared) for s, n in box.sides]
    view = np.lib.stride_tricks.as_strided(
        times[box.base // shared :],
        [n for _, n in sides],
        [s * times.itemsize for s, _ in sides],
    )
    view += 1


# ---- the check of a nest -------------------------------------------------------------------------
def nest_faults(
    nest: Nest, elements: Mapping[int, int], summed: Mapping[int, int]
) -> tuple[list[str], list[str]]:
    """Faults of a nest; and what cannot be decided.

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
    """Written elements are not read, as no order of points would be known to be right; but for
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
    boxes: list[Box | np.ndarray[Any, Any]] = []
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
            boxes += [] if box is None else [box]
        except Undecided:
            about = [b for b in bounds if named(b.strides) & loops]
            addresses = addresses_at(s.access, nest.sizes, loops, about)
            boxes += [addresses] if addresses.size else []
    fault = fault_of(boxes, size) if boxes else "no element is written"
    return [f"%{buffer}: {fault}"] if fault else []


def _sums(nest: Nest, s: Stage, points: int) -> list[str]:
    """A reduction runs over as many points as its op's."""
    reduced = count(digits_of(nest.sizes, s.reduced, nest.bounds))
    if reduced == points:
        return []
    return [f"%{s.node} is reduced over {reduced} points, its op over {points}"]


def _dependences(nest: Nest, number: int) -> list[str]:
    """A stage has the loops that what it reads depends on."""
    s = nest.stages[number]
    loops = {*s.loops, *s.reduced}
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
    missing = {i for i in needs - loops if nest.sizes[i] > 1}
    if not missing and len(loops) == len(s.loops) + len(s.reduced):
        return []
    return [f"stage {number} (%{s.node}) depends on loops {sorted(missing)}, which it has not"]


def _named(x: Access | Bound) -> set[int]:
    loops = named(x.strides)
    if isinstance(x, Access) and (x.bounds or x.lookups):
        loops = loops.union(*map(_named, (*x.bounds, *x.indices)))
    return loops


def _read(nest: Nest, a: Access, loops: set[int], elements: Mapping[int, int]) -> list[str]:
    """Every read lies within its buffer."""
    faults = [f for x in a.indices for f in _read(nest, x, loops, elements)]
    size = elements[a.buffer]
    low, high = span(a.strides, a.base, nest.sizes)  # most lie within it wherever bounds are
    if a.lookups or low < 0 or high >= size:
        low, high = extremes(a, nest.sizes, loops, nest.bounds)
    if low >= 0 and high < size:
        return faults
    if any(not named(b.strides) and not 0 <= b.base < b.extent for b in a.bounds):
        return faults  # nothing is read: it is a pad everywhere
    if a.lookups:
        raise Undecided(f"%{a.buffer} is read where an index says, between {low} and {high}")
    about = [b for b in (*nest.bounds, *a.bounds) if named(b.strides) & loops]
    tied = set[int]().union(*(named(b.strides) for b in about)) & loops
    there = addresses_at(a, nest.sizes, tied, about)
    free = [s if i in loops - tied else 0 for i, s in enumerate(a.strides)]
    low, high = span(free, 0, nest.sizes)
    if there.size and not 0 <= there.min() + low <= there.max() + high < size:
        outside = there.min() + low if there.min() + low < 0 else there.max() + high
        faults.append(f"%{a.buffer} is read at element {outside} of {size}")
    return faults
