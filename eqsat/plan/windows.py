"""Windows: the elements of a factor that a block of tiles needs, each copied once, pads as zeros.

A convolution reads an element at many points of its loops: it is found by coordinates, sums such
as `2 · row + tap`, whose bounds are the borders of the image: at which points an element is no pad.
A copy by coordinates is as large as the image and its border; a copy by rows of the product is as
many times larger as a window has taps. From the copy the product reads with constant strides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from eqsat.model.nest import Access, Bound, Nest, Stage
from eqsat.model.tensor import DTYPES
from eqsat.plan.stages import LINE, Moved, access_loops, needed, stages_read

if TYPE_CHECKING:
    from eqsat.plan.roles import ProductFactor

# ---- windows -------------------------------------------------------------------------------------
Strides = tuple[int, ...]


@dataclass(frozen=True)
class Coordinates:
    """By what a factor's elements are found; `strides[d]` are those of coordinate d.

    No loop is in two of them. They are in the order of their steps in memory, the longest first.
    inside: the nest whose loops are the coordinates; factor: what it computes there.
    """

    strides: tuple[Strides, ...]
    inside: Nest
    factor: ProductFactor

    @cached_property
    def pads(self) -> tuple[Bound, ...]:
        """Bounds over the loops of the nest, beyond each of which the factor is 0."""
        holder = holder_of(self.inside, self.factor)
        if holder is None or holder.fill is None or holder.fill != 0:
            return ()
        return tuple(self._over_loops(b) for b in holder.bounds)

    def _over_loops(self, b: Bound) -> Bound:
        pairs = zip(b.strides, self.strides, strict=True)
        rows = [[n * s for s in strides] for n, strides in pairs]
        return replace(b, strides=tuple(map(sum, zip(*rows, strict=True))))


def holder_of(inside: Nest, factor: ProductFactor) -> Access | Stage | None:
    """The access or stage whose value the factor is, also where its bounds do not hold; as wide as
    the sums, or cast to that."""
    body = factor.body
    while body.fn == "cast":
        (body,) = body.args
    argument = factor.arguments[body.value] if body.fn == "arg" else None
    holder = inside.stages[argument] if isinstance(argument, int) else argument
    if isinstance(holder, Stage) and len(holder.arguments) != 1:  # it has another value there
        return None
    return holder


@dataclass(frozen=True)
class WindowCopy:
    """points: of every loop of the nest, those that one copy serves. dtype: of its elements."""

    coordinates: Coordinates
    points: tuple[int, ...]
    dtype: str = "f32"

    @cached_property
    def lowest(self) -> tuple[int, ...]:
        """Of every coordinate, relative to its value at the first point of each loop."""
        return tuple(
            sum(min(0, s * (n - 1)) for s, n in zip(x, self.points, strict=True))
            for x in self.coordinates.strides
        )

    @cached_property
    def extents(self) -> tuple[int, ...]:
        return tuple(
            1 + sum(abs(s) * (n - 1) for s, n in zip(x, self.points, strict=True))
            for x in self.coordinates.strides
        )

    @cached_property
    def pitches(self) -> tuple[int, ...]:
        """Elements in the copy from one value of a coordinate to the next."""
        pitches, pitch = [1], 1
        for extent in reversed(self.extents[1:]):
            pitch *= extent
            if pitch >= 8 * self._line:  # an odd number of lines
                pitch = (-(-pitch // self._line) | 1) * self._line
            pitches.append(pitch)
        return tuple(reversed(pitches))

    @property
    def _line(self) -> int:
        """Elements of a cache line: of eight and more, starts are kept off common cache sets."""
        return LINE * 32 // DTYPES[self.dtype][0]

    @property
    def elements(self) -> int:
        """Of the copy, with what lies between its rows."""
        return self.pitches[0] * self.extents[0]

    @property
    def runs(self) -> int:
        """Rows of the innermost coordinate, which are copied one by one."""
        runs = 1
        for extent in self.extents[:-1]:
            runs *= extent
        return runs

    @property
    def bounds_of_runs(self) -> int:
        """Bounds of accesses that are the same along a run."""
        accesses = self.coordinates.factor.accesses
        return sum(not b.strides[-1] for a in accesses for b in a.bounds)

    @property
    def steps_apart(self) -> int:
        """Accesses whose elements lie apart along a run: they are read one by one."""
        return sum(a.strides[-1] not in (0, 1) for a in self.coordinates.factor.accesses)

    @cached_property
    def access(self) -> Access:
        """The copy as the nest's loops read it, each from its first point in the window on."""
        strides = [0] * len(self.points)
        for steps, pitch in zip(self.coordinates.strides, self.pitches, strict=True):
            for i, s in enumerate(steps):
                strides[i] += s * pitch
        base = -sum(x * pitch for x, pitch in zip(self.lowest, self.pitches, strict=True))
        return Access(-1, self.dtype, tuple(strides), base)


def coordinates_of(
    nest: Nest, factor: ProductFactor, *, copied: bool = False
) -> Coordinates | None:
    """The coordinates of a factor with pads; None if it has none, or no such coordinates.

    copied: where the factor is copied in any case, also those of windows that overlap without pads.
    """
    upstream = needed(nest, stages_read(factor.arguments))
    bounds = [b for a in factor.accesses for b in a.bounds]
    bounds += [b for i in upstream for b in nest.stages[i].bounds]
    sums = [b.strides for b in bounds if any(b.strides)]
    if copied and not bounds and len(factor.accesses) == 1:
        sums = _overlaps(nest, factor.accesses[0])
    if not sums or any(a.lookups for a in factor.accesses):
        return None
    loops = factor.loops.union(*map(access_loops, bounds))
    if any(access_loops(b) & loops for b in nest.bounds):
        return None
    forms = _forms(sums, loops, len(nest.sizes))
    if forms is None:
        return None
    rows = [a.strides for a in factor.accesses]
    if any(_steps(forms, x) is None for x in (*rows, *(b.strides for b in bounds))):
        return None
    longest = {f: max((abs(_step(f, x) or 0) for x in rows), default=0) for f in forms}
    ordered = tuple(sorted(forms, key=lambda f: -longest[f]))
    moved = Moved(
        lambda x: _steps(ordered, x) or (),
        lambda x: tuple(d for d, f in enumerate(ordered) if any(f[i] for i in x)),
        {},
    )
    stages = tuple(moved.stage(s) if i in upstream else s for i, s in enumerate(nest.stages))
    sizes = tuple(
        1 + sum(abs(s) * (n - 1) for s, n in zip(f, nest.sizes, strict=True)) for f in ordered
    )
    arguments = tuple(
        moved.access(a) if isinstance(a, Access) and a in factor.accesses else a
        for a in factor.arguments
    )
    accesses = tuple(map(moved.access, factor.accesses))
    every = frozenset(range(len(ordered)))
    here = replace(factor, arguments=arguments, loops=every, accesses=accesses)
    return Coordinates(ordered, replace(nest, sizes=sizes, stages=stages, bounds=()), here)


def _overlaps(nest: Nest, access: Access) -> list[Strides]:
    """Sums of two loops of which one walks, step by step, over what the other one steps beyond."""
    sums: list[Strides] = []
    loops = [i for i in access_loops(access) if nest.sizes[i] > 1]
    for i in loops:
        for k in loops:
            times, rest = divmod(access.strides[i], access.strides[k])
            if i != k and not rest and 0 < times < nest.sizes[k] and (times > 1 or i < k):
                sums.append(tuple({i: times, k: 1}.get(n, 0) for n in range(len(nest.sizes))))
    return sums


def _forms(sums: list[Strides], loops: frozenset[int], count: int) -> tuple[Strides, ...] | None:
    """These sums, and the other loops one by one; None if they share loops."""
    forms = list(dict.fromkeys(sums))
    taken = [i for f in forms for i, s in enumerate(f) if s]
    if len(set(taken)) < len(taken):
        return None
    for i in sorted(loops - set(taken)):
        forms.append(tuple(int(i == j) for j in range(count)))
    return tuple(forms)


def _steps(forms: tuple[Strides, ...], strides: Strides) -> Strides | None:
    """Strides over the loops as strides over the coordinates; None if they are none."""
    steps = [_step(f, strides) for f in forms]
    return None if None in steps else tuple(x for x in steps if x is not None)


def _step(form: Strides, strides: Strides) -> int | None:
    """How far one coordinate steps; None if not by a whole number for all of its loops alike."""
    pairs = {divmod(x, s) for s, x in zip(form, strides, strict=True) if s}
    if len(pairs) != 1:
        return None
    quotient, rest = pairs.pop()
    return None if rest else quotient


# ---- pads ----------------------------------------------------------------------------------------
def share_within(b: Bound, loop: int, other: int, nest: Nest) -> float:
    """Share of the points of two loops at which a bound holds."""
    step, count = b.strides[other], nest.sizes[other]
    points = 0
    for i in range(nest.sizes[loop]):
        at = b.base + b.strides[loop] * i
        low, high = (-at, b.extent - 1 - at) if step > 0 else (at - b.extent + 1, at)
        first, last = max(0, -(-low // abs(step))), min(count - 1, high // abs(step))
        points += max(0, last - first + 1)
    return points / (count * nest.sizes[loop])


def rows_within(
    b: Bound, row: int, tap: int, taps: int, rows: tuple[int, int]
) -> list[tuple[int, int]]:
    """Of every tap those of the rows first … end - 1 at which a bound holds that steps forward
    from row to row: (the first, the one behind the last), counted from the first row on."""
    (first, end), step = rows, b.strides[row]
    spans: list[tuple[int, int]] = []
    for i in range(taps):
        at = b.base + b.strides[tap] * i
        low, high = max(first, -(at // step)), min(end, -((at - b.extent) // step))
        spans.append((low - first, high - first) if low < high else (0, 0))
    return spans


def touched(steps: tuple[int, int], counts: tuple[int, int]) -> int:
    """Places that two loops with these steps touch, whole steps of either from one another."""
    apart = math.gcd(*steps) or 1
    span = 1 + sum(abs(s) * (n - 1) for s, n in zip(steps, counts, strict=True)) // apart
    return min(span, counts[0] * counts[1])
