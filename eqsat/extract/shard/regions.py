"""Large neighbourhoods (machine code): trees of nodes are chosen anew, the rest of them stays.

A region is some nodes that are live in one busy step, and trees of the graph around them. The best
choice for trees under prices of usage is exact, by dynamic programming; what it uses too much of is
put right by the descent. What is not better in the end is undone.
"""

from __future__ import annotations

import numpy as np

from eqsat.extract.machinecode import machine_code
from eqsat.extract.shard.descent import change_node, descend, total_cost
from eqsat.extract.shard.vectors import add, copy, greatest, lowest

MOST_SEEDS, MOST_NODES = 6, 64  # of a region


@machine_code
def search_regions(
    choice, cost, use, prices, penalty, limit, costs, graph, pieces, trials, seed
):  # fmt: skip
    """The cost after so many trials; `choice` and `use` follow. They are within the limit."""
    np.random.seed(seed)
    offsets = graph[0]
    nodes = offsets.shape[0] - 1
    widest = 1
    for i in range(nodes):
        widest = max(widest, offsets[i + 1] - offsets[i])
    total = np.zeros(prices.shape[0] + 1)
    for t in range(prices.shape[0]):
        total[t + 1] = total[t] + prices[t]
    steps = use.shape[0]
    before, used_before = choice.copy(), use.copy()
    values = np.empty((MOST_NODES, widest))
    best = np.empty((MOST_NODES, widest), np.int64)
    place = np.full(nodes, -1, np.int64)
    waiting = np.zeros(nodes, np.int8)
    for _ in range(trials):
        factor = np.exp(np.random.normal(0.0, 0.5))
        region, parent, edge = _region(total, graph, pieces, place)
        changed = _choose(
            region, parent, edge, place, choice, use, factor * total, costs, graph, pieces,
            values, best,
        )  # fmt: skip
        for i in region:
            place[i] = -1
        if not changed:
            continue
        for i in region:
            waiting[i] = 1
        descend(choice, use, penalty, limit, costs, graph, pieces, region, waiting)
        now = cost + 1
        if steps == 0 or greatest(use, 0, steps) <= limit:
            now = total_cost(costs, graph, choice)
        if now <= cost:
            cost = now
            copy(before, choice, 0, nodes)
            copy(used_before, use, 0, steps)
        else:
            copy(choice, before, 0, nodes)
            copy(use, used_before, 0, steps)
    return cost


@machine_code
def _region(total, graph, pieces, place):
    """Nodes in an order in which a parent comes before its children; parents (or -1), edges.

    `place` is where each of them is in that order.
    """
    offsets, first, second, _at, _pairs, _turned, right, left, lefts = graph[:9]
    nodes = offsets.shape[0] - 1
    most = 2 + np.random.randint(MOST_NODES - 1)
    region = np.empty(most, np.int64)
    parent = np.full(most, -1, np.int64)
    edge = np.full(most, -1, np.int64)
    size = 0
    head = 0
    for seed in _seeds(total, nodes, pieces):
        if (
            size < most
            and offsets[seed + 1] - offsets[seed] > 1
            and _links(seed, graph, place) == 0
        ):
            region[size] = seed
            place[seed] = size
            size += 1
    while head < size < most:
        i = region[head]
        degree = right[i + 1] - right[i] + left[i + 1] - left[i]
        shift = np.random.randint(max(degree, 1))
        for q in range(degree):
            z = (q + shift) % degree
            if z < right[i + 1] - right[i]:
                e = right[i] + z
                j = second[e]
            else:
                e = lefts[left[i] + z - (right[i + 1] - right[i])]
                j = first[e]
            if size == most:
                break
            if place[j] >= 0 or offsets[j + 1] - offsets[j] == 1 or _links(j, graph, place) != 1:
                continue
            region[size], parent[size], edge[size] = j, head, e
            place[j] = size
            size += 1
        head += 1
    return region[:size], parent[:size], edge[:size]


@machine_code
def _seeds(total, nodes, pieces):
    """Some node, or some nodes that are live in a step that is drawn by its price."""
    start, lower, upper = pieces[:3]
    steps = total.shape[0] - 1
    if total[steps] == 0 or np.random.random() < 0.3:
        return _one(nodes)
    drawn = np.random.random() * total[steps]
    step, above = 0, steps - 1  # the first step whose sum of prices is above
    while step < above:
        middle = (step + above) // 2
        if total[middle + 1] > drawn:
            above = middle
        else:
            step = middle + 1
    live = np.empty(nodes, np.int64)
    found = 0
    for i in range(nodes):
        for p in range(start[i], start[i + 1]):
            if lower[p] <= step < upper[p]:
                live[found] = i
                found += 1
                break
    if found == 0:
        return _one(nodes)
    drawn_nodes = np.empty(1 + np.random.randint(MOST_SEEDS), np.int64)
    for q in range(drawn_nodes.shape[0]):
        drawn_nodes[q] = live[np.random.randint(found)]
    return drawn_nodes


@machine_code
def _one(nodes):
    drawn = np.empty(1, np.int64)
    drawn[0] = np.random.randint(nodes)
    return drawn


@machine_code
def _links(i, graph, place):
    """How many neighbours of i are in the region; it stays a forest if that is at most 1."""
    first, second = graph[1], graph[2]
    right, left, lefts = graph[6], graph[7], graph[8]
    found = 0
    for e in range(right[i], right[i + 1]):
        if place[second[e]] >= 0:
            found += 1
    for z in range(left[i], left[i + 1]):
        if place[first[lefts[z]]] >= 0:
            found += 1
    return found


@machine_code
def _choose(
    region, parent, edge, place, choice, use, total, costs, graph, pieces, values, best
):  # fmt: skip
    """The best choice of the trees with usages priced; whether it is another one."""
    offsets, first, _second, at, pairs, turned, _right, _left, _lefts = graph[:9]
    size = region.shape[0]
    for q in range(size):
        _own(region[q], place, choice, total, costs, graph, pieces, values[q])
    for q in range(size - 1, -1, -1):
        if parent[q] < 0:
            continue
        i, up = region[q], region[parent[q]]
        k, wide = offsets[i + 1] - offsets[i], offsets[up + 1] - offsets[up]
        table = turned if first[edge[q]] == up else pairs
        b = at[edge[q]]
        for t in range(wide):
            least, found = np.inf, 0
            for s in range(k):
                v = values[q, s] + table[b + s * wide + t]
                if v < least:
                    least, found = v, s
            values[parent[q], t] += least
            best[q, t] = found
    changed = False
    for q in range(size):
        i = region[q]
        k = offsets[i + 1] - offsets[i]
        s = lowest(values[q], 0, k) if parent[q] < 0 else best[q, choice[region[parent[q]]]]
        if s != choice[i]:
            changed = True
            change_node(i, s, choice, use, pieces)
    return changed


@machine_code
def _own(i, place, choice, total, costs, graph, pieces, out):
    """What each strategy of i costs with the neighbours outside of the region, and its usage."""
    offsets, first, second, at, pairs, turned, right, left, lefts = graph[:9]
    start, lower, upper, rows, usages = pieces
    o, k = offsets[i], offsets[i + 1] - offsets[i]
    copy(out, costs, o, k)
    for e in range(right[i], right[i + 1]):
        if place[second[e]] < 0:
            add(out, turned, at[e] + choice[second[e]] * k, k)
    for z in range(left[i], left[i + 1]):
        e = lefts[z]
        if place[first[e]] < 0:
            add(out, pairs, at[e] + choice[first[e]] * k, k)
    for p in range(start[i], start[i + 1]):
        price = total[upper[p]] - total[lower[p]]
        if price != 0:
            for s in range(k):
                out[s] += price * usages[rows[p] + s]
