"""Schedule → what of its numbers and buffers makes no sense; part of `schedule.legal`."""

from __future__ import annotations

from collections.abc import Iterator

from eqsat.model.schedule import Schedule
from eqsat.model.target import ORIGINALS


def number_faults(schedule: Schedule) -> list[str]:
    """Nodes that do not exist, and nodes ahead of time that are none."""
    nodes = range(len(schedule.program.nodes))
    found = [
        f"dispatch {i} names a node that does not exist"
        for i, d in enumerate(schedule.dispatches)
        if not all(n in nodes for n in (*d.members, *d.reads, *d.writes))
    ]
    named = [b.node for b in schedule.buffers]
    named += [n for pair in schedule.in_place for n in pair]
    named += [n for n, _ in (*schedule.padded, *schedule.narrowed)]
    if not all(n in nodes for n in (*named, *schedule.ahead)):
        return [*found, "a buffer, or what is computed ahead, names a node that does not exist"]
    if any(schedule.program.nodes[i].op == "input" for i in schedule.ahead):
        found.append("an argument is computed ahead")
    if schedule.originals not in ORIGINALS:
        found.append(f"weights are `{schedule.originals}`, which says nothing")
    return found


def life_faults(schedule: Schedule) -> Iterator[str]:
    """Every buffer has its role, is one, and is there when it is written."""
    written = {w: d.step for d in schedule.dispatches for w in d.writes}
    there = [b.node for b in schedule.buffers]
    if len(set(there)) < len(there):
        yield "a value has two buffers"
    yield from (f"%{w} is written and has no buffer" for w in written if w not in there)
    for b in schedule.buffers:
        role = _role(schedule, b.node, written)
        if b.role != role:
            yield f"%{b.node} is a {role}, not a {b.role}"
        step = written.get(b.node)
        if step is not None and not b.first <= step <= b.last:
            life = f"its buffer lives from {b.first} to {b.last}"
            yield f"%{b.node} is written at step {step}, {life}"


def _role(schedule: Schedule, node: int, written: dict[int, int]) -> str:
    """What a buffer is to its owner."""
    program = schedule.program
    if program.nodes[node].op == "input":
        return "argument"
    if node not in written and (node in schedule.ahead or node in program.weights):
        return "weight"
    return "result" if node in map(schedule.buffer_of, program.results) else "temporary"
