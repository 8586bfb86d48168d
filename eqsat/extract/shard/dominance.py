"""Strategies that another one replaces in every answer (machine code).

Goldstein's rule: r replaces s if it never uses more, and costs no more whatever the neighbours
choose. Of two that replace each other the first one stays.
"""

from __future__ import annotations

import numpy as np

from eqsat.extract.machinecode import machine_code
from eqsat.extract.shard.network import Network


def irreplaceable(net: Network) -> list[np.ndarray]:
    """Per node, which of its strategies are left."""
    alive = np.ones(len(net.costs), np.bool_)
    while _dominated(net.costs, net.graph, net.pieces, alive):
        pass
    return np.split(alive, net.offsets[1:-1])


@machine_code
def _dominated(own, graph, pieces, alive):
    """Marks strategies as not alive; how many."""
    offsets, first, second, at, costs, turned, right, left, lefts, _at_first, _at_second = graph
    found = 0
    for i in range(offsets.shape[0] - 1):
        o, k = offsets[i], offsets[i + 1] - offsets[i]
        for s in range(k):
            if not alive[o + s]:
                continue
            for r in range(k):
                if r == s or not alive[o + r] or _uses_more(i, r, s, pieces):
                    continue
                margin = own[o + s] - own[o + r]
                for e in range(right[i], right[i + 1]):
                    j = second[e]
                    margin += _least(costs, at[e], s, r, alive[offsets[j] : offsets[j + 1]])
                for z in range(left[i], left[i + 1]):
                    e = lefts[z]
                    j = first[e]
                    margin += _least(turned, at[e], s, r, alive[offsets[j] : offsets[j + 1]])
                if margin >= 0:
                    alive[o + s] = False
                    found += 1
                    break
    return found


@machine_code
def _uses_more(i, r, s, pieces):
    start, _lower, _upper, at, usages = pieces
    for p in range(start[i], start[i + 1]):  # noqa: SIM110 - compiled
        if usages[at[p] + r] > usages[at[p] + s]:
            return True
    return False


@machine_code
def _least(costs, at, s, r, alive):
    """The least that row s costs more than row r, over the columns that are alive."""
    wide = alive.shape[0]
    least = np.int64(2**62)
    for t in range(wide):
        if alive[t]:
            least = min(least, costs[at + s * wide + t] - costs[at + r * wide + t])
    return least
