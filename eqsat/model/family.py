"""Family: a program whose sizes are not all known, and what was searched for all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from eqsat.model.egraph import EGraph
from eqsat.model.extents import extents_to_json, learn, restored
from eqsat.model.program import Program
from eqsat.model.symbols import Symbol


@dataclass(frozen=True)
class Family:
    """The program with its symbols, as it was read and as it was searched, and the e-graph.

    Whatever the e-graph says is so for every admissible size. `symbols` of the program say which
    sizes are priced; a run holds program and e-graph at those (`ops.binding`).
    """

    program: Program
    canonical: Program
    egraph: EGraph | None = None

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        return self.program.symbols

    def resized(self, symbols: tuple[Symbol, ...]) -> Family:
        """The same family, priced elsewhere."""
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

    __str__ = to_text

    def to_json(self) -> dict[str, Any]:
        egraph, extents = None, []
        if self.egraph is not None:
            egraph = self.egraph.to_json()
            attrs = dict.fromkeys(n.attr for n in self.egraph.nodes)
            extents = extents_to_json((*attrs, *self.egraph.types))
        return {
            "format": 1,
            "program": self.program.to_json(),
            "canonical": self.canonical.to_json(),
            "extents": extents,
            "egraph": egraph,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Family:
        learn(data["extents"])
        egraph = None if data["egraph"] is None else _restored(EGraph.from_json(data["egraph"]))
        program, canonical = (Program.from_json(data[k]) for k in ("program", "canonical"))
        return cls(program, canonical, egraph)


def _restored(egraph: EGraph) -> EGraph:
    """An e-graph from JSON, its large numbers extents again."""
    known = {n.attr: restored(n.attr) for n in egraph.nodes}
    nodes = tuple(replace(n, attr=known[n.attr]) for n in egraph.nodes)
    return replace(egraph, nodes=nodes, types=restored(egraph.types))
