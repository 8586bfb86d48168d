"""Bounds that hold for every candidate there could be: nothing is enumerated for them.

They are below what a search proves, and stand where there was no time for more.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from eqsat.extract.candidates.costs import Costs
from eqsat.extract.candidates.leastprices import LeastPrices
from eqsat.extract.candidates.leastwork import PricedWay, PricedWays, least_ps, needed_of
from eqsat.extract.candidates.planfloors import ROUNDING
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.model.control import Control
from eqsat.model.deadline import OutOfTime, tick
from eqsat.model.target import Fusion, Target
from eqsat.model.tensor import cdiv


def floors(pool: Pool, costs: Costs) -> dict[str, int]:
    """Per goal a proven lower bound, whatever the dispatches, layouts and order.

    Memory holds all arguments and results, and the weights that are read whatever is chosen. There
    are as many dispatches as the ops take that no answer avoids. Time is their launches, and the
    longer of arithmetic and traffic: of ops that no answer avoids, each in its cheapest form, and
    of what is read and written whatever is chosen.
    """
    space = pool.space
    roots = [r for r in space.roots if r not in space.inputs]
    memory = space.input_bytes + sum(space.nbytes(r) for r in roots)
    with suppress(OutOfTime):
        memory += _weight_bytes(pool)
    made = tuple(r for r in roots if r not in pool.held)
    if not made:
        return {"time": 0, "memory": memory, "dispatches": 0}
    work, dispatches, time_ps = _Unavoidable(pool, costs, made), 1, 0.0
    with suppress(OutOfTime):
        dispatches = work.dispatches
        time_ps = work.traffic_ps
        time_ps = max(time_ps, least_ps(work.ways, work.results))
    launches = dispatches * work.launch_ps if work.is_launched else 0
    exact = math.floor(time_ps * (1 - ROUNDING))
    return {"time": exact + launches, "memory": memory, "dispatches": dispatches}


@dataclass(frozen=True)
class _Unavoidable:
    """What every answer computes, reads and writes. made: results that a dispatch writes."""

    pool: Pool
    costs: Costs
    made: tuple[int, ...]

    @property
    def space(self) -> Space:
        return self.pool.space

    @cached_property
    def results(self) -> frozenset[int]:
        """The values of the results."""
        return frozenset(self.space.value[r] for r in self.made)

    @cached_property
    def _machines(self) -> list[Target]:
        target = self.costs.target
        return [t for _, t in target.devices] or [target]

    @cached_property
    def _prices(self) -> dict[int, LeastPrices]:
        """Per machine, by its identity."""
        parts = [self.costs.part(name) for name, _ in self.costs.target.devices] or [self.costs]
        return {id(c.target): LeastPrices(self.pool, c) for c in parts}

    @cached_property
    def ways(self) -> PricedWays:
        """Per value the nodes that compute it; what is there from the start takes nothing."""
        space, known = self.space, {self.space.value[b] for b in self.pool.ahead}
        found: dict[int, list[PricedWay]] = {v: [PricedWay(0.0, frozenset())] for v in self._there}
        for node in sorted({p for nodes in self.pool.producers.values() for p in nodes}):
            tick()
            values = space.computed[node]
            open_ = [v for v in values if not space.is_source(v) and v not in known]
            way = self._way(node, len(values)) if open_ else None
            for v in open_:
                if way is not None and v not in way.reads:
                    found.setdefault(v, []).append(way)
        return found

    def _way(self, node: int, values: int) -> PricedWay:
        """What a node takes for one of its values."""
        space, costs = self.space, self.costs.of((node,))
        priced = costs.known_ps((node,))
        if priced is not None:  # whatever it reads
            own = frozenset(space.value[c] for c in space.egraph.nodes[node].children)
            return PricedWay(priced * costs.target.calls / values, own - self._there.keys())
        prices = self._prices[id(costs.target)]
        children = enumerate(space.egraph.nodes[node].children)
        reads = frozenset(space.value[c] for i, c in children if prices.reads_whole(node, i))
        return PricedWay(costs.target.calls * prices.node_ps(node) / values, reads)

    # ---- traffic ---------------------------------------------------------------------------------
    @cached_property
    def _there(self) -> dict[int, tuple[int, ...]]:
        """Per value that is there from the start, and that no run computes: its buffers."""
        space, found = self.space, dict[int, list[int]]()
        for b in sorted(self.pool.held):
            found.setdefault(space.value[b], []).append(b)
        gone = _computed(self.pool)
        return {v: tuple(b) for v, b in found.items() if v not in gone}

    @cached_property
    def _read(self) -> frozenset[int]:
        """Values there from the start that some dispatch reads whole."""
        return needed_of(self.ways, self.results) & self._there.keys()

    @property
    def traffic_ps(self) -> float:
        """To read these, and to write the results down."""
        prices = self._prices.values()
        read = (min(p.read_ps(b) for p in prices for b in self._there[v]) for v in self._read)
        written = (min(p.write_ps(r) for p in prices) for r in self.made if self._is_plain(r))
        return math.fsum([*read, *written])

    def _is_plain(self, buffer: int) -> bool:
        """Whether what writes a buffer is priced by its traffic: loops and transfers are not."""
        return not any(self._is_special(n) for n in self.pool.producers.get(buffer, ()))

    def _is_special(self, node: int) -> bool:
        n = self.space.egraph.nodes[node]
        return isinstance(n.attr, Control) or n.op == "transfer"

    # ---- dispatches ------------------------------------------------------------------------------
    @property
    def launch_ps(self) -> int:
        return min(m.launch_ps for m in self._machines)

    @cached_property
    def is_launched(self) -> bool:
        """Whether all that counts as a dispatch has a launch."""
        return not any(map(self._is_special, range(len(self.space.egraph.nodes))))

    @cached_property
    def dispatches(self) -> int:
        """As many as hold the ops, the roots and the borders that no answer avoids."""
        fusions, kinds = [m.fusion for m in self._machines], self.space.kinds
        ops = roots = 0.0
        for v in self.pool.needed:
            nodes = self._makers.get(v, ())
            share = min((1 / len(self.space.computed[n]) for n in nodes), default=0.0)
            ops += share
            if all(kinds[n] in ("contraction", "reduction") for n in nodes):
                roots += share
        borders = len(self._read) + len(self.made)
        found = [
            math.ceil(ops / max(map(_most_ops, fusions)) - ROUNDING),
            math.ceil(roots / max(map(_most_roots, fusions)) - ROUNDING),
            cdiv(borders, max(self._widest, *(f.operands for f in fusions))),
        ]
        return max(1, *found)

    @cached_property
    def _makers(self) -> dict[int, list[int]]:
        """Per value: the nodes that compute it."""
        found: dict[int, list[int]] = {}
        for nodes in self.pool.producers.values():
            for n in nodes:
                for v in self.space.computed[n]:
                    found.setdefault(v, []).append(n)
        return found

    @cached_property
    def _widest(self) -> int:
        """The most buffers that one op reads and writes: alone it may be a dispatch."""
        sides = zip(self.space.operands, self.space.made, strict=True)
        return max(len({*operands, *made}) for operands, made in sides)


def _most_ops(fusion: Fusion) -> int:
    return max(fusion.members, fusion.template, 1)


def _most_roots(fusion: Fusion) -> int:
    """Contractions and reductions of one dispatch, with those that count as one of them."""
    in_rows = fusion.roots * max(fusion.row_reductions, 1) + fusion.output_reductions
    return max(in_rows, 2 + fusion.row_reductions if fusion.row_block else 1)


def _computed(pool: Pool) -> set[int]:
    """Values of which a run may compute a buffer anew, or that nobody has to read as they are."""
    space, made = pool.space, set[int]()
    for nodes in pool.producers.values():
        for n in nodes:
            if space.computed[n]:
                made |= space.computed[n] - {space.value[o] for o in space.operands[n]}
    return made | {space.value[b] for b in (*space.roots, *pool.fills, *pool.constants)}


def _weight_bytes(pool: Pool) -> int:
    """Bytes of weights that are kept at the least, results not counted.

    Every op that computes a needed value reads some, each in its smallest layout. What may be
    shared is counted once: of needed values that could read the same, only the one with most.
    """
    if pool.legality.target.devices:
        return 0
    least, ways = _least_layouts(pool), pool.derivations
    most: list[tuple[set[int], int]] = []  # weights that may be read, bytes; disjoint sets
    for v in pool.needed:
        tick()
        own = {w for reads in ways[v] for w in reads if w in least}
        nbytes = min(sum(least.get(w, 0) for w in reads) for reads in ways[v])
        for other in [o for o in most if not own.isdisjoint(o[0])]:
            most.remove(other)
            own, nbytes = own | other[0], max(nbytes, other[1])
        most.append((own, nbytes))
    return sum(nbytes for _, nbytes in most)


def _least_layouts(pool: Pool) -> dict[int, int]:
    """Per value that is there from the start, and that no run computes: its smallest layout."""
    space, found = pool.space, dict[int, int]()
    for b in pool.resident:
        v = space.value[b]
        found[v] = min(found.get(v, space.nbytes(b)), space.nbytes(b))
    gone = _computed(pool)
    return {v: n for v, n in found.items() if v not in gone}
