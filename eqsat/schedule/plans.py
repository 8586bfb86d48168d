"""Dispatches with the plans of their kernels, and what these cost in parts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from eqsat.model.diag import fail
from eqsat.model.egraph import EGraph
from eqsat.model.leaves import is_donated
from eqsat.model.nest import NoNest
from eqsat.model.schedule import Dispatch, Schedule
from eqsat.model.target import Target
from eqsat.model.text import with_names
from eqsat.ops.nests.nest import nest_of_dispatch
from eqsat.plan.dispatch import planner_of


def with_plans(
    schedule: Schedule, egraph: EGraph, target: Target, weights: Collection[int]
) -> Schedule:
    """Every dispatch with its plan, or with the reason why it has none.

    weights: nodes whose buffers follow from weights alone. EqsatError E902 (our bug) if a plan
    takes another time than the search used.
    """
    machines = dict(target.devices) or {"": target}
    planners = {k: planner_of(egraph, t) for k, t in machines.items() if t.is_planned}

    def planned(d: Dispatch) -> Dispatch:
        if d.device not in planners:
            return d
        try:
            kept = [r for r in d.reads if r in weights]  # what it writes may be read as one later
            given = [r for r in d.reads if is_donated(schedule.program.nodes[r].attr)]
            chosen, parts = planners[d.device](nest_of_dispatch(schedule, d), kept, given)
        except NoNest as why:
            return replace(d, no_plan=with_names(schedule.program, str(why)))
        if parts.time_ps != d.time_ps:
            message = f"the plan of {d.name} takes {parts.time_ps} ps, not {d.time_ps}"
            raise fail("E902", message, exit_code=4)
        return replace(d, plan=chosen, parts=parts)

    if not planners:
        return schedule
    return replace(schedule, dispatches=tuple(map(planned, schedule.dispatches)))
