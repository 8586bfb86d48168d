"""Which nodes a dispatch may hold together, by the fusion rules of the target."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from eqsat.extract.candidates.devices import PerDevice
from eqsat.extract.candidates.rowblocks import RowBlockRules
from eqsat.extract.candidates.uses import Uses
from eqsat.model.affine import map_loops
from eqsat.model.egraph import ENode
from eqsat.model.foreign import Custom
from eqsat.model.generic import Generic
from eqsat.model.movement import Move
from eqsat.model.target import Fusion
from eqsat.model.tensor import cdiv


@lru_cache(maxsize=200_000)
def iterations(node: ENode) -> int:
    """How often the body of a generic or of a plug-in's op runs, or a gather looks up; else 0."""
    match node.attr:
        case Generic():
            return math.prod(node.attr.sizes)
        case Custom():
            return math.prod(node.attr.shape)
        case Move(op="gather"):
            return math.prod(node.attr.shape)
    return 0


@dataclass(frozen=True)
class FusionRules(PerDevice):
    """The target's rules of fusion for the nodes of one e-graph."""

    @property
    def fusion(self) -> Fusion:
        return self.target.fusion

    @cached_property
    def uses(self) -> Uses:
        """The readers of a value, and their maps."""
        return Uses(self.space, self.fusion)

    @cached_property
    def roots(self) -> tuple[bool, ...]:
        """Per node: whether it is a contraction or a reduction."""
        return tuple(k in ("contraction", "reduction") for k in self.space.kinds)

    def is_root(self, node: int) -> bool:
        return self.roots[node]

    def is_contraction(self, node: int) -> bool:
        return self.space.kinds[node] == "contraction"

    def generic(self, node: int) -> Generic:
        """The attribute of a contraction or reduction."""
        attr = self.space.egraph.nodes[node].attr
        assert isinstance(attr, Generic), "roots are generics"
        return attr

    def stages(self, reader: int) -> bool:
        """Whether a reader has what it reads inside computed by blocks."""
        return self.fusion.staged > 0 and self.is_contraction(reader)

    def staged_runs(self, reader: int, operand: int) -> int:
        """How often elements of an operand are computed for blocks of a contraction's result.

        Each once for every `staged` columns, or rows, that only the other operand has.
        """
        key = (reader, operand)
        if key not in self._staged_runs:
            g = self.generic(reader)
            other = g.maps[1 - operand] if operand < len(g.maps) == 2 else g.maps[operand]
            mine = map_loops(g.maps[operand])
            blocks = math.prod(g.sizes[d] for d in map_loops(other) if d < g.rank and d not in mine)
            size = self.space.type(self.space.egraph.nodes[reader].children[operand]).size
            self._staged_runs[key] = size * cdiv(blocks, self.fusion.staged)
        return self._staged_runs[key]

    @cached_property
    def _staged_runs(self) -> dict[tuple[int, int], int]:
        return {}

    def in_front(self, members: Sequence[int]) -> frozenset[int]:
        """Members that a contraction inside has staged: they are in scratch and no results.

        members: in topological order.
        """
        if not self.fusion.staged or len(members) < 2:
            return frozenset()
        space, read, found = self.space, set[int](), set[int]()
        for m in reversed(members):
            made = space.made[m]
            if not read.isdisjoint(made):
                found.add(m)
            if m in found or self.is_contraction(m):
                read.update(space.operands[m])
        return frozenset(found)

    @cached_property
    def row_blocks(self) -> RowBlockRules:
        """What a contraction may read from roots inside."""
        return RowBlockRules(self)

    def count_roots(self, nodes: Iterable[int]) -> int:
        """Roots among these ops, at the least: those that may be one by row blocks are one."""
        is_root = self.roots
        roots = tuple([n for n in nodes if is_root[n]])
        if len(roots) < 2:
            return len(roots)
        if roots not in self._counted:
            is_one = self.row_blocks.may_be(roots)
            self._counted[roots] = 1 if is_one else self.count_apart(roots)
        return self._counted[roots]

    @cached_property
    def _counted(self) -> dict[tuple[int, ...], int]:
        return {}

    def count_apart(self, roots: Collection[int]) -> int:
        """How many roots these are at the least; some reductions count once.

        `row_reductions` over the same rows, as those of a softmax or a layer norm: equal result
        extents, equally many iterations. And `output_reductions` of what a contraction computes.
        """
        fusion = self.fusion
        if len(roots) < 2 or (fusion.row_reductions < 2 and not fusion.output_reductions):
            return len(roots)
        reductions = sum(not self.is_contraction(r) for r in roots)
        behind = reductions if reductions < len(roots) else 0
        return self._count(roots) - min(behind, fusion.output_reductions)

    def _count(self, roots: Collection[int]) -> int:
        """How many roots these are, wherever they stand."""
        most = self.fusion.row_reductions
        return sum(cdiv(count, most) for count in Counter(map(self.rows, roots)).values())

    def count_inside(self, makers: Mapping[int, int]) -> int:
        """How many roots a dispatch has; makers: per buffer computed inside, by which node."""
        roots = tuple(n for n in dict.fromkeys(makers.values()) if self.roots[n])
        least = self.count_roots(roots)
        if not self.fusion.output_reductions or least == len(roots):
            return least
        behind = sum(self._is_behind(makers, r) for r in roots)
        return self._count(roots) - min(behind, self.fusion.output_reductions)

    def _is_behind(self, makers: Mapping[int, int], root: int) -> bool:
        """Whether a reduction reads what a contraction computes in the same dispatch."""
        if self.is_contraction(root):
            return False
        seen, work = {root}, [root]
        while work:
            for b in self.space.operands[work.pop()]:
                maker = makers.get(b)
                if maker is not None and self.is_contraction(maker):
                    return True
                if maker is not None and maker not in seen:
                    seen.add(maker)
                    work.append(maker)
        return False

    def rows(self, root: int) -> tuple[object, ...]:
        """What is equal of reductions over the same rows, and of nothing else."""
        if root not in self._rows:
            self._rows[root] = self._rows_of(root)
        return self._rows[root]

    @cached_property
    def _rows(self) -> dict[int, tuple[object, ...]]:
        return {}

    def _rows_of(self, root: int) -> tuple[object, ...]:
        space = self.space
        if space.kinds[root] != "reduction":
            return ("alone", root)
        shape = space.type(space.outputs[root][0]).shape
        return tuple(s for s in shape if s > 1), iterations(space.egraph.nodes[root])

    def recomputes_root(self, root: int, runs: int) -> bool:
        """Whether a reader below a broadcast, which runs so often, would compute a root again.

        Not a reduction that is read along its rows: one row is reduced, and used all along.
        """
        in_rows = self.fusion.row_reductions > 1 and self.space.kinds[root] == "reduction"
        return not in_rows or runs > iterations(self.space.egraph.nodes[root])

    def is_template_kind(self, node: int) -> bool:
        """Whether a template may hold an op: its root, or a part of prologue or epilogue."""
        return self.is_root(node) or self.space.kinds[node] in ("elementwise", "conversion")

    @property
    def has_templates(self) -> bool:
        """Where nothing fuses (`members: 1`), templates do not either."""
        fusion = self.fusion
        return fusion.members > 1 and fusion.roots > 0 and fusion.template > fusion.members

    def may_share(self, ops: Collection[int]) -> bool:
        """Whether one dispatch may hold so many ops.

        At most `members`; or a template: one contraction or reduction with its elementwise and
        conversion prologue and epilogue, at most `template` ops.
        """
        if len(ops) <= self.fusion.members:
            return True
        return (
            self.has_templates
            and len(ops) <= self.fusion.template
            and self.count_roots(ops) == 1
            and all(map(self.is_template_kind, ops))
        )

    @property
    def writes_permuted(self) -> bool:
        """Whether an op may write its results in another order than it executes its loops in."""
        return self.fusion.result_relation != "identity"

    def repeats(self, consumer: int, operand: int) -> bool:
        """Whether a consumer runs more often than its operand has elements (a broadcast)."""
        key = (consumer, operand)
        if key not in self._repeats:
            node = self.space.egraph.nodes[consumer]
            size = self.space.type(node.children[operand]).size
            self._repeats[key] = iterations(node) > size
        return self._repeats[key]

    @cached_property
    def _repeats(self) -> dict[tuple[int, int], bool]:
        return {}
