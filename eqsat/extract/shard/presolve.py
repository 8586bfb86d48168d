"""ShardProblem → ChoiceGraph: what is forbidden is gone, nodes that are equal are one.

Where an edge allows each strategy of one node with exactly one of the other, both are one choice.
Most edges of real instances are such ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eqsat.model.sharding import FORBIDDEN, ShardProblem

Usage = tuple[int, int, np.ndarray]  # first step, the step behind the last, usage per strategy


@dataclass(frozen=True)
class ChoiceGraph:
    """Choices with own costs, costs of pairs, and usages over time, all exact 64-bit integers.

    `edges[i, j]` with i < j: a row per strategy of i, a column per strategy of j; FORBIDDEN and
    more is never. A node of the problem takes the strategy `strategies[choice]` of its `group`.
    """

    costs: list[np.ndarray]
    edges: dict[tuple[int, int], np.ndarray]
    usages: list[list[Usage]]
    limit: int
    group: list[int]
    strategies: list[np.ndarray]

    def lifted(self, choice: np.ndarray) -> tuple[int, ...]:
        """The strategy of every node of the problem."""
        pairs = zip(self.group, self.strategies, strict=True)
        return tuple(int(own[choice[g]]) for g, own in pairs)

    def taken(self, strategies: Sequence[int]) -> np.ndarray | None:
        """Undo `lifted`; None if it has not all of these strategies."""
        found = np.zeros(len(self.costs), np.int64)
        for g, own, s in zip(self.group, self.strategies, strategies, strict=True):
            at = np.flatnonzero(own == s)
            if not len(at):
                return None
            found[g] = at[0]
        return found

    def kept(self, alive: list[np.ndarray]) -> ChoiceGraph:
        """With these strategies of each group only; single ones and sums go into own costs."""
        costs = [c[a] for c, a in zip(self.costs, alive, strict=True)]
        edges = {(i, j): m[np.ix_(alive[i], alive[j])] for (i, j), m in self.edges.items()}
        usages = [
            [(lower, upper, u[a]) for lower, upper, u in own]
            for own, a in zip(self.usages, alive, strict=True)
        ]
        own = [s[alive[g]] for g, s in zip(self.group, self.strategies, strict=True)]
        return ChoiceGraph(costs, _folded(costs, edges), usages, self.limit, self.group, own)


def reduced(problem: ShardProblem) -> ChoiceGraph | None:
    """The smaller problem; None if no choice of strategies is allowed by the costs alone."""
    sizes = [len(n.costs) for n in problem.nodes]
    matrices = [
        np.array(e.costs, np.int64).reshape(sizes[e.first], sizes[e.second]) for e in problem.edges
    ]
    ends = [(e.first, e.second) for e in problem.edges]
    own = [np.array(n.costs, np.int64) for n in problem.nodes]
    alive = _consistent([c < FORBIDDEN for c in own], ends, matrices)
    if alive is None:
        return None
    left = [np.flatnonzero(a) for a in alive]
    costs = [c[k] for c, k in zip(own, left, strict=True)]
    matrices = [m[np.ix_(left[i], left[j])] for m, (i, j) in zip(matrices, ends, strict=True)]
    merged = _Merged(costs)
    rest = [k for k, m in enumerate(matrices) if not merged.joined(*ends[k], m)]
    return _grouped(problem, left, merged, [(ends[k], matrices[k]) for k in rest])


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


class _Merged:
    """Sets of nodes that are one choice; `maps[i][s]` is i's strategy where its parent's is s."""

    def __init__(self, costs: list[np.ndarray]):
        self.costs = costs
        self.parent = list(range(len(costs)))
        self.maps: list[np.ndarray] = [np.arange(len(c)) for c in costs]

    def root(self, i: int) -> int:
        """The choice that node i is part of; `maps[i]` is from its strategies afterwards."""
        path: list[int] = []
        while self.parent[i] != i:
            path.append(i)
            i = self.parent[i]
        for k in reversed(path[:-1]):  # the last one's parent is the root
            self.maps[k] = self.maps[k][self.maps[self.parent[k]]]
            self.parent[k] = i
        return i

    def joined(self, i: int, j: int, matrix: np.ndarray) -> bool:
        """Whether the edge makes i and j one choice, or was within one and says nothing new."""
        if i == j:
            self.costs[i] = self.costs[i] + np.diag(matrix)
            return True
        allowed = matrix < FORBIDDEN
        if len(matrix) != len(matrix[0]) or allowed.sum() != len(matrix):
            return False
        partner = allowed.argmax(axis=1)
        if not allowed.any(axis=1).all() or len(np.unique(partner)) < len(partner):
            return False
        first, second = self.root(i), self.root(j)
        to_first = self.maps[i] if first != i else np.arange(len(partner))
        to_second = self.maps[j] if second != j else np.arange(len(partner))
        if first == second:
            if (partner[to_first] != to_second).any():
                return False
            self.costs[i] = self.costs[i] + matrix[np.arange(len(partner)), partner]
            return True
        self.costs[i] = self.costs[i] + matrix[np.arange(len(partner)), partner]
        back = np.empty_like(to_second)
        back[to_second] = np.arange(len(back))
        self.parent[second] = first
        self.maps[second] = back[partner[to_first]]
        return True


def _grouped(
    problem: ShardProblem,
    left: list[np.ndarray],
    merged: _Merged,
    rest: list[tuple[tuple[int, int], np.ndarray]],
) -> ChoiceGraph | None:
    roots = [merged.root(i) for i in range(len(left))]
    number = {r: g for g, r in enumerate(dict.fromkeys(roots))}
    group = [number[r] for r in roots]
    maps = [merged.maps[i] if i != r else np.arange(len(left[i])) for i, r in enumerate(roots)]
    costs = [np.zeros(len(left[r]), np.int64) for r in number]
    usages: list[list[Usage]] = [[] for _ in number]
    for i, node in enumerate(problem.nodes):
        costs[group[i]] += merged.costs[i][maps[i]]
        if node.lower < node.upper:
            usage = np.array(node.usages, np.int64)[left[i]][maps[i]]
            usages[group[i]].append((node.lower, node.upper, usage))
    edges: dict[tuple[int, int], np.ndarray] = {}
    banned = [np.ones(len(c), bool) for c in costs]
    for (i, j), matrix in rest:
        pair = matrix[np.ix_(maps[i], maps[j])]
        first, second = group[i], group[j]
        if first == second:
            own = np.diag(pair)
            banned[first] &= own < FORBIDDEN
            costs[first] = costs[first] + np.where(own < FORBIDDEN, own, 0)
            continue
        if first > second:
            first, second, pair = second, first, pair.T
        known = edges.get((first, second))
        edges[first, second] = pair if known is None else _sum(known, pair)
    if not all(b.any() for b in banned):
        return None
    strategies = [own[m] for own, m in zip(left, maps, strict=True)]
    found = ChoiceGraph(costs, edges, usages, problem.usage_limit, group, strategies)
    return found.kept(banned)


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
