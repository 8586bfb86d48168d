"""Convolutions of an image spread with zeros, without the zeros.

Of `every` neighbouring positions each multiplies other elements of the window with elements of the
image; all else of the window meets zeros. So the positions become `positions` groups of `every`
phases, the window `taps` groups of `every` elements, and each phase sums over one element a group:
a transposed convolution by 2 x 2 has a quarter of the products, 4/9 of them if its window is 3 x 3.

In one dim, position p of a spread image D sums D[p + t] * w[t], where D[q] is x[(q - low) / every]
if that is whole and 0 if not. With p = every * a + r - skipped, only t = every * u + c - r is left,
where D[p + t] is x[a + u + first].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.frontends.views import Edges


@dataclass(frozen=True)
class Phases:
    """How a spatial dim is taken apart. skipped: positions in front of the first that is wanted."""

    every: int
    positions: int
    taps: int
    skipped: int
    image: Edges
    window: Edges

    def result_edges(self, extent: int) -> Edges:
        """What is cut off of all positions so that `extent` of them are left."""
        return -self.skipped, extent + self.skipped - self.every * self.positions, 0


def phases(
    p: Any, j: int, image_extent: int, window_extent: int, result_extent: int
) -> Phases | None:
    """Of spatial dim j of a `conv_general_dilated` with parameters p; None if it has no phases."""
    every, low = int(p["lhs_dilation"][j]), int(p["padding"][j][0])
    plain = int(p["window_strides"][j]) == int(p["rhs_dilation"][j]) == 1
    if every == 1 or not plain or 0 in (image_extent, window_extent, result_extent):
        return None
    # with so many positions skipped the window is divided into as few groups as can be
    aligned = (-1 - low) % every
    found = [_phases(every, low, s, image_extent, window_extent, result_extent)
             for s in (0, aligned)]  # fmt: skip
    return min(found, key=lambda f: f.taps)


def _phases(
    every: int, low: int, skipped: int, image_extent: int, window_extent: int, result_extent: int
) -> Phases:
    low += skipped
    positions = -(-(result_extent + skipped) // every)
    first = -(low // every)
    last = (window_extent - 1 + every - 1 - low) // every
    taps = last - first + 1
    before = every - 1 - (every * first + low)  # of the window, so that groups are whole
    after = every * taps - before - window_extent
    image = (-first, positions + last - image_extent, 0)
    return Phases(every, positions, taps, skipped, image, (before, after, 0))


def window_edges(found: Sequence[Phases | None], dims: Sequence[int], rank: int) -> list[Edges]:
    """Zeros around a window of this rank whose spatial dims are `dims`."""
    edges: list[Edges] = [(0, 0, 0)] * rank
    for d, f in zip(dims, found, strict=True):
        if f is not None:
            edges[d] = f.window
    return edges
