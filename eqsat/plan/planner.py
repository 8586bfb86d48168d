"""Which plan a nest gets on a machine: each kind of plan is asked in order."""

from __future__ import annotations

from collections.abc import Callable

from eqsat.model.nest import Nest, NoNest
from eqsat.model.plan import Machine, Plan
from eqsat.plan import rowblocks, rows, several, tiling

# planners in the order in which they are asked; each raises NoNest for what is not its own
PLANNERS: list[Callable[[Nest, Machine], Plan]] = [tiling.plan, rowblocks.plan, rows.plan]


def plan(nest: Nest, machine: Machine) -> Plan:
    """The plan of the first kind that takes the nest, or of every part if stores share no loops.

    Raises NoNest with the reasons of all kinds if none does.
    """
    if len(several.parts_of(nest)) > 1:
        return several.plan(nest, machine, plan)
    reasons: list[str] = []
    for planner in PLANNERS:
        try:
            return planner(nest, machine)
        except NoNest as why:
            reasons.append(str(why))
    raise NoNest("; ".join(dict.fromkeys(reasons)))
