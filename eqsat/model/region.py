"""A part of a value: which of its elements are read."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from eqsat.model.attr import Shape


@dataclass(frozen=True)
class Indices:
    """Of a dim: indices that lie in `within`, which has a positive step; `most` of them."""

    within: range
    most: int

    def join(self, other: Indices) -> Indices:
        """Indices that hold both; neither has none."""
        a, b = self.within, other.within
        steps = [r.step for r in (a, b) if len(r) > 1]
        step = math.gcd(*steps, abs(a.start - b.start)) or 1
        within = range(min(a.start, b.start), max(a[-1], b[-1]) + 1, step)
        return some_of(within, self.most + other.most)


def some_of(within: range, most: int | None = None) -> Indices:
    """At most so many of these indices; all of them if the number is not given."""
    return Indices(within, len(within) if most is None else min(most, len(within)))


@dataclass(frozen=True)
class Region:
    """Elements of a value, `most` of those whose indices lie in `dims`.

    It may hold more than is read, never less.
    """

    dims: tuple[Indices, ...]
    most: int

    def join(self, other: Region) -> Region:
        """A region that holds both; of values of one shape."""
        pairs = zip(self.dims, other.dims, strict=True)
        return region_of((a.join(b) for a, b in pairs), self.most + other.most)


def region_of(dims: Iterable[Indices], most: int | None = None) -> Region:
    """At most so many of the elements at these indices; all of them if the number is not given."""
    dims = tuple(dims)
    every = math.prod(d.most for d in dims)
    return Region(dims, every if most is None else min(most, every))


def whole_region(shape: Shape) -> Region:
    """All of a value of this shape."""
    return region_of(some_of(range(s)) for s in shape)
