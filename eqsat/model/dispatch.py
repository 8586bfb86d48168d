"""Dispatch and Buffer: a kernel of a schedule, and bytes at its border with their live range.

A buffer may be written where another lay: whose bytes it is, and what of that makes no sense.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from eqsat.model.plan import Parts, Plan
from eqsat.model.program import Program
from eqsat.model.restore import restored


@dataclass(frozen=True)
class Dispatch:
    """One kernel: nodes of the schedule's program computed together.

    A node may appear in several dispatches: it is then computed again in each. name: that of the
    first value it writes, so it occurs once; runs saved without names have its `ops` there.
    """

    members: tuple[int, ...]
    reads: tuple[int, ...]  # nodes whose buffers it reads
    writes: tuple[int, ...]  # nodes whose values it writes to buffers
    time_ps: int
    step: int
    ops: str  # what it computes, e.g. "contraction+elementwise"
    device: str = ""  # that runs it, if there are several
    pipeline: str = ""  # of the target, that computes its unpacked contractions
    plan: Plan | None = None  # of the kernel it runs as; None: as ops of XLA
    parts: Parts | None = None  # of the time of that plan
    no_plan: str = ""  # why a target with kernels has none for it
    name: str = field(default="", compare=False)

    @property
    def layouts_tie(self) -> bool:
        """Whether no layout changes its time: compute hides traffic, and nothing is converted."""
        if self.plan is None or self.parts is None or self.parts.bound != "compute":
            return False
        work = self.plan.work
        return not (work.strided or work.pages or work.copied or self.parts.relayout_ps)

    @property
    def price_lines(self) -> list[str]:
        """Its plan and the parts of its time, or why a target with kernels has none."""
        if self.plan is None or self.parts is None:
            return [f"no plan: {self.no_plan}"] if self.no_plan else []
        return [f"plan {self.plan.to_text()}", f"{self.bound_text}: {self.parts}"]

    @property
    def bound_text(self) -> str:
        """`compute-bound at 92 % of peak; layouts tie`; "" where it has no plan."""
        if self.parts is None:
            return ""
        return self.parts.bound_text + ("; layouts tie" if self.layouts_tie else "")

    def to_json(self) -> dict[str, Any]:
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        nested = {
            "plan": self.plan and self.plan.to_json(),
            "parts": self.parts and self.parts.to_json(),
        }
        return plain | nested

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Dispatch:
        return restored(cls, data if "ops" in data else data | {"ops": data["name"]})


@dataclass(frozen=True)
class Buffer:
    """Bytes at a dispatch border: live from step `first` to step `last`, both included.

    role: argument | result | temporary | weight. Arguments, results and weights are live all the
    time, as their owner is the caller. A temporary lies at `offset` in one arena, in bytes; None
    for all others, and where nothing was placed.
    """

    node: int
    nbytes: int
    role: str
    first: int
    last: int
    offset: int | None = None


Pairs = Sequence[tuple[int, int]]  # (written, operand): one buffer has both


def in_place_fault(program: Program, dispatches: Sequence[Dispatch], pairs: Pairs) -> str:
    """An overwritten buffer is read by its writer, by none after that, and is no result."""
    results = {program.behind_views(r) for r in program.results}
    there = {*program.inputs, *(w for d in dispatches for w in d.writes)}
    if any(len({p[side] for p in pairs}) < len(pairs) for side in (0, 1)):
        return "a value is written over twice, or in place of two"
    for new, old in pairs:
        same = program.nodes[old].type == program.nodes[new].type
        if not same or old in results or old not in there:
            return f"%{new} is no value in place of %{old}"
        writers = [d for d in dispatches if new in d.writes]
        late = [d.step for d in dispatches if old in d.reads and new not in d.writes]
        if len(writers) != 1 or any(step >= writers[0].step for step in late):
            return f"%{old} is read after %{new} was written in its place"
        if old not in writers[0].reads:
            return f"%{new} is written in place of %{old}, which is not read for it"
    return ""


def owners_of(program: Program, pairs: Pairs) -> dict[int, int]:
    """Per value that lies in bytes that others have, too, whose these are: an argument's, else
    those of a result, else of the first of them."""
    before, owners = dict(pairs), dict[int, int]()
    results = {program.behind_views(r) for r in program.results}
    for last in before.keys() - {old for _, old in pairs}:
        chain = [last]
        while chain[-1] in before:
            chain.append(before[chain[-1]])
        first = chain[-1]
        is_result = first not in program.inputs and last in results
        owners |= dict.fromkeys(chain, last if is_result else first)
    return owners
