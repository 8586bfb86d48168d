"""The e-graph as the extractor sees it: buffers, values, and when each value is computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from eqsat.extract.blocks import TWO, Later, Rolled
from eqsat.extract.ragged import Ints
from eqsat.model.egraph import EGraph
from eqsat.model.leaves import is_donated
from eqsat.model.ops import CONVERSIONS, SAME_BYTES
from eqsat.model.pipelines import Padding
from eqsat.model.sets import union_find
from eqsat.model.target import Target
from eqsat.model.tensor import TensorType
from eqsat.ops.contractions.roles import kind
from eqsat.plan.planner import class_bytes, weight_classes
from eqsat.plan.storage import dying_buffers, line_buffers, update_nodes

# a moment of the execution: program position, depth behind it, value (a tie-break), sub-level
Moment = tuple[int, int, int, int]
T = TypeVar("T")
MOVING = ("leaf", "view", "conversion")  # kinds that compute no value
SAME_VALUE = CONVERSIONS | SAME_BYTES


@dataclass(frozen=True)
class Space:
    """Facts of a whole e-graph; which nodes are candidates is decided in `candidates`.

    A *buffer* is a set of classes that are free bitcasts of each other (reshapes); a *value* is a
    set of classes that are layouts of one logical tensor. Both are named by their smallest class.
    """

    egraph: EGraph
    padding: Padding | None = None  # of buffers on the target; None: nothing is padded
    rolled: Rolled | None = None  # of which it is the short e-graph; None: it stands for itself

    @cached_property
    def _remembered(self) -> dict[Any, Any]:
        return {}

    def remembered(self, make: Callable[[Space, Target], T], target: Target) -> T:
        """The object this makes of the e-graph and a target; once, as long as the target lives."""
        key = make, id(target)
        if key not in self._remembered:
            self._remembered[key] = make(self, target), target
        return self._remembered[key][0]

    def type(self, eclass: int) -> TensorType:
        """The type of a single-result class."""
        return self.egraph.types[eclass][0]

    def nbytes(self, eclass: int) -> int:
        return self.sizes[eclass]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Per class: its bytes (of its first result if it has several)."""
        return class_bytes(self.egraph, self.padding)

    @property
    def whole(self) -> EGraph:
        """The e-graph of the whole program."""
        return self.egraph if self.rolled is None else self.rolled.whole

    def times(self, eclass: int) -> int:
        """How many classes of the whole program it stands for."""
        return 1 if self.rolled is None else self.rolled.class_times[eclass]

    def times_in(self, last: Ints) -> Ints:
        """How often dispatches are there in the whole program, by the last block they touch."""
        count = 1 if self.rolled is None else self.rolled.count
        return np.where(last == TWO, count, 1)

    @cached_property
    def later(self) -> Later:
        """The shift by one block in the short e-graph."""
        assert self.rolled is not None
        return Later.of(self.rolled, self.buffer, self.value)

    def _same(self, ops: frozenset[str]) -> list[tuple[int, int]]:
        g = self.egraph
        return [
            (n.children[0], n.eclass)
            for n in g.nodes
            if n.op in ops or (n.op == "result" and len(g.types[n.children[0]]) == 1)
        ]

    @cached_property
    def buffer(self) -> tuple[int, ...]:
        """Per class: its buffer."""
        return union_find(len(self.egraph.types), self._same(frozenset({"reshape"})))

    @cached_property
    def from_weights(self) -> frozenset[int]:
        """Buffers that follow from weights and constants alone, and need a weight."""
        return frozenset(self.buffer[c] for c in weight_classes(self.egraph))

    @cached_property
    def donated(self) -> frozenset[int]:
        """Buffers of arguments that the caller reads no more."""
        leaves = (n for n in self.egraph.nodes if n.op == "input")
        return frozenset(self.buffer[n.eclass] for n in leaves if is_donated(n.attr))

    @cached_property
    def lines(self) -> frozenset[int]:
        """Buffers of weights that hold 0, 1, …"""
        return line_buffers(self.egraph, self.buffer)

    @cached_property
    def updates(self) -> frozenset[int]:
        """Nodes that may write a few elements in place of others."""
        if not self.dying:
            return frozenset()
        return frozenset(i for i, _ in update_nodes(self.egraph))

    @cached_property
    def dying(self) -> frozenset[int]:
        """Buffers of which an update makes the next state, and that nothing reads after that."""
        return dying_buffers(self.egraph, self.buffer, self.lines)

    @cached_property
    def value(self) -> tuple[int, ...]:
        """Per class: its value."""
        return union_find(len(self.egraph.types), self._same(SAME_VALUE))

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Per node: its kind as fusion sees it."""
        return tuple(kind(n.op, n.attr) for n in self.egraph.nodes)

    @cached_property
    def alike(self) -> tuple[int, ...]:
        """Per node: a number that nodes of the same op, attribute, types and bytes share."""
        types: dict[tuple[tuple[TensorType, ...], int], int] = {}
        both = zip(self.egraph.types, self.sizes, strict=True)
        of = [types.setdefault(t, len(types)) for t in both]
        numbers: dict[tuple[object, ...], int] = {}
        return tuple(
            numbers.setdefault(
                (n.op, n.attr, of[n.eclass], *[of[c] for c in n.children]), len(numbers)
            )
            for n in self.egraph.nodes
        )

    @cached_property
    def result_nodes(self) -> dict[int, tuple[int, ...]]:
        """Per class with several results: the `result` nodes that read it, one per class."""
        by_class: dict[int, dict[int, int]] = {}
        for i, n in enumerate(self.egraph.nodes):
            if n.op == "result" and len(self.egraph.types[n.children[0]]) > 1:
                by_class.setdefault(n.children[0], {}).setdefault(n.eclass, i)
        return {c: tuple(f.values()) for c, f in by_class.items()}

    def views_of(self, node: int) -> tuple[int, ...]:
        """The `result` nodes that belong to a node with several results, else nothing."""
        eclass = self.egraph.nodes[node].eclass
        if len(self.egraph.types[eclass]) == 1:
            return ()
        return self.result_nodes.get(eclass, ())

    @cached_property
    def outputs(self) -> tuple[tuple[int, ...], ...]:
        """Per node: the classes it computes (those of its `result` nodes if it has several)."""
        g = self.egraph
        return tuple(
            (n.eclass,)
            if len(g.types[n.eclass]) == 1
            else tuple(g.nodes[r].eclass for r in self.views_of(i))
            for i, n in enumerate(g.nodes)
        )

    @cached_property
    def output_buffers(self) -> tuple[tuple[int, ...], ...]:
        """Per node: the buffers it computes."""
        return tuple(tuple(self.buffer[c] for c in outputs) for outputs in self.outputs)

    @cached_property
    def result(self) -> tuple[int, ...]:
        """Per node: the buffer of its class."""
        return tuple(self.buffer[n.eclass] for n in self.egraph.nodes)

    @cached_property
    def is_op(self) -> tuple[bool, ...]:
        """Per node: whether it counts as a member of a dispatch: leaves and views do not."""
        return tuple(k not in ("leaf", "view") for k in self.kinds)

    @cached_property
    def operands(self) -> tuple[tuple[int, ...], ...]:
        """Per node: the buffers it reads, by operand."""
        return tuple(tuple(self.buffer[c] for c in n.children) for n in self.egraph.nodes)

    @cached_property
    def needs(self) -> tuple[frozenset[int], ...]:
        """Per node: the other buffers it reads."""
        return tuple(frozenset(o) - {r} for o, r in zip(self.operands, self.result, strict=True))

    @cached_property
    def inputs(self) -> frozenset[int]:
        """Buffers the caller hands over."""
        return frozenset(self.buffer[n.eclass] for n in self.egraph.nodes if n.op == "input")

    @cached_property
    def input_bytes(self) -> int:
        """Bytes of all arguments, used or not."""
        nodes = self.egraph.nodes
        inputs = (n.eclass for n in nodes if n.op == "input")
        return sum(self.nbytes(c) * self.times(c) for c in inputs)

    @cached_property
    def roots(self) -> tuple[int, ...]:
        """Distinct result buffers, in the order of the program's results."""
        return tuple(dict.fromkeys(self.buffer[r] for r in self.egraph.roots))

    @cached_property
    def _sources(self) -> frozenset[int]:
        """Values that hold a leaf: they need no computing, only conversions."""
        return frozenset(
            self.value[n.eclass]
            for n, k in zip(self.egraph.nodes, self.kinds, strict=True)
            if k == "leaf"
        )

    def is_source(self, value: int) -> bool:
        return value in self._sources

    @cached_property
    def _computing(self) -> tuple[tuple[int, int, frozenset[int]], ...]:
        """(node, value it computes, values it reads) of all nodes that are not conversions."""
        computing = []
        for i, n in enumerate(self.egraph.nodes):
            if self.kinds[i] in MOVING:
                continue
            reads = frozenset(self.value[c] for c in n.children)
            computing += [(i, v, reads) for v in sorted({self.value[c] for c in self.outputs[i]})]
        return tuple(computing)

    @cached_property
    def consumers(self) -> dict[int, frozenset[int]]:
        """Per value: the other values computed from it; -1 stands for the caller."""
        consumers: dict[int, set[int]] = {}
        for _, v, reads in self._computing:
            for r in reads - {v}:
                consumers.setdefault(r, set()).add(v)
        for r in self.egraph.roots:
            consumers.setdefault(self.value[r], set()).add(-1)
        return {v: frozenset(f) for v, f in consumers.items()}

    @cached_property
    def wanted(self) -> Counter[int]:
        """Per value: how many results of the program it is."""
        return Counter(self.value[r] for r in self.roots)

    @cached_property
    def is_own(self) -> tuple[bool, ...]:
        """Per node: whether the input program has it."""
        return tuple(n.rule == -1 for n in self.egraph.nodes)

    @cached_property
    def computed(self) -> tuple[frozenset[int], ...]:
        """Per node: the values it computes anew: conversions only move them."""
        nothing: frozenset[int] = frozenset()
        return tuple(
            nothing if k in MOVING else frozenset(self.value[c] for c in outputs)
            for k, outputs in zip(self.kinds, self.outputs, strict=True)
        )

    def computes(self, nodes: Iterable[int]) -> frozenset[int]:
        """The values these nodes compute anew."""
        return frozenset().union(*[self.computed[n] for n in nodes])

    @cached_property
    def _program_positions(self) -> dict[int, tuple[int, ...]]:
        """Per value: where the input program computes it (once per class)."""
        real = {
            c
            for i, n in enumerate(self.egraph.nodes)
            if n.rule == -1 and self.kinds[i] not in MOVING
            for c in self.outputs[i]
        }
        positions: dict[int, list[int]] = {}
        seen: set[int] = set()
        for i, c in enumerate(self.egraph.values):
            if c in real and c not in seen:
                seen.add(c)
                positions.setdefault(self.value[c], []).append(i)
        return {v: tuple(p) for v, p in positions.items()}

    @cached_property
    def positions(self) -> dict[int, tuple[Moment, ...]]:
        """Per value: when it may be computed, earliest first; sources run just before a reader."""
        at = {
            v: tuple((p, 0, 0, 0) for p in positions)
            for v, positions in self._program_positions.items()
            if not self.is_source(v)
        }
        at |= self._new_positions({v: p[0][:2] for v, p in at.items()})
        return at | self.source_positions(at)

    def _new_positions(
        self, positions: dict[int, tuple[int, int]]
    ) -> dict[int, tuple[Moment, ...]]:
        """Values the program does not hold come right after all they need."""
        soonest = self.soonest(positions)
        return {v: ((p, d, v, 0),) for v, (p, d) in sorted(soonest.items()) if v not in positions}

    def soonest(self, positions: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
        """(position, depth) per value: as `positions`, others after all they need (shortest way).

        Sources are left out: they are there.
        """
        fixed = set(positions) | set(self._sources)
        moments = dict(positions) | dict.fromkeys(sorted(self._sources), (-1, 0))
        changed = True
        while changed:
            changed = False
            for _, v, reads in self._computing:
                if v in fixed or not reads <= moments.keys():
                    continue
                position, depth = max((moments[r] for r in reads), default=(-1, 0))
                if (position, depth + 1) < moments.get(v, (1 << 60, 0)):
                    moments[v] = (position, depth + 1)
                    changed = True
        return {v: at for v, at in moments.items() if v not in self._sources}

    def source_positions(self, at: dict[int, tuple[Moment, ...]]) -> dict[int, tuple[Moment, ...]]:
        """Sources are converted just before the first value that is computed from them."""
        end: Moment = (1 << 40, 0, 0, 0)
        first: dict[int, Moment] = dict.fromkeys(sorted(self._sources), end)
        for _, v, reads in self._computing:
            for r in reads & self._sources:
                if v in at:
                    first[r] = min(first[r], at[v][0])
        return {v: (m,) for v, m in first.items()}

    def name(self, node: int) -> str:
        """`transpose %h@t1.0`: its op and what the e-graph calls its value."""
        n = self.egraph.nodes[node]
        return f"{n.op} %{self.egraph.class_names[n.eclass]}"


def order(space: Space, nodes: Collection[int]) -> tuple[int, ...]:
    """Nodes of a group in topological order, smaller numbers first among the ready ones."""
    if len(nodes) == 1:
        return tuple(nodes)
    left, needs, result = sorted(nodes), space.needs, space.result
    waiting = {result[n] for n in left}
    is_late = len(waiting) < len(left)  # of nodes that make one buffer, the last is waited for
    ordered: list[int] = []
    at = 0
    while left:
        assert at < len(left), "groups are grown without cycles"
        n = left[at]
        at += 1
        if waiting.isdisjoint(needs[n]):
            del left[at - 1]
            at = 0
            ordered.append(n)
            if not (is_late and any(result[m] == result[n] and m > n for m in left)):
                waiting.discard(result[n])
    return tuple(ordered)
