"""What one dispatch may hold on a target: tile limits, which op joins which, what is cloned."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from eqsat.extract.space import Space
from eqsat.model.attrs import Affine, Custom, Generic, Layout, Map, Transpose
from eqsat.model.egraph import ENode
from eqsat.model.selection import Removed
from eqsat.model.target import Fusion, Target
from eqsat.model.tensor import DTYPES, TensorType, cdiv


def _tile_bytes(extents: tuple[int, ...], dtype: str) -> int:
    return cdiv(math.prod(extents) * DTYPES[dtype][0], 8)


def _one(a: Affine, size: int) -> bool:
    return not a.terms and a.constant == 0 and size == 1


def is_projected_permutation(indices: Map, shape: tuple[int, ...]) -> bool:
    """Bare distinct loops; a dim of size 1 may be read at 0 (MLIR, `allowZeroInResults`)."""
    bare = [a.dim for a, s in zip(indices, shape, strict=True) if not _one(a, s)]
    return None not in bare and len(set(bare)) == len(bare)


def is_identity(attr: Generic, operand: int) -> bool:
    """Whether loops 0 … n-1 index this operand in order, and no other loop exists."""
    loops = [a.dim for a in attr.maps[operand]]
    return loops == list(range(len(attr.sizes)))


@lru_cache(maxsize=200_000)
def iterations(node: ENode) -> int:
    """How often the body of a generic or of a plug-in's op runs; 0 for every other op."""
    match node.attr:
        case Generic():
            return math.prod(node.attr.sizes)
        case Custom():
            return math.prod(node.attr.shape)
    return 0


@dataclass(frozen=True)
class Legality:
    """The target's fusion rules and limits, asked about nodes of one e-graph."""

    space: Space
    target: Target

    @property
    def fusion(self) -> Fusion:
        return self.target.fusion

    @cached_property
    def _pairs(self) -> dict[tuple[int, int, int], bool]:
        return {}

    def is_root(self, node: int) -> bool:
        return self.space.kinds[node] in ("contraction", "reduction")

    def is_admissible(self, node: int) -> bool:
        """`tiles: forced` leaves no unpacked contraction."""
        attr = self.space.egraph.nodes[node].attr
        forced = self.target.tiles_forced and self.space.kinds[node] == "contraction"
        return not (forced and isinstance(attr, Generic) and not attr.tile)

    def may_join(self, producer: int, consumer: int, operand: int) -> bool:
        """Whether `producer` may be computed inside `consumer`, as its operand."""
        key = (producer, consumer, operand)
        if key not in self._pairs:
            self._pairs[key] = self._may_join(producer, consumer, operand)
        return self._pairs[key]

    def _may_join(self, producer: int, consumer: int, operand: int) -> bool:
        kinds = self.space.kinds
        if not self.fusion.joins(kinds[producer], kinds[consumer]):
            return False
        if len(self.space.outputs[producer]) != 1 or self.space.views_of(producer):
            return False  # an op with several results is a dispatch's last member
        relation = self.fusion.index_relation
        node = self.space.egraph.nodes[consumer]
        if relation == "identity":
            return self._is_aligned(producer, node, operand)
        if relation == "permutation" and isinstance(node.attr, Generic):
            return is_projected_permutation(node.attr.maps[operand], node.attr.shapes[operand])
        return True

    def _is_aligned(self, producer: int, consumer: ENode, operand: int) -> bool:
        made = self.space.egraph.nodes[producer]
        return (
            isinstance(made.attr, Generic)
            and isinstance(consumer.attr, Generic)
            and made.eclass == consumer.children[operand]
            and is_identity(consumer.attr, operand)
        )

    def repeats(self, consumer: int, operand: int) -> bool:
        """Whether a consumer runs more often than its operand has elements (a broadcast)."""
        node = self.space.egraph.nodes[consumer]
        return iterations(node) > self.space.type(node.children[operand]).size

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
        if self._clones & {"all", what}:
            return True
        attr = self.space.egraph.nodes[node].attr
        if not isinstance(attr, Generic) or any(y.body.count() for y in attr.yields):
            return False
        is_cast = any(e.fn == "cast" for y in attr.yields for e in y.body.walk())
        return ("cast" if is_cast else "broadcast") in self._clones

    def value_number(self, value: int) -> int:
        """The exclusive number of a value; those of nodes come before."""
        return len(self.space.egraph.nodes) + value

    def exclusive(self, members: Iterable[int]) -> frozenset[int]:
        """What only one dispatch may compute, as numbers.

        A value that may not be cloned, if the input program computes it at most once; else the
        node. A conversion that may not be cloned: the node.
        """
        found: set[int] = set()
        for m in members:
            if self.is_cloneable(m):
                continue
            values = [self.space.value[c] for c in self.space.outputs[m]]
            is_node = self.space.kinds[m] == "conversion" or any(
                len(self.space.positions.get(v, ())) != 1 or self.space.is_source(v) for v in values
            )
            found |= {m} if is_node else {self.value_number(v) for v in values}
        return frozenset(found)

    def limit_of(self, node: int) -> Removed | None:
        """The limit a node breaks by its own tile, whatever dispatch it is in."""
        n = self.space.egraph.nodes[node]
        types = [self.space.type(c) for c in n.children]
        if isinstance(n.attr, Layout) and n.op in ("pack", "unpack"):
            tile = _tile_bytes(n.attr.tiles, types[0].dtype)
            return self._over("vector", tile, f"a tile of {self.space.name(node)}", node)
        if isinstance(n.attr, Generic) and n.attr.tile and len(n.attr.tile) == 3:
            return self._tile_limit(node, n.attr.tile, types)
        return None

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
        return over or self._over("scratch", result + sum(sides), what, node)

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
        out of order becomes one vector of its whole result; the Removed says whether that breaks
        the vector limit.
        """
        one, two = self.access(*first), self.access(*second)
        if one == two:
            return None
        in_order = tuple(range(len(one[1])))
        loser = first[0] if one[1] != in_order and two[1] == in_order else second[0]
        nbytes = sum(self.space.nbytes(c) for c in self.space.outputs[loser])
        return loser, self._over("vector", nbytes, self.space.name(loser), loser)
