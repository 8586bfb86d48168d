"""Bounds that hold for every candidate there could be: nothing is enumerated for them.

They are below what a search proves, and stand where there was no time for more. No dispatch
takes less than `LeastPrices` for a node that it computes at every point, whatever else it
holds, nor for a buffer that it reads or writes whole: on targets with kernels the floor of a
plan (`planfloors`) or of what has none, whichever is less; else the roofline's parts.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eqsat.extract.candidates.dominators import PricedWay, PricedWays, least_ps, needed_of
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.dispatch.planfloors import ROUNDING, FloorFacts, PlanFloors
from eqsat.extract.dispatch.plans import PlanPrices
from eqsat.extract.dispatch.prices import Costs
from eqsat.model.control import Control
from eqsat.model.deadline import OutOfTime, tick
from eqsat.model.sets import by_key
from eqsat.model.target import Fusion, Target
from eqsat.model.tensor import cdiv
from eqsat.ops.nests.nest import MOST_PIECES


@dataclass(frozen=True)
class LeastPrices:
    """Of the nodes of a pool, as one of its machines prices them."""

    pool: Pool
    costs: Costs

    @property
    def space(self) -> Space:
        return self.pool.space

    @property
    def target(self) -> Target:
        return self.costs.target

    @cached_property
    def _floors(self) -> PlanFloors | None:
        plan_floors = self.space.remembered(PlanFloors, self.target)
        return plan_floors if self.target.is_planned else None

    def reads_whole(self, node: int, operand: int) -> bool:
        """Whether an operand has to be there as a whole, for all of a node's result.

        A roofline prices what a dispatch holds as if all of it were computed.
        """
        return self._floors is None or self._floors.facts.whole[node][operand]

    def node_ps(self, node: int) -> float:
        """A floor of every dispatch that computes a node for all of its result."""
        plain = self.costs.least_ps(node, self.costs.iterations[node])
        if self._floors is None or self.target.pipelines:
            return plain
        facts = self._floors.facts
        is_certain = all(self._dense[b] for b in self.space.output_buffers[node])
        planned = self._planned_ps[node] if is_certain else 0.0
        by_itself = int(facts.op_ps[node]) - self.costs.one_by_one.start_ps
        return min(planned, max(0.0, float(by_itself)))

    def read_ps(self, buffer: int) -> float:
        """To read a buffer that is there from the start, all of it."""
        plain = 0 if buffer in self._tables else self.costs.class_ps[buffer]
        return min(plain, self._moved_ps(buffer, buffer in self.space.from_weights))

    def write_ps(self, buffer: int) -> float:
        """To write a buffer."""
        return min(self.costs.class_ps[buffer], self._moved_ps(buffer, False))

    # ---- kernels ---------------------------------------------------------------------------------
    def _moved_ps(self, buffer: int, is_weight: bool) -> float:
        """To move a whole buffer, from the nearest level that a plan may find it in."""
        floors = self._floors
        if floors is None:
            return float("inf")
        nbytes = float(floors.facts.nbytes[buffer]) / self._pieces
        afar = self.space.remembered(PlanPrices, self.target).working_set if is_weight else 0
        between = max(nbytes, afar) if nbytes else 0
        return nbytes * float(floors.byte_ps(np.array([between]))[0])

    @cached_property
    def _pieces(self) -> int:
        """Of what a concat cuts, the price counts the largest piece."""
        nodes = self.space.egraph.nodes
        cut = any(n.op == "concat" and self.pool.allows(i) for i, n in enumerate(nodes))
        return MOST_PIECES if cut else 1

    @cached_property
    def _planned_ps(self) -> list[float]:
        """Per node, of all its points: what is counted in whatever company (see `PlanFloors`)."""
        assert self._floors is not None
        facts, machine = self._floors.facts, self.target.machine
        allowed = np.array([self.pool.allows(i) for i in range(len(facts.nodes))])
        roots = int((facts.is_root & allowed).sum())
        multiplies = bool(((facts.is_contraction | facts.is_product) & allowed).any())
        contractions, sums, products, bodies = facts.point_ps
        work = contractions.copy()
        if roots < 2 or not multiplies:  # else a dispatch may keep rows
            work += sums + bodies
        if not roots or not multiplies:  # else a product may be a factor
            work += products
        buffers = [b for nodes in self.space.output_buffers for b in nodes]
        narrowest = int(facts.element_bytes[buffers].min(initial=4))
        lanes = max(machine.lanes(4), machine.vector_bytes // narrowest)
        return (work / lanes / machine.cores).tolist()

    @cached_property
    def _dense(self) -> dict[int, bool]:
        """Per buffer: whether no element of it need be the same as another, however it is made."""
        assert self._floors is not None
        facts, space = self._floors.facts, self.space
        dense = {b: b not in facts.fills for b in {*space.buffer}}
        changed = True
        while changed:
            changed = False
            for b, nodes in self._makers.items():
                if dense[b] and not all(self._stays_dense(facts, n, dense) for n in nodes):
                    dense[b], changed = False, True
        return dense

    def _stays_dense(self, facts: FloorFacts, node: int, dense: dict[int, bool]) -> bool:
        operands = [dense[b] for b in self.space.operands[node]]
        is_view = self.space.egraph.nodes[node].op == "relax"
        return all(operands) if is_view else facts.is_dense(node, operands)

    @cached_property
    def _makers(self) -> dict[int, list[int]]:
        """Per buffer that is made at run time: its nodes, and views of another one as this one."""
        makers = {b: list(nodes) for b, nodes in self.pool.producers.items()}
        for b, nodes in self.pool.relaxed.items():
            makers.setdefault(b, []).extend(nodes)
        return {b: nodes for b, nodes in makers.items() if b not in self.pool.held}

    # ---- rooflines -------------------------------------------------------------------------------
    @cached_property
    def _tables(self) -> frozenset[int]:
        """Buffers of which a gather takes rows, maybe behind other ops of its dispatch."""
        space = self.space
        below: dict[int, set[int]] = {}
        for operands, results in zip(space.operands, space.output_buffers, strict=True):
            for b in results:
                below.setdefault(b, set()).update(operands)
        gathers = (n.children[0] for n in space.egraph.nodes if n.op == "gather")
        waiting = [space.buffer[c] for c in gathers]
        tables = set(waiting)
        while waiting:
            news = below.get(waiting.pop(), set()) - tables
            tables |= news
            waiting += sorted(news)
        return frozenset(tables)


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
    computed = tuple(r for r in roots if r not in pool.held)
    if not computed:
        return {"time": 0, "memory": memory, "dispatches": 0}
    work, dispatches, time_ps = _Unavoidable(pool, costs, computed), 1, 0.0
    with suppress(OutOfTime):
        dispatches = work.dispatches
        time_ps = work.traffic_ps
        time_ps = max(time_ps, least_ps(work.ways, work.results))
    launches = dispatches * work.launch_ps if work.is_launched else 0
    exact = math.floor(time_ps * (1 - ROUNDING))
    return {"time": exact + launches, "memory": memory, "dispatches": dispatches}


@dataclass(frozen=True)
class _Unavoidable:
    """Parts of every answer: computed, read, written. computed_roots: by a dispatch."""

    pool: Pool
    costs: Costs
    computed_roots: tuple[int, ...]

    @property
    def space(self) -> Space:
        return self.pool.space

    @cached_property
    def results(self) -> frozenset[int]:
        """The values of the results."""
        return frozenset(self.space.value[r] for r in self.computed_roots)

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
        space, ahead = self.space, {self.space.value[b] for b in self.pool.ahead}
        ways: dict[int, list[PricedWay]] = {v: [PricedWay(0.0, frozenset())] for v in self._there}
        for node in sorted({p for nodes in self.pool.producers.values() for p in nodes}):
            tick()
            values = space.computed[node]
            open_ = [v for v in values if not space.is_source(v) and v not in ahead]
            way = self._way(node, len(values)) if open_ else None
            for v in open_:
                if way is not None and v not in way.reads:
                    ways.setdefault(v, []).append(way)
        return ways

    def _way(self, node: int, values: int) -> PricedWay:
        """The way of a node: its picoseconds for one of its values, and what it reads."""
        space, costs = self.space, self.costs.of((node,))
        priced = costs.known_ps((node,))
        if priced is not None:  # whatever it reads
            operands = frozenset(space.value[c] for c in space.egraph.nodes[node].children)
            return PricedWay(priced * costs.target.calls / values, operands - self._there.keys())
        prices = self._prices[id(costs.target)]
        children = enumerate(space.egraph.nodes[node].children)
        reads = frozenset(space.value[c] for i, c in children if prices.reads_whole(node, i))
        return PricedWay(costs.target.calls * prices.node_ps(node) / values, reads)

    # ---- traffic ---------------------------------------------------------------------------------
    @cached_property
    def _there(self) -> dict[int, tuple[int, ...]]:
        """Per value that is there from the start, and that no run computes: its buffers."""
        buffers = by_key((self.space.value[b], b) for b in sorted(self.pool.held))
        gone = _computed(self.pool)
        return {v: tuple(b) for v, b in buffers.items() if v not in gone}

    @cached_property
    def _read(self) -> frozenset[int]:
        """Values there from the start that some dispatch reads whole."""
        return needed_of(self.ways, self.results) & self._there.keys()

    @property
    def traffic_ps(self) -> float:
        """To read these, and to write the results down."""
        prices = self._prices.values()
        read = (min(p.read_ps(b) for p in prices for b in self._there[v]) for v in self._read)
        written = (
            min(p.write_ps(r) for p in prices) for r in self.computed_roots if self._is_plain(r)
        )
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
        borders = len(self._read) + len(self.computed_roots)
        counts = [
            math.ceil(ops / max(map(_most_ops, fusions)) - ROUNDING),
            math.ceil(roots / max(map(_most_roots, fusions)) - ROUNDING),
            cdiv(borders, max(self._widest, *(f.operands for f in fusions))),
        ]
        return max(1, *counts)

    @cached_property
    def _makers(self) -> dict[int, list[int]]:
        """Per value: the nodes that compute it."""
        producers = (n for nodes in self.pool.producers.values() for n in nodes)
        return by_key((v, n) for n in producers for v in self.space.computed[n])

    @cached_property
    def _widest(self) -> int:
        """The most buffers that one op reads and writes: alone it may be a dispatch."""
        sides = zip(self.space.operands, self.space.output_buffers, strict=True)
        return max(len({*operands, *results}) for operands, results in sides)


def _most_ops(fusion: Fusion) -> int:
    return max(fusion.members, fusion.template, 1)


def _most_roots(fusion: Fusion) -> int:
    """Contractions and reductions of one dispatch, with those that count as one of them."""
    in_rows = fusion.roots * max(fusion.row_reductions, 1) + fusion.output_reductions
    return max(in_rows, 2 + fusion.row_reductions if fusion.row_block else 1)


def _computed(pool: Pool) -> set[int]:
    """Values of which a run may compute a buffer anew, or that nobody has to read as they are."""
    space, computed = pool.space, set[int]()
    for nodes in pool.producers.values():
        for n in nodes:
            if space.computed[n]:
                computed |= space.computed[n] - {space.value[o] for o in space.operands[n]}
    return computed | {space.value[b] for b in (*space.roots, *pool.fills, *pool.constants)}


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
        weights = {w for reads in ways[v] for w in reads if w in least}
        nbytes = min(sum(least.get(w, 0) for w in reads) for reads in ways[v])
        for other in [o for o in most if not weights.isdisjoint(o[0])]:
            most.remove(other)
            weights, nbytes = weights | other[0], max(nbytes, other[1])
        most.append((weights, nbytes))
    return sum(nbytes for _, nbytes in most)


def _least_layouts(pool: Pool) -> dict[int, int]:
    """Per value that is there from the start, and that no run computes: its smallest layout."""
    space, least = pool.space, dict[int, int]()
    for b in pool.resident:
        v = space.value[b]
        least[v] = min(least.get(v, space.nbytes(b)), space.nbytes(b))
    gone = _computed(pool)
    return {v: n for v, n in least.items() if v not in gone}
