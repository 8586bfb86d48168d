"""What a dispatch without a plan takes, on targets with kernels: XLA runs its ops one by one.

Each op reads its operands and writes its result in memory, and is started by itself: what XLA fuses
is no credit that a choice may rest on. Nor is what XLA might do quicker than a kernel: alone the op
would be that kernel. So every dispatch without a plan takes longer than its ops as dispatches of
their own, if these have plans, and as long if they have none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from eqsat.extract.candidates.planned import PlanPrices
from eqsat.model.movement import Move

if TYPE_CHECKING:
    from eqsat.extract.candidates.costs import Costs

FREE = ("leaf", "view")  # kinds of nodes for which nothing is executed
IN_PART = ("gather", "slice")  # ops that read as much of their first operand as they write


@dataclass(frozen=True)
class OpPrices:
    """Of the nodes of one e-graph on one target with kernels."""

    costs: Costs

    def dispatch_ps(self, members: Iterable[int]) -> int:
        """Picoseconds of a dispatch of these nodes that has no plan."""
        return max(self.costs.target.launch_ps, sum([self._op_ps(m) for m in members]))

    @cached_property
    def least_ps(self) -> tuple[int, ...]:
        """Per node: what no dispatch without a plan takes less than for it, start included."""
        return tuple(map(self._least_of, range(len(self.costs.space.kinds))))

    @cached_property
    def start_ps(self) -> int:
        """The start of an op, which is no shorter than that of a kernel."""
        target = self.costs.target
        assert target.kernels is not None, "planned"
        return max(target.kernels.xla_op_ps, target.launch_ps)

    def _least_of(self, node: int) -> int:
        costs = self.costs
        if costs.space.kinds[node] in FREE:
            return 0
        compute = math.ceil(costs.compute_ps(node, costs.iterations[node]))
        return self.start_ps + max(compute, self._traffic_ps(node)) + costs.relayout_ps[node]

    def _traffic_ps(self, node: int) -> int:
        """All operands, each once, and the results; constants are no operands."""
        costs, space = self.costs, self.costs.space
        n = space.egraph.nodes[node]
        sides = {space.buffer[c]: c for c in n.children}
        made = sum([costs.class_ps[c] for c in space.outputs[node]])
        if isinstance(n.attr, Move) and n.attr.op in IN_PART:
            del sides[space.buffer[n.children[0]]]
            made *= 2
        return made + sum([costs.class_ps[c] for b, c in sides.items() if b not in self._fills])

    @cached_property
    def _fills(self) -> dict[int, int]:
        """Per buffer of a constant: its node."""
        space = self.costs.space
        nodes = enumerate(space.egraph.nodes)
        return {space.buffer[n.eclass]: i for i, n in nodes if n.op == "fill"}

    def _op_ps(self, node: int) -> int:
        known = self._known
        if node not in known:
            known[node] = max(self.least_ps[node], self._no_quicker_ps(node))
        return known[node]

    @cached_property
    def _known(self) -> dict[int, int]:
        return {}

    def _no_quicker_ps(self, node: int) -> int:
        """A start more than the node as a dispatch of its own, if it has a plan; else 0."""
        costs, space = self.costs, self.costs.space
        if space.kinds[node] in FREE:
            return 0
        sides = {space.buffer[c]: c for c in space.egraph.nodes[node].children}
        filled = [self._fills[b] for b in sides if b in self._fills]
        reads = tuple(c for b, c in sides.items() if b not in self._fills)
        members = (*filled, node, *space.views_of(node))
        prices = space.remembered(PlanPrices, costs.target)
        alone_ps = prices.time_ps(members, reads, space.outputs[node])
        return 0 if alone_ps is None else self.start_ps + alone_ps
