"""An instance of a left side → others of the same structure: new extents, operands transposed.

Where a left side rarely fits together by chance (two matmuls of one operand and three weights), an
instance that was found, or an example of the author's, is varied instead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from eqsat.hunt.instances import Instance, random_tiles, target_functions
from eqsat.hunt.sides import Application, Ref, Side, left_trees
from eqsat.model.attr import Attr, Shape, ShapeError
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.leaves import Custom, Fill, Leaf
from eqsat.model.movement import Move, Reshape, Transpose, move_of
from eqsat.model.ops import LEAVES
from eqsat.model.program import infer
from eqsat.model.tensor import TensorType
from eqsat.ops.generics.canonical import canonical_generic
from eqsat.ops.registry import op_record

EXTENTS = (1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8)
MOST_POINTS = 4000  # of an iteration domain
Slot = tuple[Any, int]  # a value or a generic's loops, and which dim of it
Types = tuple[TensorType, ...]


def vary(instance: Instance, rng: Random) -> Instance | None:
    """Another instance of the same structure; None if this attempt did not fit together."""
    try:
        return _Varied(instance, rng).instance()
    except (ShapeError, ValueError, IndexError):
        return None


def _key(side: Side) -> Any:
    if isinstance(side, Ref):
        return side.key
    return side.attr if isinstance(side.attr, Leaf) else id(side)


class _Varied:
    def __init__(self, instance: Instance, rng: Random):
        self.old, self.rng = instance, rng
        lefts = left_trees(instance.rule, dict(instance.arity), instance.attrs)
        self.sides = (lefts.root, *lefts.also)
        self.types: dict[Any, Types] = {
            (n, i): (t,) for n, ts in instance.tensors for i, t in enumerate(ts)
        }
        self.parent: dict[Slot, Slot] = {}
        self.fixed: set[Slot] = set()
        self.orders: dict[Any, tuple[int, ...]] = {}

    def instance(self) -> Instance:
        trees = list(_trees(self.sides))
        for t in _operands_first(trees):
            self._infer(t)
        for t in trees:
            self._relate(t)
        self.extents = self._new_extents()
        self.orders = self._new_orders(trees)
        self.types_of: dict[Any, Types] = {}
        attrs = {id(t): self._remade(t) for t in _operands_first(trees)}
        tensors = tuple(
            (n, tuple(self._leaf((n, i), t) for i, t in enumerate(ts)))
            for n, ts in self.old.tensors
        )
        functions = target_functions(self.rng, random_tiles(self.rng))
        new_attrs = tuple(attrs[id(t)] for t in trees)
        return replace(self.old, attrs=new_attrs, tensors=tensors, functions=functions)

    def _infer(self, t: Application) -> None:
        if _key(t) not in self.types:
            operands = [self.types[_key(o)] for o in t.operands]
            self.types[_key(t)] = infer(t.op, t.attr, operands)

    def _shape(self, side: Side) -> Shape:
        return self.types[_key(side)][0].shape

    # ---- which dims are one dim -----------------------------------------------------------------
    def _find(self, slot: Slot) -> Slot:
        while self.parent.get(slot, slot) != slot:
            slot = self.parent[slot]
        return slot

    def _join(self, a: Slot, b: Slot) -> None:
        self.parent[self._find(a)] = self._find(b)

    def _fix(self, key: Any, dims: Iterable[int]) -> None:
        self.fixed.update((key, d) for d in dims)

    def _relate(self, t: Application) -> None:
        getattr(self, RELATED.get(t.op, "_relate_asked"))(t)

    def _relate_leaf(self, t: Application) -> None:
        """Relate no dims: those of a leaf are its own."""

    def _relate_fixed(self, t: Application) -> None:
        for side in (t, *t.operands):
            self._fix(_key(side), range(len(self._shape(side))))

    def _relate_asked(self, t: Application) -> None:
        """An op that only its record knows: which dim of the result grows with one of an operand.

        All others stay as they are.
        """
        if not isinstance(t.attr, Custom):
            self._relate_fixed(t)
            return
        joined = set[int]()
        for i, o in enumerate(t.operands):
            for d in range(len(t.attr.sources[i])):
                with_it = _grown_with(t.attr, i, d)
                if with_it is None:
                    self._fix(_key(o), [d])
                else:
                    self._join((_key(t), with_it), (_key(o), d))
                    joined.add(with_it)
        self._fix(_key(t), set(range(len(t.attr.shape))) - joined)

    def _relate_transpose(self, t: Application) -> None:
        assert isinstance(t.attr, Transpose)
        for i, p in enumerate(t.attr.perm):
            self._join((_key(t), i), (_key(t.operands[0]), p))

    def _relate_result(self, t: Application) -> None:
        for d in range(len(self._shape(t))):
            self._join((_key(t), d), (_key(t.operands[0]), d))

    def _relate_concat(self, t: Application) -> None:
        move = t.attr
        assert isinstance(move, Move)
        (axis,) = move.args
        self._fix(_key(t), [axis])  # the sum of the operands' extents
        for o in t.operands:
            self._fix(_key(o), [axis])
            for d in set(range(len(move.shape))) - {axis}:
                self._join((_key(t), d), (_key(o), d))

    def _relate_generic(self, t: Application) -> None:
        g, loops = t.attr, ("loops", id(t))
        assert isinstance(g, Generic)
        for i in range(g.rank):
            self._join((_key(t), i), (loops, i))
        for o, m, shape in zip(t.operands, g.maps, g.shapes, strict=True):
            for q, e in enumerate(m):
                if e.dim is not None and shape[q] == g.sizes[e.dim]:
                    self._join((_key(o), q), (loops, e.dim))
                else:
                    self._fix(_key(o), [q])
                    self._fix(loops, [d for d, _ in e.terms])
        if g.tile:
            self._fix(loops, range(len(g.sizes)))

    def _relate_window(self, t: Application) -> None:
        move = t.attr
        assert isinstance(move, Move)
        first, second, step = move.args
        inner = _key(t.operands[0])
        for d, size in enumerate(move.sources[0]):
            whole = (0, size, 1) if move.op == "slice" else (0, 0, step)
            window = (first[d], second[d], step[d] if move.op == "slice" else step)
            if window == whole:
                self._join((_key(t), d), (inner, d))
            else:
                self._fix(_key(t), [d])
                self._fix(inner, [d])

    def _relate_layout(self, t: Application) -> None:
        layout = t.attr
        assert isinstance(layout, Layout)
        packed, plain = (t, t.operands[0]) if t.op == "pack" else (t.operands[0], t)
        self._fix(_key(packed), range(len(layout.outer), len(layout.packed_shape)))
        for at, d in enumerate(layout.outer):
            if d in layout.pos:
                self._fix(_key(packed), [at])
                self._fix(_key(plain), [d])
            else:
                self._join((_key(packed), at), (_key(plain), d))

    # ---- new extents and orders -----------------------------------------------------------------
    def _new_extents(self) -> dict[Slot, int]:
        fixed = {self._find(s) for s in self.fixed}
        new: dict[Slot, int] = {}
        largest = self.rng.choice((2, 4, 8))
        small = [x for x in EXTENTS if x <= largest]
        for slot in [(k, d) for k, ts in self.types.items() for d in range(ts[0].rank)]:
            root = self._find(slot)
            if root in fixed:
                new[root] = self.types[slot[0]][0].shape[slot[1]]
            elif root not in new:
                new[root] = self.rng.choice(small)
        return new

    def _extent(self, key: Any, d: int, old: int) -> int:
        return self.extents.get(self._find((key, d)), old)

    def _new_orders(self, trees: Sequence[Application]) -> dict[Any, tuple[int, ...]]:
        """Leaves that only generics read may be stored in another order of dims."""
        readers: dict[Any, set[str]] = defaultdict(set)
        for t in trees:
            for o in t.operands:
                readers[_key(o)].add(t.op)
        orders = {}
        for key, ts in self.types.items():
            is_leaf = isinstance(key, Leaf) or (isinstance(key, tuple) and key[0] != "loops")
            if is_leaf and readers[key] == {"generic"} and self.rng.random() < 0.4:
                orders[key] = tuple(self.rng.sample(range(ts[0].rank), ts[0].rank))
        return orders

    def _leaf(self, key: Any, old: TensorType) -> TensorType:
        shape = [self._extent(key, d, s) for d, s in enumerate(old.shape)]
        order = self.orders.get(key, range(len(shape)))
        return old.with_shape(tuple(shape[d] for d in order))

    # ---- new attributes -------------------------------------------------------------------------
    def _remade(self, t: Application) -> Attr:
        """The attribute for the new shapes; its operands are made already."""
        operands = [self._side_types(o) for o in t.operands]
        attr = self._attr(t, [o[0].shape for o in operands])
        self.types_of[id(t)] = infer(t.op, attr, operands)
        return attr

    def _side_types(self, side: Side) -> Types:
        if isinstance(side, Ref):
            return (self._leaf(side.key, self.types[side.key][0]),)
        return self.types_of[id(side)]

    def _attr(self, t: Application, shapes: list[Shape]) -> Attr:
        attr = t.attr
        match attr:
            case Generic():
                return self._generic(t, attr, shapes)
            case Transpose() | Reshape():
                return replace(attr, source=shapes[0])
            case Layout():
                return replace(attr, source=self._source(t, attr))
            case Move():
                return self._move(attr, tuple(shapes))
            case Leaf() | Fill():
                return replace(attr, type=self._leaf(_key(t), attr.type))
            case Custom():
                return op_record(attr.op).attribute(shapes, dict(attr.values))
        return attr

    def _source(self, t: Application, layout: Layout) -> Shape:
        plain = t.operands[0] if t.op == "pack" else t
        return tuple(self._extent(_key(plain), d, s) for d, s in enumerate(layout.source))

    def _move(self, move: Move, shapes: tuple[Shape, ...]) -> Move:
        args = move.args
        if move.op == "slice":
            start, limit, step = args
            whole = [
                n if (a, b, k) == (0, s, 1) else b
                for n, s, a, b, k in zip(
                    shapes[0], move.sources[0], start, limit, step, strict=True
                )
            ]
            args = (start, tuple(whole), step)
        return move_of(move.op, shapes, *args)

    def _generic(self, t: Application, g: Generic, shapes: list[Shape]) -> Generic:
        loops = ("loops", id(t))
        sizes = [self._extent(loops, d, s) for d, s in enumerate(g.sizes)]
        points = 1
        for s in sizes:
            points *= s
        if points > MOST_POINTS:
            raise ShapeError("too many points")
        maps = []
        for o, m in zip(t.operands, g.maps, strict=True):
            order = self.orders.get(_key(o), range(len(m)))
            maps.append(tuple(m[d] for d in order))
        return canonical_generic(
            sizes, range(g.rank), maps, shapes, g.yields, g.tile, g.dtypes, precision=g.precision
        )


# op -> the method of `_Varied` that says which of its dims are one dim; records are asked else
RELATED = {
    "generic": "_relate_generic",
    "transpose": "_relate_transpose",
    "pad": "_relate_window",
    "slice": "_relate_window",
    "concat": "_relate_concat",
    "pack": "_relate_layout",
    "unpack": "_relate_layout",
    "result": "_relate_result",
    **dict.fromkeys(LEAVES, "_relate_leaf"),
}


def _grown_with(attr: Custom, operand: int, d: int) -> int | None:
    """The dim of the result that is one larger if this one of an operand is, if there is one."""
    sources = [list(s) for s in attr.sources]
    sources[operand][d] += 1
    try:
        larger = op_record(attr.op).attribute([tuple(s) for s in sources], dict(attr.values))
    except ShapeError:
        return None
    new = larger.value_shape(attr.op)
    if new is None or len(new) != len(attr.shape):
        return None
    more = [b - a for a, b in zip(attr.shape, new, strict=True)]
    return more.index(1) if sum(map(abs, more)) == 1 and 1 in more else None


def _trees(sides: Iterable[Application]) -> Iterator[Application]:
    """All ops in pre-order, each once: a pattern may refer to a named op of another."""
    seen: set[int] = set()
    for side in sides:
        for t in side.walk():
            if id(t) not in seen:
                seen.add(id(t))
                yield t


def _operands_first(trees: Sequence[Application]) -> Iterator[Application]:
    """The ops from the last to the first, each once and behind its operands."""
    seen: set[int] = set()

    def walk(t: Application) -> Iterator[Application]:
        if id(t) in seen:
            return
        seen.add(id(t))
        for o in t.operands:
            if isinstance(o, Application):
                yield from walk(o)
        yield t

    for t in reversed(trees):
        yield from walk(t)
