"""Is one dispatch of a schedule legal on a target? Part of `schedule.legal`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from eqsat.model.affine import Affine
from eqsat.model.attr import Shape
from eqsat.model.foreign import Custom
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.movement import Transpose
from eqsat.model.ops import VIEWS
from eqsat.model.program import Node, Program
from eqsat.model.schedule import Dispatch
from eqsat.model.target import Target
from eqsat.ops.contraction import contraction_roles, kind
from eqsat.schedule.workgroups import operand_tile_bytes, tile_bytes, workgroup_tile


def behind_views(program: Program, node: int) -> int:
    """The node whose bytes these are: reshapes and relaxed views are looked through."""
    while program.nodes[node].op in ("reshape", "relax"):
        (node,) = program.nodes[node].operands
    return node


@dataclass(frozen=True)
class _Edge:
    """An op that reads what another op of the dispatch computes."""

    maker: int
    reader: int
    operand: int
    direct: bool  # no view between
    in_shape: bool  # seen in the shape it was computed in


@dataclass(frozen=True)
class OneDispatch:
    """One dispatch under test."""

    index: int
    dispatch: Dispatch
    program: Program
    target: Target

    def faults(self) -> Iterator[str]:
        yield from self._operand_faults()
        if len(self.ops) > 1:
            yield from self._count_faults()
        yield from self._result_faults()
        for e in self.edges:
            yield from self._join_faults(e)
        yield from self._repeat_faults()
        yield from self._write_faults()
        yield from self._connection_faults()
        for m in self.ops:
            yield from self._tile_faults(m)
        yield from self._scratch_faults()

    # ---- what it holds
    def node(self, i: int) -> Node:
        return self.program.nodes[i]

    def what(self, i: int) -> str:
        return kind(self.node(i).op, self.node(i).attr)

    @cached_property
    def ops(self) -> tuple[int, ...]:
        """Members that count: no views, no leaves."""
        return tuple(m for m in self.dispatch.members if self.what(m) not in ("leaf", "view"))

    @cached_property
    def roots(self) -> tuple[int, ...]:
        return tuple(m for m in self.ops if self.what(m) in ("contraction", "reduction"))

    @cached_property
    def root_count(self) -> int:
        """Roots, with every `row_reductions` reductions over the same rows as one."""
        most = self.target.fusion.row_reductions
        rows = Counter(self._rows(r) for r in self.roots)
        return sum(-(-count // most) for count in rows.values())

    def _rows(self, root: int) -> tuple[object, ...]:
        node = self.node(root)
        if self.what(root) == "contraction":
            return ("alone", root)
        return tuple(s for s in node.types[0].shape if s != 1), _runs(node)

    @cached_property
    def edges(self) -> tuple[_Edge, ...]:
        inside, found = set(self.ops), []
        for m in self.ops:
            for i, o in enumerate(self.node(m).operands):
                maker = o
                while self.node(maker).op in VIEWS:
                    maker = self.node(maker).operands[0]
                if maker in inside:
                    in_shape = self.node(maker).types[0].shape == self.node(o).type.shape
                    found.append(_Edge(maker, m, i, maker == o, in_shape))
        return tuple(found)

    # ---- faults
    def _operand_faults(self) -> Iterator[str]:
        done: set[int] = set()
        for m in self.dispatch.members:
            for o in self.node(m).operands:
                base = behind_views(self.program, o)
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
        """`members`, or `template` for one root with elementwise ops and conversions."""
        fusion = self.target.fusion
        around = {self.what(m) for m in self.ops if m not in self.roots}
        is_template = self.root_count == 1 and around <= {"elementwise", "conversion"}
        if fusion.members > 1 and fusion.roots > 0 and is_template:
            return max(fusion.members, fusion.template)
        return fusion.members

    def _result_faults(self) -> Iterator[str]:
        fusion, writes = self.target.fusion, self.dispatch.writes
        if len(writes) < 2 or fusion.multi_result:
            return
        where = self.target.place("fusion.multi_result")
        has_several = any(len(self.node(m).types) > 1 for m in self.ops)
        if not fusion.siblings and not has_several:
            yield f"writes {len(writes)} results, fusion.multi_result is false ({where})"
        inner = {e.maker for e in self.edges} & set(writes)
        for m in sorted(inner):
            yield f"writes %{m}, which is also used inside, fusion.multi_result is false ({where})"

    def _join_faults(self, e: _Edge) -> Iterator[str]:
        made, reads = self.what(e.maker), self.what(e.reader)
        if reads not in dict(self.target.fusion.join).get(made, ()):
            where = self.target.place("fusion.join")
            names = f"{made} %{e.maker} joins {reads} %{e.reader}"
            yield f"{names}, fusion.join has no such row ({where})"
        if len(self.node(e.maker).types) > 1:
            yield f"%{e.maker} has several results and is read inside"
        relation = self.target.fusion.index_relation
        if not self._is_related(e, relation):
            where = self.target.place("fusion.index_relation")
            yield f"%{e.reader} reads %{e.maker} by no {relation} of its loops ({where})"

    def _is_related(self, e: _Edge, relation: str) -> bool:
        maker, reader = self.node(e.maker).attr, self.node(e.reader).attr
        if relation == "identity":
            if not isinstance(maker, Generic) or not isinstance(reader, Generic):
                return False
            return e.direct and _is_one_nest(maker, reader, e.operand)
        if relation == "permutation" and isinstance(reader, Generic):
            return _is_permutation(reader, e.operand)
        return True

    def _write_faults(self) -> Iterator[str]:
        if self.target.fusion.result_relation != "identity":
            return
        where = self.target.place("fusion.result_relation")
        for m in self.ops:
            g = self.node(m).attr
            if isinstance(g, Generic) and g.order:
                yield f"%{m} writes its result permuted ({where})"

    def _repeat_faults(self) -> Iterator[str]:
        rows = self.target.fusion.row_reductions > 1
        most = {  # how often a reader of a root, or of what comes from one, may run at least
            r: _runs(self.node(r)) if rows and self.what(r) == "reduction" else 0
            for r in self.roots
        }
        for e in self.edges:  # by reader, in the order of the members
            if e.maker not in most:
                continue
            most[e.reader] = min(most[e.maker], most.get(e.reader, most[e.maker]))
            operand = self.node(e.reader).operands[e.operand]
            once = self.node(operand).type.size
            if _runs(self.node(e.reader)) > max(once, most[e.maker]):
                yield f"%{e.reader} would compute %{e.maker} more than once"

    def _connection_faults(self) -> Iterator[str]:
        """Parts are joined by what they compute, then by readers of one buffer."""
        part = {m: m for m in self.ops}
        for e in self.edges:
            part = _joined(part, e.maker, e.reader)
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
            for i, o in enumerate(self.node(m).operands):
                base = behind_views(self.program, o)
                if base in self.dispatch.reads:
                    readers.setdefault(base, []).append((m, i))
        return [(a, b) for rs in readers.values() for a in rs for b in rs if a[0] < b[0]]

    def _sibling_fault(self, a: tuple[int, int], b: tuple[int, int]) -> str:
        """Of two readers that walk a buffer differently, one is a vector of its whole result."""
        limit = self.target.limits.vector_bytes
        (_, order), (_, other) = one, two = self._walk(*a), self._walk(*b)
        if one == two or limit is None:
            return ""
        loser = a[0] if order != sorted(order) and other == sorted(other) else b[0]
        nbytes = sum(t.nbytes for t in self.node(loser).types)
        where = self.target.place("limits.vector")
        text = (
            f"the unfused %{loser} needs {nbytes:,} bytes, the vector limit is {limit:,} ({where})"
        )
        return text if nbytes > limit else ""

    def _walk(self, reader: int, operand: int) -> tuple[Shape, list[int]]:
        """Extents of a reader's loops, and the order in which it walks the operand's dims."""
        node = self.node(reader)
        shape = self.node(node.operands[operand]).type.shape
        match node.attr:
            case Generic():
                order = [-1 if e.dim is None else e.dim for e in node.attr.maps[operand]]
                return node.attr.sizes, order
            case Transpose(perm=perm):
                return node.attr.result_shape, [perm.index(d) for d in range(len(perm))]
        return shape, list(range(len(shape)))

    # ---- limits
    def _over(self, name: str, what: str, nbytes: int) -> Iterator[str]:
        limits = self.target.limits
        limit = limits.vector_bytes if name == "vector" else limits.scratch_bytes
        if limit is not None and nbytes > limit:
            where = self.target.place(f"limits.{name}")
            yield f"{what} needs {nbytes:,} bytes, the {name} limit is {limit:,} ({where})"

    def _tile_faults(self, m: int) -> Iterator[str]:
        n = self.node(m)
        if isinstance(n.attr, Layout) and n.op in ("pack", "unpack"):
            nbytes = tile_bytes(n.attr.tiles, self.node(n.operands[0]).type.dtype)
            yield from self._over("vector", f"a tile of %{m}", nbytes)
        if not isinstance(n.attr, Generic) or len(n.attr.tile) != 3:
            return
        rows, columns, depth = n.attr.tile
        result = tile_bytes((rows, columns), n.attr.yields[0].dtype)
        yield from self._over("vector", f"the tile of %{m}", result)
        if self.target.workgroup is None:
            left, right = n.attr.dtypes[:2]
            sides = tile_bytes((rows, depth), left) + tile_bytes((depth, columns), right)
            yield from self._over("scratch", f"the tiles of %{m}", result + sides)

    def _scratch_faults(self) -> Iterator[str]:
        if self.target.workgroup is None:
            return
        nbytes = sum(self._held_bytes(r) for r in self.roots)
        names = " and ".join(f"%{r}" for r in self.roots)
        yield from self._over("scratch", f"what a workgroup keeps of {names}", nbytes)

    def _held_bytes(self, root: int) -> int:
        """Rules 4 to 6 of "Scratch memory of a GPU"."""
        g, workgroup = self.node(root).attr, self.target.workgroup
        if not isinstance(g, Generic) or workgroup is None:
            return 0
        extents, aligned = workgroup_tile(g, workgroup)
        held = 0
        if aligned and contraction_roles(g) is not None:
            sides = [i for i, s in enumerate(("lhs", "rhs")) if s in workgroup.promote]
            held = sum(operand_tile_bytes(g, i, extents) for i in sides)
        readers = [e for e in self.edges if e.maker == root]
        if not readers or (
            aligned and "result" not in workgroup.promote and self._all_along(readers)
        ):
            return held
        shape = extents[: g.rank] if self._all_along(readers) else g.sizes[: g.rank]
        return held + sum(tile_bytes(tuple(shape), y.dtype) for y in g.yields)

    def _all_along(self, readers: list[_Edge]) -> bool:
        return all(self._is_along(e) for e in readers)

    def _is_along(self, e: _Edge) -> bool:
        """Whether a reader can be tiled with the root."""
        attr = self.node(e.reader).attr
        if self.what(e.reader) == "conversion":
            return e.in_shape
        if self.what(e.reader) != "elementwise" or not isinstance(attr, Generic):
            return False
        return _is_permutation(attr, e.operand) if e.in_shape else _in_order(attr, e.operand)


# ---- facts of ops --------------------------------------------------------------------------------
def _is_one_nest(maker: Generic, reader: Generic, operand: int) -> bool:
    """Whether step by step the reader wants the element that the maker has just computed."""
    steps = list(reader.order or range(reader.rank)) + list(reader.reductions)
    made = list(maker.order or range(maker.rank))  # the dim that each loop of the maker writes
    wanted = {e.dim: q for q, e in enumerate(reader.maps[operand])}  # the dim each loop reads
    return len(wanted) == len(steps) and [wanted.get(d) for d in steps] == made


def _in_order(g: Generic, operand: int) -> bool:
    """Whether the loops of a generic are this operand's dims, in order."""
    return [e.dim for e in g.maps[operand]] == list(range(len(g.sizes)))


def _is_permutation(g: Generic, operand: int) -> bool:
    """Bare, distinct loops; a dim of extent 1 may be read at 0."""
    pairs = zip(g.maps[operand], g.shapes[operand], strict=True)
    loops = [e.dim for e, size in pairs if not (size == 1 and e == Affine(()))]
    return None not in loops and len(loops) == len(set(loops))


def _runs(node: Node) -> int:
    """How often the body of an op runs; 0 where there is none."""
    match node.attr:
        case Generic(sizes=sizes):
            return math.prod(sizes)
        case Custom(shape=shape):
            return math.prod(shape)
    return 0


def _joined(part: dict[int, int], a: int, b: int) -> dict[int, int]:
    old, new = part[a], part[b]
    return {m: new if p == old else p for m, p in part.items()}
