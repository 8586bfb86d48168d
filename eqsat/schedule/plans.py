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
from eqsat.plan.dispatch import KnownReads, plan_alike, planner_of
from eqsat.plan.updates import lines_of, nest_in_place


def with_plans(
    schedule: Schedule,
    egraph: EGraph,
    target: Target,
    weights: Collection[int],
    dying: Collection[int],
) -> Schedule:
    """Every dispatch with its plan, or with the reason why it has none.

    weights: nodes whose buffers follow from weights alone. dying: nodes that nothing reads once
    their next state is there. EqsatError E902 (our bug) if a plan takes another time than the
    search used: what it took for written in place may have a later reader in the end.
    """
    machines = dict(target.devices) or {"": target}
    planners = {k: planner_of(egraph, t) for k, t in machines.items() if t.is_planned}

    def planned(d: Dispatch) -> Dispatch:
        if d.device not in planners:
            return d
        nodes, planner = schedule.program.nodes, planners[d.device]
        made = {nodes[w].type for w in d.writes}
        known = KnownReads(
            tuple(r for r in d.reads if is_donated(nodes[r].attr)),
            tuple(r for r in d.reads if r in dying and nodes[r].type in made),
            lines_of(schedule, d.reads),
        )
        try:
            kept = [r for r in d.reads if r in weights]  # what it writes may be read as one later
            _, parts = planner(nest_of_dispatch(schedule, d), kept, known)
            chosen = plan_alike(nest_in_place(schedule, d), planner.target.machine)[1]
            if isinstance(chosen, str):
                raise NoNest(chosen)
        except NoNest as why:
            return replace(d, no_plan=with_names(schedule.program, str(why)))
        if parts.time_ps != d.time_ps:
            message = f"the plan of {d.name} takes {parts.time_ps} ps, not {d.time_ps}"
            raise fail("E902", message, exit_code=4)
        return replace(d, plan=chosen, parts=parts)

    if not planners:
        return schedule
    return replace(schedule, dispatches=tuple(map(planned, schedule.dispatches)))
