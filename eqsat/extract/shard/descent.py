"""Local search on a network (machine code): costs, and a penalty for what is used beyond the limit.

penalty: per step, what a unit above the limit costs.
"""

from __future__ import annotations

import numpy as np

from eqsat.extract.machinecode import machine_code
from eqsat.extract.shard.vectors import add, copy, greatest, lowest

LEAST_GAIN = 1e-3  # costs are whole numbers; sums of penalties are not


@machine_code
def price_usages(costs, graph, pieces, prices, theta):
    """Costs of strategies, and what they use at these prices per step → theta."""
    start, lower, upper, at, usages = pieces
    offsets = graph[0]
    total = np.zeros(prices.shape[0] + 1)
    for t in range(prices.shape[0]):
        total[t + 1] = total[t] + prices[t]
    copy(theta, costs, 0, costs.shape[0])
    for i in range(offsets.shape[0] - 1):
        o, k = offsets[i], offsets[i + 1] - offsets[i]
        for p in range(start[i], start[i + 1]):
            price = total[upper[p]] - total[lower[p]]
            if price != 0:
                for s in range(k):
                    theta[o + s] += price * usages[at[p] + s]


@machine_code
def used(base, pieces, choice, out):
    """What is used in each step."""
    start, lower, upper, at, usages = pieces
    change = np.zeros(base.shape[0] + 1, np.int64)
    for i in range(choice.shape[0]):
        for p in range(start[i], start[i + 1]):
            change[lower[p]] += usages[at[p] + choice[i]]
            change[upper[p]] -= usages[at[p] + choice[i]]
    now = 0
    for t in range(base.shape[0]):
        now += change[t]
        out[t] = base[t] + now


@machine_code
def expected_use(base, graph, pieces, weights, out):
    """The same of a mixture: `weights` per strategy."""
    start, lower, upper, at, usages = pieces
    offsets = graph[0]
    change = np.zeros(base.shape[0] + 1)
    for i in range(offsets.shape[0] - 1):
        k = offsets[i + 1] - offsets[i]
        for p in range(start[i], start[i + 1]):
            mean = 0.0
            for s in range(k):
                mean += usages[at[p] + s] * weights[offsets[i] + s]
            change[lower[p]] += mean
            change[upper[p]] -= mean
    now = 0.0
    for t in range(base.shape[0]):
        now += change[t]
        out[t] = base[t] + now


@machine_code
def total_cost(costs, graph, choice):
    """The costs of nodes and edges, an integer if they are."""
    offsets, first, second, at, pairs = graph[:5]
    total = costs[0] * 0
    for i in range(choice.shape[0]):
        total += costs[offsets[i] + choice[i]]
    for e in range(first.shape[0]):
        wide = offsets[second[e] + 1] - offsets[second[e]]
        total += pairs[at[e] + choice[first[e]] * wide + choice[second[e]]]
    return total


@machine_code
def change_node(i, s, choice, use, pieces):
    """Strategy s for node i; `use` follows."""
    start, lower, upper, at, usages = pieces
    for p in range(start[i], start[i + 1]):
        more = usages[at[p] + s] - usages[at[p] + choice[i]]
        if more != 0:
            for t in range(lower[p], upper[p]):
                use[t] += more
    choice[i] = s


@machine_code
def _around(i, choice, costs, graph, out):
    """What each strategy of i costs with its neighbours as they are."""
    offsets, first, second, at, pairs, turned, right, left, lefts = graph[:9]
    o, k = offsets[i], offsets[i + 1] - offsets[i]
    copy(out, costs, o, k)
    for e in range(right[i], right[i + 1]):
        add(out, turned, at[e] + choice[second[e]] * k, k)
    for z in range(left[i], left[i + 1]):
        e = lefts[z]
        add(out, pairs, at[e] + choice[first[e]] * k, k)


@machine_code
def _penalised(i, choice, use, limit, penalty, pieces, k, out):
    """Adds to `out` by how much each strategy of i changes the penalty."""
    start, lower, upper, at, usages = pieces
    for p in range(start[i], start[i + 1]):
        b = at[p]
        now = usages[b + choice[i]]
        most = greatest(usages, b, b + k) - now
        peak = greatest(use, lower[p], upper[p])
        if peak + most <= limit:
            continue
        for s in range(k):
            more = usages[b + s] - now
            if more == 0 or (peak <= limit and peak + more <= limit):
                continue
            change = 0.0
            for t in range(lower[p], upper[p]):
                over = use[t] - limit
                if over + more > 0:
                    change += penalty[t] * (over + more - max(over, 0))
                elif over > 0:
                    change -= penalty[t] * over
            out[s] += change


@machine_code
def descend(choice, use, penalty, limit, costs, graph, pieces, queue, waiting):
    """Best changes of single nodes until none helps; how many were made.

    queue: the nodes to look at first; `waiting` has a 1 for each of these, and zeros at the end.
    """
    offsets, first, second, _at, _pairs, _turned, right, left, lefts = graph[:9]
    nodes = offsets.shape[0] - 1
    widest = 1
    for i in range(nodes):
        widest = max(widest, offsets[i + 1] - offsets[i])
    out = np.empty(widest)
    ring = np.empty(nodes + 1, np.int64)
    copy(ring, queue, 0, queue.shape[0])
    head, length, changes = 0, queue.shape[0], 0
    while length > 0:
        i = ring[head]
        head = (head + 1) % (nodes + 1)
        length -= 1
        waiting[i] = 0
        k = offsets[i + 1] - offsets[i]
        if k == 1:
            continue
        _around(i, choice, costs, graph, out)
        now = out[choice[i]]
        _penalised(i, choice, use, limit, penalty, pieces, k, out)
        best = lowest(out, 0, k)
        if out[best] >= now - LEAST_GAIN:
            continue
        change_node(i, best, choice, use, pieces)
        changes += 1
        for e in range(right[i], right[i + 1]):
            j = second[e]
            if waiting[j] == 0:
                waiting[j] = 1
                ring[(head + length) % (nodes + 1)] = j
                length += 1
        for z in range(left[i], left[i + 1]):
            j = first[lefts[z]]
            if waiting[j] == 0:
                waiting[j] = 1
                ring[(head + length) % (nodes + 1)] = j
                length += 1
    return changes
