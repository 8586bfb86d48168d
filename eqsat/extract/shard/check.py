"""The independent checker of a sharding: plain sums over the record, nothing of the search."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.model.sharding import FORBIDDEN, ShardProblem


def sharding_faults(problem: ShardProblem, strategies: Sequence[int]) -> list[str]:
    """What is not allowed about these strategies, one per node; empty if nothing is."""
    nodes = problem.nodes
    if len(strategies) != len(nodes):
        return [f"{len(strategies)} strategies for {len(nodes)} nodes"]
    for i, (node, s) in enumerate(zip(nodes, strategies, strict=True)):
        if not 0 <= s < len(node.costs):
            return [f"node {i} has no strategy {s}"]
    chosen = list(zip(nodes, strategies, strict=True))
    found = [f"node {i} may not be {s}" for i, (n, s) in enumerate(chosen) if _never(n.costs[s])]
    for i, e in enumerate(problem.edges):
        if _never(_edge_cost(problem, i, strategies)):
            found.append(f"nodes {e.first} and {e.second} may not be so together (edge {i})")
    usage, step = _most_used(problem, strategies)
    if usage > problem.usage_limit:
        found.append(f"{usage} is used in step {step}, more than {problem.usage_limit}")
    return found


def sharding_cost(problem: ShardProblem, strategies: Sequence[int]) -> int:
    """The sum of the costs of nodes and edges."""
    own = sum(n.costs[s] for n, s in zip(problem.nodes, strategies, strict=True))
    return own + sum(_edge_cost(problem, i, strategies) for i in range(len(problem.edges)))


def _never(cost: int) -> bool:
    return cost >= FORBIDDEN


def _edge_cost(problem: ShardProblem, i: int, strategies: Sequence[int]) -> int:
    e = problem.edges[i]
    columns = len(problem.nodes[e.second].costs)
    return e.costs[strategies[e.first] * columns + strategies[e.second]]


def _most_used(problem: ShardProblem, strategies: Sequence[int]) -> tuple[int, int]:
    """The largest usage of a step, and the first such step."""
    changes: dict[int, int] = {}
    for node, s in zip(problem.nodes, strategies, strict=True):
        if node.lower < node.upper:
            changes[node.lower] = changes.get(node.lower, 0) + node.usages[s]
            changes[node.upper] = changes.get(node.upper, 0) - node.usages[s]
    used = most = at = 0
    for step in sorted(changes):
        used += changes[step]
        if used > most:
            most, at = used, step
    return most, at
