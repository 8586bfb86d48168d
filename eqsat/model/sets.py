"""Sets of small numbers: as bits of one integer, disjoint ones (union-find), and by a key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

FEW = 512  # bits up to which one after the other is as fast
WORD = 64  # bits of one element where sets are rows of an array
K = TypeVar("K")
V = TypeVar("V")


def bits(number: int) -> list[int]:
    """Positions of the bits that are set, ascending."""
    if number.bit_length() > FEW:
        return _many(number)
    positions = []
    while number:
        low = number & -number
        positions.append(low.bit_length() - 1)
        number ^= low
    return positions


def _many(number: int) -> list[int]:
    """`bits` of a long number, whose every bit taken out would cost its length."""
    import numpy as np

    data = np.frombuffer(number.to_bytes(-(-number.bit_length() // 8), "little"), np.uint8)
    return np.flatnonzero(np.unpackbits(data, bitorder="little")).tolist()


def mask(positions: Iterable[int]) -> int:
    """Undo `bits`; the positions may come in any order."""
    packed = bytearray()
    for p in positions:
        at = p >> 3
        if at >= len(packed):
            packed.extend(bytes(at + 1 - len(packed)))
        packed[at] |= 1 << (p & 7)
    return int.from_bytes(packed, "little")


def sum_bits(masks: Iterable[int]) -> int:
    """All bits of these masks."""
    total = 0
    for m in masks:
        total |= m
    return total


def union_find(size: int, pairs: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """Per element 0 … size-1 the smallest one of its set; the two of a pair are in one set."""
    parent = list(range(size))

    def root(a: int) -> int:
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        return a

    for a, b in pairs:
        x, y = root(a), root(b)
        parent[max(x, y)] = min(x, y)
    return tuple(root(a) for a in range(size))


def by_key(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The values of each key in the order of the pairs; keys in that of their first values."""
    lists: dict[K, list[V]] = {}
    for key, value in pairs:
        lists.setdefault(key, []).append(value)
    return lists
