"""The least prices of nodes and buffers: a pool of nodes on one machine in, picoseconds out.

No dispatch takes less for a node that it computes at every point, whatever else it holds, nor for a
buffer that it reads or writes whole. On targets with kernels that is the floor of a plan
(`planfloors`) or of what has none, whichever is less; of other targets the roofline's parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eqsat.extract.candidates.costs import Costs
from eqsat.extract.candidates.planfloors import FloorFacts, PlanFloors
from eqsat.extract.candidates.planned import PlanPrices
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.model.target import Target
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
        found = self.space.remembered(PlanFloors, self.target)
        return found if self.target.is_planned else None

    def reads_whole(self, node: int, operand: int) -> bool:
        """Whether an operand has to be there as a whole, for all of a node's result.

        A roofline prices what a dispatch holds as if all of it were computed.
        """
        return self._floors is None or self._floors.facts.whole[node][operand]

    def node_ps(self, node: int) -> float:
        """What no dispatch that computes a node for all of its result goes below."""
        plain = self.costs.least_ps(node, self.costs.iterations[node])
        if self._floors is None or self.target.pipelines:
            return plain
        facts = self._floors.facts
        is_certain = all(self._dense[b] for b in self.space.made[node])
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
        own = contractions.copy()
        if roots < 2 or not multiplies:  # else a dispatch may keep rows
            own += sums + bodies
        if not roots or not multiplies:  # else a product may be a factor
            own += products
        made = [b for nodes in self.space.made for b in nodes]
        narrowest = int(facts.element_bytes[made].min(initial=4))
        lanes = max(machine.lanes(4), machine.vector_bytes // narrowest)
        return (own / lanes / machine.cores).tolist()

    @cached_property
    def _dense(self) -> dict[int, bool]:
        """Per buffer: whether no element of it need be the same as another, however it is made."""
        assert self._floors is not None
        facts, space = self._floors.facts, self.space
        found = {b: b not in facts.fills for b in {*space.buffer}}
        changed = True
        while changed:
            changed = False
            for b, nodes in self._makers.items():
                if found[b] and not all(self._stays_dense(facts, n, found) for n in nodes):
                    found[b], changed = False, True
        return found

    def _stays_dense(self, facts: FloorFacts, node: int, dense: dict[int, bool]) -> bool:
        operands = [dense[b] for b in self.space.operands[node]]
        is_view = self.space.egraph.nodes[node].op == "relax"
        return all(operands) if is_view else facts.is_dense(node, operands)

    @cached_property
    def _makers(self) -> dict[int, list[int]]:
        """Per buffer that is made at run time: its nodes, and views of another one as this one."""
        found = {b: list(nodes) for b, nodes in self.pool.producers.items()}
        for b, nodes in self.pool.relaxed.items():
            found.setdefault(b, []).extend(nodes)
        return {b: nodes for b, nodes in found.items() if b not in self.pool.held}

    # ---- rooflines -------------------------------------------------------------------------------
    @cached_property
    def _tables(self) -> frozenset[int]:
        """Buffers of which a gather takes rows, maybe behind other ops of its dispatch."""
        space = self.space
        below: dict[int, set[int]] = {}
        for operands, made in zip(space.operands, space.made, strict=True):
            for b in made:
                below.setdefault(b, set()).update(operands)
        gathers = (n.children[0] for n in space.egraph.nodes if n.op == "gather")
        waiting = [space.buffer[c] for c in gathers]
        found = set(waiting)
        while waiting:
            news = below.get(waiting.pop(), set()) - found
            found |= news
            waiting += sorted(news)
        return frozenset(found)
