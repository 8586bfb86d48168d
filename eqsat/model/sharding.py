"""Assignments that check themselves: buffers to offsets in an arena, nodes to strategies.

A Placement has the offset of every buffer and how far it is proven; a ShardProblem a strategy for
each node, as the IOPDDL format states it, and Sharding is its answer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eqsat.model.files import JsonRecord


@dataclass(frozen=True)
class Lifetime:
    """A buffer to place: `size` bytes, live from step `lower` up to, not including, `upper`."""

    name: str
    lower: int
    upper: int
    size: int


@dataclass(frozen=True)
class Placement(JsonRecord):
    """One offset per buffer, in the order of the request.

    status: optimal (no placement is lower) | feasible | infeasible (nothing fits the capacity,
    proven) | unknown (nothing found that fits it). stop: proof | capacity (it fits, so the search
    ended) | work | wall | interrupted | memory. `height` is of these offsets, in bytes, whether
    they fit or not; no placement is lower than `bound`.
    """

    offsets: tuple[int, ...]
    height: int
    bound: int
    status: str
    stop: str

    def faults(self, buffers: Sequence[Lifetime]) -> list[str]:
        """Faults of the placement, each a sentence. One sweep, nothing shared with the search."""
        if len(buffers) != len(self.offsets):
            return [f"{len(self.offsets)} offsets for {len(buffers)} buffers"]
        placed = list(zip(buffers, self.offsets, strict=True))
        faults = [f"`{b.name}` lies at {o}" for b, o in placed if o < 0]
        top = max((o + b.size for b, o in placed), default=0)
        if top != self.height:
            faults.append(f"the height is {top}, not {self.height}")
        faults += self._overlaps(buffers)
        most, _ = busiest_step((b.lower, b.upper, b.size) for b in buffers)
        if not most <= self.bound <= self.height:
            bound = f"the bound is {self.bound}, the height {self.height}"
            faults.append(f"{most} bytes are live at once, {bound}")
        return faults

    def _overlaps(self, buffers: Sequence[Lifetime]) -> list[str]:
        """Live buffers are kept in the order of their offsets, so a new one has to be held against
        its two neighbours only. At one step, what ends goes before what begins."""
        ends = [(b.upper, 0, i) for i, b in enumerate(buffers) if b.size]
        begins = [(b.lower, 1, i) for i, b in enumerate(buffers) if b.size]
        live: list[tuple[int, int]] = []  # (offset, buffer)
        faults: list[str] = []
        for _, starts, i in sorted(ends + begins):
            entry = (self.offsets[i], i)
            at = bisect_left(live, entry)
            if not starts:
                del live[at]
                continue
            for other in live[max(at - 1, 0) : at + 1]:
                (start, low), (above, high) = sorted((entry, other))
                if start + buffers[low].size > above:
                    faults.append(f"`{buffers[low].name}` and `{buffers[high].name}` overlap")
            live.insert(at, entry)
        return faults


def busiest_step(lives: Iterable[tuple[int, int, int]]) -> tuple[int, int]:
    """The largest sum of amounts (lower, upper, amount) that are live in one step, and the first
    such step; what is empty or ends where it begins counts nowhere."""
    changes: dict[int, int] = {}
    for lower, upper, amount in lives:
        if lower < upper:
            changes[lower] = changes.get(lower, 0) + amount
            changes[upper] = changes.get(upper, 0) - amount
    live = most = at = 0
    for step in sorted(changes):
        live += changes[step]
        if live > most:
            most, at = live, step
    return most, at


FORBIDDEN = 10**18  # a cost from here on means "never", as in the instances of the contest
LARGEST_TOTAL = 2**56  # of all costs, and of all usages: sums and prices of them fit 64 bits


@dataclass(frozen=True)
class ShardNode:
    """A choice between strategies: what each costs, and what it uses while the node is live.

    `costs` and `usages` have an entry per strategy; the node is live in the steps lower <= t <
    upper (never, if that is empty).
    """

    costs: Sequence[int]
    usages: Sequence[int]
    lower: int
    upper: int


@dataclass(frozen=True)
class ShardEdge:
    """Cost of two nodes together.

    `costs` is row-major: a row per strategy of `first`, in it an entry per strategy of `second`.
    """

    first: int
    second: int
    costs: Sequence[int]


@dataclass(frozen=True)
class ShardExcess:
    """What several nodes cost together beyond their own costs: their sum here, if it is above 0.

    So a cost may be the larger of two sums: the first is of nodes, this is by how much the second
    exceeds it. `costs` has per node of `nodes` an entry per strategy.
    """

    nodes: Sequence[int]
    costs: Sequence[Sequence[int]]


@dataclass(frozen=True)
class ShardProblem:
    """Minimise the costs of nodes, edges and excesses; in no step may usages exceed the limit.

    Costs of FORBIDDEN and more may not be chosen. Costs may be negative, usages may not. What is
    said of strategies, one per node, are plain sums over the record: they check every search.
    """

    nodes: Sequence[ShardNode]
    edges: Sequence[ShardEdge]
    usage_limit: int
    excesses: Sequence[ShardExcess] = ()

    def cost(self, strategies: Sequence[int]) -> int:
        """The sum of the costs of nodes, edges and excesses."""
        cost = sum(n.costs[s] for n, s in zip(self.nodes, strategies, strict=True))
        cost += sum(self._edge_cost(e, strategies) for e in self.edges)
        for excess in self.excesses:
            pairs = zip(excess.nodes, excess.costs, strict=True)
            cost += max(sum(costs[strategies[n]] for n, costs in pairs), 0)
        return cost

    def _edge_cost(self, e: ShardEdge, strategies: Sequence[int]) -> int:
        columns = len(self.nodes[e.second].costs)
        return e.costs[strategies[e.first] * columns + strategies[e.second]]

    def most_used(self, strategies: Sequence[int]) -> tuple[int, int]:
        """The largest usage of a step, and the first such step."""
        lives = zip(self.nodes, strategies, strict=True)
        return busiest_step((n.lower, n.upper, n.usages[s]) for n, s in lives)

    def faults(self, strategies: Sequence[int]) -> list[str]:
        """Violations of these strategies, each a sentence; empty if they are allowed."""
        if len(strategies) != len(self.nodes):
            return [f"{len(strategies)} strategies for {len(self.nodes)} nodes"]
        chosen = list(zip(self.nodes, strategies, strict=True))
        for i, (node, s) in enumerate(chosen):
            if not 0 <= s < len(node.costs):
                return [f"node {i} has no strategy {s}"]
        faults = [
            f"node {i} may not be {s}" for i, (n, s) in enumerate(chosen) if n.costs[s] >= FORBIDDEN
        ]
        for i, e in enumerate(self.edges):
            if self._edge_cost(e, strategies) >= FORBIDDEN:
                faults.append(f"nodes {e.first} and {e.second} may not be so together (edge {i})")
        usage, step = self.most_used(strategies)
        if usage > self.usage_limit:
            faults.append(f"{usage} is used in step {step}, more than {self.usage_limit}")
        return faults


@dataclass(frozen=True)
class Sharding(JsonRecord):
    """The best strategy of each node that was found.

    status: optimal | feasible | infeasible (proven) | unknown (nothing found that is allowed).
    stop: proof | work | wall | interrupted | memory. `cost` is None where `strategies` is empty;
    nothing that is allowed costs less than `bound` (None if infeasible).
    """

    TOLD = ("gap",)

    status: str
    stop: str
    cost: int | None
    bound: int | None
    strategies: tuple[int, ...] = ()

    @property
    def gap(self) -> float | None:
        """(cost - bound) / |cost|."""
        if self.cost is None or self.bound is None:
            return None
        return (self.cost - self.bound) / (abs(self.cost) or 1)
