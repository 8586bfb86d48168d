"""Messages along the edges of a network (machine code): bounds, and choices decoded from them.

Sequential tree-reweighted message passing (Kolmogorov, PAMI 2006): nodes in order, each sends to
one side the least cost of what lies behind it, its own costs shared between the edges of that side.
Any messages make a valid bound, as they only move costs between nodes and edges.
"""

from __future__ import annotations

import numpy as np

from eqsat.extract.machinecode import machine_code
from eqsat.extract.shard.vectors import add, copy, lowest


@machine_code
def message_sweep(theta, graph, to_first, to_second, beliefs, choice, forward, decode):
    """One sweep over all nodes; the lower bound of costs `theta` of strategies and of edges.

    beliefs: per strategy its costs with all messages, as they were when its node sent. decode: also
    choose strategies in the order of the sweep, each the best with what was chosen before.
    """
    offsets, first, second, at, costs, turned, right, left, lefts, at_first, at_second = graph
    bound = 0.0
    nodes = offsets.shape[0] - 1
    for q in range(nodes):
        i = q if forward else nodes - 1 - q
        o, k = offsets[i], offsets[i + 1] - offsets[i]
        own = beliefs[o : o + k]
        copy(own, theta, o, k)
        for e in range(right[i], right[i + 1]):
            add(own, to_first, at_first[e], k)
        for z in range(left[i], left[i + 1]):
            add(own, to_second, at_second[lefts[z]], k)
        if decode:
            choice[i] = _decoded(i, theta, graph, to_first, to_second, choice, forward)
        most = max(right[i + 1] - right[i], left[i + 1] - left[i], 1)
        if forward:
            sent = right[i + 1] - right[i]
            for e in range(right[i], right[i + 1]):
                j, p = second[e], at_first[e]
                new = to_second[at_second[e] : at_second[e] + offsets[j + 1] - offsets[j]]
                _send(own, to_first[p : p + k], 1.0 / most, costs, at[e], new)
        else:
            sent = left[i + 1] - left[i]
            for z in range(left[i], left[i + 1]):
                e = lefts[z]
                j, p = first[e], at_second[e]
                new = to_first[at_first[e] : at_first[e] + offsets[j + 1] - offsets[j]]
                _send(own, to_second[p : p + k], 1.0 / most, turned, at[e], new)
        if sent < most:
            bound += (most - sent) / most * own[lowest(own, 0, k)]
    return bound


@machine_code
def _send(own, back, share, costs, at, new):
    """The message of a node with these beliefs over one edge; `back` is the one that it got."""
    wide = new.shape[0]
    value = share * own[0] - back[0]
    for t in range(wide):
        new[t] = costs[at + t] + value
    for s in range(1, own.shape[0]):
        value = share * own[s] - back[s]
        b = at + s * wide
        for t in range(wide):
            new[t] = min(new[t], costs[b + t] + value)


@machine_code
def _decoded(i, theta, graph, to_first, to_second, choice, forward):
    offsets, first, second, at, costs, turned, right, left, lefts, at_first, at_second = graph
    o, k = offsets[i], offsets[i + 1] - offsets[i]
    total = np.empty(k)
    copy(total, theta, o, k)
    for e in range(right[i], right[i + 1]):
        if forward:
            add(total, to_first, at_first[e], k)
        else:
            add(total, turned, at[e] + choice[second[e]] * k, k)
    for z in range(left[i], left[i + 1]):
        e = lefts[z]
        if forward:
            add(total, costs, at[e] + choice[first[e]] * k, k)
        else:
            add(total, to_second, at_second[e], k)
    return lowest(total, 0, k)


@machine_code
def slopes(graph, to_first, beliefs):
    """How the bound of a forward sweep grows with each entry of `theta`: sums to 1 per node."""
    offsets, first, _second, at, _costs, turned, right, left, lefts, at_first, _at_second = graph
    nodes = offsets.shape[0] - 1
    found = np.zeros(offsets[nodes])
    for i in range(nodes - 1, -1, -1):
        o, k = offsets[i], offsets[i + 1] - offsets[i]
        sent = right[i + 1] - right[i]
        most = max(sent, left[i + 1] - left[i], 1)
        if sent < most:
            found[o + lowest(beliefs, o, k)] += (most - sent) / most
        for z in range(left[i], left[i + 1]):
            e = lefts[z]
            j = first[e]
            p, wide = offsets[j], offsets[j + 1] - offsets[j]
            share = 1.0 / max(right[j + 1] - right[j], left[j + 1] - left[j], 1)
            for t in range(k):
                if found[o + t] == 0:
                    continue
                b = at[e] + t * wide
                best, least = 0, np.inf
                for s in range(wide):
                    v = turned[b + s] + share * beliefs[p + s] - to_first[at_first[e] + s]
                    if v < least:
                        best, least = s, v
                found[p + best] += share * found[o + t]
    return found


@machine_code
def exact_bound(theta, graph, scale, to_first):
    """What a forward sweep proves, in integers: nothing is below it, whatever `to_first` is.

    Costs of edges are multiplied by `scale`, as those of `theta` are already. Also: did all fit 64
    bits? It is known if sums stay below 2^61, and they are watched as floats.
    """
    offsets, _first, second, at, costs, _turned, right, left, lefts, at_first, at_second = graph
    nodes = offsets.shape[0] - 1
    to_second = np.zeros(at_second[at_second.shape[0] - 1], np.int64)
    bound, most_seen, size = np.int64(0), 0.0, 0.0
    for i in range(nodes):
        o, k = offsets[i], offsets[i + 1] - offsets[i]
        own = np.zeros(k, np.int64)
        sizes = np.zeros(k)
        _add_both(own, sizes, theta, o)
        for e in range(right[i], right[i + 1]):
            _add_both(own, sizes, to_first, at_first[e])
        for z in range(left[i], left[i + 1]):
            _add_both(own, sizes, to_second, at_second[lefts[z]])
        for s in range(k):
            most_seen = max(most_seen, sizes[s])
        sent = right[i + 1] - right[i]
        most = max(sent, left[i + 1] - left[i], 1)
        for e in range(right[i], right[i + 1]):
            j, p = second[e], at_first[e]
            wide = offsets[j + 1] - offsets[j]
            new = to_second[at_second[e] : at_second[e] + wide]
            for s in range(k):
                value = own[s] // most - to_first[p + s]
                b = at[e] + s * wide
                for t in range(wide):
                    v = costs[b + t] * scale + value
                    if s == 0 or v < new[t]:
                        new[t] = v
        least = own[0] - sent * (own[0] // most)
        for s in range(1, k):
            least = min(least, own[s] - sent * (own[s] // most))
        bound += least
        size += abs(float(least))
    return bound, max(most_seen, size) < 2.0**61


@machine_code
def _add_both(own, sizes, values, at):
    """Adds as integers, and the sizes as floats."""
    for s in range(own.shape[0]):
        own[s] += values[at + s]
        sizes[s] += abs(float(values[at + s]))
