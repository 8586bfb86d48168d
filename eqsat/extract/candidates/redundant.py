"""Groups as large as they may be that no answer needs, as another one does all that they do.

Inside of a dispatch a conversion is a way to read: it takes no time. Take two groups that compute
the same values, read and write the same buffers, can write the same ones besides for others, and
keep others from computing the same. If one has no more arithmetic than the other, it is no slower,
whatever it writes: what it reads and writes takes as long. So the other one is not made if it
converts no less either. That holds of groups as large as they may be: nothing is added to these,
and they are part of no merge. Smaller ones all stay, and so do those that may become templates: by
which layouts a group reads decides what more it may hold.

Nodes that differ for some reader are distinguished (`_marks`): conversions that take time, or that
only one dispatch may have; roots that pipelines look at; calls of a library; ops without a price of
their own. Groups with a gather differ in all their nodes, as it matters how its table is laid out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property

from eqsat.extract.candidates.checks import Checks, Grown
from eqsat.extract.candidates.space import order
from eqsat.extract.solve.linear import OTHERS, moved_bytes

_NOBODY = frozenset[int]()
BLIND = frozenset({"time", "dispatches", *OTHERS})  # goals that do not ask what is converted
COMPUTING = ("elementwise", "contraction", "reduction")
Numbers = frozenset[int]
Marks = frozenset[tuple[int | str, ...]]
Key = tuple[Marks, Numbers, Numbers, Hashable]  # computes, reads, what else it may write, and how


class Known(dict[Key, list[tuple[float, int]]]):
    """Groups with the same results that were found: arithmetic and bytes converted of each kind."""

    def has(self, key: Key, ps: float, moved: int) -> bool:
        """Whether a group that does the same takes no longer and converts no more."""
        return any([p <= ps and m <= moved for p, m in self.get(key, ())])

    def add(self, key: Key, ps: float, moved: int) -> None:
        self.setdefault(key, []).append((ps, moved))


@dataclass(slots=True)
class Larger:
    """What groups with one more of their buffers computed inside have in common."""

    buffer: int
    inside: dict[int, int]
    marks: Marks
    values: Numbers  # that are computed anew
    written: Numbers  # values of the results
    reads: Numbers  # with all that is open, but for the buffer
    shown: Numbers  # buffers that others may need
    least_ps: list[float]  # arithmetic by op
    moved: int
    is_own: bool


@dataclass(frozen=True)
class Redundant(Checks):
    """Tells groups by what they do."""

    @cached_property
    def _known(self) -> dict[Hashable, Known]:
        return {}

    def known(self, sink: int) -> Known:
        """What was found behind all ops that write the same."""
        return self._known.setdefault(self.space.made[sink], Known())

    @cached_property
    def has_redundant(self) -> bool:
        """Whether groups are left out at all.

        Not where plans price them, which see each stride; where worse answers are requested; or
        where a goal may ask what is converted.
        """
        is_asked = self.pool.keeps_all or not self.pool.asked <= BLIND
        return not is_asked and not self.costs.target.is_planned

    @cached_property
    def _marks(self) -> tuple[Marks, ...]:
        """Per node: what is different of groups with others in its place."""
        return tuple(map(self._marks_of, range(len(self.space.kinds))))

    def _marks_of(self, node: int) -> Marks:
        kind, takes_time = self.space.kinds[node], self.costs.relayout_ps[node] > 0
        alone = [("alone", x) for x in self.pool.legality.exclusive((node,))]
        if kind == "conversion" and not alone and not self._iterations[node] and not takes_time:
            return frozenset()
        is_asked = self.legality.target.pipelines and self.legality.roots[node]
        is_asked = is_asked or kind in self.legality.fusion.calls
        if kind not in COMPUTING or takes_time or is_asked:
            return frozenset([("node", node)])
        return frozenset([*alone, *((kind, v) for v in self.space.computes((node,)))])

    @cached_property
    def _own_ps(self) -> tuple[float, ...]:
        """Per node: picoseconds of arithmetic if it runs once."""
        return tuple(self.costs.compute_ps(n, runs) for n, runs in enumerate(self._iterations))

    @cached_property
    def _most(self) -> int:
        return self.legality.fusion.members

    @cached_property
    def _moved(self) -> tuple[int, ...]:
        """Per node: bytes that it converts."""
        egraph = self.space.egraph
        return tuple(moved_bytes(egraph, n) for n in range(len(egraph.nodes)))

    @cached_property
    def _is_own(self) -> tuple[bool, ...]:
        """Per node: whether the input program has it; groups of these all stay."""
        return tuple(n.rule == -1 for n in self.space.egraph.nodes)

    # ---- groups that are there -----------------------------------------------------------------
    def is_redundant(self, state: Grown, sink: int, known: Known) -> bool:
        """Whether a whole group does what a known one does; if not, it is known now."""
        if not self.has_redundant:
            return False
        nodes = state.inside.values()
        key, moved = self._key(state, sink), sum([self._moved[n] for n in nodes])
        own_ps = self._own_ps
        if known.has(key, math.fsum([own_ps[n] for n in nodes]), moved):
            is_last = state.members >= self._most and not self._may_grow(nodes)
            return is_last and not all([self._is_own[n] for n in nodes])
        known.add(key, self._busy_ps(state), moved)
        return False

    def _may_grow(self, nodes: Iterable[int]) -> bool:
        """Whether a group as large as it may be may become a template."""
        return all([self._in_templates[n] for n in nodes])

    @cached_property
    def _in_templates(self) -> tuple[bool, ...]:
        """Per node: whether a template may have it inside."""
        legality, kinds = self.legality, self.space.kinds
        return tuple(
            legality.has_templates and (kind == "view" or legality.is_template_kind(n))
            for n, kind in enumerate(kinds)
        )

    def _busy_ps(self, state: Grown) -> float:
        """Picoseconds of arithmetic of a whole group."""
        nodes, own, own_ps = {*state.inside.values()}, self._iterations, self._own_ps
        busy = [n for n in nodes if own_ps[n]]
        runs = self.costs.runs(order(self.space, nodes)) if state.met and busy else state.runs
        compute_ps = self.costs.compute_ps
        return math.fsum([own_ps[n] if runs[n] == own[n] else compute_ps(n, runs[n]) for n in busy])

    def _key(self, state: Grown, sink: int) -> Key:
        nodes, marks = state.inside.values(), self._marks
        shown = self._useful(state.inside, self.space.computes(nodes), self._written(sink))
        what = frozenset[tuple[int | str, ...]]().union(*[marks[n] for n in nodes])
        return what, frozenset(state.reads), shown, self._how(state, nodes)

    def _written(self, sink: int) -> Numbers:
        """The values of an op's results."""
        return frozenset([self.space.value[c] for c in self.space.outputs[sink]])

    def _how(self, state: Grown, nodes: Iterable[int]) -> Hashable:
        """What else distinguishes it: all nodes beside a gather; how a pipeline has roots read."""
        if not self.costs.gathered.gathers.isdisjoint(nodes):
            return frozenset(nodes)
        if self.legality.target.pipelines:
            roots = [n for n in nodes if self.legality.is_root(n)]
            return frozenset([(n, self.legality.inside(n, state.readers).reading) for n in roots])
        return None

    def _useful(self, buffers: Iterable[int], computed: Numbers, written: Numbers) -> Numbers:
        """Of these buffers those that may be written for others; none, if only results may.

        A value that is written anyway is not written in more layouts than there are others that
        need it.
        """
        if not self.legality.fusion.multi_result:
            return _NOBODY
        consumers, value = self.space.consumers, self.space.value
        full = [v for v in written if self._others(v, computed) < 2]
        return frozenset(
            [
                b
                for b in buffers
                if value[b] not in full and not consumers.get(value[b], _NOBODY) <= computed
            ]
        )

    def _others(self, value: int, computed: Numbers) -> int:
        """How many other values need one outside, and results of the program (see `variants`)."""
        users = self.space.consumers.get(value, _NOBODY) - computed - {-1}
        return len(users) + self._wanted.get(value, 0)

    @cached_property
    def _wanted(self) -> Counter[int]:
        return Counter([self.space.value[r] for r in self.space.roots])

    # ---- groups before they are made -----------------------------------------------------------
    def larger(self, state: Grown, sink: int, buffer: int) -> Larger | None:
        """The groups in which this next buffer of a state is computed inside, as whole groups.

        None where that is not known before they are made.
        """
        nodes, marks = state.inside.values(), self._marks
        if self.legality.target.pipelines or not self.costs.gathered.gathers.isdisjoint(nodes):
            return None
        reads = frozenset(state.reads).union(state.queue[state.at + 1 :])
        if not self.pool.relaxed.keys().isdisjoint(reads):
            return None
        values, written = self.space.computes(nodes), self._written(sink)
        return Larger(
            buffer,
            state.inside,
            frozenset[tuple[int | str, ...]]().union(*[marks[n] for n in nodes]),
            values,
            written,
            reads,
            self._useful(state.inside, values, written),
            [self._own_ps[n] for n in nodes],
            sum([self._moved[n] for n in nodes]),
            all([self._is_own[n] for n in nodes]),
        )

    def is_in_vain(self, larger: Larger, node: int, known: Known) -> bool:
        """Whether that group, with this node inside as well, would be redundant."""
        if larger.is_own and self._is_own[node]:
            return False
        if node in self.costs.gathered.gathers or self._may_grow((*larger.inside.values(), node)):
            return False
        inside, shown, written = larger.inside, larger.shown, larger.written
        computed = self.space.computes((node,))
        if computed:
            shown = self._useful((*inside, larger.buffer), larger.values | computed, written)
        else:
            shown = shown | self._useful((larger.buffer,), larger.values, written)
        reads = larger.reads.union([b for b in self._asks(node) if b not in inside])
        key = larger.marks | self._marks[node], reads, shown, None
        least_ps = math.fsum([*larger.least_ps, self._own_ps[node]])
        return known.has(key, least_ps, larger.moved + self._moved[node])

    def _asks(self, node: int) -> tuple[int, ...]:
        """The buffers that a node reads, fills apart."""
        found = self._asked.get(node)
        if found is None:
            held, _, rest = self.sides[node]
            found = self._asked[node] = tuple([b for _, b, *_ in (*held, *rest)])
        return found

    @cached_property
    def _asked(self) -> dict[int, tuple[int, ...]]:
        return {}
