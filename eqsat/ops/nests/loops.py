"""Loops of a nest while it is built: cut where a tile cuts them, unified where they are one loop.

An index is affine over loops. Dividing one by a tile cuts the loops it is made of, so quotient and
remainder are affine again; a loop that turns out to be another one becomes an index over it. What
a loop became is looked up late (`now`), so nothing that was built has to be changed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from eqsat.model.affine import Affine, dim, map_loops

Point = tuple[Affine, ...]
ZERO = Affine(())


def affine_sum(parts: Sequence[tuple[Affine, int]], constant: int = 0) -> Affine:
    """Σ factor · index + constant."""
    if len(parts) == 1:  # as most are
        ((only, factor),) = parts
        if factor == 1 and not constant:
            return only
        terms_of = tuple([(d, s * factor) for d, s in only.terms]) if factor else ()
        return Affine(terms_of, only.constant * factor + constant)
    terms: dict[int, int] = {}
    for index, factor in parts:
        constant += index.constant * factor
        for loop, stride in index.terms:
            terms[loop] = terms.get(loop, 0) + stride * factor
    return Affine(tuple(sorted((d, s) for d, s in terms.items() if s)), constant)


class Uneven(Exception):
    """An index that no cut of its loops divides."""


@dataclass
class LoopRun:
    """Loops that are executed together: those a stage or store runs over, in index space.

    What they become has to run over the same points once: reductions exactly, and apart from the
    point at which they are computed; the dims of a write may become what reaches beyond them.
    """

    point: Point  # of a reduction, else ()
    indices: Point  # over which it reduces, or that it writes
    sizes: tuple[int, ...]
    reduces: bool


@dataclass
class Loops:
    """sizes: by loop. lookups: loops that are the number found in an index buffer, by a key.

    contracted: loops over which a contraction sums; they are unified with each other only, unless
    it is a value of the nest that they read.
    """

    sizes: list[int] = field(default_factory=list)
    became: dict[int, Affine] = field(default_factory=dict)
    uneven: list[int] = field(default_factory=list)  # loops cut by what does not divide them
    lookups: dict[int, object] = field(default_factory=dict)
    contracted: set[int] = field(default_factory=set)
    groups: list[LoopRun] = field(default_factory=list)

    def new(self, size: int, contracted: bool = False) -> Affine:
        """A loop of this extent; 0 if that is 1."""
        if size == 1:
            return ZERO
        self.sizes.append(size)
        if contracted:
            self.contracted.add(len(self.sizes) - 1)
        return Affine(((len(self.sizes) - 1, 1),))

    def lookup(self, number: object, size: int) -> Affine:
        """The number that an index buffer holds there, as if it were a loop."""
        if size == 1:
            return ZERO
        index = self.new(size)
        self.lookups[index.terms[0][0]] = number
        return index

    def now(self, index: Affine) -> Affine:
        """The index over the loops there are now."""
        became = self.became
        while became:
            for d, _ in index.terms:
                if d in became:
                    break
            else:
                return index
            parts = [(became[d], s) for d, s in index.terms if d in became]
            rest = Affine(tuple([t for t in index.terms if t[0] not in became]), index.constant)
            index = affine_sum([*parts, (rest, 1)])
        return index

    def all_now(self, indices: Point) -> Point:
        """A point over the loops there are now."""
        return tuple([self.now(i) for i in indices]) if self.became else indices

    def span(self, index: Affine) -> tuple[int, int]:
        """The smallest and the largest value of an index; bounds of the nest are not looked at."""
        low = high = index.constant
        sizes = self.sizes
        for loop, stride in index.terms:
            reach = stride * (sizes[loop] - 1)
            if reach < 0:
                low += reach
            else:
                high += reach
        return low, high

    def is_within(self, index: Affine, size: int) -> bool:
        """Whether an index is one of 0 … size - 1 at every point that exists."""
        low, high = self.span(index)
        if low < 0 or high < size:
            return low >= 0
        return any(self.sizes[u] <= size and self.now(dim(u)) == index for u in self.uneven)

    # ---- cutting
    def divided(self, index: Affine, tile: int) -> tuple[Affine, Affine]:
        """(index // tile, index % tile); Uneven where no cut of the loops gives them."""
        index = self.now(index)
        while True:
            above, start = divmod(index.constant, tile)
            high = [(d, s // tile) for d, s in index.terms if s % tile == 0]
            low = [(d, s) for d, s in index.terms if s % tile]
            least, most = self.span(Affine(tuple(low), start))
            if least >= 0 and most < tile:
                return Affine(tuple(high), above), Affine(tuple(low), start)
            cut = next((t for t in low if self._can_cut(*t, tile)), None)
            if cut is None:
                raise Uneven
            loop, stride = cut
            if start >= stride and self._only_writes(loop):
                self._begin_below(loop, start // stride, tile // stride)
            else:
                self._cut(loop, tile // stride)
            index = self.now(index)

    def _can_cut(self, loop: int, stride: int, tile: int) -> bool:
        inside = 0 < stride < tile and tile % stride == 0
        return inside and self.sizes[loop] * stride > tile and loop not in self.lookups

    def _begin_below(self, loop: int, count: int, by: int) -> None:
        """Let a loop of a result count from so far below 0 that a cut begins with a whole tile.

        As behind a pad: rows 2 i + 1 and 2 i + 2 of the result are 2 i and 2 i + 1 of the operand.
        """
        longer = self.new(-(-(self.sizes[loop] + count) // by) * by)
        self.became[loop] = affine_sum([(longer, 1)], -count)

    def _cut(self, loop: int, by: int) -> None:
        size, contracted = self.sizes[loop], loop in self.contracted
        outer, inner = self.new(-(-size // by), contracted), self.new(by, contracted)
        self.became[loop] = affine_sum([(outer, by), (inner, 1)])
        if size % by:
            self.uneven.append(loop)

    # ---- unifying
    def unify(self, new: Point, old: Point, is_value: bool) -> bool:
        """Make two points the same where that makes no group run over other points than before.

        is_value: it is a value of the nest that is read there, not a buffer.
        """
        size, uneven = len(self.sizes), list(self.uneven)
        became, contracted = dict(self.became), set(self.contracted)
        equated = all(self._equate(a, b, is_value) for a, b in zip(new, old, strict=True))
        if equated and (self._are_kept() or self._are_kept_by_stores()):
            return True
        del self.sizes[size:]
        self.became, self.contracted, self.uneven = became, contracted, uneven
        return False

    def _equate(self, a: Affine, b: Affine, is_value: bool) -> bool:
        a, b = self.now(a), self.now(b)
        if a == b:
            return True
        same = set(a.terms) & set(b.terms)
        left = [t for t in a.terms if t not in same]
        right = [t for t in b.terms if t not in same]
        gap = b.constant - a.constant
        return self._solve(left, right, gap, is_value) or self._solve(right, left, -gap, is_value)

    def _solve(
        self, digits: list[tuple[int, int]], rest: list[tuple[int, int]], gap: int, is_value: bool
    ) -> bool:
        """Σ digits = Σ rest + gap, solved for the loops of `digits`, a number in mixed radix.

        A radix may be larger than its loop: what the digit becomes has to be smaller.
        """
        digits = sorted(digits, key=lambda t: t[1])
        free = {d for d, _ in digits}
        if not digits or free & ({d for d, _ in rest} | self.lookups.keys()):
            return False
        unit = digits[0][1]
        if unit < 1 or gap % unit or any(s % unit for _, s in rest):
            return False
        left, solved = Affine(tuple((d, s // unit) for d, s in rest), gap // unit), []
        for (loop, stride), (_, above) in pairwise([*digits, (-1, 0)]):
            if above % stride:
                return False
            try:
                left, here = self.divided(left, above // stride) if above else (ZERO, left)
            except Uneven:
                return False
            if above and self.span(here)[1] >= self.sizes[loop]:
                return False
            solved.append((loop, here))
        for loop, here in solved:
            if not self._may_become(loop, self.now(here), is_value):
                return False
            self.became[loop] = here
        return True

    def _may_become(self, loop: int, index: Affine, is_value: bool) -> bool:
        names = {d for d, _ in index.terms}
        if loop in names or names & self.lookups.keys():
            return False
        sides = {d in self.contracted for d in (loop, *names)}
        shifted = Affine(index.terms)
        counts = self.is_number(index) or (self._only_writes(loop) and self.is_number(shifted))
        return (is_value or len(sides) == 1) and counts

    def _only_writes(self, loop: int) -> bool:
        """Whether a loop numbers elements of a result, and no reduction depends on it.

        Such a loop may count from below 0, as where a result is a slice of another one's value:
        nothing is written outside of it. Of a number with several digits that is the first one.
        """
        groups = [(g.reduces, self.all_now((*g.point, *g.indices))) for g in self.groups]
        uses = [(reduces, i) for reduces, at in groups for i in at if loop in map_loops([i])]
        leads = all(max(i.terms, key=lambda t: t[1])[0] == loop for _, i in uses)
        return bool(uses) and leads and not any(reduces for reduces, _ in uses)

    def is_number(self, index: Affine) -> bool:
        """Whether an index counts from 0 up, each number once: its loops are digits of it."""
        step = 1
        for loop, stride in sorted(index.terms, key=lambda t: t[1]):
            if stride != step:
                return False
            step *= self.sizes[loop]
        return index.constant == 0

    def _are_kept(self) -> bool:
        """Whether every group still runs over all of its points once."""
        cut = [
            (index, self.sizes[u])
            for u in self.uneven
            if not self._holds(u, index := self.now(dim(u)))
        ]
        return all(self._is_kept(g, cut) for g in self.groups)

    def _are_kept_by_stores(self) -> bool:
        """`_are_kept`, if what ends within a tile because a result does is tested at its store.

        So a product may be written as it is and in panels, whose last one has open lanes.
        """
        written = [i for g in self.groups if not g.reduces for i in g.indices]
        named = map_loops(written)
        while further := map_loops([self.became[d] for d in named & self.became.keys()]) - named:
            named |= further
        self.uneven = [u for u in self.uneven if u not in named]
        return self._are_kept()

    def _holds(self, loop: int, index: Affine) -> bool:
        low, high = self.span(index)
        return low >= 0 and high < self.sizes[loop]

    def _is_kept(self, g: LoopRun, cut: Sequence[tuple[Affine, int]]) -> bool:
        """cut: the indices by which bounds of the nest cut off points, and their extents."""
        seen = map_loops(self.all_now(g.point))
        for index, size in zip(self.all_now(g.indices), g.sizes, strict=True):
            loops = map_loops([index])
            if loops & seen or not self.is_number(Affine(index.terms)):
                return False
            first, end = self._values(index, loops, cut)
            if (first, end) != (0, size) if g.reduces else first > 0 or end < size:
                return False
            seen |= loops
        return True

    def _values(
        self, index: Affine, loops: set[int], cut: Sequence[tuple[Affine, int]]
    ) -> tuple[int, int]:
        """The first value and the one behind the last that a number takes at points that exist.

        Nothing, (0, 0), where a bound cuts its loops and others, or leaves gaps.
        """
        first, end = 0, math.prod(self.sizes[d] for d in loops)
        for bound, size in cut:
            named = map_loops([bound])
            if not named & loops:
                continue
            step = min(s for d, s in index.terms if d in named)  # the bound is of its upper digits
            above = tuple([(d, s // step) for d, s in index.terms if s >= step])
            if named - loops or bound.terms != above:
                return 0, 0
            first = max(first, -bound.constant * step)
            end = min(end, (size - bound.constant) * step)
        return index.constant + first, index.constant + end
