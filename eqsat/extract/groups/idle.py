"""Layouts that cannot matter: where conversions inside of a dispatch are free, ops run in others.

If a conversion inside of a dispatch takes no time and any dispatch may repeat one, an answer stays
one in the program's own layouts: compute every group from the values it reads, in these layouts.
That takes no conversion inside, so no more members; no more bytes, as no layout is smaller; and no
more arithmetic, as the ops are no slower. What a dispatch writes is read as it is written. So a
layout is *idle* unless it is the program's own, is there from the start, a result asks for it, it
has fewer bytes, or an op has no node without it, or a slower one; of nodes of an op that has none
in own layouts those stay that need the fewest others. Ops are told by the values they read and
make.

An op that stays in other layouts is converted to and from own ones inside of its dispatch. These
conversions are members: there is room for them in `ROOM` members, and in templates, which are there
with all their conversions (`templates`); data moves, which no template holds, stay in the layouts
beside such an op, and ops that read or write these layouts and need no others. So this is exact but
for dispatches of as many members as allowed that hold such an op, a move, and between them an op
with a layout of its own (decision 371).

Two parts of a dispatch that share nothing but a conversion share, in own layouts, what that one
read. So `converts_for_free` asks that `siblings` makes these one dispatch, too, by the same limits,
or that no dispatch has such parts; and that nothing in a conversion has a price.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from eqsat.extract.candidates.space import MOVING
from eqsat.extract.choice.linear import ASKED, OTHERS
from eqsat.extract.dispatch.prices import Costs
from eqsat.model.generic import Generic

if TYPE_CHECKING:
    from eqsat.extract.candidates.pool import Pool

GOALS = frozenset({"time", "dispatches", *ASKED, *OTHERS})  # a plug-in goal may look at layouts
PLACED = ("slice", "concat", "pad")  # their attributes are places in a layout; gathers have prices
ROOM = 4  # members of an op that is quicker in other layouts: two operands and its result converted
Producers = dict[int, tuple[int, ...]]  # per buffer: nodes that compute it


def converts_for_free(pool: Pool, nodes: Iterable[int]) -> bool:
    """Whether conversions inside of a dispatch change nothing, and any dispatch may repeat one.

    And there is room for those of one op, where ops stay in other layouts.
    """
    target, legality, kinds = pool.legality.target, pool.legality, pool.space.kinds
    fusion = target.fusion
    priced = target.is_planned or target.relayout or target.pipelines or target.devices
    if priced or target.padding or "identity" in (fusion.index_relation, fusion.result_relation):
        return False
    if fusion.members < ROOM or "move" in fusion.around:
        return False
    if fusion.multi_result and not fusion.siblings:
        return False  # parts that share a conversion may be one dispatch, those of one operand not
    if fusion.siblings and target.limits.vector_bytes is not None:
        return False  # readers of one operand have a limit, those of one conversion have none
    return all(legality.is_cloneable(n) for n in nodes if kinds[n] == "conversion")


@dataclass(frozen=True)
class Idle:
    """Which producers touch no idle layout."""

    pool: Pool
    every: Producers

    @cached_property
    def producers(self) -> Producers:
        """Per buffer: the nodes that compute it, without those that touch an idle layout.

        All of them where the results could not be made without: rules that replace nodes leave ops
        with packed forms alone.
        """
        producers = {b: tuple([n for n in ns if n in self.active]) for b, ns in self.every.items()}
        producers = {b: ns for b, ns in producers.items() if ns}
        return producers if self._makes_results(producers) else self.every

    def _makes_results(self, producers: Producers) -> bool:
        pool, space = self.pool, self.pool.space
        there = {*self._there, *pool.fills, *pool.relaxed}
        left = {n for ns in producers.values() for n in ns}
        while ready := {n for n in left if there.issuperset(space.operands[n])}:
            there.update(*[space.output_buffers[n] for n in ready])
            left -= ready
        return there.issuperset(space.roots)

    @cached_property
    def active(self) -> frozenset[int]:
        """Nodes that touch no idle layout."""
        return frozenset(n for n in self._nodes if self._stays(n))

    @cached_property
    def _nodes(self) -> list[int]:
        return sorted({n for ns in self.every.values() for n in ns})

    def _stays(self, node: int) -> bool:
        if self.pool.space.kinds[node] in MOVING:
            return self._touched(node) <= self.layouts | self._between
        return node in self._computing

    def _touched(self, node: int) -> set[int]:
        space = self.pool.space
        return {*space.operands[node], *space.output_buffers[node]}

    @cached_property
    def _ops(self) -> list[list[int]]:
        """Nodes that compute the same from the same values."""
        ops: dict[Hashable, list[int]] = defaultdict(list)
        for n in self._nodes:
            if self.pool.space.kinds[n] not in MOVING:
                ops[self._op(n)].append(n)
        return list(ops.values())

    def _op(self, node: int) -> Hashable:
        space, n = self.pool.space, self.pool.space.egraph.nodes[node]
        bodies: Hashable = n.attr.yields if isinstance(n.attr, Generic) else n.attr
        if self._is_placed(node):
            bodies = None
        reads = {
            space.value[c]
            for c, b in zip(n.children, space.operands[node], strict=True)
            if b not in self.pool.fills
        }
        makes = tuple(sorted({space.value[c] for c in space.outputs[node]}))
        return n.op, bodies, tuple(sorted(reads)), makes

    @cached_property
    def _there(self) -> frozenset[int]:
        """Buffers that are there, or can be made ahead of time."""
        return self.pool.space.inputs | self.pool.resident

    @cached_property
    def _own(self) -> dict[int, int]:
        """Per value: the layout of the program, of a result, or one that is there."""
        space, held = self.pool.space, self._there
        layout_of = {space.value[r]: r for r in reversed(space.roots)}
        for c in space.egraph.values:
            layout_of.setdefault(space.value[c], space.buffer[c])
        computed = {space.value[c] for o in self._ops for n in o for c in space.outputs[n]}
        there: dict[int, list[int]] = defaultdict(list)
        for b in sorted(held | self.every.keys()):
            there[space.value[b]].append(b)
        for v, bs in there.items():
            first = [b for b in bs if b in held]
            layout_of[v] = first[0] if first and v not in computed else layout_of.get(v, bs[0])
        return layout_of

    @cached_property
    def layouts(self) -> frozenset[int]:
        """Buffers in layouts that may matter."""
        space, pool = self.pool.space, self.pool
        allowed = {*self._own.values(), *self._there, *space.roots, *pool.fills}
        besides = {r for r in space.roots if self._own[space.value[r]] != r}
        while True:
            more = set[int]()
            for nodes in self._ops:
                touched = [self._touched(n) for n in nodes]
                if not any(t <= allowed for t in touched):
                    least = min(len(t - allowed) for t in touched)
                    more.update(*[t for t in touched if len(t - allowed) == least])
                more.update(b for t in touched for b in t if self._is_smaller(b))
                more.update(*[t for t in touched if not besides.isdisjoint(t)])
            if more <= allowed:
                return frozenset(allowed)
            allowed |= more

    def _is_smaller(self, buffer: int) -> bool:
        layout = self._own.get(self.pool.space.value[buffer])
        sizes = self.pool.space.sizes
        return layout is not None and sizes[buffer] < sizes[layout]

    @cached_property
    def _computing(self) -> frozenset[int]:
        """Nodes in these layouts, those that are quicker, and data moves beside these."""
        costs = self.pool.space.remembered(Costs, self.pool.legality.target)
        computing = set[int]()
        for nodes in self._ops:
            few = [n for n in nodes if self._touched(n) <= self.layouts]
            best = min(costs.compute_ps(n, costs.iterations[n]) for n in few)
            quicker = [
                n for n in nodes if n not in few and costs.compute_ps(n, costs.iterations[n]) < best
            ]
            computing.update(few, quicker)
        return frozenset(self._with_moves(computing))

    def _with_moves(self, nodes: set[int]) -> set[int]:
        """Nodes, and slices, pads and concats in layouts that these need beside the own ones.

        No template holds a move, so a conversion between may be one member too many. What computes
        from such a layout into an own one, or back, takes none.
        """
        plain = {*self._own.values(), *self._there, *self.pool.space.roots, *self.pool.fills}
        needed = {b for n in nodes for b in self._touched(n)} - plain
        waiting = {n for n in self._nodes if self._is_placed(n)} - nodes
        while near := {n for n in waiting if not needed.isdisjoint(self._touched(n))}:
            nodes |= near
            waiting -= near
            needed.update(*[self._touched(n) - plain for n in near])
        touched = {
            n: self._touched(n) for n in self._nodes if self.pool.space.kinds[n] not in MOVING
        }
        return nodes | {
            n for n, t in touched.items() if t <= needed | plain and not needed.isdisjoint(t)
        }

    def _is_placed(self, node: int) -> bool:
        return self.pool.space.egraph.nodes[node].op in PLACED

    @cached_property
    def _between(self) -> frozenset[int]:
        """Layouts of what is quicker, and on the way between those that may matter."""
        space = self.pool.space
        between = {b for n in self._computing for b in self._touched(n)} - self.layouts
        ways: dict[int, list[int]] = defaultdict(list)  # what it is converted to or seen as
        for n in self._nodes:
            if space.kinds[n] in MOVING:
                for a in space.operands[n]:
                    ways[a] += space.output_buffers[n]
        for b, views in self.pool.relaxed.items():
            for a in (a for n in views for a in space.operands[n]):
                ways[a].append(b)
        ends = self.layouts | between
        for start in sorted(ends):
            between |= _passed(start, ways, ends)
        return frozenset(between)


def _passed(start: int, ways: dict[int, list[int]], ends: Iterable[int]) -> set[int]:
    """Layouts on shortest ways from one to others."""
    before, waiting = {start: start}, [start]
    for a in waiting:
        for b in ways.get(a, ()):
            if b not in before:
                before[b] = a
                waiting.append(b)
    passed = set[int]()
    for end in ends:
        at = end
        while at in before and before[at] != at:
            at = before[at]
            passed.add(at)
    return passed
