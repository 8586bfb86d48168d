"""Prices of usage per step, and messages along edges: what they prove, and what they lead to.

Sequential tree-reweighted message passing (Kolmogorov, PAMI 2006): nodes in order, each sends to
one side the least cost of what lies behind it, its own costs shared between the arcs of that side.
Any messages make a valid bound, as they only move costs between nodes and edges.
One set of prices makes the bound high, another one makes choices that fit. A price grows by a
factor where more than the limit is used, and shrinks where less is: an entropic ascent, which stays
calm with many thousand steps. What "is used" differs: for the bound it is the slope of the message
passing's bound, for choices it is what the decoded choice uses.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from eqsat.extract.machinecode import machine_code
from eqsat.extract.shard.descent import add, copy, lowest
from eqsat.extract.shard.presolve import Network

SWEEPS = 4  # between two changes of prices
PRICE_BITS = 40  # of the fractions of prices in the proof of the bound
COST_BITS = 60  # of integers in it, sums included


# ---- strategies that another one replaces --------------------------------------------------------
def irreplaceable(net: Network) -> list[np.ndarray]:
    """Per node, which of its strategies are left, by Goldstein's rule.

    r replaces s if it never uses more, and costs no more whatever the neighbours choose. Of two
    that replace each other the first one stays.
    """
    alive = np.ones(len(net.costs), np.bool_)
    while _dominated(net.costs, net.graph, net.pieces, alive):
        pass
    return np.split(alive, net.offsets[1:-1])


@machine_code
def _dominated(costs, graph, pieces, alive):
    """Marks strategies as not alive; how many."""
    offsets, start, _middle, head, back, at, tables, _slot = graph
    count = 0
    for i in range(offsets.shape[0] - 1):
        o, k = offsets[i], offsets[i + 1] - offsets[i]
        for s in range(k):
            if not alive[o + s]:
                continue
            for r in range(k):
                if r == s or not alive[o + r] or _uses_more(i, r, s, pieces):
                    continue
                margin = costs[o + s] - costs[o + r]
                for a in range(start[i], start[i + 1]):
                    j = head[a]
                    others = alive[offsets[j] : offsets[j + 1]]
                    margin += _least(tables, at[back[a]], s, r, others)
                if margin >= 0:
                    alive[o + s] = False
                    count += 1
                    break
    return count


@machine_code
def _uses_more(i, r, s, pieces):
    start, _lower, _upper, at, usages = pieces
    for p in range(start[i], start[i + 1]):  # noqa: SIM110 - compiled
        if usages[at[p] + r] > usages[at[p] + s]:
            return True
    return False


@machine_code
def _least(tables, at, s, r, alive):
    """The least that row s costs more than row r, over the columns that are alive."""
    wide = alive.shape[0]
    least = np.int64(2**62)
    for t in range(wide):
        if alive[t]:
            least = min(least, tables[at + s * wide + t] - tables[at + r * wide + t])
    return least


# ---- messages ------------------------------------------------------------------------------------
@machine_code
def _sweep(theta, graph, messages, beliefs, choice, forward, decode):
    """One sweep over all nodes; the lower bound of costs `theta` of strategies and of edges.

    beliefs: per strategy its costs with all messages, as they were when its node sent. decode: also
    choose strategies in the order of the sweep, each the best with what was chosen before.
    """
    offsets, start, middle, head, back, at, tables, slot = graph
    bound = 0.0
    nodes = offsets.shape[0] - 1
    for q in range(nodes):
        i = q if forward else nodes - 1 - q
        o, k = offsets[i], offsets[i + 1] - offsets[i]
        belief = beliefs[o : o + k]
        copy(belief, theta, o, k)
        for a in range(start[i], start[i + 1]):
            add(belief, messages, slot[a], k)
        if decode:
            choice[i] = _decoded(i, theta, graph, messages, choice, forward)
        to_left, to_right = middle[i] - start[i], start[i + 1] - middle[i]
        most = max(to_left, to_right, 1)
        sent = to_right if forward else to_left
        begin = middle[i] if forward else start[i]
        for a in range(begin, begin + sent):
            j, z = head[a], slot[back[a]]
            new = messages[z : z + offsets[j + 1] - offsets[j]]
            _send(belief, messages[slot[a] : slot[a] + k], 1.0 / most, tables, at[back[a]], new)
        if sent < most:
            bound += (most - sent) / most * belief[lowest(belief, 0, k)]
    return bound


@machine_code
def _send(belief, got, share, tables, at, new):
    """The message of a node with these beliefs over one edge; `got` is the one that came by it."""
    wide = new.shape[0]
    value = share * belief[0] - got[0]
    for t in range(wide):
        new[t] = tables[at + t] + value
    for s in range(1, belief.shape[0]):
        value = share * belief[s] - got[s]
        b = at + s * wide
        for t in range(wide):
            new[t] = min(new[t], tables[b + t] + value)


@machine_code
def _decoded(i, theta, graph, messages, choice, forward):
    """The best strategy with what was chosen on one side, and the messages of the other."""
    offsets, start, middle, head, _back, at, tables, slot = graph
    k = offsets[i + 1] - offsets[i]
    total = np.empty(k)
    copy(total, theta, offsets[i], k)
    for a in range(start[i], start[i + 1]):
        if (a < middle[i]) == forward:
            add(total, tables, at[a] + choice[head[a]] * k, k)
        else:
            add(total, messages, slot[a], k)
    return lowest(total, 0, k)


@machine_code
def _slopes(graph, messages, beliefs):
    """How the bound of a forward sweep grows with each entry of `theta`: sums to 1 per node."""
    offsets, start, middle, head, back, at, tables, slot = graph
    nodes = offsets.shape[0] - 1
    slopes = np.zeros(offsets[nodes])
    for i in range(nodes - 1, -1, -1):
        o, k = offsets[i], offsets[i + 1] - offsets[i]
        sent = start[i + 1] - middle[i]
        most = max(sent, middle[i] - start[i], 1)
        if sent < most:
            slopes[o + lowest(beliefs, o, k)] += (most - sent) / most
        for a in range(start[i], middle[i]):
            j, z = head[a], slot[back[a]]
            p, wide = offsets[j], offsets[j + 1] - offsets[j]
            share = 1.0 / max(start[j + 1] - middle[j], middle[j] - start[j], 1)
            for t in range(k):
                if slopes[o + t] == 0:
                    continue
                b = at[back[a]] + t * wide
                best, least = 0, np.inf
                for s in range(wide):
                    v = tables[b + s] + share * beliefs[p + s] - messages[z + s]
                    if v < least:
                        best, least = s, v
                slopes[p + best] += share * slopes[o + t]
    return slopes


@machine_code
def _exact_bound(theta, graph, scale, messages):
    """The bound a forward sweep proves, in integers, whatever `messages` are.

    Costs of edges are multiplied by `scale`, as those of `theta` are already. Also: did all fit 64
    bits? It is known if sums stay below 2^61, and they are watched as floats.
    """
    offsets, start, middle, head, back, at, tables, slot = graph
    bound, most_seen, size = np.int64(0), 0.0, 0.0
    for i in range(offsets.shape[0] - 1):
        o, k = offsets[i], offsets[i + 1] - offsets[i]
        belief = theta[o : o + k].copy()
        sizes = np.abs(belief.astype(np.float64))
        for a in range(start[i], start[i + 1]):
            for s in range(k):
                belief[s] += messages[slot[a] + s]
                sizes[s] += abs(float(messages[slot[a] + s]))
        for s in range(k):
            most_seen = max(most_seen, sizes[s])
        sent = start[i + 1] - middle[i]
        most = max(sent, middle[i] - start[i], 1)
        for a in range(middle[i], start[i + 1]):
            j, z = head[a], slot[back[a]]
            wide = offsets[j + 1] - offsets[j]
            for s in range(k):
                value = belief[s] // most - messages[slot[a] + s]
                b = at[back[a]] + s * wide
                for t in range(wide):
                    v = tables[b + t] * scale + value
                    if s == 0 or v < messages[z + t]:
                        messages[z + t] = v
        least = belief[0] - sent * (belief[0] // most)
        for s in range(1, k):
            least = min(least, belief[s] - sent * (belief[s] // most))
        bound += least
        size += abs(float(least))
    return bound, max(most_seen, size) < 2.0**61


# ---- prices --------------------------------------------------------------------------------------
class Ascent:
    """Messages and prices that follow each other; `best` is a bound and what it was found with."""

    def __init__(self, net: Network):
        self.net = net
        self.floats = (*net.graph[:6], net.graph[6].astype(float), net.graph[7])
        self.costs = net.costs.astype(float)
        self.theta = self.costs
        self.messages = np.zeros(int(net.graph[7][-1]))
        self.beliefs = np.zeros(len(self.costs))
        self.choice = np.zeros(len(net.offsets) - 1, np.int64)
        self.direction: np.ndarray | None = None
        bound = self._sweeps(30, decode=False)
        steps = len(net.base)
        # the whole limit costs a twentieth of the bound in the beginning
        price = 0.05 * max(abs(bound), 1.0) / max(net.limit, 1) / max(steps, 1)
        self.prices = np.full(steps, price)
        self.best = (bound, np.zeros(steps), self.messages.copy())

    def _sweeps(self, count: int, decode: bool) -> float:
        """An even number of sweeps, the last one forward; its bound."""
        bound = 0.0
        for q in range(count):
            last = q == count - 1
            bound = _sweep(
                self.theta, self.floats, self.messages, self.beliefs, self.choice,
                q % 2 == 1, decode and last,
            )  # fmt: skip
        return bound

    def raise_bound(self, rate: float) -> float:
        """One change of the prices towards a higher bound; the bound that was found before it."""
        net = self.net
        self.theta = self.costs + net.priced(self.prices)
        bound = self._sweeps(SWEEPS, decode=False)
        bound -= float(self.prices @ (net.limit - net.base))
        if bound > self.best[0]:
            self.best = (bound, self.prices.copy(), self.messages.copy())
        weights = _slopes(self.floats, self.messages, self.beliefs)
        self._follow(rate, net.limit, net.expected(weights))
        return bound

    def fit(self, rate: float, limit: float) -> None:
        """One change of the prices towards choices within this limit; `choice` is of before it."""
        self.theta = self.costs + self.net.priced(self.prices)
        self._sweeps(SWEEPS, decode=True)
        self._follow(rate, limit, self.net.used(self.choice))

    def _follow(self, rate: float, limit: float, use: np.ndarray) -> None:
        if not len(use):
            return
        slope = use / max(limit, 1) - 1
        old = slope if self.direction is None else self.direction
        self.direction = 0.7 * old + 0.3 * slope  # with inertia: slopes swing
        self.prices *= np.exp(rate * np.clip(self.direction, -0.5, 1.0))
        least = 1e-5 * self.prices.max()  # a price of zero could not grow
        np.maximum(self.prices, least, out=self.prices)


def proven(net: Network, prices: np.ndarray, messages: np.ndarray) -> int:
    """A bound of the cost of every choice within the limit, in integers only.

    Prices become fractions, what they make of usages is rounded down, messages are rounded; none of
    this makes the bound wrong: sum of (cost + price * usage) - price * limit is no more than the
    cost of a choice within the limit.
    """
    exact = np.array([int(p * 2**PRICE_BITS) for p in prices.tolist()], object)
    priced = net.priced(exact)
    most = sum(np.maximum.reduceat(priced, net.offsets[:-1]).tolist()) >> PRICE_BITS
    spans = int(np.abs(net.costs).sum()) + int(np.abs(net.graph[6]).sum()) // 2 + most + 1
    bits = COST_BITS - spans.bit_length() - 1
    if bits < 0:
        return net.least
    scale = 2 ** min(bits, PRICE_BITS)
    theta = net.costs.astype(object) * scale + (priced * scale >> PRICE_BITS)
    whole = np.clip(np.rint(messages * scale), -(2.0**COST_BITS), 2.0**COST_BITS).astype(np.int64)
    below, fits = _exact_bound(theta.astype(np.int64), net.graph, scale, whole)
    if not fits:
        return net.least
    free = sum((exact * (net.limit - net.base)).tolist())
    bound = Fraction(int(below), scale) - Fraction(int(free), 2**PRICE_BITS)
    return max(-(-bound.numerator // bound.denominator), net.least)
