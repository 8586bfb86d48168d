"""Borders: in come groups in the making, out come those that lead to something of their own.

Inside of a dispatch a conversion is a way to read. So what a group can become is decided by what it
computes and by its border: what it reads, what is still open and how that is used, and what it
writes. Of groups with one border those go on that no other one dominates: by arithmetic and what is
laid out anew, by bytes converted, by members, by what no other dispatch may compute, and by what it
may write for others. What extends the one extends the other, too, by the same nodes; so by
induction every answer that is left out has one that is as good.

Nodes that differ for some reader stay in the key (`_signs`): roots that pipelines look at, calls of
a library, ops without a price of their own, and all nodes of a group with a gather, as it matters
how its table is laid out. Two limits: where results may be merged, small groups all stay, as their
merges are found by the nodes that they share (`small`). And on a target with kernels "dominates" is
a heuristic: plans see strides, so the one of fewest conversions may have the slower plan
(`docs/extraction.md`, "What is not claimed"); groups of the program's own nodes stay there.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from eqsat.extract.candidates.space import MOVING, order
from eqsat.extract.choice.linear import OTHERS, moved_bytes
from eqsat.extract.dispatch.legality import Inside
from eqsat.extract.groups.feasibility import Checks, PartialGroup
from eqsat.model.generic import Generic

SMALL = 3  # members of a group that may be merged with another
BLIND = frozenset({"time", "dispatches", *OTHERS})  # goals that do not ask what is converted
COMPUTING = ("elementwise", "contraction", "reduction")
_NOBODY = frozenset[int]()
_NOT_TAKEN = math.inf, math.inf
Numbers = frozenset[int]


class Inner(NamedTuple):
    """The inside of a group: what groups of one border differ in."""

    costs: tuple[float, ...]
    held: Numbers  # what no other dispatch may compute
    shown: Numbers  # buffers that may be written for others

    def is_no_dearer(self, other: Inner) -> bool:
        """But for what it shows."""
        costs = zip(self.costs, other.costs, strict=True)
        return all([a <= b for a, b in costs]) and self.held <= other.held

    def is_no_worse(self, other: Inner) -> bool:
        return self.shown >= other.shown and self.is_no_dearer(other)


class Seen(dict[Hashable, list[Inner]]):
    """Undominated groups by their borders.

    adds_up: what several show together one alone need not show.
    """

    def __init__(self, *, adds_up: bool = False):
        super().__init__()
        self.adds_up = adds_up

    def has(self, border: Hashable, inner: Inner) -> bool:
        """Whether a group of this border is no worse."""
        inners = self.get(border, ())
        if not self.adds_up:
            return any([k.is_no_worse(inner) for k in inners])
        cheap = [k.shown for k in inners if k.is_no_dearer(inner)]
        return bool(cheap) and inner.shown <= frozenset().union(*cheap)

    def add(self, border: Hashable, inner: Inner) -> None:
        inners = self.setdefault(border, [])
        inners[:] = [k for k in inners if not inner.is_no_worse(k)]
        inners.append(inner)


@dataclass(frozen=True)
class Borders(Checks):
    """Tells groups of one pool by their borders."""

    @cached_property
    def _known(self) -> dict[Hashable, tuple[Seen, Seen]]:
        return {}

    def seen(self, sink: int) -> tuple[Seen, Seen]:
        """Groups in the making, and whole ones, behind all ops that write the same."""
        adds_up = self._is_planned
        both = Seen(adds_up=adds_up), Seen(adds_up=adds_up)
        return self._known.setdefault(self.space.output_buffers[sink], both)

    @cached_property
    def most(self) -> int:
        """The members of a group that is no template."""
        return self.legality.fusion.members

    @cached_property
    def small(self) -> int:
        """So many members a group may have that stays whatever others there are."""
        fusion = self.legality.fusion
        return SMALL if fusion.multi_result and not self._is_planned else 0

    @cached_property
    def _is_planned(self) -> bool:
        return self.costs.target.is_planned

    @cached_property
    def projects(self) -> bool:
        """Whether groups are left out at all: not where worse answers are asked for, what is
        converted, or dispatches are refused; of kernels only where kinds alone say which may join.
        """
        if self.pool.keeps_all or self.pool.has_refusals:
            return False
        if self._is_planned:
            return self._joins_any and not self.legality.target.pipelines
        return self.pool.asked <= BLIND

    @cached_property
    def _joins_any(self) -> bool:
        return self.legality.fusion.index_relation == "any"

    def is_free(self, state: PartialGroup) -> bool:
        """Whether a group is told from others by its border and costs alone.

        How a contraction reads rows of another root is a question of layouts.
        """
        nodes = state.inside.values()
        if self._is_planned and all([self.space.is_own[n] for n in nodes]):
            return False
        if state.roots < 1 or not (self._is_planned or self.legality.row_blocks.is_on):
            return True
        roots = {n for n in nodes if self.legality.roots[n]}
        return len(roots) < 2 or not any(map(self.legality.is_contraction, roots))

    def is_dominated(self, state: PartialGroup, sink: int, seen: Seen) -> bool:
        """Whether another group leads to all that this one leads to; if not, it is known now."""
        is_open = state.at < len(state.queue)
        if (state.met and (is_open or self._is_planned)) or not self.is_free(state):
            return False
        border, inner = self._border(state), self._inner(state)
        if seen.has(border, inner):
            return True
        seen.add(border, inner)
        return False

    # ---- the border ----------------------------------------------------------------------------
    def _border(self, state: PartialGroup) -> Hashable:
        inside, signs = state.inside.values(), self._signs
        what = frozenset().union(*[signs[n] for n in inside])
        open_ = state.queue[state.at :]
        if self._may_widen(state):
            open_ = (*open_, *[b for b in state.reads if b in self.pool.producers])
        asked = frozenset([self._asked(state, b) for b in open_])
        beside = None if self._gathers.isdisjoint(inside) else frozenset(inside)
        return what, frozenset(state.reads), asked, self._roots(state), beside

    @cached_property
    def _gathers(self) -> frozenset[int]:
        return frozenset() if self._is_planned else frozenset(self.costs.gathered.gathers)

    def _may_widen(self, state: PartialGroup) -> bool:
        """Whether what a group reads may still be computed inside, in a template."""
        if self._is_planned or state.members < self.most:
            return False
        return all([self.in_templates[n] for n in state.inside.values()])

    @cached_property
    def in_templates(self) -> tuple[bool, ...]:
        """Per node: whether a template may have it inside."""
        legality, kinds = self.legality, self.space.kinds
        return tuple(
            legality.has_templates and (kind == "view" or legality.is_template_kind(n))
            for n, kind in enumerate(kinds)
        )

    def _asked(self, state: PartialGroup, buffer: int) -> Hashable:
        """A buffer, with what is asked of an op that computes it inside."""
        uses, above = self.legality.uses, self.above(state, buffer)
        numbers = uses.numbers(state.readers, buffer)
        turned = self.is_turned(state, above.readers)
        how: Hashable = frozenset([uses.asked(uses[u]) for u in numbers])
        if not self._is_planned:
            joined = self.joining(buffer, numbers)
            how = joined, self._along(state, numbers, joined)
            if state.members + 1 < self.most:  # what is behind that may join, too
                how = *how, frozenset(map(uses.meaning, numbers))
        return buffer, above.runs, above.is_repeated, how, turned

    def _along(
        self, state: PartialGroup, numbers: Iterable[int], joined: Iterable[int]
    ) -> Hashable:
        """How pipelines would have a root read that may join, as far as its users decide it."""
        legality = self.legality
        if not legality.target.pipelines or not any([legality.roots[n] for n in joined]):
            return None
        users = {legality.uses[u].node for u in numbers}
        return frozenset([legality.inside(n, state.readers).reading for n in users])

    def _roots(self, state: PartialGroup) -> Hashable:
        """The roots where somebody looks at them, and whether they run more often than needed."""
        if not state.roots:
            return None
        roots = {n for n in state.inside.values() if self.legality.roots[n]}
        signs, repeated = self._signs, state.repeated
        return frozenset([(signs[n], n in repeated, state.runs[n]) for n in roots])

    # ---- pipelines -----------------------------------------------------------------------------
    def _piped(self, state: PartialGroup) -> tuple[float, ...]:
        """Per pipeline: scratch bytes and picoseconds of the roots inside; infinite if one of them
        is not taken."""
        pipelines, costs = self.legality.target.pipelines, [0.0] * 2 * len(self._pipelines)
        if not pipelines or not state.roots:
            return tuple(costs)
        for n in {n for n in state.inside.values() if self.legality.roots[n]}:
            root = self._root(n, self.legality.inside(n, state.readers).reading)
            costs = [a + b for a, b in zip(costs, root, strict=True)]
        return tuple(costs)

    @cached_property
    def _pipelines(self) -> tuple[str, ...]:
        return tuple([p.name for p in self.legality.target.pipelines])

    def _root(self, root: int, reading: int) -> tuple[float, ...]:
        key = root, reading
        if key not in self._known_roots:
            runs, ps = {root: self._iterations[root]}, self.costs.arithmetic_ps
            ways = self.legality.ways([Inside(root, (), reading)])
            by = {w.name: (w.scratch_bytes, ps((root,), runs, w)) for w in ways}
            sides = [by.get(name, by.get("", _NOT_TAKEN)) for name in self._pipelines]
            self._known_roots[key] = tuple([x for side in sides for x in side])
        return self._known_roots[key]

    @cached_property
    def _known_roots(self) -> dict[tuple[int, int], tuple[float, ...]]:
        return {}

    # ---- nodes ---------------------------------------------------------------------------------
    @cached_property
    def _signs(self) -> tuple[frozenset[Hashable], ...]:
        """Per node: what is different of groups with others in its place."""
        of = self._kernel_of if self._is_planned else self._sign_of
        return tuple(map(of, range(len(self.space.kinds))))

    def _sign_of(self, node: int) -> frozenset[Hashable]:
        kind = self.space.kinds[node]
        if kind == "conversion" and not self._iterations[node]:
            return frozenset()
        if kind not in COMPUTING or kind in self.legality.fusion.calls:
            return frozenset([("node", node)])
        return frozenset([(kind, v) for v in self.space.computes((node,))])

    def _kernel_of(self, node: int) -> frozenset[Hashable]:
        n, kind = self.space.egraph.nodes[node], self.space.kinds[node]
        if kind in MOVING:
            return frozenset()
        bodies = n.attr.yields if isinstance(n.attr, Generic) else None
        return frozenset(
            [
                self._kernels.setdefault(
                    (n.op, bodies, self.space.computes((node,))), len(self._kernels)
                )
            ]
        )

    @cached_property
    def _kernels(self) -> dict[Hashable, int]:
        return {}

    # ---- what is inside ------------------------------------------------------------------------
    def _inner(self, state: PartialGroup) -> Inner:
        nodes = state.inside.values()
        computed = self.space.computes(nodes)
        held = self.legality.exclusive(nodes)
        if self._is_planned:
            costs = self.conversions(nodes), len(state.inside), state.members
            return Inner(costs, held, self._wanted_of(state.inside, computed))
        moved = sum([self._moved[n] for n in nodes])
        is_shown = self.legality.fusion.multi_result  # else only results may be written
        shown = self._wanted_of(state.inside, computed) if is_shown else _NOBODY
        costs = self._busy_ps(state), moved, state.members, *self._piped(state)
        return Inner(costs, held, shown)

    def work(self, nodes: Iterable[int]) -> float:
        """By which groups of as many members are looked at: those that dominate others first."""
        if self._is_planned:
            return self.conversions(nodes)
        own_ps = self._own_ps
        return math.fsum([own_ps[n] for n in nodes])

    def conversions(self, nodes: Iterable[int]) -> int:
        """How many of these nodes convert."""
        kinds = self.space.kinds
        return sum([kinds[n] == "conversion" for n in nodes])

    @cached_property
    def _moved(self) -> tuple[int, ...]:
        """Per node: bytes that it converts."""
        egraph = self.space.egraph
        return tuple(moved_bytes(egraph, n) for n in range(len(egraph.nodes)))

    @cached_property
    def _own_ps(self) -> tuple[float, ...]:
        """Per node: picoseconds if it runs once: arithmetic, and what is laid out anew."""
        costs = self.costs
        return tuple(
            costs.compute_ps(n, runs) + costs.relayout_ps[n]
            for n, runs in enumerate(self._iterations)
        )

    def _busy_ps(self, state: PartialGroup) -> float:
        """Picoseconds of what is inside of a group, run as often as it is there."""
        nodes, iterations, own_ps = {*state.inside.values()}, self._iterations, self._own_ps
        busy = [n for n in nodes if own_ps[n] and n not in self._piped_nodes]
        costs = self.costs
        runs = costs.runs(order(self.space, nodes)) if state.met and busy else state.runs
        return math.fsum(
            [
                own_ps[n]
                if runs[n] == iterations[n]
                else costs.compute_ps(n, runs[n]) + costs.relayout_ps[n]
                for n in busy
            ]
        )

    @cached_property
    def _piped_nodes(self) -> frozenset[int]:
        """Nodes that `_piped` prices."""
        if not self.legality.target.pipelines:
            return _NOBODY
        return frozenset([n for n, is_root in enumerate(self.legality.roots) if is_root])

    def _wanted_of(self, buffers: Iterable[int], computed: Numbers) -> Numbers:
        """Of these buffers those of values that others need, too."""
        consumers, value = self.space.consumers, self.space.value
        return frozenset([b for b in buffers if not consumers.get(value[b], _NOBODY) <= computed])

    # ---- of whole groups one of each kernel -----------------------------------------------------
    def one_of_each(self, states: Iterable[PartialGroup]) -> list[PartialGroup]:
        """On a target with kernels: of groups behind one op that are one kernel the one of fewest
        conversions, in their order; the program's own come first and all stay."""
        by_kernel: dict[Hashable, list[tuple[tuple[int, int], Numbers, PartialGroup]]] = {}
        program_states: list[PartialGroup] = []
        for s in states:
            nodes = s.inside.values()
            if all([self.space.is_own[n] for n in nodes]):
                program_states.append(s)
                continue
            shown = self._wanted_of(s.inside, self.space.computes(nodes))
            done = frozenset().union(*[self._signs[n] for n in nodes])
            cost = self.conversions(nodes), len(s.inside)
            by_kernel.setdefault((frozenset(s.reads), done), []).append((cost, shown, s))
        return program_states + [s for same in by_kernel.values() for s in _showing_all(same)]


def _showing_all(same: list[tuple[tuple[int, int], Numbers, PartialGroup]]) -> list[PartialGroup]:
    """Of groups that are one kernel, by cost and what they show: the first, and who shows more."""
    chosen, there = list[PartialGroup](), set[int]()
    for _, shown, state in sorted(same, key=lambda s: s[0]):
        if not chosen or not shown <= there:
            chosen.append(state)
            there |= shown
    return chosen
