"""Local search on a network (machine code): better nodes one by one, and trees of nodes at once.

Costs, and a penalty for what is used beyond the limit, go down by changes of single nodes. A region
is some nodes that are live in one busy step, and trees of the graph around them. The best choice
for trees under prices of usage is exact, by dynamic programming; what it uses too much of is put
right by single changes. What is not better in the end is undone.
penalty: per step, what a unit above the limit costs. Loops over parts of arrays are compiled in a
tenth of the time that slices take.
"""

from __future__ import annotations

import numpy as np

from eqsat.extract.machinecode import machine_code

MOST_SEEDS, MOST_NODES = 6, 64  # of a region


# ---- parts of arrays -----------------------------------------------------------------------------
@machine_code
def copy(out, values, at, count):
    """out[:count] = values[at : at + count]."""
    for s in range(count):
        out[s] = values[at + s]


@machine_code
def add(out, values, at, count):
    """out[:count] += values[at : at + count]."""
    for s in range(count):
        out[s] += values[at + s]


@machine_code
def lowest(values, at, count):
    """Where the least of values[at : at + count] is, from `at`; the first one."""
    best = 0
    for s in range(1, count):
        if values[at + s] < values[at + best]:
            best = s
    return best


@machine_code
def _greatest(values, start, stop):
    """The largest of values[start:stop], of which there is one."""
    greatest = values[start]
    for t in range(start + 1, stop):
        greatest = max(greatest, values[t])
    return greatest


# ---- single nodes --------------------------------------------------------------------------------
@machine_code
def _change_node(i, s, choice, use, pieces):
    """Strategy s for node i; `use` follows."""
    start, lower, upper, at, usages = pieces
    for p in range(start[i], start[i + 1]):
        more = usages[at[p] + s] - usages[at[p] + choice[i]]
        if more != 0:
            for t in range(lower[p], upper[p]):
                use[t] += more
    choice[i] = s


@machine_code
def _around(i, choice, place, costs, graph, out):
    """Costs of each strategy of i with its neighbours outside of the region as they are."""
    offsets, start, _middle, head, _back, at, tables, _slot = graph
    o, k = offsets[i], offsets[i + 1] - offsets[i]
    copy(out, costs, o, k)
    for a in range(start[i], start[i + 1]):
        if place[head[a]] < 0:
            add(out, tables, at[a] + choice[head[a]] * k, k)


@machine_code
def _penalised(i, choice, use, limit, penalty, pieces, k, out):
    """Adds to `out` by how much each strategy of i changes the penalty."""
    start, lower, upper, at, usages = pieces
    for p in range(start[i], start[i + 1]):
        b = at[p]
        now = usages[b + choice[i]]
        most = _greatest(usages, b, b + k) - now
        peak = _greatest(use, lower[p], upper[p])
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
def _widest(offsets):
    widest = 1
    for i in range(offsets.shape[0] - 1):
        widest = max(widest, offsets[i + 1] - offsets[i])
    return widest


@machine_code
def descend(choice, use, penalty, limit, costs, graph, pieces, queue, waiting, nowhere):
    """Best changes of single nodes until none helps.

    queue: the nodes to look at first; `waiting` has a 1 for each of these, and zeros at the end.
    nowhere: -1 per node, of no region.
    """
    offsets, start, head = graph[0], graph[1], graph[3]
    nodes = offsets.shape[0] - 1
    out = np.empty(_widest(offsets))
    ring = np.empty(nodes + 1, np.int64)
    copy(ring, queue, 0, queue.shape[0])
    first, length = 0, queue.shape[0]
    while length > 0:
        i = ring[first]
        first = (first + 1) % (nodes + 1)
        length -= 1
        waiting[i] = 0
        k = offsets[i + 1] - offsets[i]
        if k == 1:
            continue
        _around(i, choice, nowhere, costs, graph, out)
        now = out[choice[i]]
        _penalised(i, choice, use, limit, penalty, pieces, k, out)
        best = lowest(out, 0, k)
        if out[best] >= now - 1e-3:  # costs are whole numbers; sums of penalties are not
            continue
        _change_node(i, best, choice, use, pieces)
        for a in range(start[i], start[i + 1]):
            j = head[a]
            if waiting[j] == 0:
                waiting[j] = 1
                ring[(first + length) % (nodes + 1)] = j
                length += 1


# ---- regions -------------------------------------------------------------------------------------
@machine_code
def search_regions(
    choice, cost, use, prices, penalty, limit, costs, graph, pieces, trials, seed
):  # fmt: skip
    """The cost after so many trials; `choice` and `use` follow. They are within the limit."""
    np.random.seed(seed)
    offsets = graph[0]
    nodes, steps = offsets.shape[0] - 1, use.shape[0]
    widest = _widest(offsets)
    total = np.zeros(steps + 1)
    for t in range(steps):
        total[t + 1] = total[t] + prices[t]
    before, used_before = choice.copy(), use.copy()
    values = np.empty((MOST_NODES, widest))
    best = np.empty((MOST_NODES, widest), np.int64)
    place = np.full(nodes, -1, np.int64)
    waiting = np.zeros(nodes, np.int8)
    for _ in range(trials):
        factor = np.exp(np.random.normal(0.0, 0.5))
        region, parent, arc = _region(total, graph, pieces, place)
        changed = _choose(
            region, parent, arc, place, choice, use, factor * total, costs, graph, pieces,
            values, best,
        )  # fmt: skip
        for i in region:
            place[i] = -1
        if not changed:
            continue
        for i in region:
            waiting[i] = 1
        descend(choice, use, penalty, limit, costs, graph, pieces, region, waiting, place)
        now = cost + 1
        if steps == 0 or _greatest(use, 0, steps) <= limit:
            now = _total_cost(costs, graph, choice)
        if now <= cost:
            cost = now
            copy(before, choice, 0, nodes)
            copy(used_before, use, 0, steps)
        else:
            copy(choice, before, 0, nodes)
            copy(use, used_before, 0, steps)
    return cost


@machine_code
def _total_cost(costs, graph, choice):
    """The costs of nodes and edges."""
    offsets, start, middle, head, _back, at, tables, _slot = graph
    total = 0.0
    for i in range(choice.shape[0]):
        k = offsets[i + 1] - offsets[i]
        total += costs[offsets[i] + choice[i]]
        for a in range(start[i], middle[i]):
            total += tables[at[a] + choice[head[a]] * k + choice[i]]
    return total


@machine_code
def _region(total, graph, pieces, place):
    """Nodes in an order in which a parent comes before its children; parents (or -1) and arcs.

    `place` is where each of them is in that order.
    """
    offsets, start, head = graph[0], graph[1], graph[3]
    nodes = offsets.shape[0] - 1
    most = 2 + np.random.randint(MOST_NODES - 1)
    region = np.empty(most, np.int64)
    parent = np.full(most, -1, np.int64)
    arc = np.full(most, -1, np.int64)
    size = 0
    done = 0
    for i in _seeds(total, nodes, pieces):
        if size < most and offsets[i + 1] - offsets[i] > 1 and _links(i, graph, place) == 0:
            region[size] = i
            place[i] = size
            size += 1
    while done < size < most:
        i = region[done]
        degree = start[i + 1] - start[i]
        shift = np.random.randint(max(degree, 1))
        for q in range(degree):
            a = start[i] + (q + shift) % degree
            j = head[a]
            if size == most:
                break
            if place[j] >= 0 or offsets[j + 1] - offsets[j] == 1 or _links(j, graph, place) != 1:
                continue
            region[size], parent[size], arc[size] = j, done, a
            place[j] = size
            size += 1
        done += 1
    return region[:size], parent[:size], arc[:size]


@machine_code
def _seeds(total, nodes, pieces):
    """Some node, or some nodes that are live in a step that is drawn by its price."""
    start, lower, upper = pieces[:3]
    steps = total.shape[0] - 1
    live = np.empty(nodes, np.int64)
    count = 0
    if total[steps] > 0 and np.random.random() >= 0.3:
        step = np.searchsorted(total[1:], np.random.random() * total[steps], "right")
        for i in range(nodes):
            for p in range(start[i], start[i + 1]):
                if lower[p] <= step < upper[p]:
                    live[count] = i
                    count += 1
                    break
    if count == 0:
        live[0] = np.random.randint(nodes)
        return live[:1]
    drawn = np.empty(1 + np.random.randint(MOST_SEEDS), np.int64)
    for q in range(drawn.shape[0]):
        drawn[q] = live[np.random.randint(count)]
    return drawn


@machine_code
def _links(i, graph, place):
    """How many neighbours of i are in the region; it stays a forest if that is at most 1."""
    start, head = graph[1], graph[3]
    count = 0
    for a in range(start[i], start[i + 1]):
        if place[head[a]] >= 0:
            count += 1
    return count


@machine_code
def _choose(
    region, parent, arc, place, choice, use, total, costs, graph, pieces, values, best
):  # fmt: skip
    """The best choice of the trees with usages priced; whether it is another one."""
    offsets, at, tables = graph[0], graph[5], graph[6]
    start, lower, upper, rows, usages = pieces
    size = region.shape[0]
    for q in range(size):
        i = region[q]
        _around(i, choice, place, costs, graph, values[q])
        for p in range(start[i], start[i + 1]):
            price = total[upper[p]] - total[lower[p]]
            if price != 0:
                for s in range(offsets[i + 1] - offsets[i]):
                    values[q, s] += price * usages[rows[p] + s]
    for q in range(size - 1, -1, -1):
        if parent[q] < 0:
            continue
        i, up = region[q], region[parent[q]]
        k, wide = offsets[i + 1] - offsets[i], offsets[up + 1] - offsets[up]
        b = at[arc[q]]
        for t in range(wide):
            least, chosen = np.inf, 0
            for s in range(k):
                v = values[q, s] + tables[b + s * wide + t]
                if v < least:
                    least, chosen = v, s
            values[parent[q], t] += least
            best[q, t] = chosen
    changed = False
    for q in range(size):
        i = region[q]
        k = offsets[i + 1] - offsets[i]
        s = lowest(values[q], 0, k) if parent[q] < 0 else best[q, choice[region[parent[q]]]]
        if s != choice[i]:
            changed = True
            _change_node(i, s, choice, use, pieces)
    return changed
