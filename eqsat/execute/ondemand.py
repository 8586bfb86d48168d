"""Single elements of a program's values in float64: only what they need is computed.

What comes in are a program, arrays of some of its values as they lie in memory, and elements that
are asked for. First the elements that each op has to give are found, from the results back to what
is held, then they are computed. Ops are evaluated as their meaning says (`ops.meaning`), over the
elements alone; loops, branches and ops of which only the whole is known are evaluated whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.execute.elements import gathered, indices_of, moved, narrowed
from eqsat.execute.reference import Ops, OpaqueFunctions, evaluated, exactly
from eqsat.execute.work import NOISY, PER_ELEMENT, PER_OP, WorkBudget, operations
from eqsat.model.generic import Generic
from eqsat.model.leaves import Fill
from eqsat.model.movement import Move
from eqsat.model.program import Node, Program
from eqsat.model.tensor import TensorType
from eqsat.ops.builtin.layouts import padding_value
from eqsat.ops.meaning import scalar

Array = np.ndarray[Any, Any]
Asked = Array | None  # flat indices, ascending; None: all
MOSTLY = 2  # what is asked for more than every second element of is computed whole


class OnDemand:
    """Elements of one program. held: node → its array, in any type that has its values.

    OverWork as soon as it is known that `work` does not suffice, EqsatError as `evaluate_program`.
    """

    def __init__(
        self,
        program: Program,
        held: Mapping[int, Array],
        opaque: OpaqueFunctions,
        work: WorkBudget,
        ops: Ops = exactly,
    ):
        self.program, self.held, self.opaque = program, held, opaque
        self.work, self.ops = work, ops
        self.factor = 1 if ops is exactly else NOISY
        self.values: dict[int, list[Array]] = {}  # flat, in held form; only what was asked for

    def __call__(self, wanted: Mapping[int, Array]) -> dict[int, Array]:
        """Node → its elements at these flat indices, in held form."""
        self.values = {}
        asked = self._asked(wanted)
        for i in sorted(asked):
            self.values[i] = self._computed(i, asked[i])
        return {i: self._read(i, flat) for i, flat in wanted.items()}

    # ---- what has to be known ------------------------------------------------------------------
    def _asked(self, wanted: Mapping[int, Array]) -> dict[int, Asked]:
        """Node → the elements it has to give, for all that are not held."""
        pending: dict[int, list[Asked]] = {i: [flat] for i, flat in wanted.items()}
        found: dict[int, Elements] = {}
        cost = 0
        for i in range(max(wanted, default=-1), -1, -1):
            if i not in pending or i in self.held:
                continue
            node = self.program.nodes[i]
            found[i] = _together(pending.pop(i), node.types[0].size)
            cost += self._cost(node, found[i])
            if not self.work.allows(cost):
                break
            for o, elements in self._needs(i, found[i]):
                if o not in self.held:
                    pending.setdefault(o, []).append(elements)
        self.work.spend(cost)
        return found

    def _cost(self, node: Node, elements: Asked) -> int:
        """Of computing these elements; loops and branches count when they run."""
        if elements is None:
            return operations(node) * self.factor
        if not isinstance(node.attr, Generic):
            return PER_OP + PER_ELEMENT * len(elements)
        nests = [p.generic for p in narrowed(node.attr, elements)]
        read = sum(math.prod(s) for g in nests for s in g.shapes)
        own = sum(operations(_node(node, g)) for g in nests)
        return PER_ELEMENT * read + own * self.factor

    def _needs(self, i: int, elements: Asked) -> list[tuple[int, Asked]]:
        """(operand, which of its elements) of computing these."""
        node = self.program.nodes[i]
        if node.op == "result":
            several = isinstance(self.program.nodes[node.operands[0]].attr, Generic)
            return [(node.operands[0], elements if several else None)]
        if elements is None:
            return [(o, None) for o in node.operands]
        if isinstance(node.attr, Generic):
            return self._read_by_nest(node, node.attr, elements)
        if node.op == "gather" and isinstance(node.attr, Move):
            return self._read_by_gather(node, node.attr, elements)
        found = moved(node, elements)
        if found is None:
            return [(o, None) for o in node.operands]
        return [(node.operands[at], flat) for at, _, flat in found.parts]

    def _read_by_nest(
        self, node: Node, g: Generic, elements: Array
    ) -> list[tuple[int, Asked]]:
        open_ = [at for at, o in enumerate(node.operands) if o not in self.held]
        if not open_:
            return []
        parts = list(narrowed(g, elements))
        return [(node.operands[at], p.read(at).reshape(-1)) for p in parts for at in open_]

    def _read_by_gather(
        self, node: Node, m: Move, elements: Array
    ) -> list[tuple[int, Asked]]:
        """Where the table is read is known only when the indices are."""
        table, indices = node.operands
        at = indices_of(m, elements)
        if table in self.held:
            return [(indices, at)]
        own = OnDemand(self.program, self.held, self.opaque, self.work)
        picked = own({indices: at})[indices]
        return [(indices, at), (table, gathered(m, elements, picked))]

    # ---- what is computed ----------------------------------------------------------------------
    def _computed(self, i: int, elements: Asked) -> list[Array]:
        """The results of a node, flat; undefined but at these elements."""
        node = self.program.nodes[i]
        if node.op == "result":
            several = self.values[node.operands[0]]
            return [several[node.attr.index]]  # type: ignore[attr-defined]
        if elements is None or not _has_elements(node):
            return self._whole(node)
        found = [np.empty(t.size, scalar.held_dtype(t.dtype)) for t in node.types]
        if isinstance(node.attr, Generic):
            self._run_nest(node, node.attr, elements, found)
        elif node.op == "gather" and isinstance(node.attr, Move):
            table, indices = node.operands
            picked = self._read(indices, indices_of(node.attr, elements))
            found[0][elements] = self._read(table, gathered(node.attr, elements, picked))
        else:
            self._move(node, elements, found[0])
        return found

    def _run_nest(
        self, node: Node, g: Generic, elements: Array, found: Sequence[Array]
    ) -> None:
        for p in narrowed(g, elements):
            operands = [self._read(o, p.read(at)) for at, o in enumerate(node.operands)]
            made = self.ops(_node(node, p.generic), operands, self.opaque)
            for whole, part in zip(found, made, strict=True):
                whole[elements[p.elements]] = part.reshape(-1)[p.places]

    def _move(self, node: Node, elements: Array, found: Array) -> None:
        if isinstance(node.attr, Fill):
            found[elements] = node.attr.value
            return
        places = moved(node, elements)
        assert places is not None
        for at, which, flat in places.parts:
            found[elements[which]] = self._read(node.operands[at], flat)
        for which, text in places.fills:
            found[elements[which]] = padding_value(text, found.dtype)

    def _whole(self, node: Node) -> list[Array]:
        operands = [
            self._read(o, np.arange(t.size)).reshape(t.shape)
            for o in node.operands
            for t in (self.program.nodes[o].types[0],)
        ]
        made = evaluated(node, operands, self.opaque, self.work, self.ops, is_paid=True)
        return [np.asarray(x).reshape(-1) for x in made]

    def _read(self, node: int, flat: Array) -> Array:
        """Elements of a value, held or computed before."""
        if node in self.values:
            return self.values[node][0][flat]
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

    def __call__(self, ops: Ops = exactly) -> list[Array]:
        """Per node its elements, in held form; OverWork as `OnDemand`."""
        wanted: dict[int, Array] = {}
        for i, flat in zip(self.nodes, self.flat, strict=True):
            wanted[i] = np.union1d(wanted[i], flat) if i in wanted else flat
        known = OnDemand(self.program, self.held, self.opaque, self.work, ops)(wanted)
        pairs = zip(self.nodes, self.flat, strict=True)
        return [known[i][np.searchsorted(wanted[i], flat)] for i, flat in pairs]


def _together(several: Sequence[Asked], size: int) -> Asked:
    """Elements that any of these names."""
    given = [e for e in several if e is not None]
    if len(given) < len(several):
        return None
    flat = given[0] if len(given) == 1 else np.concatenate(given)
    if len(flat) * 8 < size:
        return np.unique(flat)
    marked = np.zeros(size, bool)
    marked[flat] = True
    found = np.flatnonzero(marked)
    return None if len(found) * MOSTLY > size else found


def _has_elements(node: Node) -> bool:
    """Whether single elements of its result can be computed."""
    if isinstance(node.attr, Generic | Fill) or node.op == "gather":
        return True
    return moved(node, np.zeros(0, np.int64)) is not None


def _node(node: Node, g: Generic) -> Node:
    """The op over another nest."""
    types = tuple(TensorType(y.dtype, g.result_shape) for y in g.yields)
    return Node(node.op, node.operands, g, types)
