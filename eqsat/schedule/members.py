"""Legality of the ops of one dispatch together; part of `schedule.legal`.

Do they hang together, and does a contraction read other roots of its dispatch row by row?
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from eqsat.model.attr import Shape
from eqsat.model.generic import Generic
from eqsat.model.movement import Transpose
from eqsat.model.program import Node, Program
from eqsat.model.schedule import Dispatch
from eqsat.model.target import Target
from eqsat.model.tensor import DTYPES
from eqsat.ops.generics.access import LaneAccess, access, index_loops, joined, seen_as, through


# ---- ops that hang together ----------------------------------------------------------------------
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


# ---- roots read row by row -----------------------------------------------------------------------
Kind = Callable[[int], str]


@dataclass(frozen=True)
class _RowRead:
    """A root's result, as another root inside wants it: through its operand `operand`."""

    maker: int
    operand: int
    map: LaneAccess | None


@dataclass(frozen=True)
class RowDispatch:
    """The roots of one dispatch, and what they read of each other.

    kind: of a node of the program. computes: whether a node is an op of the dispatch.
    """

    program: Program
    ops: frozenset[int]
    kind: Kind
    most_reductions: int

    def readers(self) -> list[int]:
        """Contractions that read what comes from another root more often than it has elements."""
        return [
            r
            for r in sorted(self.ops)
            if self.kind(r) == "contraction"
            and any(self._repeats(r, read.operand) for read in self.reads(r))
        ]

    def faults(self) -> Iterator[str]:
        """Why these are no row blocks, a sentence each; asked where there is a reader."""
        readers = self.readers()
        last = readers[-1]
        below = {r: self.reads(r) for r in self._roots()}
        firsts = [r for r in below if self.kind(r) == "contraction" and r != last]
        reductions = [r for r in below if self.kind(r) == "reduction"]
        if len(readers) > 1 or len(firsts) > 1 or any(below[f] for f in firsts):
            yield f"%{last} and what it reads are more than two contractions by rows"
            return
        if not 1 <= len(reductions) <= self.most_reductions or len(self._rows(reductions)) > 1:
            yield f"%{last} reads no reductions of the same rows"
            return
        if self._above(below, last) != set(below) - {last}:
            yield f"%{last} does not read all other roots"
            return
        if len({read.operand for read in below[last]}) > 1:
            yield f"%{last} reads other roots by two operands"
            return
        first = firsts[0] if firsts else None
        reduced = math.prod(self._generic(reductions[0]).sizes)
        if first is not None and self.program.nodes[first].type.size != reduced:
            yield f"%{reductions[0]} does not reduce the rows of %{first}"
            return
        if not self._is_by_rows(below, last, first):
            yield f"%{last} does not read the same rows of all other roots"

    def row_bytes(self) -> int:
        """Bytes of one row of what the last contraction reads."""
        last = self.readers()[-1]
        operand = self.reads(last)[0].operand
        ((_, length),) = self._rows([r for r in self._roots() if self.kind(r) == "reduction"])
        dtype = self.program.nodes[self.program.nodes[last].operands[operand]].type.dtype
        return -(-length * DTYPES[dtype][0] // 8)

    # ---- what reads what
    def reads(self, root: int) -> list[_RowRead]:
        """The roots inside that a root reads, each once per map."""
        node, reads = self.program.nodes[root], list[_RowRead]()
        for i, o in enumerate(node.operands):
            direct = access(node.op, node.attr, i, self.program.nodes[o].type.shape)
            self._follow(_RowRead(o, i, direct), reads)
        return reads

    def _follow(self, read: _RowRead, reads: list[_RowRead]) -> None:
        nodes, below, lane_access = self.program.nodes, read.maker, read.map
        shown = nodes[below].type.shape
        below = self.program.behind_views(below)
        if below not in self.ops:
            return
        node = nodes[below]
        lane_access = lane_access and seen_as(lane_access, shown, node.type.shape)
        if self.kind(below) in ("contraction", "reduction"):
            here = _RowRead(below, read.operand, lane_access)
            reads += [here] if here not in reads else []
            return
        for i, o in enumerate(node.operands):
            more = lane_access and through(lane_access, node.op, node.attr, i, nodes[o].type.shape)
            self._follow(_RowRead(o, read.operand, more), reads)

    def _roots(self) -> list[int]:
        return [m for m in sorted(self.ops) if self.kind(m) in ("contraction", "reduction")]

    def _generic(self, node: int) -> Generic:
        attr = self.program.nodes[node].attr
        assert isinstance(attr, Generic), "contractions and reductions are generics"
        return attr

    def _repeats(self, reader: int, operand: int) -> bool:
        operand_size = self.program.nodes[self.program.nodes[reader].operands[operand]].type.size
        return math.prod(self._generic(reader).sizes) > operand_size

    def _rows(self, reductions: list[int]) -> set[tuple[tuple[int, ...], int]]:
        """The rows these reduce: extents of the result, and how long a row is."""
        rows = set[tuple[tuple[int, ...], int]]()
        for r in reductions:
            result_type = self.program.nodes[r].type
            length = math.prod(self._generic(r).sizes) // max(1, result_type.size)
            rows.add((tuple(s for s in result_type.shape if s != 1), length))
        return rows

    def _above(self, below: dict[int, list[_RowRead]], last: int) -> set[int]:
        """All roots that a root's result depends on."""
        above = {read.maker for read in below[last]}
        return above.union(*(self._above(below, r) for r in above))

    # ---- by which rows
    def _is_by_rows(self, below: dict[int, list[_RowRead]], last: int, first: int | None) -> bool:
        rows = set[object]()  # how the last contraction chooses a row
        parts = set[tuple[int, ...]]()  # the dims of the first one's result that choose a row
        for r, reads in below.items():
            if r == first:
                continue
            rank = self._generic(r).rank
            for read in reads:
                if read.map is None or read.map.relation == "any":
                    return False
                loops = [index_loops(index) for index in read.map.indices]
                outer = tuple(
                    i for i, used in enumerate(loops) if used and all(d < rank for d in used)
                )
                if read.maker == first:
                    parts.add(outer)
                elif len(outer) < sum(map(bool, loops)):
                    return False  # of a row's result, what is not this row's
                if r == last:
                    digits = [d for i in outer for d in read.map.indices[i]]
                    rows.add(joined(digits, read.map.loops))
        return len(rows) == 1 and len(parts) <= 1
