"""Sets of small numbers and orders: bits of one integer, union-find, topological, by key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, TypeVar

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


def topological(before: Sequence[Iterable[int]], keys: Sequence[Any] | None = None) -> list[int]:
    """An order in which everything comes after what is before it, else by keys or numbers.

    ValueError on a cycle.
    """
    rank = range(len(before)) if keys is None else _ranks(keys)
    waiting = [len(set(p)) for p in before]
    following: list[list[int]] = [[] for _ in before]
    for i, p in enumerate(before):
        for q in set(p):
            following[q].append(i)
    ready = [(rank[i], i) for i, n in enumerate(waiting) if n == 0]
    heapify(ready)
    order = []
    while ready:
        _, i = heappop(ready)
        order.append(i)
        for j in following[i]:
            waiting[j] -= 1
            if waiting[j] == 0:
                heappush(ready, (rank[j], j))
    if len(order) < len(before):
        raise ValueError("dispatches wait for each other")
    return order


def _ranks(keys: Sequence[Any]) -> list[int]:
    ranks = [0] * len(keys)
    for n, i in enumerate(sorted(range(len(keys)), key=lambda i: keys[i])):
        ranks[i] = n
    return ranks


def by_key(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The values of each key in the order of the pairs; keys in that of their first values."""
    lists: dict[K, list[V]] = {}
    for key, value in pairs:
        lists.setdefault(key, []).append(value)
    return lists
