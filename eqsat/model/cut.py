"""A program as another compiler cut it into dispatches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eqsat.model.program import Program


@dataclass(frozen=True)
class CutDispatch:
    """One dispatch: nodes computed together, and those it reads from and writes to memory.

    name, at: what the other compiler calls it, and where that stands (`file:line`).
    """

    name: str
    at: str
    members: tuple[int, ...]  # in topological order, leaves and reshapes aside
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True)
class CutProgram:
    """Dispatches in the order they run; `program` holds their ops. source: who chose so.

    weights: arrays by content hash of its constants, as far as they are told.
    """

    program: Program
    dispatches: tuple[CutDispatch, ...]
    source: str
    notes: tuple[str, ...] = ()  # what was read otherwise than it is written
    weights: Mapping[str, Any] = field(default_factory=dict)

    def verify(self) -> None:
        """ValueError if a dispatch reads what none before it wrote, or a result is not written."""
        self.program.verify()
        there = {*self.program.inputs, *self.program.weights}
        for d in self.dispatches:
            if not set(d.reads) <= there:
                raise ValueError(f"`{d.name}` reads what no dispatch before it wrote")
            there |= set(d.writes)
        bases = {self.program.behind_views(r) for r in self.program.results}
        if not bases <= {self.program.behind_views(t) for t in there}:
            raise ValueError("a result is never written")
