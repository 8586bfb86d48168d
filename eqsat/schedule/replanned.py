"""Schedule × Target → which dispatches have another plan or price than the planner gives them."""

from __future__ import annotations

from collections.abc import Iterator

from eqsat.model.nest import NoNest
from eqsat.model.plan import Plan
from eqsat.model.schedule import Dispatch, Schedule
from eqsat.model.target import Target
from eqsat.plan.dispatch import plan_alike
from eqsat.plan.updates import nest_in_place


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
    made = _planned(schedule, d, target)
    if (d.plan is None) != (d.parts is None):
        yield "has a plan without its parts, or these alone"
    elif isinstance(made, str) and d.plan is not None:
        yield f"has a plan where there is none: {made}"
    elif not isinstance(made, str) and made != d.plan:
        yield f"has another plan than the planner makes: {_difference(d.plan, made)}"


def _difference(plan: Plan | None, made: Plan) -> str:
    """In words; what a plan that was made up says of itself may make no sense."""
    if plan is None or plan.kind != made.kind:
        return f"{'none' if plan is None else plan.kind}, not {made.kind}"
    has, wanted = plan.to_json(), made.to_json()
    name = next(k for k in wanted if wanted[k] != has.get(k))
    return f"`{name}` is {has.get(name)}, not {wanted[name]}"


def _planned(schedule: Schedule, d: Dispatch, target: Target) -> Plan | str:
    """What the planner makes of a dispatch, or why nothing."""
    if not target.is_planned:
        return f"`{target.name}` has no kernels"
    try:
        return plan_alike(nest_in_place(schedule, d), target.machine)[1]
    except NoNest as why:
        return str(why)
