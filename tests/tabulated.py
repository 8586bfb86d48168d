"""Candidates with their prices, and the columns of all of them, for the tests that compare."""

from __future__ import annotations

import numpy as np

from eqsat.extract.candidates import tabulate
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.sources import CandidateTable, Sources, with_plan_times
from eqsat.extract.candidates.space import Space
from eqsat.extract.choice.columns import Columns
from eqsat.extract.choice.linear import linear_goals
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.groups.enumeration import enumerated
from eqsat.lang.rulesets import load_rulesets
from eqsat.lang.targets import load_target
from eqsat.model.program import Program
from eqsat.model.target import Target
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.saturate import saturate

GOALS = ("time", "memory", "dispatches")


def sources_of(
    program: Program, target: Target | str, goals: tuple[str, ...] = GOALS, *rules: str
) -> Sources:
    """The candidates of a program, behind the default rules if no others are named."""
    target = load_target(target) if isinstance(target, str) else target
    graph = saturate(merge_elementwise(program), load_rulesets([*rules] or ["default"]), target)
    return sources_in(Space(graph), target, goals)


def sources_in(
    space: Space, target: Target, goals: tuple[str, ...] = GOALS, *, keeps_all: bool = False
) -> Sources:
    pool, costs = (
        Pool(Legality(space, target), False, frozenset(goals), keeps_all),
        Costs(space, target),
    )
    return sources_among(pool, costs, goals)


def sources_among(pool: Pool, costs: Costs, goals: tuple[str, ...] = GOALS) -> Sources:
    found = CandidateTable(enumerated(pool, costs).candidates)
    return Sources(pool, costs, found, linear_goals(goals))


def tabulated(sources: Sources) -> Columns:
    """Every column, dominated or not, in the order of the candidates; without times of plans."""
    return tabulate._tabulated(sources)


def with_times(sources: Sources) -> Columns:
    """The same with the times of all."""
    found = tabulated(sources)
    return with_plan_times(sources, found, np.arange(len(found)))
