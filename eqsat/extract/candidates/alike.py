"""Groups that are one kernel: on a target with kernels, conversions inside of a group are strides.

So of the groups that compute the same values by the same bodies, from the same buffers and into the
same ones, one is a candidate: that of fewest conversions. Without it a program of many layouts has
ten times as many candidates, each of which has to be planned. It is no dominance: plans see
strides, and another group of the same kind may have a faster plan (`docs/extraction.md`, "What is
not claimed").
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property

from eqsat.extract.candidates.checks import Grown
from eqsat.extract.candidates.space import MOVING, Space
from eqsat.model.generic import Generic

Key = tuple[frozenset[int], frozenset[int], frozenset[int]]


@dataclass(frozen=True)
class Alike:
    """Tells groups of one e-graph from each other by what their kernels do."""

    space: Space

    @cached_property
    def _computes(self) -> tuple[int, ...]:
        """Per node: a number that nodes share which compute the same values alike; -1: a move."""
        numbers: dict[Hashable, int] = {}
        return tuple(
            -1
            if kind in MOVING
            else numbers.setdefault((n.op, self._bodies(n.attr), self._values(i)), len(numbers))
            for i, (n, kind) in enumerate(
                zip(self.space.egraph.nodes, self.space.kinds, strict=True)
            )
        )

    def _bodies(self, attr: object) -> Hashable:
        return attr.yields if isinstance(attr, Generic) else None

    def _values(self, node: int) -> frozenset[int]:
        return self.space.computes((node,))

    def fewest(self, states: Iterable[Grown]) -> list[Grown]:
        """One of each kind of group behind one op, in their order; the program's own stay."""
        kept: dict[Key, tuple[tuple[int, int], Grown]] = {}
        own: list[Grown] = []
        for s in states:
            nodes = s.inside.values()
            if all([self.space.is_own[n] for n in nodes]):
                own.append(s)
                continue
            key, cost = self.key(s), (self.conversions(nodes), len(s.inside))
            if key not in kept or cost < kept[key][0]:
                kept[key] = cost, s
        return own + [s for _, s in kept.values()]

    def conversions(self, nodes: Iterable[int]) -> int:
        """How many of these nodes convert."""
        kinds = self.space.kinds
        return sum([kinds[n] == "conversion" for n in nodes])

    def key(self, state: Grown) -> Key:
        """What it reads, what it computes, and what else it may write for others."""
        space, inside = self.space, state.inside
        computed = space.computes(inside.values())
        shown = frozenset(
            [b for b in inside if not space.consumers.get(space.value[b], _NOBODY) <= computed]
        )
        done = frozenset([self._computes[n] for n in inside.values()])
        return frozenset(state.reads), done, shown


_NOBODY = frozenset[int]()
