"""The choice that spreads are: a strategy per node, what two of them cost and hold together.

The record has the shape of the problems of `eqsat.extract.shard`, and bytes of edges besides: a
value that is converted for one reader is held in both spreads. Steps are half-open: lower <= t <
upper. Nodes of one group take the same strategy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

FORBIDDEN = 10**18  # a cost from here on means "never"


@dataclass(frozen=True)
class ChoiceNode:
    """A choice: what each strategy costs (ps), and the bytes it holds in its steps."""

    costs: tuple[int, ...]
    usages: tuple[int, ...]
    lower: int
    upper: int


@dataclass(frozen=True)
class PairTable:
    """Row per strategy of the first node, column per strategy of the second.

    Rows and columns that are alike are stated once: `rows[s]` is the line of strategy s.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    costs: tuple[tuple[int, ...], ...]
    usages: tuple[tuple[int, ...], ...]

    @cached_property
    def uses(self) -> bool:
        return any(map(any, self.usages))

    @cached_property
    def is_free(self) -> bool:
        """Whether nothing that is allowed costs or holds anything."""
        lines = zip(self.costs, self.usages, strict=True)
        pairs = ((c, u) for cs, us in lines for c, u in zip(cs, us, strict=True))
        return all(c >= FORBIDDEN or (c == 0 and u == 0) for c, u in pairs)


@dataclass(frozen=True)
class ChoiceEdge:
    """What the strategies of two nodes cost together, and hold in steps lower <= t < upper."""

    first: int
    second: int
    table: PairTable
    lower: int
    upper: int


@dataclass(frozen=True)
class SpreadChoice:
    """Minimise the costs of nodes and edges; usages of a step stay below a limit."""

    nodes: Sequence[ChoiceNode]
    edges: Sequence[ChoiceEdge]
    steps: int
    groups: Sequence[int] = field(default=())  # node -> the node whose strategy it takes
    spare: int = 0  # bytes of a step, the last one apart, that lie in another memory

    def cost(self, chosen: Sequence[int]) -> int:
        """Of nodes and edges; FORBIDDEN or more if something is not allowed."""
        own = sum(n.costs[s] for n, s in zip(self.nodes, chosen, strict=True))
        return own + sum(_entry(e, e.table.costs, chosen) for e in self.edges)

    def usage(self, chosen: Sequence[int]) -> list[int]:
        """Bytes per step."""
        found = [0] * self.steps
        for n, s in zip(self.nodes, chosen, strict=True):
            for t in range(n.lower, n.upper):
                found[t] += n.usages[s]
        for e in self.edges:
            for t in range(e.lower, e.upper):
                found[t] += _entry(e, e.table.usages, chosen)
        return [max(f - self.spare, 0) for f in found[:-1]] + found[-1:]

    def peak(self, chosen: Sequence[int]) -> int:
        """Bytes at the worst step."""
        return max(self.usage(chosen), default=0)


def _entry(e: ChoiceEdge, entries: Sequence[Sequence[int]], chosen: Sequence[int]) -> int:
    return entries[e.table.rows[chosen[e.first]]][e.table.columns[chosen[e.second]]]
