"""Which plan a nest gets on a machine: each kind of plan is asked in order."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from eqsat.model.dispatch import Machine, Plan
from eqsat.model.nest import Nest, NoNest
from eqsat.plan import rowblocks, rows, several, tiling

# planners in the order in which they are asked; each raises NoNest for what is not its own
PLANNERS: list[Callable[[Nest, Machine], Plan]] = [tiling.plan, rowblocks.plan, rows.plan]


def plan(nest: Nest, machine: Machine) -> Plan:
    """The plan of the first kind that takes the nest, or of every part if stores share no loops.

    Raises NoNest with the reasons of all kinds if none does.
    """
    if len(several.parts_of(nest)) > 1:
        return several.plan(nest, machine, _of_part)
    return _of_one(nest, machine)


@lru_cache(maxsize=1_000)
def _of_part(nest: Nest, machine: Machine) -> Plan:
    return _of_one(nest, machine)


def _of_one(nest: Nest, machine: Machine) -> Plan:
    reasons: list[str] = []
    for planner in PLANNERS:
        try:
            return planner(nest, machine)
        except NoNest as why:
            reasons.append(str(why))
    raise NoNest("; ".join(dict.fromkeys(reasons)))
