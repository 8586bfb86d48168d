"""Groups as large as they may be that no answer needs, as another one does all that they do.

Inside of a dispatch a conversion is a way to read: it takes no time. So of two groups that compute
the same by the same ops, read and write the same buffers, and can write the same ones besides for
others, neither is faster, needs more or blocks more. They differ in their conversions alone, and
one that converts no less than a known one is not made. That holds of groups as large as they may
be: nothing is added to these, and they are part of no merge. Smaller ones all stay.

Conversions that somebody can tell apart count as ops: where only one dispatch may convert, where it
takes time, where a goal may ask what is converted. Groups with a gather differ in all their nodes,
as it matters how its table is laid out. For plans, conversions are strides (see `alike`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property

from eqsat.extract.candidates.checks import Checks, State
from eqsat.extract.candidates.uses import Reader
from eqsat.extract.solve.linear import OTHERS, moved_bytes

_NOBODY = frozenset[int]()
BLIND = frozenset({"time", "dispatches", *OTHERS})  # goals that do not ask what is converted
Numbers = frozenset[int]
Key = tuple[Numbers, Numbers, Numbers, Hashable]  # ops, reads, what else it may write, and how
# of operands: (operand, buffer, class) if held, fills, and (operand, buffer) of all others
Sides = tuple[tuple[tuple[int, int, int], ...], tuple[int, ...], tuple[Reader, ...]]


class Known(dict[Key, int]):
    """Groups with the same results that were found: the least bytes that those alike convert."""

    def has(self, key: Key, moved: int) -> bool:
        """Whether a group that does the same converts no more."""
        return self.get(key, moved + 1) <= moved


@dataclass(slots=True)
class Larger:
    """What groups with one more of their buffers computed inside have in common."""

    buffer: int
    inside: dict[int, int]
    ops: Numbers
    values: Numbers  # that are computed anew
    reads: Numbers  # with all that is open, but for the buffer
    shown: Numbers  # buffers that others may need
    moved: int
    is_own: bool


@dataclass(frozen=True)
class Redundant(Checks):
    """Tells groups by what they do."""

    @cached_property
    def _known(self) -> dict[Hashable, Known]:
        return {}

    def known(self, sink: int) -> Known:
        """What was found behind all ops that write the same; a plan is one op's own."""
        key = sink if self.costs.target.is_planned else self.space.made[sink]
        return self._known.setdefault(key, Known())

    @cached_property
    def _is_told(self) -> tuple[bool, ...]:
        """Per node: whether groups differ that differ in it."""
        every = self.pool.keeps_all or not self.pool.asked <= BLIND
        return tuple(every or not self._is_blind(n) for n in range(len(self.space.kinds)))

    def _is_blind(self, node: int) -> bool:
        """Whether a node is a conversion that nobody can tell from another one."""
        if self.space.kinds[node] != "conversion" or self.costs.iterations[node]:
            return False
        takes_time = self.costs.relayout_ps[node] and not self.costs.target.is_planned
        return not takes_time and not self.pool.legality.exclusive((node,))

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
    def is_redundant(self, state: State, known: Known) -> bool:
        """Whether a whole group does what a known one does; if not, it is known now."""
        nodes = state.inside.values()
        key, moved = self._key(state), sum([self._moved[n] for n in nodes])
        if known.has(key, moved):
            return state.members >= self._most and not all([self._is_own[n] for n in nodes])
        known[key] = moved
        return False

    def _key(self, state: State) -> Key:
        told, nodes = self._is_told, state.inside.values()
        shown = self._useful(state.inside, self.space.computes(nodes))
        ops = frozenset([n for n in nodes if told[n]])
        return ops, frozenset(state.reads), shown, self._how(state, nodes)

    def _how(self, state: State, nodes: Iterable[int]) -> Hashable:
        """What else tells it apart: all nodes beside a gather; how a pipeline has roots read."""
        if not self.costs.gathered.gathers.isdisjoint(nodes):
            return frozenset(nodes)
        if self.legality.target.pipelines:
            roots = [n for n in nodes if self.legality.is_root(n)]
            return frozenset([(n, self.legality.inside(n, state.readers).reading) for n in roots])
        return None

    def _useful(self, buffers: Iterable[int], computed: Numbers) -> Numbers:
        """Of these buffers those that others may need; nobody, where only a result is written."""
        if not self.legality.fusion.multi_result:
            return _NOBODY
        consumers, value = self.space.consumers, self.space.value
        return frozenset([b for b in buffers if not consumers.get(value[b], _NOBODY) <= computed])

    # ---- operands ------------------------------------------------------------------------------
    @cached_property
    def _sides(self) -> dict[int, Sides]:
        return {}

    def sides(self, node: int) -> Sides:
        """Operands of a node by where they come from: held, fills, and those to decide."""
        found = self._sides.get(node)
        if found is None:
            children = self.space.egraph.nodes[node].children
            sides = tuple(enumerate(self.space.operands[node]))
            held = tuple((i, b, children[i]) for i, b in sides if b in self.held)
            fills = self.pool.fills
            filled = tuple(fills[b] for _, b in sides if b in fills and b not in self.held)
            rest = tuple((i, b) for i, b in sides if b not in self.held and b not in fills)
            self._sides[node] = found = held, filled, rest
        return found

    # ---- groups before they are made -----------------------------------------------------------
    def larger(self, state: State, buffer: int) -> Larger | None:
        """The groups in which this next buffer of a state is computed inside, as whole groups.

        None where that cannot be told before they are made.
        """
        nodes, told = state.inside.values(), self._is_told
        if self.legality.target.pipelines or not self.costs.gathered.gathers.isdisjoint(nodes):
            return None
        reads = frozenset(state.reads).union(state.queue[state.at + 1 :])
        if not self.pool.relaxed.keys().isdisjoint(reads):
            return None
        values = self.space.computes(nodes)
        return Larger(
            buffer,
            state.inside,
            frozenset([n for n in nodes if told[n]]),
            values,
            reads,
            self._useful(state.inside, values),
            sum([self._moved[n] for n in nodes]),
            all([self._is_own[n] for n in nodes]),
        )

    def is_in_vain(self, larger: Larger, node: int, known: Known) -> bool:
        """Whether that group, with this node inside as well, would be redundant."""
        if larger.is_own and self._is_own[node]:
            return False
        if node in self.costs.gathered.gathers:
            return False
        inside, ops, shown = larger.inside, larger.ops, larger.shown
        computed = self.space.computes((node,))
        if computed:
            shown = self._useful((*inside, larger.buffer), larger.values | computed)
        else:
            shown = shown | self._useful((larger.buffer,), larger.values)
        if self._is_told[node]:
            ops = ops | {node}
        reads = larger.reads.union([b for b in self._asks(node) if b not in inside])
        return known.has((ops, reads, shown, None), larger.moved + self._moved[node])

    def _asks(self, node: int) -> tuple[int, ...]:
        """The buffers that a node reads, fills apart."""
        found = self._asked.get(node)
        if found is None:
            held, _, rest = self.sides(node)
            found = self._asked[node] = tuple([b for _, b, *_ in (*held, *rest)])
        return found

    @cached_property
    def _asked(self) -> dict[int, tuple[int, ...]]:
        return {}
