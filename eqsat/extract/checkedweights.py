"""What the weights of a selection take, recomputed from its groups alone: part of the checker."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from eqsat.extract.candidates.space import Space
from eqsat.model.selection import Selection
from eqsat.model.target import DROPPED, HELD, Target


@dataclass(frozen=True)
class CheckedWeights:
    """The weights of one selection; `ahead_buffers` are there before its first step."""

    space: Space
    target: Target
    selection: Selection
    ahead_buffers: frozenset[int]

    @cached_property
    def kept(self) -> frozenset[int]:
        """Weights in memory all the time: those that are read or results, and held originals."""
        read = {b for g in self.selection.groups for b in (self.space.buffer[r] for r in g.reads)}
        read |= set(self.space.roots)
        originals = self._originals if self.target.originals == HELD else ()
        return frozenset(read & self.ahead_buffers).union(originals)

    @cached_property
    def _originals(self) -> list[int]:
        nodes, buffer = self.space.egraph.nodes, self.space.buffer
        return list(dict.fromkeys(buffer[n.eclass] for n in nodes if n.op == "weight"))

    def resident_bytes(self) -> int:
        """Weights that stay in memory."""
        return sum(map(self.space.nbytes, self.kept))

    def load_peak_bytes(self) -> int:
        """The most that weights take while they are packed, one after another."""
        if self.target.originals != DROPPED:
            return self.resident_bytes()
        size, sources = self.space.nbytes, self._sources()
        order = {w: n for n, w in enumerate(self._originals)}
        copies = {b: max(order[w] for w in sources[b]) for b in self.kept if sources[b] != {b}}
        worst = 0
        for turn in range(len(order)):
            there = set(self.kept - copies.keys())
            there |= {b for b, last in copies.items() if last <= turn}
            there |= {w for b, last in copies.items() if last >= turn for w in sources[b]}
            worst = max(worst, sum(map(size, there)))
        return worst

    def _sources(self) -> dict[int, frozenset[int]]:
        """Per buffer of an ahead node: the weights it is made from."""
        found: dict[int, frozenset[int]] = {}
        for i in self.selection.ahead:
            n, b = self.space.egraph.nodes[i], self.space.buffer[self.space.egraph.nodes[i].eclass]
            below = (found.get(o, frozenset()) for o in self.space.operands[i])
            found[b] = frozenset({b}) if n.op == "weight" else frozenset[int]().union(*below)
        return found
