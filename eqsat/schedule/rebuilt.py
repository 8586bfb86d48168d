"""Reproduction of a schedule: what of it is not what its e-graph, selection and target make.

A sentence each; plans and prices are those that the planner gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from eqsat.model.diag import EqsatError
from eqsat.model.dispatch import Plan
from eqsat.model.egraph import EGraph
from eqsat.model.nest import NoNest
from eqsat.model.schedule import Buffer, Dispatch, Schedule
from eqsat.model.selection import Selection
from eqsat.model.target import Target
from eqsat.plan.planner import plan_alike
from eqsat.plan.updates import nest_in_place
from eqsat.schedule.build import build

LONGEST = 60  # characters of a value that is told
SHOWN = 8  # rebuilt_differences that are told


def rebuilt_differences(
    schedule: Schedule, egraph: EGraph, selection: Selection, target: Target
) -> list[str]:
    """How a schedule differs from the one of its selection; nothing if it is that one.

    Offsets of temporaries are any that do not overlap.
    """
    try:
        rebuilt = build(egraph, selection, target)
    except EqsatError as error:
        return [d.message for d in error.diagnostics]
    differences = [
        *_records("dispatch", schedule.dispatches, rebuilt.dispatches),
        *_records("buffer", [_unplaced(b) for b in schedule.buffers], rebuilt.buffers),
        *_program_faults(schedule, rebuilt),
        *_fields(schedule, rebuilt, ("program", "dispatches", "buffers")),
    ]
    return differences[:SHOWN] or _order_faults(schedule)


def _order_faults(schedule: Schedule) -> list[str]:
    """Faults of offsets."""
    try:
        schedule.verify()
    except ValueError as error:
        return [str(error)]
    return []


def _unplaced(buffer: Buffer) -> Buffer:
    return replace(buffer, offset=None)


def _program_faults(schedule: Schedule, rebuilt: Schedule) -> Iterator[str]:
    yield from _records("node", schedule.program.nodes, rebuilt.program.nodes)
    yield from _fields(schedule.program, rebuilt.program, ("nodes",))


def _records(word: str, have: Sequence[Any], want: Sequence[Any]) -> Iterator[str]:
    if len(have) != len(want):
        yield f"it has {len(have)} records `{word}`, its selection makes {len(want)}"
    for i, (a, b) in enumerate(zip(have, want, strict=False)):
        yield from (f"{word} {i}: {f}" for f in _fields(a, b))


def _fields(a: Any, b: Any, without: tuple[str, ...] = ()) -> Iterator[str]:
    """The fields in which two records differ."""
    if a == b:
        return
    for f in fields(a):
        x, y = getattr(a, f.name), getattr(b, f.name)
        if f.compare and f.name not in without and x != y:
            yield f"`{f.name}` is {_shown(x)}, its selection makes {_shown(y)}"


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"


def replanned_faults(schedule: Schedule, target: Target) -> Iterator[str]:
    """Per dispatch whose plan is not the planner's, one sentence; those in bodies included.

    A kernel does what its plan says: one that is for another nest writes outside of its buffers.
    """
    machines = dict(target.devices)
    for i, d in enumerate(schedule.dispatches):
        for fault in _faults(schedule, d, machines.get(d.device, target)):
            yield f"dispatch {i} ({d.ops}): {fault}"
        held = schedule.control(d)
        for label, body in zip(held.labels, held.schedules, strict=True) if held else ():
            yield from (f"dispatch {i}, {label}: {f}" for f in replanned_faults(body, target))


def _faults(schedule: Schedule, d: Dispatch, target: Target) -> Iterator[str]:
    if d.parts is not None and d.parts.time_ps != d.time_ps:
        yield f"takes {d.time_ps:,} ps, the parts of its plan {d.parts.time_ps:,}"
    replanned = _planned(schedule, d, target)
    if (d.plan is None) != (d.parts is None):
        yield "has a plan without its parts, or these alone"
    elif isinstance(replanned, str) and d.plan is not None:
        yield f"has a plan where there is none: {replanned}"
    elif not isinstance(replanned, str) and replanned != d.plan:
        yield f"has another plan than the planner makes: {_difference(d.plan, replanned)}"


def _difference(plan: Plan | None, replanned: Plan) -> str:
    """In words; what a plan that was made up says of itself may make no sense."""
    if plan is None or plan.kind != replanned.kind:
        return f"{'none' if plan is None else plan.kind}, not {replanned.kind}"
    has, wanted = plan.to_json(), replanned.to_json()
    name = next(k for k in wanted if wanted[k] != has.get(k))
    return f"`{name}` is {has.get(name)}, not {wanted[name]}"


def _planned(schedule: Schedule, d: Dispatch, target: Target) -> Plan | str:
    """The planner's plan of a dispatch, or why there is none."""
    if not target.is_planned:
        return f"`{target.name}` has no kernels"
    try:
        return plan_alike(nest_in_place(schedule, d), target.machine)[1]
    except NoNest as why:
        return str(why)
