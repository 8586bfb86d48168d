"""What several dispatches may each compute, and what only one of them may."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from eqsat.extract.candidates.fusionrules import FusionRules
from eqsat.model.generic import Generic
from eqsat.model.target import CHEAP
from eqsat.ops.generics.access import is_cheap


@dataclass(frozen=True)
class Ownership(FusionRules):
    """Asked about nodes of one e-graph."""

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
