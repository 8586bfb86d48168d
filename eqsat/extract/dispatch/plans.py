"""Prices of dispatches on targets with kernels: of their plans, or of XLA's ops one by one.

Equal blocks of a program have equal dispatches, and candidates of different layouts share
most of theirs. So a dispatch is named by its ops with numbers of its own, and planned once.

Without a plan each op reads its operands and writes its result in memory, and is started by
itself: what XLA fuses is no credit that a choice may rest on. Nor is what XLA might do
quicker than a kernel: alone the op would be that kernel. So every dispatch without a plan
takes longer than its ops as dispatches of their own, if these have plans, and as long if
they have none.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from eqsat.extract.candidates.space import Space
from eqsat.model.attr import Attr
from eqsat.model.dispatch import Parts
from eqsat.model.movement import Move, Reshape
from eqsat.model.nest import Nest, NoNest
from eqsat.model.ops import SAME_BYTES
from eqsat.model.target import Target
from eqsat.ops.nests.nest import Member, nest_of
from eqsat.plan.planner import BufferFacts, Planner, planner_of

if TYPE_CHECKING:
    from eqsat.extract.dispatch.prices import Costs

Structure = tuple[int, ...]


class _Numbering(dict[Hashable, int]):
    """A number for everything that is asked for."""

    def __missing__(self, key: Hashable) -> int:
        self[key] = number = len(self)
        return number


@dataclass(frozen=True)
class PlanPrices:
    """Prices of the groups of one e-graph on one target with kernels."""

    space: Space
    target: Target

    def time_ps(
        self, members: Sequence[int], reads: Iterable[int], writes: Sequence[int]
    ) -> int | None:
        """Picoseconds of the dispatch's plan; None if it has none and runs as XLA ops."""
        reads = tuple(reads)
        key = self._structure(members, reads, writes)
        planned = self._known
        if key not in planned:
            planned[key] = self._planned_ps(members, reads, writes)
        return planned[key]

    def _planned_ps(
        self, members: Sequence[int], reads: Sequence[int], writes: Sequence[int]
    ) -> int | None:
        try:
            return self.parts(members, reads, writes).time_ps
        except NoNest:
            return None

    def parts(self, members: Sequence[int], reads: Sequence[int], writes: Sequence[int]) -> Parts:
        """The parts of the price of the dispatch's plan; NoNest if it has none."""
        space, types = self.space, self.space.egraph.types

        def places(buffers: frozenset[int]) -> tuple[int, ...]:
            return tuple([i for i, r in enumerate(reads) if space.buffer[r] in buffers])

        result_types = {types[w] for w in writes}
        dying = tuple([i for i in places(space.dying) if types[reads[i]] in result_types])
        known_reads = BufferFacts(places(space.donated), dying, frozenset(places(space.lines)))
        nest = self.nest(members, reads, writes)
        return self._planner(nest, places(self.weights), known_reads)[1]

    @cached_property
    def _known(self) -> dict[Structure, int | None]:
        return {}

    @cached_property
    def _planner(self) -> Planner:
        return planner_of(self.space.whole, self.target)

    @property
    def weights(self) -> frozenset[int]:
        """Buffers that follow from weights alone."""
        return self.space.from_weights

    @property
    def working_set(self) -> int:
        """Bytes between two reads of a weight; see `plan.planner.working_set`."""
        return self._planner.working_set

    # ---- the name of a dispatch --------------------------------------------------------------
    @cached_property
    def _types(self) -> tuple[int, ...]:
        """Per class: a number that classes of the same types share."""
        number = _Numbering()
        return tuple(number[t] for t in self.space.egraph.types)

    def _structure(
        self, members: Sequence[int], reads: Sequence[int], writes: Sequence[int]
    ) -> Structure:
        """Ops, what they read of each other and of the outside, and what is written."""
        space, types = self.space, self._types
        buffer, operands, ids = space.buffer, space.operands, space.alike
        marks = self.weights, space.donated, space.dying, space.lines
        local: dict[int, int] = {}
        key: list[int] = []
        for r in reads:
            local[buffer[r]] = len(local)
            key += (types[r], *[buffer[r] in m for m in marks])
        key.append(-1)
        for m in members:
            key.append(ids[m])
            key += [local[b] for b in operands[m]]
            local.setdefault(space.result[m], len(local))
        key.append(-1)
        for w in writes:
            key += (types[w], local[buffer[w]])
        return tuple(key)

    # ---- its ops -----------------------------------------------------------------------------
    def nest(self, members: Sequence[int], reads: Iterable[int], writes: Iterable[int]) -> Nest:
        """The nest of a group; what is read is named by its place in `reads`, the rest by others.

        NoNest if it is none.
        """
        space, egraph = self.space, self.space.egraph
        buffer, types, nodes = space.buffer, egraph.types, egraph.nodes
        ops: list[Member] = []
        read, computed = dict[int, int](), dict[int, int]()  # class -> place of the op

        def add(eclass: int, op: str, attr: Attr, operands: tuple[int, ...] = ()) -> int:
            ops.append(Member(len(ops), op, attr, operands, types[eclass]))
            return len(ops) - 1

        def seen(eclass: int) -> int:
            """A class, or another shape of its bytes as that class."""
            for places in (computed, read):
                if eclass in places:
                    return places[eclass]
                for c, place in places.items():
                    if buffer[c] == buffer[eclass]:
                        attr = Reshape(space.type(c).shape, space.type(eclass).shape)
                        return add(eclass, "reshape", attr, (place,))
            raise KeyError(eclass)

        for r in reads:
            read[r] = add(r, "", nodes[members[0]].attr)
        for m in members:
            n = nodes[m]
            computed[n.eclass] = add(n.eclass, n.op, n.attr, tuple([seen(c) for c in n.children]))
        written = [seen(w) for w in writes]
        return nest_of(ops, read.values(), [_written(ops, w) for w in written])


def _written(ops: Sequence[Member], place: int) -> int:
    """The op that writes the buffer of a result, views looked through."""
    while ops[place].op in SAME_BYTES:
        (place,) = ops[place].operands
    return place


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
        written_ps = sum([costs.class_ps[c] for c in space.outputs[node]])
        if isinstance(n.attr, Move) and n.attr.op in IN_PART:
            del sides[space.buffer[n.children[0]]]
            written_ps *= 2
        return written_ps + sum(
            [costs.class_ps[c] for b, c in sides.items() if b not in self._fills]
        )

    @cached_property
    def _fills(self) -> dict[int, int]:
        """Per buffer of a constant: its node."""
        space = self.costs.space
        nodes = enumerate(space.egraph.nodes)
        return {space.buffer[n.eclass]: i for i, n in nodes if n.op == "fill"}

    def _op_ps(self, node: int) -> int:
        cached_ps = self._known
        if node not in cached_ps:
            cached_ps[node] = max(self.least_ps[node], self._no_quicker_ps(node))
        return cached_ps[node]

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
