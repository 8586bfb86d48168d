"""Both sides of a rule at one instance: as trees, their types, values, and open lanes.

A lane is open if what it holds depends on garbage ("?" padding, or undefined lanes of a leaf). The
same tree is evaluated in three ways: values under one kind of garbage, open lanes (every op moves
or joins bools), and origins (which lane of which leaf a lane was moved from).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from eqsat.model.attr import Attr
from eqsat.model.expr import Expr, arg, call, const
from eqsat.model.generic import Generic, Yield
from eqsat.model.layout import Layout
from eqsat.model.leaves import Custom, Leaf
from eqsat.model.movement import Move
from eqsat.model.program import infer
from eqsat.model.rules import Apply, Rule, Splat, Term, Var
from eqsat.model.tensor import TensorType
from eqsat.ops.builtin import layouts
from eqsat.ops.meaning import programs as meaning
from eqsat.ops.registry import dependent_lanes
from eqsat.saturate.rows import splat_name

Array = np.ndarray[Any, Any]
Key = tuple[str, int]  # a tensor variable, and which operand of a splat it is
Leaves = Mapping[Key | Attr, Array]


@dataclass(frozen=True, eq=False)
class Ref:
    """A tensor variable."""

    key: Key


@dataclass(frozen=True, eq=False)
class Application:
    """An op with its attribute."""

    op: str
    attr: Attr
    operands: tuple[Application | Ref, ...]

    def walk(self) -> Iterator[Application]:
        yield self
        for o in self.operands:
            if isinstance(o, Application):
                yield from o.walk()


Side = Application | Ref


# ---- terms and attributes → trees ---------------------------------------------------------------
@dataclass(frozen=True)
class Lefts:
    """The left side, the patterns beside it, and the ops that have a name."""

    root: Application
    also: tuple[Application, ...]
    named: Mapping[str, Application]


def left_trees(rule: Rule, arity: Mapping[str, int], attrs: Sequence[Attr]) -> Lefts:
    """The patterns of a rule with their attributes, which come in pre-order."""
    named: dict[str, Application] = {}
    rest = iter(attrs)

    def build(term: Term) -> list[Side]:
        if isinstance(term, Var):
            return [named.get(term.name) or Ref((term.name, 0))]
        if isinstance(term, Splat):
            name = splat_name(term)
            refs = [Ref((name, i)) for i in range(arity[name])]
            if isinstance(term.inner, Var):
                return list(refs)
            op = term.inner.op
            return [Application(op, next(rest), (r,)) for r in refs]
        attr = next(rest)
        tree = Application(term.op, attr, tuple(x for o in term.operands for x in build(o)))
        if term.name:
            named[term.name] = tree
        return [tree]

    def whole(term: Apply) -> Application:
        (tree,) = build(term)
        assert isinstance(tree, Application)
        return tree

    root, *also = [whole(t) for t in (rule.left, *rule.also)]
    return Lefts(root, tuple(also), named)


def right_tree(
    rule: Rule,
    arity: Mapping[str, int],
    row: Sequence[Attr | None],
    named: Mapping[str, Application],
) -> Side:
    """The right side with the attributes of a row, in post-order; None leaves an op out."""
    rest = iter(row)

    def node(op: str, inner: list[Side]) -> Side:
        attr = next(rest)
        return inner[0] if attr is None else Application(op, attr, tuple(inner))

    def build(term: Term) -> list[Side]:
        if isinstance(term, Var):
            return [named.get(term.name) or Ref((term.name, 0))]
        if isinstance(term, Splat):
            name = splat_name(term)
            refs: list[Side] = [Ref((name, i)) for i in range(arity[name])]
            inner = term.inner
            if isinstance(inner, Var):
                return refs
            others = [x for o in inner.operands[1:] for x in build(o)]
            return [node(inner.op, [r, *others]) for r in refs]
        return [node(term.op, [x for o in term.operands for x in build(o)])]

    (tree,) = build(rule.right)
    return tree


def side_types(side: Side, leaves: Mapping[Key, TensorType]) -> tuple[TensorType, ...]:
    """The result types; ShapeError if something does not fit."""
    if isinstance(side, Ref):
        return (leaves[side.key],)
    return infer(side.op, side.attr, [side_types(o, leaves) for o in side.operands])


# ---- three ways to evaluate ---------------------------------------------------------------------
@dataclass
class Claim:
    """An op that says what its operand holds beyond the end, and what it found there."""

    tree: Application
    operand: Array


class Evaluation(ABC):
    """Evaluation of trees, each once; `leaves` are the arrays of variables and weights.

    An op of layouts is said by `packed` and `relaxed`; `own` has the other ops that a way treats in
    a way of its own, and `other` is for all the rest.
    """

    methods: Mapping[str, str] = {}  # op -> the method that evaluates it

    def __init__(self, leaves: Leaves):
        self.leaves = leaves
        self.done: dict[int, tuple[Side, list[Array]]] = {}

    def __call__(self, side: Side) -> list[Array]:
        entry = self.done.get(id(side))
        if entry is None:
            entry = self.done[id(side)] = (side, self._evaluate(side))
        return entry[1]

    def _evaluate(self, side: Side) -> list[Array]:
        if isinstance(side, Ref):
            return [self.leaves[side.key]]
        if isinstance(side.attr, Leaf):
            return [self.leaves[side.attr]]
        inner = [self(o) for o in side.operands]
        operands = inner[0] if side.op == "result" else [x[0] for x in inner]
        if isinstance(side.attr, Layout):
            return [self._layout(side, side.attr, operands[0])]
        return getattr(self, self.methods.get(side.op, "other"))(side, operands)

    def _layout(self, tree: Application, layout: Layout, x: Array) -> Array:
        if tree.op == "relax":
            return self.relaxed(layout, x)
        plain = x if tree.op == "pack" else layouts.unpack(layout, x)
        return plain if tree.op == "unpack" else self.packed(layout, plain)

    @abstractmethod
    def packed(self, layout: Layout, x: Array) -> Array:
        """A plain array laid out."""

    @abstractmethod
    def relaxed(self, layout: Layout, x: Array) -> Array:
        """A packed array of whose padding nothing is said any more."""

    def other(self, tree: Application, operands: list[Array]) -> list[Array]:
        """The results of one op on the results of its operands: those of the op itself."""
        return meaning.evaluate_node(tree.op, tree.attr, operands)


class Values(Evaluation):
    """Values by the meaning of every op; `garbage` gives those of open lanes by element type."""

    def __init__(self, leaves: Leaves, garbage: Garbage):
        super().__init__(leaves)
        self.garbage = garbage
        self.claims: list[Claim] = []

    def _layout(self, tree: Application, layout: Layout, x: Array) -> Array:
        if tree.op in ("unpack", "relax") and _has_constant(layout):
            self.claims.append(Claim(tree, x))
        return super()._layout(tree, layout, x)

    def packed(self, layout: Layout, x: Array) -> Array:
        return layouts.pack(layout, x, self.garbage.one(x.dtype))

    def relaxed(self, layout: Layout, x: Array) -> Array:
        lanes = open_lanes(layout)
        return x if lanes is None else np.where(lanes, self.garbage.many(x), x)


class OpenLanes(Evaluation):
    """Which lanes depend on garbage; `values` are those of the same trees."""

    methods: Mapping[str, str] = {
        "generic": "_generic", "fill": "_fill", "pad": "_pad", "gather": "_gather",
    }  # fmt: skip

    def __init__(self, leaves: Leaves, values: Values):
        super().__init__(leaves)
        self.values = values

    def packed(self, layout: Layout, x: Array) -> Array:
        return layouts.pack(_marked(layout, lambda p: p == "?"), x)

    def relaxed(self, layout: Layout, x: Array) -> Array:
        lanes = open_lanes(layout)
        return x if lanes is None else x | lanes

    def other(self, tree: Application, operands: list[Array]) -> list[Array]:
        if not isinstance(tree.attr, Custom):
            return super().other(tree, operands)
        return [dependent_lanes(tree.attr, self._read(tree), operands)]

    def _read(self, tree: Application) -> list[Array]:
        return [self.values(o)[0] for o in tree.operands]

    def _generic(self, tree: Application, operands: list[Array]) -> list[Array]:
        assert isinstance(tree.attr, Generic)
        return meaning.evaluate_node("generic", _joined(tree.attr), operands)

    def _fill(self, tree: Application, operands: list[Array]) -> list[Array]:
        return [np.zeros(self.values(tree)[0].shape, bool)]

    def _pad(self, tree: Application, operands: list[Array]) -> list[Array]:
        return meaning.evaluate_node("pad", _with_pad(tree.attr, "false"), operands)

    def _gather(self, tree: Application, operands: list[Array]) -> list[Array]:
        """An index that is open makes open what it picks, unless it picks the same anywhere."""
        attr = tree.attr
        assert isinstance(attr, Move)
        (axis,) = attr.args
        data, index = operands
        held, at = self._read(tree)
        picked = np.take(data, at, axis=axis, mode="clip")
        first = held.take([0], axis)
        same = held == first
        if held.dtype.kind == "f":
            same |= np.isnan(held) & np.isnan(first)
        varies = (data | ~same).any(axis=axis)
        where = (*range(axis), *range(axis + at.ndim, picked.ndim))
        around = np.expand_dims(varies, tuple(d for d in range(picked.ndim) if d not in where))
        return [picked | (index.reshape(index.shape + (1,) * (data.ndim - axis - 1)) & around)]


class Origins(Evaluation):
    """The number of the leaf lane that a lane was moved from; 0 if it was computed."""

    methods: Mapping[str, str] = {
        "generic": "_computed", "fill": "_computed", "gather": "_computed", "pad": "_pad",
    }  # fmt: skip

    def packed(self, layout: Layout, x: Array) -> Array:
        return layouts.pack(_marked(layout, lambda _: False), x)

    def relaxed(self, layout: Layout, x: Array) -> Array:
        return x

    def other(self, tree: Application, operands: list[Array]) -> list[Array]:
        if isinstance(tree.attr, Custom):
            return self._computed(tree, operands)
        return super().other(tree, operands)

    def _computed(self, tree: Application, operands: list[Array]) -> list[Array]:
        shape = tree.attr.value_shape(tree.op)
        assert shape is not None, "only views and results do not know it"
        count = len(tree.attr.yields) if isinstance(tree.attr, Generic) else 1
        return [np.zeros(shape, np.int64)] * count

    def _pad(self, tree: Application, operands: list[Array]) -> list[Array]:
        return meaning.evaluate_node("pad", _with_pad(tree.attr, "0"), operands)


@lru_cache(maxsize=2000)
def _joined(g: Generic) -> Generic:
    """The generic that says whether any of what it reads is open."""
    yields = tuple(Yield(_any(y.body), "bool", "or" if len(g.reductions) else "") for y in g.yields)
    return replace(g, yields=yields, dtypes=("bool",) * len(g.dtypes))


def _any(body: Expr) -> Expr:
    disjunction: Expr | None = None
    for i in sorted(body.operands()):
        disjunction = arg(i) if disjunction is None else call("or", disjunction, arg(i))
    return const(False) if disjunction is None else disjunction


def _with_pad(attr: Attr, value: str) -> Move:
    assert isinstance(attr, Move)
    low, high, _ = attr.args
    return replace(attr, args=(low, high, value))


# ---- lanes beyond the end -----------------------------------------------------------------------
def _marked(layout: Layout, mark: Any) -> Layout:
    """The layout that pads with true or 1 where `mark` says so of its padding, else with 0."""
    pads = tuple(p if p == "-" else ("1" if mark(p) else "0") for p in layout.pads)
    return replace(layout, pads=pads)


def open_lanes(layout: Layout) -> Array | None:
    """The lanes of a packed tensor that may hold anything; None if there are none."""
    if "?" not in layout.pads:
        return None
    return layouts.pack(_marked(layout, lambda p: p == "?"), np.zeros(layout.source, bool))


def _has_constant(layout: Layout) -> bool:
    return any(p not in "-?" for p in layout.pads)


def constant_lanes(layout: Layout, dtype: np.dtype[Any]) -> tuple[Array, Array] | None:
    """Where a packed tensor must hold a given value, and the value; None if nowhere."""
    if not _has_constant(layout):
        return None
    inside = np.zeros(layout.source, bool)
    where = layouts.pack(_marked(layout, lambda p: p not in "-?"), inside)
    is_open = open_lanes(layout)
    if is_open is not None:  # "?" is written last
        where &= ~is_open
    filler = replace(layout, pads=tuple("0" if p == "?" else p for p in layout.pads))
    return where, layouts.pack(filler, inside.astype(dtype))


# ---- garbage ------------------------------------------------------------------------------------
class Garbage:
    """Contents of open lanes in one run: extremes in the first, random values in the second."""

    def __init__(self, rng: np.random.Generator | None):
        self.rng = rng

    def one(self, dtype: np.dtype[Any]) -> Any:
        return self.many(np.zeros(1, dtype))[0]

    def many(self, x: Array) -> Array:
        """An array of garbage of the same shape and type."""
        kind = x.dtype.kind
        if self.rng is None:
            top = np.nan if kind == "f" else True if kind == "b" else np.iinfo(x.dtype).max
            return np.full(x.shape, top, x.dtype)
        if kind == "f":
            return self.rng.integers(-9, 10, x.shape) + 0.25
        if kind == "b":
            return np.zeros(x.shape, bool)
        return self.rng.integers(0, np.iinfo(x.dtype).max, x.shape, x.dtype)
