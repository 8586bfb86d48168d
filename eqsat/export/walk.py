"""A plan as a language has it: what all languages walk alike, and what each of them says itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from eqsat.export.plan import Group, Inexpressible, Missing, Plan
from eqsat.model.generic import Result
from eqsat.model.leaves import Opaque
from eqsat.model.program import Node
from eqsat.ops.registry import builtin_ops

Array = np.ndarray[Any, Any]
V = TypeVar("V")  # a value of the language, e.g. its name


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
        """What the program returns."""
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
        """What writes this op; Inexpressible if nothing does."""
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
