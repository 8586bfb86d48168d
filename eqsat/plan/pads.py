"""At which points of loops an element is no pad: what a bound says of rows and taps."""

from __future__ import annotations

import math

from eqsat.model.nest import Bound, Nest


def share_within(b: Bound, loop: int, other: int, nest: Nest) -> float:
    """Share of the points of two loops at which a bound holds."""
    step, count = b.strides[other], nest.sizes[other]
    found = 0
    for i in range(nest.sizes[loop]):
        at = b.base + b.strides[loop] * i
        low, high = (-at, b.extent - 1 - at) if step > 0 else (at - b.extent + 1, at)
        first, last = max(0, -(-low // abs(step))), min(count - 1, high // abs(step))
        found += max(0, last - first + 1)
    return found / (count * nest.sizes[loop])


def rows_within(
    b: Bound, row: int, tap: int, taps: int, rows: tuple[int, int]
) -> list[tuple[int, int]]:
    """Of every tap those of the rows first … end - 1 at which a bound holds that steps forward
    from row to row: (the first, the one behind the last), counted from the first row on."""
    (first, end), step = rows, b.strides[row]
    found: list[tuple[int, int]] = []
    for i in range(taps):
        at = b.base + b.strides[tap] * i
        low, high = max(first, -(at // step)), min(end, -((at - b.extent) // step))
        found.append((low - first, high - first) if low < high else (0, 0))
    return found


def touched(steps: tuple[int, int], counts: tuple[int, int]) -> int:
    """Places that two loops with these steps touch, whole steps of either from one another."""
    apart = math.gcd(*steps) or 1
    span = 1 + sum(abs(s) * (n - 1) for s, n in zip(steps, counts, strict=True)) // apart
    return min(span, counts[0] * counts[1])
