"""Row blocks: a contraction that reads, row by row, what roots inside its dispatch compute.

Attention is one: scores, their softmax, and the values weighted by it. A few rows of what the last
contraction reads are kept in scratch, so nothing of it is computed twice. docs/dispatches.md has
the rules; `schedule.members` asks the same of a schedule.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from eqsat.extract.dispatch.fusedaccess import Use
from eqsat.model.tensor import DTYPES, cdiv
from eqsat.ops.generics.access import Index, LaneAccess, index_loops, joined, seen_as

if TYPE_CHECKING:
    from eqsat.extract.dispatch.rules import FusionRules

Makers = Mapping[int, int]  # buffer -> the node that computes it inside, views included
Reads = Mapping[int, list[tuple[int, Use]]]  # per root: roots whose results it reads, and how
# the same as numbers, of uses too: what groups are told apart by
Numbers = tuple[tuple[int, tuple[tuple[int, int], ...]], ...]


@dataclass(frozen=True)
class KeptRows:
    """The row blocks of one dispatch. scratch_bytes: of `row_block` rows."""

    last: int  # the contraction that reads them
    operand: int
    scratch_bytes: int


@dataclass(frozen=True)
class RowBlockRules:
    """Asked about groups of nodes of one e-graph."""

    legality: FusionRules

    @cached_property
    def is_on(self) -> bool:
        return self.legality.fusion.row_block > 0

    def keeps(self, reader: int) -> bool:
        """Whether a reader has what it reads inside in scratch, however often it reads it."""
        return self.is_on and self.legality.space.kinds[reader] == "contraction"

    def may_be(self, roots: Collection[int]) -> bool:
        """Whether these roots are as many, and of the kinds, that row blocks may have."""
        if not self.is_on:
            return False
        kinds, fusion = self.legality.space.kinds, self.legality.fusion
        reductions = [r for r in roots if kinds[r] == "reduction"]
        return (
            1 <= len(roots) - len(reductions) <= 2
            and 1 <= len(reductions) <= fusion.row_reductions
            and len(set(map(self.legality.rows, reductions))) == 1
        )

    # ---- a whole dispatch ------------------------------------------------------------------------
    def is_legal(self, makers: Makers, *, by_rows: bool = False) -> bool:
        """Whether what contractions read from roots inside is kept by rows, if anything is.

        by_rows: something must be, as a contraction would be computed again otherwise.
        """
        roots = self._roots(makers)
        last = [r for r in roots if self.legality.is_contraction(r)] if len(roots) > 1 else []
        if not last or not (by_rows or any([self._reads(makers, r) for r in last])):
            return not by_rows and self.legality.count_apart(roots) <= self.legality.fusion.roots
        below = tuple([(r, self._reads(makers, r)) for r in roots])
        if (below, by_rows) not in self._legal:
            self._legal[below, by_rows] = self._is_legal(self._named(below), by_rows)
        return self._legal[below, by_rows]

    @cached_property
    def _legal(self) -> dict[tuple[Numbers, bool], bool]:
        """Answers: groups differ less in their roots, and in how these read each other."""
        return {}

    def _is_legal(self, below: Reads, by_rows: bool) -> bool:
        if not by_rows and not self._chained(below):
            return self.legality.count_apart(tuple(below)) <= self.legality.fusion.roots
        rows = self._found(below)
        limit = self.legality.target.limits.scratch_bytes
        return rows is not None and (limit is None or rows.scratch_bytes <= limit)

    def _named(self, below: Numbers) -> Reads:
        uses = self.legality.uses
        return {r: [(maker, uses[u]) for maker, u in reads] for r, reads in below}

    def kept_rows(self, makers: Makers) -> KeptRows | None:
        """The rows of a dispatch; None if there are none, or if they are not read by rows."""
        roots = self._roots(makers)
        if len(roots) < 2 or not self.is_on:
            return None
        return self._found(self._named(tuple((r, self._reads(makers, r)) for r in roots)))

    def _found(self, below: Reads) -> KeptRows | None:
        roots, kinds = list(below), self.legality.space.kinds
        if not self.may_be(roots):
            return None
        chained = self._chained(below)
        if len(chained) != 1:
            return None
        last = chained[0]
        if self._upstream(below, last) != set(roots) - {last}:
            return None
        if any(below[r] for r in roots if kinds[r] == "contraction" and r != last):
            return None
        operands = {use.operand for _, use in below[last]}
        if len(operands) != 1:
            return None
        first = next((r for r in roots if kinds[r] == "contraction" and r != last), None)
        reduction = next(r for r in roots if kinds[r] == "reduction")
        reduced = math.prod(self.legality.generic(reduction).sizes)
        if first is not None and self._size(first) != reduced:
            return None
        if not self._are_rows(below, last, first):
            return None
        (operand,) = operands
        return KeptRows(last, operand, self._scratch_bytes(roots, last, operand))

    def _size(self, node: int) -> int:
        space = self.legality.space
        return space.type(space.outputs[node][0]).size

    def _roots(self, makers: Makers) -> list[int]:
        is_root = self.legality.roots
        return [n for n in dict.fromkeys(makers.values()) if is_root[n]]

    def _chained(self, below: Reads) -> list[int]:
        """Contractions that read a root more often than its result has elements."""
        repeats = self.legality.repeats
        return [
            r
            for r, reads in below.items()
            if self.legality.is_contraction(r) and any(repeats(r, use.operand) for _, use in reads)
        ]

    def _reads(self, makers: Makers, root: int) -> tuple[tuple[int, int], ...]:
        """Roots inside whose results a root reads, and the numbers of its uses of them."""
        operands, below = self.legality.space.operands, self.legality.uses.below
        is_root, ends, views = self.legality.roots, self._ends, self._views
        reads: dict[tuple[int, int], None] = {}
        work = [(b, -1 - i) for i, b in enumerate(operands[root]) if b in makers]
        work.reverse()
        while work:
            b, use = work.pop()
            node = makers.get(b)
            while node is not None and node in views and operands[node] != (b,):
                b = operands[node][0]
                node = makers.get(b)
            if node is None or ends[node]:
                continue
            if use < 0:
                use = self.legality.uses.direct((root, -1 - use))
            if is_root[node]:
                reads[node, use] = None
                continue
            inner = [
                (o, below(use, (node, i))) for i, o in enumerate(operands[node]) if o in makers
            ]
            work += inner[::-1]
        return tuple(reads)

    @cached_property
    def _ends(self) -> tuple[bool, ...]:
        """Per node: whether nothing is read through it."""
        return tuple(k in ("leaf", "view") for k in self.legality.space.kinds)

    @cached_property
    def _views(self) -> frozenset[int]:
        return frozenset(n for n, k in enumerate(self.legality.space.kinds) if k == "view")

    def _upstream(self, below: Reads, last: int) -> set[int]:
        upstream, work = set[int](), [last]
        while work:
            more = {r for r, _ in below[work.pop()]} - upstream
            upstream |= more
            work += more
        return upstream

    def _are_rows(self, below: Reads, last: int, first: int | None) -> bool:
        """Whether the last contraction reads all roots' results at one row, its own.

        A row is chosen by loops of its result; what it reduces runs along the row.
        """
        rank = self.legality.generic(last).rank
        rows: set[Index] = set()
        along: set[tuple[int, ...]] = set()  # dims of the first contraction that choose a row
        for r, use in below[last]:
            lane_access = self._seen(use, r)
            if lane_access is None or lane_access.relation == "any":
                return False
            dims = [index_loops(i) for i in lane_access.indices]
            if r != first and not all(d < rank for ds in dims for d in ds):
                return False
            chosen = [i for i, ds in enumerate(dims) if ds and max(ds) < rank]
            if r == first:
                along.add(tuple(chosen))
            rows.add(joined([d for i in chosen for d in lane_access.indices[i]], lane_access.loops))
        return len(rows) == 1 and self._agree(below, first, along)

    def _agree(
        self,
        below: Reads,
        first: int | None,
        along: set[tuple[int, ...]],
    ) -> bool:
        """Whether the reductions reduce the rows of the first contraction, all the same."""
        kinds = self.legality.space.kinds
        for r, reads in below.items():
            if kinds[r] != "reduction":
                continue
            rank = self.legality.generic(r).rank
            for maker, use in reads:
                lane_access = self._seen(use, maker)
                if lane_access is None or lane_access.relation == "any":
                    return False
                dims = [index_loops(i) for i in lane_access.indices]
                row_dims = tuple(i for i, ds in enumerate(dims) if ds and max(ds) < rank)
                if maker == first:
                    along.add(row_dims)
                elif len(row_dims) < sum(bool(ds) for ds in dims):
                    return False
        return len(along) <= 1

    def _seen(self, use: Use, maker: int) -> LaneAccess | None:
        """How a use reads a node's result, in the shape in which it is computed."""
        space, uses = self.legality.space, self.legality.uses
        lane_access = uses.access(use)
        if lane_access is None:
            return None
        node, operand = use.via[-1] if use.via else (use.node, use.operand)
        shown = space.type(space.egraph.nodes[node].children[operand]).shape
        return seen_as(lane_access, shown, space.type(space.outputs[maker][0]).shape)

    def _scratch_bytes(self, roots: list[int], last: int, operand: int) -> int:
        """`row_block` rows of what the last contraction reads."""
        space, legality = self.legality.space, self.legality
        reduction = next(r for r in roots if space.kinds[r] == "reduction")
        g = legality.generic(reduction)
        length = math.prod(g.sizes) // max(1, self._size(reduction))
        dtype = space.type(space.egraph.nodes[last].children[operand]).dtype
        return cdiv(legality.fusion.row_block * length * DTYPES[dtype][0], 8)
