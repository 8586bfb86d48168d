"""Single elements of a program's values in float64: only what they need is computed.

What comes in are a program, arrays of some of its values as they lie in memory, and elements that
are asked for. First the elements that each op has to give are found, from the results back to what
is held, then they are computed. Ops are evaluated as their meaning says (`ops.meaning`), over the
elements alone; loops, branches and ops of which only the whole is known are evaluated whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from eqsat.execute.compare import element_place
from eqsat.execute.elements import (
    MovedFrom,
    Narrow,
    distinct_indices,
    gathered,
    indices_of,
    moved,
    narrowed_nests,
)
from eqsat.execute.reference import (
    NOISY,
    PER_ELEMENT,
    PER_OP,
    OpaqueFunctions,
    Ops,
    OverWork,
    WorkBudget,
    evaluated,
    exactly,
    operations,
)
from eqsat.model.generic import Generic, Result
from eqsat.model.leaves import Fill
from eqsat.model.movement import Move
from eqsat.model.program import Node, Program
from eqsat.model.tensor import TensorType
from eqsat.ops.builtin.layouts import lane_padding
from eqsat.ops.meaning import scalar

Array = np.ndarray[Any, Any]
Needed = Array | None  # flat indices, ascending; None: all
MOSTLY = 2  # what is asked for more than every second element of is computed whole


class OnDemand:
    """Elements of one program: `wanted`, flat indices per node. held: node → its array, in any type
    that has its values.

    What has to be computed is found once, however often it is. OverWork as soon as it is known that
    `work` does not suffice, EqsatError as `evaluate_program`.
    """

    def __init__(
        self,
        program: Program,
        held: Mapping[int, Array],
        opaque: OpaqueFunctions,
        work: WorkBudget,
        wanted: Mapping[int, Array],
    ):
        self.program, self.held, self.opaque = program, held, opaque
        self.work, self.wanted = work, wanted
        self.parts: dict[int, list[Narrow]] = {}
        self.where: dict[int, Array] = {}  # where an element is among those that are computed
        self.moves = self.arithmetic = 0  # operations of evaluating once
        self.values: dict[int, list[Array]] = {}  # in held form; the elements that are computed
        self.ops: Ops = exactly

    def __call__(self, ops: Ops = exactly) -> dict[int, Array]:
        """Node → its elements, in held form."""
        self.ops, self.values = ops, {}
        demand = self.demands
        self.work.spend(self.moves + self.arithmetic * (1 if ops is exactly else NOISY))
        for i in sorted(demand):
            self.values[i] = self._computed(i, demand[i])
        return {i: self._read(i, flat) for i, flat in self.wanted.items()}

    # ---- what has to be known ------------------------------------------------------------------
    @cached_property
    def demands(self) -> dict[int, Needed]:
        """Node → the elements it has to give, for all that are not held."""
        pending: dict[int, list[Needed]] = {i: [flat] for i, flat in self.wanted.items()}
        demands: dict[int, Needed] = {}
        for i in range(max(self.wanted, default=-1), -1, -1):
            if i not in pending or i in self.held:
                continue
            node = self.program.nodes[i]
            size = node.types[0].size
            elements = demands[i] = _together(pending.pop(i), size)
            self._count(i, node, elements)
            if not self.work.allows(self.moves + self.arithmetic):
                raise OverWork
            if elements is not None:
                self.where[i] = np.zeros(size, np.int32)
                self.where[i][elements] = np.arange(len(elements))
            for o, needed in self._needs(i, elements):
                if o not in self.held:
                    pending.setdefault(o, []).append(needed)
        return demands

    def _count(self, i: int, node: Node, elements: Needed) -> None:
        """Operations of computing these elements; loops and branches count when they run."""
        if elements is None:
            self.arithmetic += operations(node)
        elif isinstance(node.attr, Generic):
            self.parts[i] = list(narrowed_nests(node.attr, elements))
            nests = [p.generic for p in self.parts[i]]
            self.moves += PER_ELEMENT * sum(math.prod(s) for g in nests for s in g.shapes)
            self.arithmetic += sum(operations(_node(node, g)) for g in nests)
        else:
            self.moves += PER_OP + PER_ELEMENT * len(elements)

    def _needs(self, i: int, elements: Needed) -> list[tuple[int, Needed]]:
        """(operand, which of its elements) of computing these."""
        node = self.program.nodes[i]
        if node.op == "result":
            several = isinstance(self.program.nodes[node.operands[0]].attr, Generic)
            return [(node.operands[0], elements if several else None)]
        if elements is None:
            return [(o, None) for o in node.operands]
        if isinstance(node.attr, Generic):
            rest = [at for at, o in enumerate(node.operands) if o not in self.held]
            return [
                (node.operands[at], p.read(at).reshape(-1)) for p in self.parts[i] for at in rest
            ]
        if node.op == "gather" and isinstance(node.attr, Move):
            return self._read_by_gather(node, node.attr, elements)
        sources = moved(node, elements)
        if sources is None:
            return [(o, None) for o in node.operands]
        return [(node.operands[at], flat) for at, _, flat in sources.parts]

    def _read_by_gather(self, node: Node, m: Move, elements: Array) -> list[tuple[int, Needed]]:
        """Where the table is read is known only when the indices are."""
        table, indices = node.operands
        at = indices_of(m, elements)
        if table in self.held:
            return [(indices, at)]
        demand = OnDemand(self.program, self.held, self.opaque, self.work, {indices: at})
        return [(indices, at), (table, gathered(m, elements, demand()[indices]))]

    # ---- what is computed ----------------------------------------------------------------------
    def _computed(self, i: int, elements: Needed) -> list[Array]:
        """These elements of the results of a node."""
        node = self.program.nodes[i]
        if isinstance(node.attr, Result):
            producer, several = node.operands[0], self.values[node.operands[0]]
            result = several[node.attr.index]
            if producer in self.where and elements is not None:
                return [result[self.where[producer][elements]]]
            return [result if elements is None else result[elements]]
        if elements is None:
            return self._whole(node)
        if isinstance(node.attr, Generic):
            return self._by_nest(i, node, elements)
        if node.op == "gather" and isinstance(node.attr, Move):
            table, indices = node.operands
            picked = self._read(indices, indices_of(node.attr, elements))
            return [self._read(table, gathered(node.attr, elements, picked))]
        places = moved(node, elements)
        if places is None and not isinstance(node.attr, Fill):
            return [x[elements] for x in self._whole(node)]
        return [self._moved(node, places, len(elements))]

    def _by_nest(self, i: int, node: Node, elements: Array) -> list[Array]:
        results = [np.empty(len(elements), scalar.held_dtype(t.dtype)) for t in node.types]
        for p in self.parts[i]:
            operands = [self._read(o, p.read(at)) for at, o in enumerate(node.operands)]
            outputs = self.ops(_node(node, p.generic), operands, self.opaque)
            for whole, part in zip(results, outputs, strict=True):
                whole[p.elements] = part.reshape(-1)[p.places]
        return results

    def _moved(self, node: Node, places: MovedFrom | None, count: int) -> Array:
        array = np.empty(count, scalar.held_dtype(node.type.dtype))
        if places is None:
            assert isinstance(node.attr, Fill)
            array[:] = node.attr.value
            return array
        for at, which, flat in places.parts:
            array[which] = self._read(node.operands[at], flat)
        for which, text in places.fills:
            array[which] = lane_padding(text, array.dtype)
        return array

    def _whole(self, node: Node) -> list[Array]:
        """All elements, and of an op with several results those of each."""
        operands = [
            self._read(o, np.arange(t.size)).reshape(t.shape)
            for o in node.operands
            for t in (self.program.nodes[o].types[0],)
        ]
        outputs = evaluated(node, operands, self.opaque, self.work, self.ops, is_paid=True)
        return [np.asarray(x).reshape(-1) for x in outputs]

    def _read(self, node: int, flat: Array) -> Array:
        """Elements of a value, held or computed before."""
        if node in self.values:
            return self.values[node][0][self.where[node][flat] if node in self.where else flat]
        held = self.held[node]
        return scalar.hold(held.reshape(-1)[flat], self.program.nodes[node].type.dtype)


@dataclass(frozen=True)
class Elements:
    """Elements of some values of a program: in float64, or with the roundings of other ops."""

    program: Program
    nodes: Sequence[int]
    held: Mapping[int, Array]
    flat: Sequence[Array]  # per node
    opaque: OpaqueFunctions
    work: WorkBudget

    def only(self, which: Sequence[Array]) -> Self:
        """Some of them; which: a bool for each, per node."""
        flat = [f[w] for f, w in zip(self.flat, which, strict=True)]
        return replace(self, flat=flat)

    def place(self, at: int, element: int) -> str:
        """Where an element of the value at this place lies in it."""
        shape = self.program.nodes[self.nodes[at]].types[0].shape
        return element_place(shape, int(self.flat[at][element]))

    @cached_property
    def _wanted(self) -> dict[int, Array]:
        wanted: dict[int, Array] = {}
        for i, flat in zip(self.nodes, self.flat, strict=True):
            if len(flat):
                wanted[i] = np.union1d(wanted[i], flat) if i in wanted else flat
        return wanted

    @cached_property
    def _demand(self) -> OnDemand:
        return OnDemand(self.program, self.held, self.opaque, self.work, self._wanted)

    def __call__(self, ops: Ops = exactly) -> list[Array]:
        """Per node its elements, in held form; OverWork as `OnDemand`."""
        values = self._demand(ops)
        types = [self.program.nodes[i].types[0] for i in self.nodes]
        return [
            values[i][np.searchsorted(self._wanted[i], flat)]
            if len(flat)
            else np.zeros(0, scalar.held_dtype(t.dtype))
            for i, flat, t in zip(self.nodes, self.flat, types, strict=True)
        ]


def _together(several: Sequence[Needed], size: int) -> Needed:
    """Elements that any of these names."""
    given = [e for e in several if e is not None]
    if len(given) < len(several):
        return None
    flat = given[0] if len(given) == 1 else np.concatenate(given)
    if len(flat) * 8 < size:
        return distinct_indices(flat)
    marked = np.zeros(size, bool)
    marked[flat] = True
    distinct = np.flatnonzero(marked)
    return None if len(distinct) * MOSTLY > size else distinct


def _node(node: Node, g: Generic) -> Node:
    """The op over another nest."""
    types = tuple(TensorType(y.dtype, g.result_shape) for y in g.yields)
    return Node(node.op, node.operands, g, types)
