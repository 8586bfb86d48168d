"""Statements about all of a program: equalities beside its rules, and its e-graph for all sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eqsat.model.egraph import EGraph
from eqsat.model.printed import Printed
from eqsat.model.program import Node, Program
from eqsat.model.symbols import Symbol, extents_of


@dataclass(frozen=True)
class Equalities:
    """Nodes that equal values of a program, with the name of the rule that states it.

    nodes: numbered on from the program's, which they read. equal: (one of `nodes`, the value of the
    program that it is). instead_of: (one of `nodes`, the value in whose place it stands), also
    where the two are of other types. is_open: rules match it like the program itself; otherwise it
    is added after they ran.

    Several are numbered consecutively, and each may read the nodes of those before it.
    """

    rule: str
    doc: str
    first: int  # number of the first of `nodes`
    nodes: tuple[Node, ...]
    equal: tuple[tuple[int, int], ...]
    instead_of: tuple[tuple[int, int], ...]
    is_open: bool = False

    @classmethod
    def beside(
        cls,
        rule: str,
        doc: str,
        nodes: Sequence[Node],
        count: int,
        first: int,
        equal: Sequence[tuple[int, int]],
    ) -> Equalities:
        """Open facts (a node, the value of the program that it is), without what no fact needs.

        nodes: the `count` ones of the program, then those of the facts, to be numbered from `first`
        on.
        """
        needed = {n for n, _ in equal}
        for i in range(len(nodes) - 1, count - 1, -1):
            if i in needed:
                needed.update(nodes[i].operands)
        number = {i: i for i in range(count)}
        added: list[Node] = []
        for i in range(count, len(nodes)):
            if i in needed:
                number[i] = first + len(added)
                n = nodes[i]
                operands = tuple(number[o] for o in n.operands)
                added.append(Node(n.op, operands, n.attr, n.types))
        pairs = tuple((number[n], value) for n, value in equal)
        return cls(rule, doc, first, tuple(added), pairs, pairs, is_open=True)

    @property
    def uses(self) -> tuple[int, ...]:
        """How often each of `nodes` is an operand of one of them."""
        count = Counter(o for n in self.nodes for o in n.operands)
        return tuple(count[i] for i in range(self.first, self.first + len(self.nodes)))

    def renumbered(
        self, new_number: Mapping[int, int], stands_for: Mapping[int, int], first: int
    ) -> tuple[Equalities, dict[int, int]]:
        """The equalities of values that another program keeps, and the new numbers of `nodes`.

        new_number: number there of each; stands_for: also of what has another in its place there.
        """
        instead_of = [(n, value) for n, value in self.instead_of if value in new_number]
        needed = self._around({n for n, _ in instead_of})
        number = dict(stands_for)
        nodes: list[Node] = []
        for i, n in enumerate(self.nodes, self.first):
            if i in needed:
                number[i] = first + len(nodes)
                operands = tuple(number[o] for o in n.operands)
                nodes.append(Node(n.op, operands, n.attr, n.types))
        equalities = replace(
            self,
            first=first,
            nodes=tuple(nodes),
            equal=tuple(
                (number[n], new_number[value]) for n, value in self.equal if value in new_number
            ),
            instead_of=tuple((number[n], new_number[value]) for n, value in instead_of),
        )
        return equalities, {i: number[i] for i in sorted(needed) if i >= self.first}

    def _around(self, some: set[int]) -> set[int]:
        """Closure of these nodes: what reads them, and all operands of that."""
        closure = set(some)
        for i, n in enumerate(self.nodes, self.first):
            if not closure.isdisjoint(n.operands):
                closure.add(i)
        for i in range(len(self.nodes) - 1, -1, -1):
            if i + self.first in closure:
                closure.update(self.nodes[i].operands)
        return closure


@dataclass(frozen=True)
class Family(Printed):
    """The program with its symbols, as it was read and as it was searched, and the e-graph.

    Every equality of the e-graph holds for every admissible size. `symbols` of the program say
    which sizes are priced; a run holds program and e-graph at those (`ops.programs.binding`).
    """

    program: Program
    canonical: Program
    egraph: EGraph | None = None

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        return self.program.symbols

    def resized(self, symbols: tuple[Symbol, ...]) -> Family:
        """The family priced at other sizes."""
        program = replace(self.program, symbols=symbols)
        return replace(self, program=program, canonical=replace(self.canonical, symbols=symbols))

    def verify(self) -> None:
        """ValueError if a part does not fit the others."""
        for part in (self.program, self.canonical, self.egraph):
            if part is not None:
                part.verify()
        for s in self.symbols:
            s.verify()
        if self.canonical.symbols != self.symbols:
            raise ValueError("the program and its canonical form have other symbols")

    def to_text(self) -> str:
        """The symbols and the program they stand in."""
        return self.canonical.to_text()

    def to_json(self) -> dict[str, Any]:
        return {
            "format": 1,
            "program": self.program.to_json(),
            "canonical": self.canonical.to_json(),
            "egraph": None if self.egraph is None else self.egraph.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Family:
        program, canonical = (Program.from_json(data[k]) for k in ("program", "canonical"))
        egraph = data["egraph"]
        if egraph is not None:
            egraph = EGraph.from_json(egraph, extents_of(program.symbols))
        return cls(program, canonical, egraph)
