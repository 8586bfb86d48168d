"""What a dispatch costs: picoseconds and bytes, integers, the same for solver and checker."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from eqsat.extract.legality import iterations
from eqsat.extract.space import Space
from eqsat.model.attrs import Generic
from eqsat.model.target import Target

PS_PER_SECOND = 10**12
ROLES = ("m", "n", "k")


@dataclass(frozen=True)
class Costs:
    """Prices of the nodes and groups of one e-graph on one target (a roofline model)."""

    space: Space
    target: Target

    @cached_property
    def _traffic(self) -> dict[int, int]:
        return {}

    def traffic_ps(self, nbytes: int) -> int:
        """Picoseconds to move a buffer, at the nearest memory level that holds it."""
        if nbytes not in self._traffic:
            levels = self.target.memory
            level = next((m for m in levels if m.size_bytes >= nbytes), levels[-1])
            self._traffic[nbytes] = round(nbytes * PS_PER_SECOND / level.bandwidth)
        return self._traffic[nbytes]

    @cached_property
    def _shares(self) -> dict[tuple[int, ...], float]:
        """Share of the peak rate per (m, n, k) tile of any vocabulary; the first one counts."""
        found: dict[tuple[int, ...], float] = {}
        for what, _ in self.target.tiles:
            for tile in self.target.vocabulary(what):
                sizes = dict(tile.sizes)
                found.setdefault(tuple(sizes.get(r, 1) for r in ROLES), tile.rate)
        return found

    def share(self, attr: Generic) -> float:
        """Share of the peak rate a contraction reaches."""
        return self._shares.get(attr.tile, self.target.untiled_rate)

    def compute_ps(self, node: int, runs: int) -> float:
        """Picoseconds of arithmetic if a node's body runs `runs` times."""
        n = self.space.egraph.nodes[node]
        if not isinstance(n.attr, Generic) or not self.target.rates:
            return 0.0
        is_contraction = self.space.kinds[node] == "contraction"
        share = self.share(n.attr) if is_contraction else self.target.elementwise_rate
        operations = (
            2 if is_contraction else sum(y.body.count() + bool(y.combine) for y in n.attr.yields)
        )
        if not operations:
            return 0.0
        dtype = self.space.type(n.children[0]).dtype if n.children else n.attr.yields[0].dtype
        rate = self.target.rate(dtype)
        assert rate is not None, "targets without rates were handled above"
        return operations * runs * PS_PER_SECOND / (rate * share)

    def runs(self, members: tuple[int, ...]) -> dict[int, int]:
        """How often each member's body runs: as often as its most frequent reader inside.

        `members` are in topological order.
        """
        space = self.space
        made = {b: m for m in members for b in self.made_by(m)}
        runs: dict[int, int] = {}
        for m in reversed(members):
            own = max(runs.get(m, 0), iterations(space.egraph.nodes[m]))
            runs[m] = own
            for b in space.operands[m]:
                if b in made:
                    runs[made[b]] = max(runs.get(made[b], 0), own)
        return runs

    def relayout_bytes(self, members: tuple[int, ...]) -> int:
        """Bytes the conversions among these nodes read and write."""
        space = self.space
        return sum(
            space.nbytes(space.egraph.nodes[m].eclass) + space.nbytes(c)
            for m in members
            if space.kinds[m] == "conversion"
            for c in space.egraph.nodes[m].children
        )

    def made_by(self, node: int) -> tuple[int, ...]:
        """Buffers a node computes."""
        return tuple(self.space.buffer[c] for c in self.space.outputs[node])

    def group_ps(self, members: tuple[int, ...], reads: tuple[int, ...], sinks: list[int]) -> int:
        """Time of a dispatch without extra results; reads and sinks are classes."""
        runs = self.runs(members)
        compute = sum(self.compute_ps(m, runs[m]) for m in members)
        sizes = [self.space.nbytes(c) for c in (*reads, *sinks)]
        traffic = sum(self.traffic_ps(s) for s in sizes)
        return max(math.ceil(compute), traffic) + self.target.launch_ps
