"""Work that no answer avoids: prices of nodes in, picoseconds that any choice of them takes out.

Values are computed by one of their nodes each, so the results take at least what the cheapest nodes
of the values take that every derivation computes, and in addition the dearest chain of what these
nodes cost more: the admissible maximum of planning (Bonet and Geffner, AIJ 2001), after a share of
every cost was counted. Nothing is enumerated.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from eqsat.extract.candidates.cover import necessary, union
from eqsat.model.deadline import OutOfTime, tick


class PricedWay(NamedTuple):
    """One way to a value: its own picoseconds, and the values that it needs."""

    cost_ps: float
    reads: frozenset[int]


PricedWays = Mapping[int, Sequence[PricedWay]]  # per value; what is there from the start has none


def least_ps(ways: PricedWays, results: Collection[int]) -> float:
    """Picoseconds that every derivation of the results takes at the least."""
    needed = needed_of(ways, results)
    base = {v: min(w.cost_ps for w in ways[v]) for v in needed if v in ways}
    left = {v: [w._replace(cost_ps=w.cost_ps - base.get(v, 0.0)) for w in ways[v]] for v in ways}
    try:
        longest = _longest(left)
    except OutOfTime:
        longest = {}
    return math.fsum(base.values()) + max((longest.get(v, 0.0) for v in results), default=0.0)


def needed_of(ways: PricedWays, results: Collection[int]) -> frozenset[int]:
    """The values that every derivation of the results needs, the results among them."""
    need = necessary({v: [w.reads for w in own] for v, own in ways.items()})
    total = union(need, results)
    return frozenset(v for v in need if total >> v & 1)


def _longest(ways: PricedWays) -> dict[int, float]:
    """Per value the cost of its dearest chain at the least, by Knuth's form of Dijkstra's search.

    Values without ways are there, and cost nothing.
    """
    readers: dict[int, list[tuple[int, int]]] = {}
    missing: dict[tuple[int, int], int] = {}
    found: dict[int, float] = {}
    waiting: list[tuple[float, int]] = []
    for v, own in ways.items():
        for i, way in enumerate(own):
            open_ = [r for r in way.reads if r in ways]
            missing[v, i] = len(open_)
            for r in open_:
                readers.setdefault(r, []).append((v, i))
            if not open_:
                heapq.heappush(waiting, (way.cost_ps, v))
    while waiting:
        tick()
        cost, v = heapq.heappop(waiting)
        if v in found:
            continue
        found[v] = cost
        for reader, i in readers.get(v, ()):
            missing[reader, i] -= 1
            if not missing[reader, i]:  # the last of its operands is the dearest
                heapq.heappush(waiting, (cost + ways[reader][i].cost_ps, reader))
    return found
