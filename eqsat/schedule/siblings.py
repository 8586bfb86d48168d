"""Do the ops of one dispatch hang together? Part of `schedule.legal`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eqsat.model.attr import Shape
from eqsat.model.generic import Generic
from eqsat.model.movement import Transpose
from eqsat.model.program import Node, Program
from eqsat.model.schedule import Dispatch
from eqsat.model.target import Target


@dataclass(frozen=True)
class Connections:
    """The ops of one dispatch; `pairs`: who computes what another one of them reads."""

    program: Program
    target: Target
    dispatch: Dispatch
    ops: tuple[int, ...]
    pairs: Sequence[tuple[int, int]]

    def _node(self, i: int) -> Node:
        return self.program.nodes[i]

    def faults(self) -> Iterator[str]:
        """Parts are joined by what they compute, then by readers of one buffer."""
        part = {m: m for m in self.ops}
        for maker, reader in self.pairs:
            part = _joined(part, maker, reader)
        if len(set(part.values())) < 2:
            return
        where = self.target.place("fusion.siblings")
        if not self.target.fusion.siblings:
            yield f"its ops do not hang together, fusion.siblings is false ({where})"
            return
        too_large: list[str] = []
        for a, b in self._shared():
            fault = self._sibling_fault(a, b)
            if fault and part[a[0]] != part[b[0]]:
                too_large.append(fault)
            else:
                part = _joined(part, a[0], b[0])
        if len(set(part.values())) > 1:
            yield too_large[0] if too_large else f"its ops share no operand ({where})"

    def _shared(self) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """Pairs of (op, operand) that read one buffer from memory."""
        readers: dict[int, list[tuple[int, int]]] = {}
        for m in self.ops:
            for i, o in enumerate(self._node(m).operands):
                base = self.program.behind_views(o)
                if base in self.dispatch.reads:
                    readers.setdefault(base, []).append((m, i))
        return [(a, b) for rs in readers.values() for a in rs for b in rs if a[0] < b[0]]

    def _sibling_fault(self, a: tuple[int, int], b: tuple[int, int]) -> str:
        """Of two readers that walk a buffer differently, one is a vector of its whole result.

        The one that walks it out of order; where none does or both do, the smaller one.
        """
        limit = self.target.limits.vector_bytes
        (_, order), (_, other) = one, two = self._walk(*a), self._walk(*b)
        if one == two or limit is None:
            return ""
        sizes = [(sum(t.nbytes for t in self._node(n).types), n) for n in (a[0], b[0])]
        strays = [s for s, o in zip(sizes, (order, other), strict=True) if o != sorted(o)]
        nbytes, loser = strays[0] if len(strays) == 1 else min(sizes)
        where = self.target.place("limits.vector")
        text = (
            f"the unfused %{loser} needs {nbytes:,} bytes, the vector limit is {limit:,} ({where})"
        )
        return text if nbytes > limit else ""

    def _walk(self, reader: int, operand: int) -> tuple[Shape, list[int]]:
        """Extents of a reader's loops, and the order in which it walks the operand's dims."""
        node = self._node(reader)
        shape = self._node(node.operands[operand]).type.shape
        match node.attr:
            case Generic():
                order = [-1 if e.dim is None else e.dim for e in node.attr.maps[operand]]
                return node.attr.sizes, order
            case Transpose(perm=perm):
                return node.attr.result_shape, [perm.index(d) for d in range(len(perm))]
        return shape, list(range(len(shape)))


def _joined(part: dict[int, int], a: int, b: int) -> dict[int, int]:
    old, new = part[a], part[b]
    return {m: new if p == old else p for m, p in part.items()}
