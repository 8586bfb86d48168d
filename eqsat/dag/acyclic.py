"""Acyclicity by vertex elimination: which arcs to watch, and which follow from which.

Rankooh and Rintanen, "Propositional encodings of acyclicity and reachability by using vertex
elimination" (AAAI 2022): arcs are transitive through every vertex that is eliminated, and no two
arcs may face each other.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eqsat.dag.problem import Derivation

Arc = tuple[int, int]


@dataclass(frozen=True)
class Elimination:
    """`joined`: (a, b, c) means that arcs ab and bc make arc ac; `facing`: arcs that exclude."""

    arcs: tuple[Arc, ...]
    joined: tuple[tuple[int, int, int], ...]
    facing: tuple[tuple[Arc, Arc], ...]


def inner_arcs(classes: Mapping[int, Iterable[Derivation]], part: Iterable[int]) -> list[Arc]:
    """(class, child) within one strongly connected component."""
    inside = set(part)
    found = {(c, d) for c in inside for o in classes[c] for d in o.children & inside}
    return sorted(found)


def eliminate(arcs: list[Arc], most: int) -> Elimination | None:
    """Eliminate vertices, fewest new arcs first; None if more than `most` triples are needed."""
    after: dict[int, set[int]] = {}
    before: dict[int, set[int]] = {}
    for a, b in arcs:
        for v in (a, b):
            after.setdefault(v, set())
            before.setdefault(v, set())
        after[a].add(b)
        before[b].add(a)
    known = dict.fromkeys(arcs)
    heap = [(len(before[v]) * len(after[v]), v) for v in after]
    heapq.heapify(heap)
    gone: set[int] = set()
    joined: list[tuple[int, int, int]] = []
    while heap:
        size, v = heapq.heappop(heap)
        if v in gone:
            continue
        if len(before[v]) * len(after[v]) != size:
            heapq.heappush(heap, (len(before[v]) * len(after[v]), v))
            continue
        gone.add(v)
        for a in sorted(before[v]):
            after[a].discard(v)
            for c in sorted(after[v] - {a}):
                joined.append((a, v, c))
                known[a, c] = None
                after[a].add(c)
                before[c].add(a)
        if len(joined) > most:
            return None
        near = before[v] | after[v]
        for c in after[v]:
            before[c].discard(v)
        for w in sorted(near):
            heapq.heappush(heap, (len(before[w]) * len(after[w]), w))
    facing = tuple(((a, b), (b, a)) for a, b in known if a < b and (b, a) in known)
    return Elimination(tuple(known), tuple(joined), facing)
