"""Of columns that are one kernel one is planned; late plans have the bound of all plans."""

from __future__ import annotations

from functools import cache

import pytest
from tabulated import sources_among, tabulated

from eqsat.extract.candidates.assemble import Choices
from eqsat.extract.candidates.sources import Sources, one_of_each_kernel
from eqsat.extract.candidates.tabulate import choice_of
from eqsat.extract.choice.columns import Columns
from eqsat.extract.choice.relax import relaxation
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.minimiser import SearchLimits
from eqsat.extract.reducedcosts import fix_by_reduced_cost
from eqsat.lang.programs import parse_program
from eqsat.lang.rulesets import load_rulesets
from eqsat.model.deadline import elapsed
from eqsat.model.selection import GoalRequest
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.saturate import saturate
from tests.equal_layers import candidates, small, text_of

CASES = ("nothing differs", "a result of a middle layer")


@cache
def sources(case: str) -> Sources:
    target = small("avx512")
    program = merge_elementwise(parse_program(text_of(case), "p.eqs"))
    graph = saturate(program, load_rulesets(["default"]), target)
    pool, _ = candidates(graph, target)
    return sources_among(pool, Costs(pool.space, target))


def kernel(sources: Sources, table: Columns, row: int) -> tuple[object, ...]:
    """What a column reads, writes and computes, and by which bodies, told one by one."""
    space, nodes = sources.space, sources.space.egraph.nodes
    members = sources.candidates[int(table.candidate[row])].members
    moving = ("view", "conversion")
    computing = [nodes[m] for m in members if space.kinds[m] not in moving]
    bodies = [repr((n.op, getattr(n.attr, "yields", None))) for n in computing]
    sets = (table.reads, table.resident, table.writes, table.exclusive, table.computes)
    return (*[tuple(s[row].tolist()) for s in sets], tuple(sorted(bodies)), int(table.adds[row, 2]))


@pytest.mark.parametrize("case", CASES)
def test_each_kernel_is_left_once(case: str):
    some = sources(case)
    table = tabulated(some)
    kept = one_of_each_kernel(some.space, table, some.candidates)

    def is_own(row: int) -> bool:
        members = some.candidates[int(table.candidate[row])].members
        return all(some.space.is_own[m] for m in members)

    every = [kernel(some, table, i) for i in range(len(table))]
    left = [every[i] for i in kept.tolist() if not is_own(i)]
    assert len(left) == len(set(left))
    assert {e for i, e in enumerate(every) if not is_own(i)} == set(left)
    assert {i for i in range(len(table)) if is_own(i)} <= set(kept.tolist())
    assert len(kept) < len(table)


@pytest.mark.parametrize("case", CASES)
def test_the_bound_of_late_plans_is_that_of_all_plans(case: str):
    some = sources(case)
    floored, every = choice_of(some, floored=True), choice_of(some)
    exact = relaxation(every, {"time": 1})
    assert not floored.is_asked.any() and every.is_asked.all() and exact is not None
    limits = SearchLimits(elapsed() + 300, 0)
    found = fix_by_reduced_cost(Choices(some, (), ()), (GoalRequest("time"),), {}, limits)
    few = found.assembly.choice
    again = relaxation(few, {"time": 1})
    assert few.is_asked.all() and len(few) < len(floored)
    assert found.best is not None and again is not None
    assert found.least["time"][0] == exact.bound <= again.bound
    assert again.bound <= few.value("time", found.best)
