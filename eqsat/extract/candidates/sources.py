"""What columns are made from, and a column as a group of a selection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from eqsat.extract.candidates.listed import CandidateTable
from eqsat.extract.candidates.lost import Lost
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.choice.linear import moved_bytes, tie
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.groups.grow import Candidate
from eqsat.model.control import Control
from eqsat.model.goal import Goal
from eqsat.model.selection import Group

EXTRAS = 2  # inner values a group may write beside its results, the program's results apart


def group_of(
    costs: Costs, c: Candidate, buffers: Iterable[int], time_ps: int, step: int = 0
) -> Group:
    """A candidate that writes these buffers as a group of a selection."""
    space, pipeline = costs.space, costs.of(c.members).pipeline_of(c.members)
    written = frozenset(buffers)
    extra = tuple(w for w in c.exposable if space.buffer[w] in written)
    return Group(c.members, c.reads, (*extra, *c.writes), time_ps, step, pipeline)


@dataclass(frozen=True)
class Sources:
    """Candidates of one pool, with their prices and the goals that their columns add to."""

    pool: Pool
    costs: Costs
    candidates: CandidateTable
    goals: Mapping[str, Goal]

    @cached_property
    def space(self) -> Space:
        return self.pool.space

    @cached_property
    def lost(self) -> Lost:
        return Lost(self.pool)

    @cached_property
    def moved(self) -> tuple[int, ...]:
        """Per node: bytes a conversion moves."""
        egraph = self.space.egraph
        return tuple(moved_bytes(egraph, n) for n in range(len(egraph.nodes)))

    @cached_property
    def tied(self) -> tuple[int, ...]:
        """Per node: what it adds to the tie-break."""
        return tuple(tie(n, m) for n, m in zip(self.space.egraph.nodes, self.moved, strict=True))

    @cached_property
    def has_loops(self) -> bool:
        return any(isinstance(n.attr, Control) for n in self.space.egraph.nodes)

    @property
    def needed(self) -> tuple[int, ...]:
        """Values every answer computes."""
        return self.pool.needed

    @cached_property
    def outside(self) -> dict[int, frozenset[int]]:
        """Per value: needed values that can only be computed from it; -1 is the caller."""
        found: dict[int, set[int]] = {}
        ways = self.pool.derivations
        for w in self.needed:
            for v in frozenset.intersection(*ways[w]):
                found.setdefault(v, set()).add(w)
        for r in self.pool.space.roots:
            found.setdefault(self.pool.space.value[r], set()).add(-1)
        return {v: frozenset(f) for v, f in found.items()}
