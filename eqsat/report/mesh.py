"""A plan for a mesh as text and as plain data: what is cut, what is sent, and what that takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from eqsat.model.mesh import INPUT, MeshPlan, Reshard, Sharded, is_everywhere
from eqsat.model.program import Program
from eqsat.report.formatting import PS_PER_US, bytes_text, count_text, delta_text, time_text


def mesh_claim(plan: MeshPlan, by: str) -> str:
    """`time 3.2 ms, peak 80 MiB a device (proven)`; by: whose figures, of `finished.by_figures`."""
    claim = _proof(plan, by)
    if plan.alike > 1:
        claim += " among plans that cut equal layers alike"
    figures = f"time {time_text(plan.time_ps)}, memory {bytes_text(plan.peak_bytes)} a device"
    return f"{figures} ({claim})"


def _proof(plan: MeshPlan, by: str) -> str:
    return f"proven{by}" if plan.stop == "proven" else f"gap {plan.gap:.1%}"


def mesh_lines(plan: MeshPlan, program: Program, by: str) -> list[str]:
    """The figures beside those of one device, the arguments and weights, and each collective."""
    of = "the input" if plan.of == INPUT else "the answer"
    limit = plan.mesh.memory_bytes
    single = f"time {time_text(plan.single_ps)}, memory {bytes_text(plan.single_bytes)}"
    lines = [
        f"mesh {plan.mesh.to_text()}, by {of}: {mesh_claim(plan, by)}",
        f"  of one device: {single}",
        f"  sent {time_text(plan.sent_ps)} of {time_text(plan.time_ps)}:"
        f" {counts_text(plan)}" + ("" if limit is None else f"; a device has {bytes_text(limit)}"),
    ]
    return [
        *lines,
        *(f"  {line}" for line in [*leaf_lines(plan, program), *sent_lines(plan, program)]),
    ]


def counts_text(plan: MeshPlan) -> str:
    """`2 all-reduces, 1 all-gather`."""
    each = [count_text(n, kind) for kind, n in plan.collectives.items()]
    return ", ".join(each) or "no collective"


def leaf_lines(plan: MeshPlan, program: Program) -> Iterator[str]:
    """Arguments, weights and results, each with its spread."""
    for v in plan.values:
        n = program.nodes[v.node]
        if not v.cuts and not is_everywhere(v.held):
            yield f"{program.value_name(v.node)} {plan.mesh.text(v.held, len(n.types[0].shape))}"
    for k, r in enumerate(program.results):
        text = plan.mesh.text(plan.by_node[r].held, len(program.nodes[r].types[0].shape))
        yield f"result{k} {text}"


def sent_lines(plan: MeshPlan, program: Program) -> Iterator[str]:
    """Per conversion that sends something: the value, for whom, the steps and their time."""
    for r in plan.reshards:
        if r.sent:
            yield (
                f"{reshard_name(r, program)}: {', '.join(s.to_text() for s in r.sent)},"
                f" {bytes_text(r.sent[0].nbytes)} a device, {time_text(r.time_ps)};"
                f" by {', '.join(dict.fromkeys(s.rule for s in r.sent))}"
            )
    for v in plan.values:
        yield from stream_texts(v, program)


def stream_texts(v: Sharded, program: Program) -> Iterator[str]:
    """Per operand that an op gathers itself: in how many panels, and what gathers one."""
    for stream in v.streams:
        operand = program.value_name(program.nodes[v.node].operands[stream.operand])
        steps = ", ".join(s.to_text() for s in stream.steps)
        yield (
            f"{operand} inside of {program.value_name(v.node)}, in {v.panels} panels: {steps},"
            f" {bytes_text(stream.steps[0].nbytes)} a device and panel"
        )


def reshard_name(r: Reshard, program: Program) -> str:
    """`%h.matmul`, or `w1 for %h.matmul`."""
    name = program.value_name(r.node)
    return name if r.reader < 0 else f"{name} for {program.value_name(r.reader)}"


def plan_text(plan: MeshPlan, program: Program, by: str) -> str:
    """Every value with its spread, as a pack and in words, and what its op cuts."""
    lines = [*mesh_lines(plan, program, by), ""]
    for v in plan.values:
        shape = program.nodes[v.node].types[0].shape
        pack = plan.mesh.as_pack(v.held, shape)
        tiles = f" = pack(pos={list(pack.pos)}, tiles={list(pack.tiles)})" if pack.pos else ""
        line = f"{program.value_name(v.node)} {plan.mesh.text(v.held, len(shape))}{tiles}"
        if v.made != v.held:
            line += f", made as {plan.mesh.text(v.made, len(shape))}"
        lines.append("; ".join([line, *cut_texts(plan, v)]))
    return "\n".join(lines) + "\n"


def cut_texts(plan: MeshPlan, v: Sharded, *, placed: bool = False) -> list[str]:
    """`model cuts d2 by cut-summed-loop` for each axis that cuts its op; placed: and where the
    rule stands.
    """
    axes = zip(plan.mesh.names, v.cuts, v.cut_by, strict=False)
    return [f"{a} cuts {c} by {by}{plan.at(by) if placed else ''}" for a, c, by in axes if c]


def rule_uses(plan: MeshPlan) -> list[dict[str, Any]]:
    """Spread rules as rows of the table of rules."""
    return [
        {
            "rule": r.name, "matches": r.permits, "nodes": 0, "seconds": 0.0,
            "in_result": r.used, "at": r.at,
        }
        for r in plan.rules
    ]  # fmt: skip


def spread_text(plan: MeshPlan | None, rule: str) -> str:
    """The effect of a spread rule, in words."""
    spread = next((r for r in plan.rules if r.name == rule), None) if plan is not None else None
    if spread is None:
        return "it is of meshes, and there is none"
    if not spread.permits:
        return "it was never the first to permit anything"
    return f"it permits {count_text(spread.permits, 'choice')}, {spread.used} of them in the plan"


def plan_summary(plan: MeshPlan, program: Program) -> dict[str, Any]:
    """The object of a summary: figures, spreads by value, conversions in order."""
    rank = {v.node: len(program.nodes[v.node].types[0].shape) for v in plan.values}
    return {
        "axes": dict(zip(plan.mesh.names, plan.mesh.sizes, strict=True)),
        "of": plan.of,
        "time_us": plan.time_ps / PS_PER_US,
        "compute_us": plan.compute_ps / PS_PER_US,
        "sent_us": plan.sent_ps / PS_PER_US,
        "bound_us": plan.bound_ps / PS_PER_US,
        "gap": plan.gap,
        "stop": plan.stop,
        "alike": plan.alike,
        "peak_bytes": plan.peak_bytes,
        "resident_bytes": plan.resident_bytes,
        "limit_bytes": plan.mesh.memory_bytes,
        "single": {
            "time_us": plan.single_ps / PS_PER_US,
            "peak_bytes": plan.single_bytes,
        },
        "collectives": plan.collectives,
        "sent_bytes": plan.sent_bytes,
        "rules": {r.name: r.used for r in plan.rules if r.used},
        "spreads": {
            program.value_name(v.node): plan.mesh.text(v.held, rank[v.node]) for v in plan.values
        },
        "conversions": [
            {
                "value": program.value_name(r.node),
                "reader": None if r.reader < 0 else program.value_name(r.reader),
                "steps": [s.to_text() for s in r.steps],
                "rules": [s.rule for s in r.steps],
                "bytes": r.steps[0].nbytes,
                "time_us": r.time_ps / PS_PER_US,
            }
            for r in plan.reshards
        ],
    }


def front_table(plans: list[MeshPlan], by: str) -> str:
    """A line per plan: time, bytes of a device, what is sent."""
    rows = [("time", "memory a device", "sent", "collectives", "proof")]
    for p in plans:
        figures = time_text(p.time_ps), bytes_text(p.peak_bytes), time_text(p.sent_ps)
        rows.append((*figures, counts_text(p), _proof(p, by)))
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
    return "\n".join(["", "front of the mesh", *lines]) + "\n"


# ---- why values are spread so --------------------------------------------------------------------
@dataclass(frozen=True)
class MeshTold:
    """One value on a mesh, or one conversion of it with the best plan that goes without."""

    text: str
    reshard: Reshard | None = None
    plan: MeshPlan | None = None
    other: MeshPlan | str | None = None

    def priced(self, other: MeshPlan | str | None) -> MeshTold:
        """The fact with the best plan without this conversion, or why there is none."""
        return replace(self, other=other)

    def lines(self) -> list[str]:
        return [f"  {self.text}", *([f"    {self._other_text()}"] if self.other else [])]

    def _other_text(self) -> str:
        if isinstance(self.other, str) or self.plan is None or self.other is None:
            memory = self.plan.mesh.memory_bytes if self.plan else None
            fits = "" if memory is None else f" that holds {bytes_text(memory)} a device"
            return (
                f"without it: no plan{fits}" if self.other == "infeasible" else "not priced in time"
            )
        more = delta_text("time", self.other.time_ps - self.plan.time_ps)
        memory = delta_text("memory", self.other.peak_bytes - self.plan.peak_bytes)
        return f"without it: time {more}, memory {memory} a device; {counts_text(self.other)}"

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
    facts: list[MeshTold] = []
    for v in plan.values:
        name = program.value_name(v.node)
        if value is None or value.removeprefix("%") != name.removeprefix("%"):
            continue
        rank = len(program.nodes[v.node].types[0].shape)
        text = f"{name} is held as {plan.mesh.text(v.held, rank)}"
        text += "" if v.made == v.held else f", made as {plan.mesh.text(v.made, rank)}"
        rules = [f"{by}{plan.at(by)}" for by in dict.fromkeys(v.kept_by) if by]
        text += f", by {', '.join(rules)}" if rules else ", as asked"
        facts.append(MeshTold("; ".join([text, *cut_texts(plan, v, placed=True)])))
        facts += [MeshTold(line) for line in stream_texts(v, program)]
    for r in plan.reshards:
        names = {program.value_name(i).removeprefix("%") for i in (r.node, r.reader) if i >= 0}
        if r.sent and (value is None or value.removeprefix("%") in names):
            steps = ", ".join(s.to_text() for s in r.sent)
            sent = f"{bytes_text(r.sent[0].nbytes)} a device, {time_text(r.time_ps)}"
            by = ", ".join(f"{s}{plan.at(s)}" for s in dict.fromkeys(s.rule for s in r.sent))
            text = f"{reshard_name(r, program)}: {steps}, {sent}; by {by}"
            facts.append(MeshTold(text, r, plan))
    return tuple(facts)
