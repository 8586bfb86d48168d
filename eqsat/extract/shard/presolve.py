"""ShardProblem → ChoiceGraph → Network: what is forbidden is gone, nodes that are equal are one.

Where an edge allows each strategy of one node with exactly one of the other, both are one choice.
Most edges of real instances are such ones. A network is the same in arrays, for machine code.
"""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eqsat.model.sharding import FORBIDDEN, ShardProblem

Usage = tuple[int, int, np.ndarray]  # first step, the step behind the last, usage per strategy


@dataclass(frozen=True)
class ChoiceGraph:
    """Choices with own costs, costs of pairs, and usages over time, all exact 64-bit integers.

    `edges[i, j]` with i < j: a row per strategy of i, a column per strategy of j; FORBIDDEN and
    more is never. A node of the problem takes the strategy `strategies[choice]` of its `group`.
    excesses: of several choices, what they cost beyond that where the sum of these is positive.
    """

    costs: list[np.ndarray]
    edges: dict[tuple[int, int], np.ndarray]
    usages: list[list[Usage]]
    limit: int
    group: list[int]
    strategies: list[np.ndarray]
    excesses: list[dict[int, np.ndarray]]

    def lifted(self, choice: np.ndarray) -> tuple[int, ...]:
        """The strategy of every node of the problem."""
        pairs = zip(self.group, self.strategies, strict=True)
        return tuple(int(strategies[choice[g]]) for g, strategies in pairs)

    def taken(self, strategies: Sequence[int]) -> np.ndarray | None:
        """Undo `lifted`; None if it has not all of these strategies."""
        choice = np.zeros(len(self.costs), np.int64)
        for g, available, s in zip(self.group, self.strategies, strategies, strict=True):
            at = np.flatnonzero(available == s)
            if not len(at):
                return None
            choice[g] = at[0]
        return choice

    def restricted_to(self, alive: list[np.ndarray]) -> ChoiceGraph:
        """With these strategies of each group only; single ones and sums go into own costs."""
        costs = [c[a] for c, a in zip(self.costs, alive, strict=True)]
        edges = {(i, j): m[np.ix_(alive[i], alive[j])] for (i, j), m in self.edges.items()}
        usages = [
            [(lower, upper, u[a]) for lower, upper, u in of_group]
            for of_group, a in zip(self.usages, alive, strict=True)
        ]
        strategies = [s[alive[g]] for g, s in zip(self.group, self.strategies, strict=True)]
        excesses = []
        for excess in self.excesses:
            left = {g: costs_here[alive[g]] for g, costs_here in excess.items()}
            if len(left) == 1:
                ((g, costs_here),) = left.items()
                costs[g] = costs[g] + np.maximum(costs_here, 0)
            elif sum(int(c.max()) for c in left.values()) > 0:
                excesses.append(left)
        edges = _folded(costs, edges)
        return ChoiceGraph(costs, edges, usages, self.limit, self.group, strategies, excesses)


def reduced(problem: ShardProblem) -> ChoiceGraph | None:
    """The smaller problem; None if no choice of strategies is allowed by the costs alone."""
    sizes = [len(n.costs) for n in problem.nodes]
    matrices = [
        np.array(e.costs, np.int64).reshape(sizes[e.first], sizes[e.second]) for e in problem.edges
    ]
    ends = [(e.first, e.second) for e in problem.edges]
    node_costs = [np.array(n.costs, np.int64) for n in problem.nodes]
    alive = _consistent([c < FORBIDDEN for c in node_costs], ends, matrices)
    if alive is None:
        return None
    left = [np.flatnonzero(a) for a in alive]
    matrices = [m[np.ix_(left[i], left[j])] for m, (i, j) in zip(matrices, ends, strict=True)]
    return _grouped(problem, left, [(*e, m) for e, m in zip(ends, matrices, strict=True)])


def _consistent(
    alive: list[np.ndarray], ends: list[tuple[int, int]], matrices: list[np.ndarray]
) -> list[np.ndarray] | None:
    """Strategies that have an allowed partner at every edge (arc consistency); None if one node
    has none."""
    allowed = {k: m < FORBIDDEN for k, m in enumerate(matrices) if m.size and m.max() >= FORBIDDEN}
    at: list[list[int]] = [[] for _ in alive]
    for k in allowed:
        for i in set(ends[k]):
            at[i].append(k)
    waiting = deque(allowed)
    queued = set(allowed)
    while waiting:
        k = waiting.popleft()
        queued.discard(k)
        i, j = ends[k]
        if i == j:
            fewer = [(i, alive[i] & np.diag(allowed[k]))]
        else:
            fewer = [
                (i, alive[i] & allowed[k][:, alive[j]].any(axis=1)),
                (j, alive[j] & allowed[k][alive[i]].any(axis=0)),
            ]
        for node, now in fewer:
            if now.sum() < alive[node].sum():
                alive[node] = now
                fresh = [e for e in at[node] if e not in queued]
                waiting.extend(fresh)
                queued.update(fresh)
    return alive if all(a.any() for a in alive) else None


Edge = tuple[int, int, np.ndarray]  # ends, and a row per strategy of the first one


def _merged(sizes: Sequence[int], edges: list[Edge]) -> tuple[list[int], list[np.ndarray]]:
    """Per node the number of the choice that it is part of, and its strategy for each of that."""
    equal: list[list[tuple[int, np.ndarray]]] = [[] for _ in sizes]
    for i, j, m in edges:
        allowed = m < FORBIDDEN
        if (allowed.sum(axis=0) == 1).all() and (allowed.sum(axis=1) == 1).all():
            equal[i].append((j, allowed.argmax(axis=1)))
            equal[j].append((i, allowed.argmax(axis=0)))
    group, maps, count = [-1] * len(sizes), [np.arange(k) for k in sizes], 0
    for root in range(len(sizes)):
        if group[root] >= 0:
            continue
        group[root] = count
        count += 1
        component = [root]
        for i in component:
            for j, partner in equal[i]:
                if group[j] < 0:
                    group[j], maps[j] = group[root], partner[maps[i]]
                    component.append(j)
    return group, maps


def _grouped(
    problem: ShardProblem, left: list[np.ndarray], edges: list[Edge]
) -> ChoiceGraph | None:
    group, maps = _merged([len(k) for k in left], edges)
    strategies = [s[m] for s, m in zip(left, maps, strict=True)]
    sizes = dict(zip(group, map(len, left), strict=True))
    costs = [np.zeros(k, np.int64) for k in sizes.values()]
    allowed = [np.ones(k, bool) for k in sizes.values()]
    usages: list[list[Usage]] = [[] for _ in sizes]
    for node, g, picked in zip(problem.nodes, group, strategies, strict=True):
        costs[g] += np.array(node.costs, np.int64)[picked]
        if node.lower < node.upper:
            usage = np.array(node.usages, np.int64)[picked]
            usages[g].append((node.lower, node.upper, usage))
    pairs: dict[tuple[int, int], np.ndarray] = {}
    for i, j, matrix in edges:
        first, second = group[i], group[j]
        if first == second:
            costs_here = matrix[maps[i], maps[j]]
            allowed[first] &= costs_here < FORBIDDEN
            costs[first] += np.where(costs_here < FORBIDDEN, costs_here, 0)
            continue
        pair = matrix[np.ix_(maps[i], maps[j])]
        if first > second:
            first, second, pair = second, first, pair.T
        earlier = pairs.get((first, second))
        pairs[first, second] = pair if earlier is None else _sum(earlier, pair)
    if not all(a.any() for a in allowed) or any(m.min() >= FORBIDDEN for m in pairs.values()):
        return None
    excesses = []
    for excess in problem.excesses:
        here: dict[int, np.ndarray] = {}
        for node, node_costs in zip(excess.nodes, excess.costs, strict=True):
            g = group[node]
            here[g] = here.get(g, 0) + np.array(node_costs, np.int64)[strategies[node]]
        excesses.append(here)
    graph = ChoiceGraph(costs, pairs, usages, problem.usage_limit, group, strategies, excesses)
    return graph.restricted_to(allowed)


def _sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    never = (a >= FORBIDDEN) | (b >= FORBIDDEN)
    return np.where(never, FORBIDDEN, np.where(never, 0, a) + np.where(never, 0, b))


def _folded(
    costs: list[np.ndarray], edges: dict[tuple[int, int], np.ndarray]
) -> dict[tuple[int, int], np.ndarray]:
    """The edges that are not a sum of a cost per row and one per column; those go into `costs`."""
    left: dict[tuple[int, int], np.ndarray] = {}
    for (i, j), m in edges.items():
        if m.max() < FORBIDDEN and not (m - m[:1] - m[:, :1] + m[0, 0]).any():
            costs[i] = costs[i] + m[:, 0]
            costs[j] = costs[j] + (m[0] - m[0, 0])
        else:
            left[i, j] = m
    return left


# ---- arrays --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Network:
    """`graph` and `pieces` are the arguments of compiled functions.

    An edge is two arcs, one at each end; a node's are sorted by the other end. graph: offsets of
    strategies per node; first arc per node; first one to a later node; other end of an arc; its
    arc at the other end; offsets of its costs; these costs, a row per strategy of the other end;
    offsets of the messages that come by it.
    pieces: first piece per node; first step and the one behind the last; offsets of usages; usages.
    A node's pieces do not overlap. `base` is what is used in each step whatever is chosen.
    """

    costs: np.ndarray  # per strategy, int64
    graph: tuple[np.ndarray, ...]
    pieces: tuple[np.ndarray, ...]
    base: np.ndarray
    limit: int

    @property
    def offsets(self) -> np.ndarray:
        return self.graph[0]

    @cached_property
    def _entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The node of each piece; piece and strategy of each usage."""
        start, _, _, at, usages = self.pieces
        node = np.repeat(np.arange(len(start) - 1), np.diff(start))
        piece = np.repeat(np.arange(len(node)), np.diff(at))
        return node, piece, np.arange(len(usages)) - at[piece] + self.offsets[node[piece]]

    def priced(self, prices: np.ndarray) -> np.ndarray:
        """The priced usage of strategies, at these prices per step: floats, or exact integers."""
        _, lower, upper, _, usages = self.pieces
        _, piece, strategy = self._entries
        total = np.concatenate([[0], np.cumsum(prices)])
        each = (total[upper] - total[lower])[piece] * usages
        if each.dtype == float:
            return np.bincount(strategy, each, len(self.costs))
        used = np.zeros(len(self.costs), each.dtype)
        np.add.at(used, strategy, each)
        return used

    def used(self, choice: np.ndarray) -> np.ndarray:
        """The usage of each step."""
        node = self._entries[0]
        return self._over_time(self.pieces[4][self.pieces[3][:-1] + choice[node]])

    def expected(self, weights: np.ndarray) -> np.ndarray:
        """The usage of a mixture: `weights` per strategy."""
        _, piece, strategy = self._entries
        each = self.pieces[4] * weights[strategy]
        return self._over_time(np.bincount(piece, each, len(self.pieces[1])))

    def _over_time(self, amounts: np.ndarray) -> np.ndarray:
        _, lower, upper, _, _ = self.pieces
        change = np.zeros(len(self.base) + 1, amounts.dtype)
        np.add.at(change, lower, amounts)
        np.subtract.at(change, upper, amounts)
        return self.base + change[:-1].cumsum()

    @property
    def least(self) -> int:
        """Every node and edge at its least: no choice costs less."""
        nodes = np.minimum.reduceat(self.costs, self.offsets[:-1]).sum() if len(self.costs) else 0
        _, _, _, head, _, at, tables, _ = self.graph
        pairs = np.minimum.reduceat(tables, at[:-1]).sum() if len(head) else 0
        return int(nodes) + int(pairs) // 2


def network(small: ChoiceGraph) -> Network:
    """The arrays of a smaller problem. What is forbidden costs more than everything else."""
    offsets = _offsets([len(c) for c in small.costs])
    costs = np.concatenate([*small.costs, np.zeros(0, np.int64)])
    base, pieces = _pieces(small, _busiest(small.usages))
    return Network(costs, _graph(small, offsets), pieces, base, small.limit)


def _offsets(sizes: Sequence[int] | np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)


def _graph(small: ChoiceGraph, offsets: np.ndarray) -> tuple[np.ndarray, ...]:
    never, count, nodes = _forbidden_cost(small), len(small.edges), len(offsets) - 1
    matrices = [np.minimum(m, never) for m in small.edges.values()]
    ends = np.array(list(small.edges), np.int64).reshape(-1, 2)
    node, head = np.concatenate([ends, ends[:, ::-1]]).T
    tables = [m.T.ravel() for m in matrices] + [m.ravel() for m in matrices]
    order = np.lexsort((head, node))
    place = np.argsort(order)
    node, head, tables = node[order], head[order], [tables[a] for a in order.tolist()]
    start = np.searchsorted(node, np.arange(nodes + 1))
    earlier = np.bincount(node[head < node], minlength=nodes)
    return (
        offsets,
        start,
        start[:-1] + earlier,
        head,
        place[(order + count) % max(2 * count, 1)],
        _offsets([len(t) for t in tables]),
        np.concatenate([np.zeros(0, np.int64), *tables]),
        _offsets(np.diff(offsets)[node]),
    )


def _forbidden_cost(small: ChoiceGraph) -> int:
    """More than any two allowed choices differ by."""
    spans = [int(c.max()) - int(c.min()) for c in small.costs]
    for m in small.edges.values():
        fine = m[m < FORBIDDEN]
        spans.append(int(fine.max()) - int(fine.min()) + abs(int(fine.max())))
    return sum(spans) + 1


def _busiest(usages: list[list[Usage]]) -> np.ndarray:
    """Steps at which a set of live usages is not part of another step's: something begins there,
    and the next thing to happen is that something ends."""
    live = [(lower, upper) for of_group in usages for lower, upper, u in of_group if u.max() > 0]
    begins = {lower for lower, _ in live}
    ends = {upper for _, upper in live}
    busiest: list[int] = []
    last = None
    for step in sorted(begins | ends):
        if step in ends and last is not None:
            busiest.append(last)
            last = None
        if step in begins:
            last = step
    return np.array(busiest, np.int64)


def _pieces(small: ChoiceGraph, steps: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """The usage there is anyway, and pieces of that of choices, in positions of `steps`."""
    change = np.zeros(len(steps) + 1, np.int64)
    start, lower, upper, rows = [0], [], [], []
    for of_group in small.usages:
        changes: dict[int, np.ndarray] = defaultdict(lambda: np.int64(0))  # type: ignore[arg-type]
        places = np.searchsorted(steps, [(a, b) for a, b, _ in of_group]).tolist()
        for (a, b), (_, _, usage) in zip(places, of_group, strict=True):
            least = usage.min()
            if a < b:
                change[a] += least
                change[b] -= least
            if a < b and usage.max() > least:
                changes[a] = changes[a] + (usage - least)
                changes[b] = changes[b] - (usage - least)
        times = sorted(changes)
        now = np.int64(0)
        for a, b in itertools.pairwise(times):
            now = now + changes[a]
            if len(rows) > start[-1] and upper[-1] == a and (rows[-1] == now).all():
                upper[-1] = b
            elif now.any():
                lower.append(a)
                upper.append(b)
                rows.append(now)
        start.append(len(rows))
    numbers = [np.array(x, np.int64) for x in (start, lower, upper)]
    flat = np.concatenate([np.zeros(0, np.int64), *rows])
    return change[:-1].cumsum(), (*numbers, _offsets([len(r) for r in rows]), flat)
