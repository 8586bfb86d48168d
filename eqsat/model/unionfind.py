"""Sets that grow together, such as classes of an e-graph that hold the same bytes."""

from __future__ import annotations

from collections.abc import Iterable


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
