"""Why values are spread as they are: what ops cut, what is sent, and what it costs otherwise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from eqsat.model.meshplan import MeshPlan, Reshard
from eqsat.model.program import Program
from eqsat.report.mesh import counts_text, cut_texts, reshard_name, stream_texts
from eqsat.report.units import PS_PER_US, bytes_text, delta_text, time_text


@dataclass(frozen=True)
class MeshTold:
    """One value on a mesh, or one conversion of it with the best plan that goes without."""

    text: str
    reshard: Reshard | None = None
    plan: MeshPlan | None = None
    other: MeshPlan | str | None = None

    def priced(self, other: MeshPlan | str | None) -> MeshTold:
        """With what the best plan without this conversion is, or why there is none."""
        return replace(self, other=other)

    def lines(self) -> list[str]:
        return [f"  {self.text}", *([f"    {self._other_text()}"] if self.other else [])]

    def _other_text(self) -> str:
        if isinstance(self.other, str) or self.plan is None or self.other is None:
            held = self.plan.mesh.memory_bytes if self.plan else None
            fits = "" if held is None else f" that holds {bytes_text(held)} a device"
            return (
                f"without it: no plan{fits}" if self.other == "infeasible" else "not priced in time"
            )
        more = delta_text("time", self.other.time_ps - self.plan.time_ps)
        held = delta_text("memory", self.other.peak_bytes - self.plan.peak_bytes)
        return f"without it: time {more}, memory {held} a device; {counts_text(self.other)}"

    def to_json(self) -> dict[str, Any]:
        other = self.other if isinstance(self.other, MeshPlan) else None
        return {
            "text": self.text,
            "time_us": None if self.reshard is None else self.reshard.time_ps / PS_PER_US,
            "without": None
            if self.other is None
            else {"status": self.other}
            if other is None
            else {
                "status": other.stop,
                "time_us": other.time_ps / PS_PER_US,
                "peak_bytes": other.peak_bytes,
                "collectives": other.collectives,
            },
        }


def mesh_told(plan: MeshPlan, program: Program, value: str | None) -> tuple[MeshTold, ...]:
    """Of a value (`%h.matmul`, `w1`) its spread and conversions; of None all conversions."""
    told: list[MeshTold] = []
    for v in plan.values:
        name = program.value_name(v.node)
        if value is None or value.removeprefix("%") != name.removeprefix("%"):
            continue
        rank = len(program.nodes[v.node].types[0].shape)
        text = f"{name} is held as {plan.mesh.text(v.held, rank)}"
        text += "" if v.made == v.held else f", made as {plan.mesh.text(v.made, rank)}"
        kept = [f"{by}{plan.at(by)}" for by in dict.fromkeys(v.kept_by) if by]
        text += f", by {', '.join(kept)}" if kept else ", as asked"
        told.append(MeshTold("; ".join([text, *cut_texts(plan, v, placed=True)])))
        told += [MeshTold(line) for line in stream_texts(v, program)]
    for r in plan.reshards:
        names = {program.value_name(i).removeprefix("%") for i in (r.node, r.reader) if i >= 0}
        if r.sent and (value is None or value.removeprefix("%") in names):
            steps = ", ".join(s.to_text() for s in r.sent)
            sent = f"{bytes_text(r.sent[0].nbytes)} a device, {time_text(r.time_ps)}"
            by = ", ".join(f"{s}{plan.at(s)}" for s in dict.fromkeys(s.rule for s in r.sent))
            text = f"{reshard_name(r, program)}: {steps}, {sent}; by {by}"
            told.append(MeshTold(text, r, plan))
    return tuple(told)
