"""Is one dispatch of a schedule legal on a target? Part of `schedule.legal`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from eqsat.model.attr import loop_order
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.leaves import Custom
from eqsat.model.movement import Move
from eqsat.model.ops import VIEWS
from eqsat.model.program import Node, Program
from eqsat.model.schedule import Dispatch
from eqsat.model.target import DEQUANTISE, FINER, Target
from eqsat.model.text import op_text
from eqsat.ops.contractions.roles import join_kind, kind
from eqsat.ops.generics.access import LaneAccess, access, is_copy, seen_as, through, widens
from eqsat.ops.movement.moves import pads_with_zeros
from eqsat.plan.price import tile_bytes
from eqsat.schedule.members import Connections, RowDispatch
from eqsat.schedule.pipelines import Root, pipeline_faults


@dataclass(frozen=True)
class _Edge:
    """An op that reads what another op of the dispatch computes."""

    maker: int
    reader: int
    operand: int


@dataclass(frozen=True)
class _Path:
    """A read by an op that computes, or by a conversion, seen through all that computes nothing."""

    reader: int
    access: LaneAccess | None  # by which map, in the shape of `below`; None: nobody knows
    relation: str  # of that map, in whatever shape the last op sees it
    below: int  # the node that is read: inside the dispatch, or in memory
    steps: int  # ops between the two
    # by which `join` knows the reader, and moves between with own rows; at the rim, where nothing
    # is computed, all moves if any
    kinds: frozenset[str]
    seen: tuple[int, ...] = ()  # the shape in which the last op sees what it reads


@dataclass(frozen=True)
class OneDispatch:
    """One dispatch under test."""

    index: int
    dispatch: Dispatch
    program: Program
    target: Target
    is_own: bool = True  # whether the schedule was made for this target

    def faults(self) -> Iterator[str]:
        yield from self._operand_faults()
        if len(self.ops) > 1:
            yield from self._count_faults()
        yield from self._result_faults()
        for path in self.paths:
            yield from self._path_faults(path)
        yield from self._repeat_faults()
        yield from self._write_faults()
        apart = self._cloned_from_memory()
        ops = tuple(m for m in self.ops if m not in apart)
        pairs = [(e.maker, e.reader) for e in self.edges if apart.isdisjoint((e.maker, e.reader))]
        yield from Connections(self.program, self.target, self.dispatch, ops, pairs).faults()
        for m in self.ops:
            yield from self._tile_faults(m)
        yield from self._pipeline_faults()
        yield from self._row_faults()
        yield from self._refusal_faults()

    # ---- what it holds
    def node(self, i: int) -> Node:
        return self.program.nodes[i]

    def what(self, i: int) -> str:
        return kind(self.node(i).op, self.node(i).attr)

    @cached_property
    def ops(self) -> tuple[int, ...]:
        """Members that count: no views, no leaves."""
        return tuple(m for m in self.dispatch.members if self.what(m) not in ("leaf", "view"))

    @property
    def op_texts(self) -> tuple[str, ...]:
        """Its ops as rows of `refused` name them."""
        nodes = map(self.node, self.ops)
        types = self.program.nodes
        return tuple(
            sorted(op_text(n.op, n.attr, [types[o].types[0] for o in n.operands]) for n in nodes)
        )

    @cached_property
    def roots(self) -> tuple[int, ...]:
        return tuple(m for m in self.ops if self.what(m) in ("contraction", "reduction"))

    @cached_property
    def row_blocks(self) -> RowDispatch | None:
        """The dispatch, if a contraction keeps rows of what other roots compute for it."""
        if not self.target.fusion.row_block or len(self.roots) < 2:
            return None
        most = self.target.fusion.row_reductions
        row_dispatch = RowDispatch(self.program, frozenset(self.ops), self.what, most)
        return row_dispatch if row_dispatch.readers() else None

    @cached_property
    def root_count(self) -> int:
        """Roots, with every `row_reductions` reductions over the same rows as one.

        `output_reductions` that read a contraction are one with it. All of a dispatch that is
        computed by row blocks are one.
        """
        if self.row_blocks is not None:
            return 1
        most = self.target.fusion.row_reductions
        rows = Counter(self._rows(r) for r in self.roots)
        behind = sum(self._is_behind(r) for r in self.roots)
        groups = sum(-(-count // most) for count in rows.values())
        return groups - min(behind, self.target.fusion.output_reductions)

    def _is_behind(self, root: int) -> bool:
        """Whether a reduction reads what a contraction inside computes, at any distance."""
        if self.what(root) == "contraction":
            return False
        above = {root}
        for _ in self.ops:
            above |= {e.maker for e in self.edges if e.reader in above}
        return any(self.what(m) == "contraction" for m in above)

    def _rows(self, root: int) -> tuple[object, ...]:
        node = self.node(root)
        if self.what(root) == "contraction":
            return ("alone", root)
        return tuple(s for s in node.types[0].shape if s != 1), _runs(node)

    @cached_property
    def edges(self) -> tuple[_Edge, ...]:
        inside, edges = set(self.ops), []
        for m in self.ops:
            for i, o in enumerate(self.node(m).operands):
                maker = self._maker(o)
                if maker in inside:
                    edges.append(_Edge(maker, m, i))
        return tuple(edges)

    def _maker(self, node: int) -> int:
        """The node that computes the bytes of a node, behind all views."""
        while self.node(node).op in VIEWS:
            node = self.node(node).operands[0]
        return node

    @cached_property
    def paths(self) -> tuple[_Path, ...]:
        """From every op that computes, or whose result nobody here reads, down to memory."""
        read = {e.maker for e in self.edges}
        paths: list[_Path] = []
        for m in self.ops:
            if m in read and self._passes_on(m):
                continue
            for i, o in enumerate(self.node(m).operands):
                node = self.node(m)
                direct = access(node.op, node.attr, i, self.node(o).type.shape)
                kinds = frozenset({join_kind(node.op, node.attr, i)})
                self._follow(paths, _Path(m, direct, _relation(direct), o, 0, kinds))
        return tuple(paths)

    def _follow(self, paths: list[_Path], path: _Path) -> None:
        """Add a path and, where an op inside only passes elements on, those that lead further."""
        base = self._maker(path.below)
        node, seen = self.node(base), self.node(path.below).type.shape
        lane_access = path.access
        if lane_access is not None and len(node.types) == 1:
            lane_access = seen_as(lane_access, seen, node.type.shape)
        paths.append(replace(path, access=lane_access, below=base, seen=seen))
        if base not in self.ops or not self._passes_on(base):
            return
        for i, o in enumerate(node.operands):
            shape = self.node(o).type.shape
            more = lane_access and through(lane_access, node.op, node.attr, i, shape)
            kinds, is_rim = path.kinds, self._moves(path.reader)
            if self.what(base) == "move" and (is_rim or node.op in self.target.fusion.rows):
                kept = {k for k in kinds if not is_rim or "move" in (k, FINER.get(k))}
                kinds = frozenset({*kept, join_kind(node.op, node.attr, i)})
            below = _Path(path.reader, more, _relation(more), o, path.steps + 1, kinds)
            self._follow(paths, below)

    def _join_kind(self, m: int) -> str:
        """The kind by which `join` knows what an op computes."""
        if self._is_cloned_anywhere(m):
            return DEQUANTISE
        return join_kind(self.node(m).op, self.node(m).attr)

    def _cloned_from_memory(self) -> frozenset[int]:
        """Ops that are read inside as if they were in memory: they hold nothing together."""
        apart: set[int] = set()
        for m in self.ops:
            inside = {e.maker for e in self.edges if e.reader == m}
            is_read = any(e.maker == m for e in self.edges)
            if is_read and inside <= apart and self._join_kind(m) in self.target.fusion.cloned:
                apart.add(m)
        return frozenset(apart)

    def _moves(self, m: int) -> bool:
        """Whether an op computes nothing, wherever it is."""
        return self.what(m) in ("conversion", "move") or is_copy(self.node(m).attr)

    def _passes_on(self, m: int) -> bool:
        """Whether an op computes nothing inside: conversions, moves, copies, dequantisations."""
        return self._moves(m) or self._is_cloned_anywhere(m)

    def _is_cloned_anywhere(self, m: int) -> bool:
        return "dequantise" in self.target.fusion.clone and widens(self.node(m).attr)

    # ---- faults
    def _operand_faults(self) -> Iterator[str]:
        done: set[int] = set()
        for m in self.dispatch.members:
            for o in self.node(m).operands:
                base = self.program.behind_views(o)
                if base not in {*done, *self.dispatch.reads} and self.node(base).op != "fill":
                    yield f"%{m} reads %{base}, which is neither read nor computed before"
            done.add(m)

    def _count_faults(self) -> Iterator[str]:
        fusion = self.target.fusion
        operands = len(self.dispatch.reads) + len(self.dispatch.writes)
        for count, bound, key, words in (
            (len(self.ops), self._most_ops(), "members", "ops"),
            (self.root_count, fusion.roots, "roots", "contractions and reductions"),
            (operands, fusion.operands, "operands", "operands and results"),
        ):
            if count > bound:
                where = self.target.place(f"fusion.{key}")
                yield f"{count} {words}, fusion.{key} is {bound} ({where})"

    def _most_ops(self) -> int:
        """`members`, or `template` for one root with the kinds of `around`."""
        fusion = self.target.fusion
        around = {self.what(m) for m in self.ops if m not in self.roots}
        is_template = self.root_count == 1 and around <= set(fusion.around)
        if fusion.members > 1 and fusion.roots > 0 and is_template:
            return max(fusion.members, fusion.template)
        return fusion.members

    def _result_faults(self) -> Iterator[str]:
        fusion, writes = self.target.fusion, self.dispatch.writes
        if fusion.staged:
            yield from self._staged_faults()
        if len(writes) < 2 or fusion.multi_result:
            return
        where = self.target.place("fusion.multi_result")
        has_several = any(len(self.node(m).types) > 1 for m in self.ops)
        if not fusion.siblings and not has_several:
            yield f"writes {len(writes)} results, fusion.multi_result is false ({where})"
        inner = {e.maker for e in self.edges} & set(writes)
        for m in sorted(inner):
            yield f"writes %{m}, which is also used inside, fusion.multi_result is false ({where})"

    def _staged_faults(self) -> Iterator[str]:
        """Faults of what stands in front of a contraction: it is in scratch, and no result."""
        staged = {e.maker for e in self.edges if self.what(e.reader) == "contraction"}
        for _ in self.ops:
            staged |= {e.maker for e in self.edges if e.reader in staged}
        written = {self._maker(w) for w in self.dispatch.writes}
        for m in sorted(staged & written):
            where = self.target.place("fusion.staged")
            yield f"writes %{m}, which a contraction inside has staged in scratch ({where})"

    def _path_faults(self, path: _Path) -> Iterator[str]:
        maker, reader = path.below, path.reader
        relation, wanted = path.relation, self.target.fusion.index_relation
        if maker not in self.ops:
            if wanted == "identity" and path.steps and not self._is_in_step(path):
                yield self._relation_fault(path)
            return
        fusion, kind = self.target.fusion, self._join_kind(maker)
        apart = sorted(k for k in path.kinds if not fusion.joins(kind, k))
        if apart:
            where = self.target.place("fusion.join")
            names = f"{kind} %{maker} joins {apart[0]} %{reader}"
            yield f"{names}, fusion.join has no such row ({where})"
        made = self.node(maker).types[0].shape
        if not fusion.reshaped and [s for s in made if s > 1] != [s for s in path.seen if s > 1]:
            where = self.target.place("fusion.reshaped")
            yield f"%{reader} reads %{maker} reshaped, fusion.reshaped is false ({where})"
        if len(self.node(maker).types) > 1:
            yield f"%{maker} has several results and is read inside"
        if wanted == "identity" and not self._passes_on(maker):
            is_generic = isinstance(self.node(maker).attr, Generic)
            is_legal = is_generic and self._is_in_step(path)
        else:
            is_legal = wanted == "any" or relation != "any" or self._is_edge(path)
            is_legal = is_legal or kind in fusion.cloned
        if not is_legal:
            yield self._relation_fault(path)

    def _is_edge(self, path: _Path) -> bool:
        """Whether windows of a contraction reach over the edge of what a pad reads."""
        pads = self.target.fusion.pads and pads_with_zeros(self.node(path.below).attr)
        return pads and not path.steps and self.what(path.reader) == "contraction"

    def _is_in_step(self, path: _Path) -> bool:
        """Whether a reader wants one element after another as the maker (or memory) has them."""
        maker, reader, lane_access = (
            self.node(path.below).attr,
            self.node(path.reader).attr,
            path.access,
        )
        if lane_access is None:
            return False
        dims, loops = list(range(len(lane_access.indices))), list(range(len(lane_access.loops)))
        if isinstance(maker, Generic) and path.below in self.ops and maker.order:
            dims = list(maker.order[: maker.rank])
        return lane_access.is_in_step(loop_order(reader) or loops, dims)

    def _relation_fault(self, path: _Path) -> str:
        wanted, where = self.target.fusion.index_relation, "fusion.index_relation"
        names = f"%{path.reader} reads %{path.below} by no {wanted} of its loops"
        return f"{names} ({self.target.place(where)})"

    def _write_faults(self) -> Iterator[str]:
        if self.target.fusion.result_relation != "identity":
            return
        where = self.target.place("fusion.result_relation")
        for m in self.ops:
            if loop_order(self.node(m).attr):
                yield f"%{m} writes its result permuted ({where})"

    def _repeat_faults(self) -> Iterator[str]:
        row_readers = self.row_blocks.readers() if self.row_blocks else []
        rows = bool(row_readers) or self.target.fusion.row_reductions > 1
        most = {  # how often a reader of a root, or of what comes from one, may run at least
            r: _runs(self.node(r)) if rows and self.what(r) == "reduction" else 0
            for r in self.roots
        }
        if row_readers:  # rows of contractions are kept as well
            most |= {r: self.node(r).type.size for r in most if self.what(r) == "contraction"}
        for e in self.edges:  # by reader, in the order of the members
            if e.maker not in most or e.reader in row_readers:
                continue
            most[e.reader] = min(most[e.maker], most.get(e.reader, most[e.maker]))
            operand = self.node(e.reader).operands[e.operand]
            once = self.node(operand).type.size
            if _runs(self.node(e.reader)) > max(once, most[e.maker]):
                yield f"%{e.reader} would compute %{e.maker} more than once"

    def _row_faults(self) -> Iterator[str]:
        """Faults of row blocks: what a contraction keeps by rows is read by rows, and fits."""
        if self.row_blocks is None:
            return
        where = self.target.place("fusion.row_block")
        faults = [f"{fault} ({where})" for fault in self.row_blocks.faults()]
        yield from faults
        if not faults:
            nbytes = self.target.fusion.row_block * self.row_blocks.row_bytes()
            yield from self._over("scratch", "a row block", nbytes)

    def _refusal_faults(self) -> Iterator[str]:
        if not self.target.refused:
            return
        ops = self.op_texts
        for row in self.target.refused:
            if row.ops == ops:
                yield f"was refused: {row.says} ({self.target.place('refused')})"

    # ---- limits
    def _over(self, name: str, what: str, nbytes: int) -> Iterator[str]:
        limits = self.target.limits
        limit = limits.vector_bytes if name == "vector" else limits.scratch_bytes
        if limit is not None and nbytes > limit:
            where = self.target.place(f"limits.{name}")
            yield f"{what} needs {nbytes:,} bytes, the {name} limit is {limit:,} ({where})"

    def _tile_faults(self, m: int) -> Iterator[str]:
        n = self.node(m)
        if isinstance(n.attr, Layout) and not n.attr.is_in_place(n.op):
            nbytes = tile_bytes(n.attr.tiles, self.node(n.operands[0]).type.dtype)
            yield from self._over("vector", f"a tile of %{m}", nbytes)
        if not isinstance(n.attr, Generic) or len(n.attr.tile) != 3:
            return
        rows, columns, depth = n.attr.tile
        result = tile_bytes((rows, columns), n.attr.yields[0].dtype)
        yield from self._over("vector", f"the tile of %{m}", result)
        if not self.target.pipelines:
            left, right = n.attr.dtypes[:2]
            sides = tile_bytes((rows, depth), left) + tile_bytes((depth, columns), right)
            yield from self._over("scratch", f"the tiles of %{m}", result + sides)

    @cached_property
    def pipeline_roots(self) -> list[Root]:
        """Contractions and reductions, and how they are read inside."""
        attrs = ((r, self.node(r).attr) for r in self.roots)
        return [
            Root(r, a, any(p.below == r for p in self.paths), self._is_tiled_along(r))
            for r, a in attrs
            if isinstance(a, Generic)
        ]

    @cached_property
    def _pipelined(self) -> list[str | tuple[str, int]]:
        """Faults of its pipeline, and what a workgroup keeps, in words and bytes."""
        asked = self.pipeline_roots
        return list(pipeline_faults(asked, self.dispatch, self.target, is_own=self.is_own))

    @property
    def scratch_bytes(self) -> int:
        """Scratch of a workgroup for its contractions and reductions."""
        return sum(f[1] for f in self._pipelined if not isinstance(f, str))

    def _pipeline_faults(self) -> Iterator[str]:
        """Contractions and reductions of the pipeline: what a workgroup computes and keeps."""
        for fault in self._pipelined:
            if isinstance(fault, str):
                yield fault
            else:
                yield from self._over("scratch", *fault)

    def _is_tiled_along(self, op: int) -> bool:
        """Whether all that use an op's result, and what they compute from it, follow its tiles."""
        for path in (p for p in self.paths if p.below == op):
            what = self.what(path.reader)
            along = what in ("elementwise", "conversion", "move")
            if what == "reduction":
                along = self.target.fusion.output_reductions > 0
            if not along or path.access is None:
                return False
            if path.access.relation == "any":
                return False
            if what == "elementwise" and not self._is_tiled_along(path.reader):
                return False
        return True


# ---- facts of ops --------------------------------------------------------------------------------
def _relation(lane_access: LaneAccess | None) -> str:
    """Of an op that says nothing of its maps, such as a plug-in's, a permutation is assumed."""
    return "permutation" if lane_access is None else lane_access.relation


def _runs(node: Node) -> int:
    """How often the body of an op runs or a gather looks up; 0 where there is none."""
    match node.attr:
        case Generic(sizes=sizes):
            return math.prod(sizes)
        case Custom(shape=shape) | Move(op="gather", shape=shape):
            return math.prod(shape)
    return 0
