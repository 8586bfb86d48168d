"""What is known to equal values of a program before it is searched: more nodes, and who says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eqsat.model.program import Node


@dataclass(frozen=True)
class Equalities:
    """Facts that one rule states of a program's values, as its own ops over them.

    nodes: numbered on from the program's, which they read. equal: (one of `nodes`, the value of the
    program that it is). instead_of: (one of `nodes`, the value in whose place it stands), also
    where the two are of other types.
    """

    rule: str
    doc: str
    first: int  # number of the first of `nodes`
    nodes: tuple[Node, ...]
    equal: tuple[tuple[int, int], ...]
    instead_of: tuple[tuple[int, int], ...]

    def renumbered(
        self, kept: Mapping[int, int], stands_for: Mapping[int, int], first: int
    ) -> Equalities:
        """Those of the values that another program keeps.

        kept: number there of each; stands_for: also of what has another in its place there.
        """
        instead_of = [(n, value) for n, value in self.instead_of if value in kept]
        needed = self._around({n for n, _ in instead_of})
        number = dict(stands_for)
        nodes: list[Node] = []
        for i, n in enumerate(self.nodes, self.first):
            if i in needed:
                number[i] = first + len(nodes)
                operands = tuple(number[o] for o in n.operands)
                nodes.append(Node(n.op, operands, n.attr, n.types))
        return Equalities(
            self.rule, self.doc, first, tuple(nodes),
            tuple((number[n], kept[value]) for n, value in self.equal if value in kept),
            tuple((number[n], kept[value]) for n, value in instead_of),
        )  # fmt: skip

    def _around(self, some: set[int]) -> set[int]:
        """These nodes, what is made of them, and what all that reads."""
        found = set(some)
        for i, n in enumerate(self.nodes, self.first):
            if not found.isdisjoint(n.operands):
                found.add(i)
        for i in range(len(self.nodes) - 1, -1, -1):
            if i + self.first in found:
                found.update(self.nodes[i].operands)
        return found
