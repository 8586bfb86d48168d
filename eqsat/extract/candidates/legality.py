"""What one dispatch may hold on a target: tile limits, which op joins which, what is cloned."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from eqsat.extract.candidates.devices import Devices
from eqsat.extract.candidates.pipelines import ALONG, APART, NOT_READ, Way, needs_pipeline, ways
from eqsat.extract.candidates.rowblocks import RowBlockRules
from eqsat.extract.candidates.space import Space
from eqsat.extract.candidates.uses import Readers, Uses
from eqsat.model.attr import loop_order
from eqsat.model.egraph import ENode
from eqsat.model.foreign import Custom
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.movement import Move, Transpose
from eqsat.model.selection import RESULT_RELATION, Removed
from eqsat.model.target import CHEAP, Fusion, Target
from eqsat.model.tensor import DTYPES, TensorType, cdiv
from eqsat.ops.access import is_cheap


def _tile_bytes(extents: tuple[int, ...], dtype: str) -> int:
    return cdiv(math.prod(extents) * DTYPES[dtype][0], 8)


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


class Inside(NamedTuple):
    """A root inside of a dispatch, the nodes that use its result there, and how."""

    root: int
    users: tuple[int, ...]
    reading: int  # NOT_READ, ALONG or APART


@dataclass(frozen=True)
class Legality:
    """The target's fusion rules and limits, asked about nodes of one e-graph."""

    space: Space
    target: Target

    @property
    def fusion(self) -> Fusion:
        return self.target.fusion

    # ---- several devices ---------------------------------------------------------------------
    @cached_property
    def devices(self) -> Devices:
        """Who computes what, if the target is made of several devices."""
        return Devices(self.space, self.target)

    @cached_property
    def _parts(self) -> dict[str, Legality]:
        return {device: Legality(self.space, target) for device, target in self.target.devices}

    def part(self, device: str) -> Legality:
        """The rules of one device; these if there is only one."""
        return self._parts[device] if self._parts else self

    def of(self, members: Iterable[int]) -> Legality:
        """The rules of the device that runs these nodes."""
        return self._parts[self.devices.of(members)] if self._parts else self

    @cached_property
    def uses(self) -> Uses:
        """Who reads what, and by which map."""
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
        """How many roots these are; `row_reductions` reductions over the same rows count once.

        Those of a softmax or a layer norm: equal result extents, equally many iterations.
        """
        most = self.fusion.row_reductions
        if most < 2 or len(roots) < 2:
            return len(roots)
        return sum(cdiv(count, most) for count in Counter(map(self.rows, roots)).values())

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

    def is_admissible(self, node: int) -> bool:
        """`tiles: forced` leaves no unpacked contraction, and some pipeline takes every one."""
        attr = self.space.egraph.nodes[node].attr
        if not isinstance(attr, Generic) or not needs_pipeline(attr):
            return True
        alone = Inside(node, (), NOT_READ)
        return not self.target.tiles_forced and bool(self.ways([alone]))

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

    @cached_property
    def _clones(self) -> frozenset[str]:
        return frozenset(self.fusion.clone)

    def is_cloneable(self, node: int) -> bool:
        """Whether several dispatches may each compute this node."""
        what = self.space.kinds[node]
        if what in ("leaf", "view"):
            return True
        if what not in ("elementwise", "conversion"):
            return False
        if self._clones & {"all", what} or self.uses.dequantises[node]:
            return True
        attr = self.space.egraph.nodes[node].attr
        if CHEAP in self._clones and is_cheap(attr) and self._is_shared(node):
            return True
        if not isinstance(attr, Generic) or any(y.body.count() for y in attr.yields):
            return False
        is_cast = any(e.fn == "cast" for y in attr.yields for e in y.body.walk())
        return ("cast" if is_cast else "broadcast") in self._clones

    def _is_shared(self, node: int) -> bool:
        return any(self.space.value[c] in self._shared for c in self.space.outputs[node])

    @cached_property
    def _shared(self) -> frozenset[int]:
        """Values that two others need, or one and the caller; those only a cheap one of them needs.

        For one alone, computing it twice would mean to compute that one twice as well.
        """
        space, nodes = self.space, self.space.egraph.nodes
        cheap = {
            space.value[c]
            for n, outputs in zip(nodes, space.outputs, strict=True)
            if is_cheap(n.attr)
            for c in outputs
        }
        found = {v for v, users in space.consumers.items() if len(users) > 1}
        alone = {v: min(users) for v, users in space.consumers.items() if len(users) == 1}
        while more := {v for v, w in alone.items() if w in found & cheap} - found:
            found |= more
        return frozenset(found)

    def value_number(self, value: int) -> int:
        """The exclusive number of a value; those of nodes come before."""
        return len(self.space.egraph.nodes) + value

    def exclusive(self, members: Iterable[int]) -> frozenset[int]:
        """What only one dispatch may compute, as numbers.

        A value that may not be cloned, if the input program computes it at most once; else the
        node. A conversion that may not be cloned: the node.
        """
        own = self._exclusive
        return frozenset().union(*[own.get(m) or self._exclusive_of(m) for m in members])

    @cached_property
    def _exclusive(self) -> dict[int, frozenset[int]]:
        return {}

    def _exclusive_of(self, member: int) -> frozenset[int]:
        if member not in self._exclusive:
            self._exclusive[member] = frozenset(self._owned(member))
        return self._exclusive[member]

    def _owned(self, member: int) -> set[int]:
        if self.of((member,)).is_cloneable(member):
            return set()
        space = self.space
        values = [space.value[c] for c in space.outputs[member]]
        is_node = space.kinds[member] == "conversion" or any(
            len(space.positions.get(v, ())) != 1 or space.is_source(v) for v in values
        )
        return {member} if is_node else {self.value_number(v) for v in values}

    def limit_of(self, node: int) -> Removed | None:
        """The limit a node breaks by its own tile, whatever dispatch it is in."""
        n = self.space.egraph.nodes[node]
        if loop_order(n.attr) and not self.writes_permuted:
            place = self.target.place(RESULT_RELATION)
            what = f"interchanged {self.space.name(node)}"
            return Removed(what, 1, 0, RESULT_RELATION, place)
        types = [self.space.type(c) for c in n.children]
        if isinstance(n.attr, Layout) and n.op in ("pack", "unpack"):
            tile = _tile_bytes(n.attr.tiles, types[0].dtype)
            return self._over("vector", tile, f"a tile of {self.space.name(node)}", node)
        if isinstance(n.attr, Generic) and n.attr.tile and len(n.attr.tile) == 3:
            over = self._tile_limit(node, n.attr.tile, types)
            return over or self.scratch([Inside(node, (), NOT_READ)])
        return self.scratch([Inside(node, (), NOT_READ)]) if self.is_root(node) else None

    def _tile_limit(
        self, node: int, tile: tuple[int, ...], types: list[TensorType]
    ) -> Removed | None:
        m, n, k = tile
        made = self.space.type(self.space.outputs[node][0])
        result = _tile_bytes((m, n), made.dtype)
        both = [(m, k), (k, n)]
        sides = [_tile_bytes(e, t.dtype) for e, t in zip(both, types, strict=False)]
        what = f"a {m}x{n}x{k} tile of {self.space.name(node)}"
        over = self._over("vector", result, what, node)
        if over or self.target.pipelines:  # a workgroup keeps other tiles: `crowded`
            return over
        return self._over("scratch", result + sum(sides), what, node)

    # ---- scratch of a whole dispatch ---------------------------------------------------------
    @property
    def all_crowded(self) -> tuple[Removed, ...]:
        """What `crowds` has refused on any device."""
        parts = (self, *self._parts.values())
        return tuple(r for p in parts for r in p.crowded.values())

    @cached_property
    def crowded(self) -> dict[str, Removed]:
        """What `crowds` has refused so far, by name."""
        return {}

    @cached_property
    def _crowding(self) -> dict[str, tuple[tuple[Inside, ...], Way]]:
        """What `crowded` is about, by name."""
        return {}

    def crowded_at(self, image: Sequence[int]) -> Iterator[Removed]:
        """What `crowds` has refused so far, of the images of its nodes (-1: there is none)."""
        for part in (self, *self._parts.values()):
            for roots, way in part._crowding.values():
                moved = [
                    Inside(image[r.root], tuple([image[u] for u in r.users]), r.reading)
                    for r in roots
                ]
                if all(n >= 0 for r in moved for n in (r.root, *r.users)):
                    removed = part._too_large(moved, way)
                    if removed is not None:
                        yield removed

    def inside(self, root: int, readers: Readers) -> Inside:
        """A root among those who read it inside, directly or behind elementwise ops."""
        links = list(self.uses.links(readers, root))
        if not links:
            return Inside(root, (), NOT_READ)
        users = tuple(u.node for maker, u in links if maker == root)
        is_along = all(self.uses.is_along(maker, use) for maker, use in links)
        return Inside(root, users, ALONG if is_along else APART)

    def ways(self, roots: Iterable[Inside]) -> tuple[Way, ...]:
        """The pipelines that take a dispatch of these roots."""
        if not self.target.pipelines:
            return (Way(None, 0),)
        attrs = ((self.space.egraph.nodes[r.root].attr, r.reading) for r in roots)
        asked = tuple((a, reading) for a, reading in attrs if isinstance(a, Generic))
        return ways(self.target.pipelines, asked)

    def fits(self, way: Way) -> bool:
        """Whether what a pipeline keeps in scratch keeps the limit."""
        limit = self.target.limits.scratch_bytes
        return limit is None or way.scratch_bytes <= limit

    def scratch(self, roots: Iterable[Inside], pipeline: str = "") -> Removed | None:
        """The scratch limit a dispatch breaks in every pipeline that takes it, or in this one."""
        asked = tuple(roots)
        found = [w for w in self.ways(asked) if w.name == (pipeline or w.name)]
        if not found or any(map(self.fits, found)):
            return None
        return self._too_large(asked, min(found, key=lambda w: w.scratch_bytes))

    def _too_large(self, roots: Iterable[Inside], way: Way) -> Removed | None:
        numbers = dict.fromkeys(i for r in roots for i in (r.root, *r.users))
        what = "a dispatch of " + " and ".join(dict.fromkeys(map(self.space.name, numbers)))
        if way.name:
            what += f" by {way.name}" + (f" ({way.whole})" if way.whole else "")
        return self._over("scratch", way.scratch_bytes, what, next(iter(numbers)))

    def readers(self, members: Iterable[int]) -> dict[int, list[tuple[int, int]]]:
        """Per buffer that members of a dispatch read, also through relaxed views: by which."""
        space, ops = self.space, tuple(members)
        relaxed = {
            space.buffer[space.egraph.nodes[v].eclass]: space.operands[v][0]
            for v in ops
            if space.egraph.nodes[v].op == "relax"
        }
        found: dict[int, list[tuple[int, int]]] = {}
        for q in (m for m in ops if space.is_op[m]):
            for i, b in enumerate(space.operands[q]):
                seen = b
                found.setdefault(seen, []).append((q, i))
                while relaxed.get(seen, seen) != seen:
                    seen = relaxed[seen]
                    found.setdefault(seen, []).append((q, i))
        return found

    def roots_inside(self, members: Iterable[int]) -> list[Inside]:
        """The roots of a dispatch, each among those who read it inside."""
        ops = tuple(members)
        readers = self.readers(ops)
        return [self.inside(m, readers) for m in ops if self.is_root(m)]

    def crowds(self, roots: Iterable[Inside]) -> bool:
        """Whether no pipeline takes a dispatch in the scratch there is.

        Every pipeline that would need more is kept in `crowded`.
        """
        if not self.target.pipelines:
            return False
        asked = tuple(roots)
        found = self.ways(asked)
        for w in found:
            if not self.fits(w) and (removed := self._too_large(asked, w)):
                self.crowded.setdefault(removed.what, removed)
                self._crowding.setdefault(removed.what, (asked, w))
        return not any(map(self.fits, found))

    def _over(self, limit_name: str, nbytes: int, what: str, node: int) -> Removed | None:
        limits = self.target.limits
        limit = limits.vector_bytes if limit_name == "vector" else limits.scratch_bytes
        if limit is None or nbytes <= limit:
            return None
        place = self.target.place(f"limits.{limit_name}")
        made = sum(self.space.nbytes(c) for c in self.space.outputs[node])
        return Removed(what, nbytes, limit, limit_name, place, made)

    def access(self, consumer: int, operand: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(loop extents of the reader, the order in which it walks the operand's dims).

        A pack walks its source in the source's order, whatever the order of its result.
        """
        n = self.space.egraph.nodes[consumer]
        shape = self.space.type(n.children[operand]).shape
        match n.attr:
            case Generic():
                order = tuple(-1 if a.dim is None else a.dim for a in n.attr.maps[operand])
                return n.attr.sizes, order
            case Transpose():
                order = tuple(n.attr.perm.index(d) for d in range(len(shape)))
                return n.attr.result_shape, order
        return shape, tuple(range(len(shape)))

    def unfused(
        self, first: tuple[int, int], second: tuple[int, int]
    ) -> tuple[int, Removed | None] | None:
        """The reader of a shared operand that cannot be tiled with the other one, if any.

        Readers are (node, operand) without def-use between them. The one that walks the operand
        out of order becomes one vector of its whole result, where none does or both do the one with
        the smaller result; the Removed says whether that breaks the vector limit.
        """
        one, two = self.access(*first), self.access(*second)
        if one == two:
            return None
        in_order = tuple(range(len(one[1])))
        size = {n: sum(map(self.space.nbytes, self.space.outputs[n])) for n, _ in (first, second)}
        loser = min((first[0], second[0]), key=lambda n: (size[n], n))
        if (one[1] == in_order) != (two[1] == in_order):
            loser = second[0] if one[1] == in_order else first[0]
        nbytes = size[loser]
        return loser, self._over("vector", nbytes, self.space.name(loser), loser)
