"""Sets of small numbers as the bits of one integer."""

from __future__ import annotations

from collections.abc import Iterable


def bits(number: int) -> list[int]:
    """Positions of the bits that are set, ascending."""
    found = []
    while number:
        low = number & -number
        found.append(low.bit_length() - 1)
        number ^= low
    return found


def sum_bits(masks: Iterable[int]) -> int:
    """All bits of these masks."""
    total = 0
    for m in masks:
        total |= m
    return total
