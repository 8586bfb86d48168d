"""Which nodes of an e-graph may be chosen: all but the subsumed, or the input program's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from eqsat.extract.candidates.cover import (
    Waits,
    derivations,
    necessity,
    needed_values,
    served_values,
    values_behind,
)
from eqsat.extract.candidates.life import found_optional
from eqsat.extract.candidates.space import Space
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.groups.idle import GOALS, Idle, converts_for_free
from eqsat.model.control import CONTROL
from eqsat.model.selection import Removed

if TYPE_CHECKING:
    from eqsat.extract.groups.grow import Candidate


@dataclass(frozen=True)
class Pool:
    """Candidates of one extraction; `input_only` leaves the nodes of the input program.

    keeps_all: with groups that are in no best answer, for questions about worse ones.
    small_bytes: buffers made from weights of at most so many bytes are there in every answer.
    is_time_first: the best time is wanted, whatever else follows (`idle`).
    """

    legality: Legality
    input_only: bool
    asked: frozenset[str] = frozenset()  # names of the goals and budgets
    keeps_all: bool = False
    small_bytes: int = 0
    only: frozenset[int] | None = None  # nodes, if it is about few of them
    is_time_first: bool = False
    merged: frozenset[frozenset[int]] | None = None  # what merges may compute, if only few

    @property
    def space(self) -> Space:
        return self.legality.space

    def allows(self, node: int) -> bool:
        n = self.space.egraph.nodes[node]
        if self.only is not None and node not in self.only:
            return False
        return n.rule == -1 if self.input_only else not n.subsumed

    def allowed(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Those of nodes that may all be chosen: rules with `apply: replace` take some out."""
        return [c for c in candidates if all(self.allows(m) for m in c.members)]

    @cached_property
    def _nodes(self) -> tuple[int, ...]:
        return tuple(i for i in range(len(self.space.egraph.nodes)) if self.allows(i))

    @cached_property
    def _limits(self) -> dict[int, Removed]:
        """Nodes a limit of the target removes from every dispatch."""
        of = self.legality.of
        limits = {i: of((i,)).limit_of(i) for i in self._nodes}
        return {i: r for i, r in limits.items() if r is not None}

    @cached_property
    def limited(self) -> dict[int, Removed]:
        """Nodes that a limit excludes and that may not be computed ahead of time either."""
        return {i: r for i, r in self._limits.items() if not self.is_ahead_node(i)}

    @cached_property
    def _plain(self) -> tuple[int, ...]:
        """Unpacked contractions in no dispatch: tiles are forced, or no pipeline takes them."""
        return tuple(i for i in self._nodes if not self.legality.of((i,)).is_admissible(i))

    @cached_property
    def untiled(self) -> tuple[int, ...]:
        """Unpacked contractions that `tiles_forced` removes, or that no pipeline takes."""
        return tuple(i for i in self._plain if not self.is_ahead_node(i))

    @cached_property
    def misplaced(self) -> frozenset[int]:
        """What rules made and its device does not have: another one's tiles, or any at all."""
        legality = self.legality
        if not legality.target.devices:
            return frozenset()
        return frozenset(i for i in self._nodes if not legality.devices.may_run(i))

    def is_ahead_node(self, node: int) -> bool:
        outputs = self.space.outputs[node]
        return bool(outputs) and all(self.space.buffer[c] in self.ahead for c in outputs)

    @cached_property
    def producers(self) -> dict[int, tuple[int, ...]]:
        """Per buffer: the nodes that compute it at run time, by number."""
        every = self._every_producer
        return Idle(self, every).producers if self.has_free_conversions else every

    @cached_property
    def has_free_conversions(self) -> bool:
        """Whether conversions inside of a dispatch change nothing that is asked for (`idle`)."""
        if self.input_only or self.keeps_all or not (self.is_time_first and self.asked <= GOALS):
            return False
        return converts_for_free(self, {n for ns in self._every_producer.values() for n in ns})

    @cached_property
    def _every_producer(self) -> dict[int, tuple[int, ...]]:
        producers: dict[int, list[int]] = {}
        gone = self.misplaced.union(self._plain, self._limits)
        for i in self._nodes:
            if self.space.kinds[i] in ("leaf", "view") or i in gone:
                continue
            for b in dict.fromkeys(self.space.buffer[c] for c in self.space.outputs[i]):
                if b not in self.space.operands[i]:
                    producers.setdefault(b, []).append(i)
        return {b: tuple(p) for b, p in producers.items()}

    @cached_property
    def relaxed(self) -> dict[int, tuple[int, ...]]:
        """Per buffer: the `relax` nodes that see another buffer as this one, for free."""
        relaxed: dict[int, list[int]] = {}
        for i in self._nodes:
            n = self.space.egraph.nodes[i]
            b = self.space.buffer[n.eclass]
            if n.op == "relax" and self.space.operands[i] != (b,):
                relaxed.setdefault(b, []).append(i)
        return {b: tuple(p) for b, p in relaxed.items()}

    @cached_property
    def fills(self) -> dict[int, int]:
        """Per buffer that holds one value everywhere: its `fill` node."""
        nodes = self.space.egraph.nodes
        fills: dict[int, int] = {}
        for i in self._nodes:
            if nodes[i].op == "fill":
                fills.setdefault(self.space.buffer[nodes[i].eclass], i)
        return fills

    @cached_property
    def ahead(self) -> dict[int, int]:
        """Per buffer that needs only weights and constants: the node of its cheapest derivation.

        Cost is the number of nodes; ties go to the smaller node number.
        """
        return self._cheapest(self._ahead_cost)

    @cached_property
    def constants(self) -> dict[int, int]:
        """Per buffer that needs nothing but fills: the node of its cheapest derivation.

        Part of what is computed from weights; by itself a constant is computed where it is read,
        as memory costs more than arithmetic.
        """
        return self._cheapest(self._constant_cost)

    def _cheapest(self, cost_of: Callable[[int, dict[int, int]], int | None]) -> dict[int, int]:
        costs: dict[int, int] = {}
        options = [i for i in self._nodes if self._may_be_ahead(i)]
        changed = True
        while changed:
            changed = False
            for i in options:
                cost = cost_of(i, costs)
                b = self.space.buffer[self.space.egraph.nodes[i].eclass]
                if cost is not None and cost < costs.get(b, 1 << 60):
                    costs[b], changed = cost, True
        best: dict[int, int] = {}
        for i in options:
            b = self.space.buffer[self.space.egraph.nodes[i].eclass]
            if b in costs and cost_of(i, costs) == costs[b]:
                best.setdefault(b, i)
        return best

    def _may_be_ahead(self, node: int) -> bool:
        n = self.space.egraph.nodes[node]
        single = n.op == "result" and len(self.space.egraph.types[n.children[0]]) == 1
        return n.op not in ("input", "fill", "reshape") and not single

    def _ahead_cost(self, node: int, costs: dict[int, int]) -> int | None:
        if self.space.egraph.nodes[node].op == "weight":
            return 1
        operands = self.space.operands[node]
        constant = self.fills.keys() | self.constants.keys()
        weights = [o for o in operands if o in costs or o not in constant]
        if not weights or any(o not in costs for o in weights):
            return None
        return 1 + sum(costs[o] for o in weights)

    def _constant_cost(self, node: int, costs: dict[int, int]) -> int | None:
        if self.space.egraph.nodes[node].op in ("weight", "opaque", *CONTROL):
            return None
        rest = [o for o in self.space.operands[node] if o not in self.fills]
        return None if any(o not in costs for o in rest) else 1 + sum(costs[o] for o in rest)

    @cached_property
    def resident(self) -> frozenset[int]:
        """Ahead buffers a dispatch may read; those that are `relax`ed views are read through."""
        nodes = self.space.egraph.nodes
        single = (b for b, i in self.ahead.items() if nodes[i].op != "relax")
        return frozenset(b for b in single if len(self.space.egraph.types[b]) == 1)

    @cached_property
    def optional(self) -> frozenset[int]:
        """Of these, those that may be made in every run instead, where that can be better."""
        return found_optional(self)

    @cached_property
    def derivations(self) -> dict[int, list[frozenset[int]]]:
        """Per value: the values each node reads that computes it anew."""
        return derivations(self)

    @cached_property
    def necessity(self) -> dict[int, int]:
        """Per value that is computed at run time: those that every derivation computes, as bits."""
        return necessity(self)

    @cached_property
    def needed(self) -> tuple[int, ...]:
        """Values every answer computes."""
        return needed_values(self)

    @cached_property
    def served(self) -> dict[int, frozenset[int]]:
        """Per node: needed values of which every answer holds one of the nodes that serve it."""
        return served_values(self)

    @cached_property
    def behind(self) -> dict[int, frozenset[int]]:
        """Per value computed at run time: itself, and those that stand in its place."""
        return values_behind(self)

    @cached_property
    def waits(self) -> Waits:
        return Waits(self)

    @cached_property
    def held(self) -> frozenset[int]:
        """Buffers that are there before the first dispatch, whatever is chosen."""
        return (self.space.inputs | self.resident) - self.optional

    def ahead_nodes(self, buffers: Iterable[int]) -> tuple[int, ...]:
        """The nodes that compute these buffers from weights, operands first.

        The weights come before all others, in the order of the program.
        """
        done: dict[int, None] = {}
        for b in sorted(buffers):
            self._add_ahead(b, done)
        nodes = self.space.egraph.nodes
        weights = sorted(i for i in done if nodes[i].op == "weight")
        return (*weights, *(i for i in done if nodes[i].op != "weight"))

    def _add_ahead(self, buffer: int, done: dict[int, None]) -> None:
        stack = [(buffer, False)]
        while stack:
            b, ready = stack.pop()
            node = self.ahead.get(b, self.fills.get(b, self.constants.get(b)))
            assert node is not None, f"buffer {b} has no derivation from weights"
            if ready:
                done.setdefault(node)
            elif node not in done:
                stack.append((b, True))
                stack += [(o, False) for o in reversed(self.space.operands[node])]


@dataclass(frozen=True)
class DevicePool:
    """A pool on one device; `device` says whose dispatches are made, if there are several."""

    pool: Pool
    costs: Costs
    device: str = ""

    @cached_property
    def space(self) -> Space:
        return self.pool.space

    @cached_property
    def legality(self) -> Legality:
        return self.pool.legality.part(self.device)
