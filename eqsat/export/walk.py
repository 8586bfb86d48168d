"""Walk of a plan that all languages share, and bodies with a type on every expression."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from eqsat.export.plan import Group, Inexpressible, Missing, Plan
from eqsat.model import generic
from eqsat.model.expr import BottomUp, Expr
from eqsat.model.generic import Result, Yield
from eqsat.model.leaves import Opaque
from eqsat.model.program import Node
from eqsat.ops.meaning import scalar
from eqsat.ops.registry import builtin_ops

V = TypeVar("V")  # a value of the language, e.g. its name


@dataclass(frozen=True, eq=False)
class Typed:
    """`fn` as in `Expr`; dtype is that of its value. Equal subtrees of a body are one object."""

    fn: str
    args: tuple[Typed, ...]
    dtype: str
    value: Any = None  # operand number of "arg", Python scalar of "const"


def typed_yields(g: generic.Generic) -> list[Typed]:
    """The body of every result, cast to the result's element type."""
    annotator = Annotator(g.dtypes)
    return [annotator.result(y) for y in g.yields]


Key = tuple[Expr, str]  # a part of a body, and its element type if only constants decide it


class Annotator:
    """Annotates the bodies of one generic; constants take the type of what stands beside them."""

    def __init__(self, dtypes: Sequence[str]):  # of the operands
        self.dtypes = dtypes
        self._type = scalar.typing(dtypes)
        self._annotated: BottomUp[Key, Typed] = BottomUp(self._annotate, self._parts)

    def result(self, y: Yield) -> Typed:
        """The body of a result in its element type."""
        return convert(self.annotate(y.body, y.dtype), y.dtype)

    def annotate(self, e: Expr, wanted: str) -> Typed:
        """`wanted`: the element type if only constants decide it."""
        return self._annotated((e, wanted))

    def _parts(self, key: Key) -> list[Key]:
        e, wanted = key
        if not e.operands():
            return []  # a constant, however it is computed
        if e.fn == "cast":
            return [(e.args[0], e.value)]
        peer = self._peer(e, wanted)
        return [(a, "bool" if _is_condition(e, i) else peer) for i, a in enumerate(e.args)]

    def _annotate(self, key: Key, args: Sequence[Typed]) -> Typed:
        e, wanted = key
        if e.fn == "arg":
            return Typed("arg", (), str(self.dtypes[e.value]), e.value)
        if not args:
            return constant(scalar.evaluate_body(e, []), self._type(e) or wanted)
        if e.fn == "cast":
            return convert(args[0], e.value)
        typed = [convert(a, "bool") if _is_condition(e, i) else a for i, a in enumerate(args)]
        is_bool = scalar.FUNCTIONS[e.fn].result == "bool"
        return Typed(e.fn, tuple(typed), "bool" if is_bool else self._peer(e, wanted))

    def _peer(self, e: Expr, wanted: str) -> str:
        """The element type that the operands of a function share."""
        types = (self._type(a) for i, a in enumerate(e.args) if not _is_condition(e, i))
        return next((t for t in types if t is not None), wanted)


class BodyWriter(ABC, Generic[V]):
    """Writes the expressions of one body from the leaves up; equal parts are written once."""

    def __init__(self) -> None:
        self._emitted: BottomUp[Typed, V] = BottomUp(self._emit)

    def emit(self, t: Typed) -> V:
        """The value of an expression."""
        return self._emitted(t)

    def _emit(self, t: Typed, inner: Sequence[V]) -> V:
        if t.fn == "arg":
            return self.operand(t)
        if t.fn == "const":
            return self.literal(t)
        if t.fn == "cast":
            return self.cast(inner[0], t.args[0].dtype, t.dtype)
        return self.function(t, list(inner))

    @abstractmethod
    def operand(self, t: Typed) -> V: ...

    @abstractmethod
    def literal(self, t: Typed) -> V: ...

    @abstractmethod
    def cast(self, v: V, source: str, dtype: str) -> V:
        """XLA's ConvertElementType: integers wrap, floats saturate, bools are x ≠ 0."""

    @abstractmethod
    def function(self, t: Typed, args: list[V]) -> V:
        """One function of `ops.meaning.scalar`; Inexpressible if there is none like it."""


def _is_condition(e: Expr, i: int) -> bool:
    return e.fn == "select" and i == 0


def constant(value: Any, dtype: str) -> Typed:
    """A constant in the held form of its element type."""
    return Typed("const", (), dtype, scalar.hold(np.asarray(value), dtype).item())


def convert(x: Typed, dtype: str) -> Typed:
    """x in this element type, as XLA's ConvertElementType has it."""
    return x if x.dtype == dtype else Typed("cast", (x,), dtype)


Array = np.ndarray[Any, Any]


class PlanWriter(ABC, Generic[V]):
    """Writes arguments, constants and the nodes of each group, in this order.

    writers: op → what writes it; it raises Inexpressible for what the language cannot say. lacks:
    why an op of eqsat's is not among them. Ops that cannot be written are called by name, and
    `missing` lists them.
    """

    writers: Mapping[str, Callable[..., Any]]
    lacks: str

    def __init__(self, plan: Plan):
        self.plan = plan
        self.values: dict[int, list[V]] = {}  # node → a value per result
        self.missing: list[Missing] = []

    def walk(self) -> None:
        """Write all nodes of the plan."""
        for number, i in enumerate(self.plan.arguments):
            self.values[i] = [self.argument(number, i)]
        for number, (i, array) in enumerate(self.plan.arrays.items()):
            self.values[i] = [self.constant(number, i, array)]
        for group in self.plan.groups:
            self.begin(group)
            for i in group.nodes:
                self.values[i] = self._node(i, group)

    @property
    def results(self) -> list[V]:
        """The values that the program returns."""
        return [self.values[r][0] for r in self.plan.program.results]

    def _node(self, i: int, group: Group) -> list[V]:
        node = self.plan.program.nodes[i]
        if isinstance(node.attr, Result):
            return [self.values[node.operands[0]][node.attr.index]]
        xs = [self.values[o][0] for o in node.operands]
        before = self.begin_node(i, node, group)
        try:
            return self.written(i, node, xs)
        except Inexpressible as reason:
            self.forget(before)
            self.missing.append(Missing(self.plan.program.value_name(i), node.op, str(reason)))
            return self.called(i, node, xs)

    def writer_of(self, node: Node) -> Callable[..., Any]:
        """The writer of this op; Inexpressible if there is none."""
        if node.op in self.writers:
            return self.writers[node.op]
        if isinstance(node.attr, Opaque):
            raise Inexpressible(f"a JAX primitive kept whole (`{node.attr.primitive}`)")
        raise Inexpressible(self.lacks if node.op in builtin_ops() else "an op of a plug-in")

    # ---- what a language says --------------------------------------------------------------------
    @abstractmethod
    def argument(self, number: int, node: int) -> V: ...

    @abstractmethod
    def constant(self, number: int, node: int, array: Array) -> V: ...

    @abstractmethod
    def begin(self, group: Group) -> None: ...

    @abstractmethod
    def begin_node(self, i: int, node: Node, group: Group) -> int:
        """How much is written before this node, for `forget`."""

    @abstractmethod
    def forget(self, before: int) -> None:
        """Take back what was written since."""

    @abstractmethod
    def written(self, i: int, node: Node, xs: Sequence[V]) -> list[V]:
        """The node's results; Inexpressible if the language has no such op."""

    @abstractmethod
    def called(self, i: int, node: Node, xs: Sequence[V]) -> list[V]:
        """The results of a function that is declared, and defined nowhere."""


def foreign_name(node: Node) -> str:
    """The name by which an op that cannot be written is called."""
    return node.attr.primitive if isinstance(node.attr, Opaque) else node.op
