"""Things in an order in which each comes after what is before it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any


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
