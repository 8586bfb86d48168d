"""What a dispatch costs: picoseconds and bytes, integers, the same for solver and checker."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from eqsat.extract.candidates.legality import iterations
from eqsat.extract.candidates.space import Space
from eqsat.model.attr import Attr
from eqsat.model.egraph import ENode
from eqsat.model.foreign import Custom
from eqsat.model.generic import Generic
from eqsat.model.target import Target
from eqsat.ops.tiles import tiles_of

PS_PER_SECOND = 10**12


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
        """Share of the peak rate per (m, n, k) tile of any vocabulary; the first one counts.

        A kernel also serves the tile with m and n exchanged: it is called with its operands so.
        """
        found: dict[tuple[int, ...], float] = {}
        tiles = [t for what, _ in self.target.tiles for t in self.target.vocabulary(what)]
        if self.target.strategies:  # they were asked about the generics that are here
            generics = [n.attr for n in self.space.egraph.nodes if isinstance(n.attr, Generic)]
            tiles += [t for g in generics for t in tiles_of(self.target, g)]
        for tile in tiles:
            found.setdefault(tile.extents, tile.rate)
        for tile in tiles:
            m, n, k = tile.extents
            found.setdefault((n, m, k), tile.rate)
        return found

    def share(self, attr: Attr) -> float:
        """Share of the peak rate a contraction reaches."""
        tile = attr.tile if isinstance(attr, Generic) else ()
        return self._shares.get(tile, self.target.untiled_rate)

    @cached_property
    def iterations(self) -> tuple[int, ...]:
        """Per node: how often its body runs if it runs once."""
        return tuple(iterations(n) for n in self.space.egraph.nodes)

    @cached_property
    def _work(self) -> tuple[tuple[int, float] | None, ...]:
        """Per node: operations of one run of its body, and how many a second; None: free."""
        nodes = self.space.egraph.nodes
        if not self.target.rates:
            return (None,) * len(nodes)
        return tuple(self._work_of(n, k) for n, k in zip(nodes, self.space.kinds, strict=True))

    def _work_of(self, n: ENode, kind: str) -> tuple[int, float] | None:
        operations = self._operations(n, kind == "contraction")
        if not operations:
            return None
        share = self.share(n.attr) if kind == "contraction" else self.target.elementwise_rate
        dtype = self.space.type(n.children[0] if n.children else n.eclass).dtype
        rate = self.target.rate(dtype)
        assert rate is not None, "targets without rates were handled above"
        return operations, rate * share

    def compute_ps(self, node: int, runs: int) -> float:
        """Picoseconds of arithmetic if a node's body runs `runs` times."""
        work = self._work[node]
        return 0.0 if work is None else work[0] * runs * PS_PER_SECOND / work[1]

    def _operations(self, n: ENode, is_contraction: bool) -> int:
        """Scalar operations of one run of a node's body."""
        match n.attr:
            case Generic():
                own = sum(y.body.count() + bool(y.combine) for y in n.attr.yields)
                return 2 if is_contraction else own
            case Custom():
                return n.attr.operations
        return 0

    def runs(self, members: tuple[int, ...]) -> dict[int, int]:
        """How often each member's body runs: as often as its most frequent reader inside.

        `members` are in topological order.
        """
        space, own = self.space, self.iterations
        made = {b: m for m in members for b in space.made[m]}
        runs = dict.fromkeys(members, 0)
        for m in reversed(members):
            runs[m] = most = max(runs[m], own[m])
            for b in space.operands[m]:
                maker = made.get(b)
                if maker is not None and runs[maker] < most:
                    runs[maker] = most
        return runs

    @cached_property
    def class_ps(self) -> tuple[int, ...]:
        """Per class: picoseconds to move it."""
        return tuple(self.traffic_ps(s) for s in self.space.sizes)

    def group_ps(
        self,
        members: tuple[int, ...],
        reads: Iterable[int],
        sinks: Iterable[int],
        runs: Mapping[int, int] | None = None,
    ) -> int:
        """Time of a dispatch without extra results; reads and sinks are classes.

        `runs` of the members, if somebody knows them already.
        """
        class_ps, compute = self.class_ps, 0.0
        busy = [m for m in members if self._work[m] is not None]
        if busy:
            runs = self.runs(members) if runs is None else runs
            compute = sum([self.compute_ps(m, runs[m]) for m in busy])
        traffic = sum([class_ps[c] for c in reads]) + sum([class_ps[c] for c in sinks])
        return max(math.ceil(compute), traffic) + self.target.launch_ps
