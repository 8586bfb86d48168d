"""Family: a program with unknown sizes, and the e-graph that is valid for all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from eqsat.model.egraph import EGraph
from eqsat.model.program import Program
from eqsat.model.symbols import Symbol, extents_of


@dataclass(frozen=True)
class Family:
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

    __str__ = to_text

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
