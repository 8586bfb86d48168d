"""Limits of one dispatch on a target: tiles, scratch, and what is cloned."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from eqsat.extract.dispatch.fusedaccess import Readers
from eqsat.extract.dispatch.pipelines import ALONG, APART, NOT_READ, Way, needs_pipeline, ways
from eqsat.extract.dispatch.rules import FusionRules
from eqsat.model.attr import loop_order
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.movement import Transpose
from eqsat.model.selection import REFUSED, RESULT_RELATION, Removed
from eqsat.model.target import CHEAP
from eqsat.model.tensor import DTYPES, TensorType, cdiv
from eqsat.model.text import op_text
from eqsat.ops.generics.access import is_cheap
from eqsat.ops.targets.inorder import is_in_order
from eqsat.ops.targets.rows import has_its_rows


def _tile_bytes(extents: tuple[int, ...], dtype: str) -> int:
    return cdiv(math.prod(extents) * DTYPES[dtype][0], 8)


class Inside(NamedTuple):
    """A root inside of a dispatch, the nodes that use its result there, and how."""

    root: int
    users: tuple[int, ...]
    reading: int  # NOT_READ, ALONG or APART


@dataclass(frozen=True)
class Legality(FusionRules):
    """The target's fusion rules and limits for the nodes of one e-graph."""

    # ---- what several dispatches may each compute, and what only one of them may ------------
    @cached_property
    def _clones(self) -> frozenset[str]:
        return frozenset(self.fusion.clone)

    def is_cloneable(self, node: int) -> bool:
        """Whether several dispatches may each compute this node."""
        what = self.space.kinds[node]
        if what in ("leaf", "view"):
            return True
        if self.uses.clones[node]:
            return True
        if what not in ("elementwise", "conversion"):
            return False
        if self._clones & {"all", what}:
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
        shared = {v for v, users in space.consumers.items() if len(users) > 1}
        alone = {v: min(users) for v, users in space.consumers.items() if len(users) == 1}
        while more := {v for v, w in alone.items() if w in shared & cheap} - shared:
            shared |= more
        return frozenset(shared)

    def value_number(self, value: int) -> int:
        """The exclusive number of a value; those of nodes come before."""
        return len(self.space.egraph.nodes) + value

    def exclusive(self, members: Iterable[int]) -> frozenset[int]:
        """Exclusive numbers: what only one dispatch may compute.

        A value that may not be cloned, if the input program computes it at most once; else the
        node. A conversion that may not be cloned: the node.
        """
        exclusive_of = self._exclusive
        return frozenset().union(*[exclusive_of.get(m) or self._exclusive_of(m) for m in members])

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

    # ---- limits ----------------------------------------------------------------------------
    def is_admissible(self, node: int) -> bool:
        """`tiles_forced` leaves no unpacked contraction, and some pipeline takes every one.

        `orders_forced` leaves no op that reads or writes in another order than its kernel, and
        `row_padding` none that reads rows which are too short.
        """
        attr = self.space.egraph.nodes[node].attr
        if not isinstance(attr, Generic):
            return True
        if self.target.orders_forced and not is_in_order(self.target, attr):
            return False
        if not has_its_rows(self.target, attr):
            return False
        if not needs_pipeline(attr):
            return True
        alone = Inside(node, (), NOT_READ)
        return not self.target.tiles_forced and bool(self.ways([alone]))

    def limit_of(self, node: int) -> Removed | None:
        """The limit a node breaks by its own tile, whatever dispatch it is in."""
        n = self.space.egraph.nodes[node]
        if loop_order(n.attr) and not self.writes_permuted:
            place = self.target.place(RESULT_RELATION)
            what = f"interchanged {self.space.name(node)}"
            return Removed(what, 1, 0, RESULT_RELATION, place)
        types = [self.space.type(c) for c in n.children]
        if isinstance(n.attr, Layout) and not n.attr.is_in_place(n.op):
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
        result_type = self.space.type(self.space.outputs[node][0])
        result = _tile_bytes((m, n), result_type.dtype)
        both = [(m, k), (k, n)]
        sides = [_tile_bytes(e, t.dtype) for e, t in zip(both, types, strict=False)]
        what = f"a {m}x{n}x{k} tile of {self.space.name(node)}"
        over = self._over("vector", result, what, node)
        if over or self.target.pipelines:  # a workgroup keeps other tiles: `crowded`
            return over
        return self._over("scratch", result + sum(sides), what, node)

    # ---- what a compiler refused
    @cached_property
    def _refusals(self) -> dict[tuple[str, ...], str]:
        return {r.ops: r.says for r in self.target.refused}

    @cached_property
    def _op_texts(self) -> dict[int, str]:
        return {}

    def _op_text(self, node: int) -> str:
        if node not in self._op_texts:
            n = self.space.egraph.nodes[node]
            operands = [self.space.type(c) for c in n.children]
            self._op_texts[node] = op_text(n.op, n.attr, operands)
        return self._op_texts[node]

    def refusal(self, members: Iterable[int]) -> Removed | None:
        """The row of `refused` that a dispatch of these members is."""
        if not self._refusals:
            return None
        ops = [m for m in members if self.space.is_op[m]]
        says = self._refusals.get(tuple(sorted(map(self._op_text, ops))))
        if says is None:
            return None
        what = "a dispatch of " + " and ".join(map(self.space.name, ops))
        return Removed(f"{what}: {says}", 0, 0, REFUSED, self.target.place(REFUSED))

    # ---- scratch of a whole dispatch ---------------------------------------------------------
    @property
    def all_crowded(self) -> tuple[Removed, ...]:
        """Refusals of `crowds` on any device."""
        parts = (self, *self._parts.values())
        return tuple(r for p in parts for r in p.crowded.values())

    @cached_property
    def crowded(self) -> dict[str, Removed]:
        """Refusals of `crowds` so far, by name."""
        return {}

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
        return ways(self.target.pipelines, asked, self.target.padding)

    def fits(self, way: Way) -> bool:
        """Whether what a pipeline keeps in scratch keeps the limit."""
        limit = self.target.limits.scratch_bytes
        return limit is None or way.scratch_bytes <= limit

    def scratch(self, roots: Iterable[Inside], pipeline: str = "") -> Removed | None:
        """The scratch limit a dispatch breaks in every pipeline that takes it, or in this one."""
        asked = tuple(roots)
        ways = [w for w in self.ways(asked) if w.name == (pipeline or w.name)]
        if not ways or any(map(self.fits, ways)):
            return None
        return self._too_large(asked, min(ways, key=lambda w: w.scratch_bytes))

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
        readers: dict[int, list[tuple[int, int]]] = {}
        for q in (m for m in ops if space.is_op[m]):
            for i, b in enumerate(space.operands[q]):
                seen = b
                readers.setdefault(seen, []).append((q, i))
                while relaxed.get(seen, seen) != seen:
                    seen = relaxed[seen]
                    readers.setdefault(seen, []).append((q, i))
        return readers

    def roots_inside(self, members: Iterable[int]) -> Iterator[Inside]:
        """The roots of a dispatch, each among those who read it inside; only pipelines ask."""
        ops = tuple(members)
        readers = self.readers(ops)
        yield from (self.inside(m, readers) for m in ops if self.is_root(m))

    def crowds(self, roots: Iterable[Inside]) -> bool:
        """Whether no pipeline takes a dispatch in the scratch there is.

        Every pipeline that would need more is kept in `crowded`.
        """
        if not self.target.pipelines:
            return False
        asked = tuple(roots)
        ways = self.ways(asked)
        for w in ways:
            if not self.fits(w) and (removed := self._too_large(asked, w)):
                self.crowded.setdefault(removed.what, removed)
        return not any(map(self.fits, ways))

    def _over(self, limit_name: str, nbytes: int, what: str, node: int) -> Removed | None:
        limits = self.target.limits
        limit = limits.vector_bytes if limit_name == "vector" else limits.scratch_bytes
        if limit is None or nbytes <= limit:
            return None
        place = self.target.place(f"limits.{limit_name}")
        written_bytes = sum(self.space.nbytes(c) for c in self.space.outputs[node])
        return Removed(what, nbytes, limit, limit_name, place, written_bytes)

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
        strays = [order != tuple(sorted(order)) for _, order in (one, two)]
        size = {n: sum(map(self.space.nbytes, self.space.outputs[n])) for n, _ in (first, second)}
        loser = min((first[0], second[0]), key=lambda n: (size[n], n))
        if strays[0] != strays[1]:
            loser = first[0] if strays[0] else second[0]
        nbytes = size[loser]
        return loser, self._over("vector", nbytes, self.space.name(loser), loser)
