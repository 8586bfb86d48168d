"""Of options that are one kernel one is planned; late plans have the bound of all plans."""

from __future__ import annotations

from functools import cache

import pytest

from eqsat.extract.candidates.freeoptions import FreeOptions
from eqsat.extract.candidates.samekernel import one_of_each_kernel
from eqsat.extract.candidates.table import OptionTable
from eqsat.extract.candidates.sources import Variants
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.lateplans import with_late_plans
from eqsat.extract.solve.freerows import free_relaxation
from eqsat.extract.choice.linear import linear_goals
from eqsat.extract.solve.relax import Relaxation
from eqsat.lang.programs import parse_program
from eqsat.lang.rulesets import load_rulesets
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.saturate import saturate
from tests.equal_layers import candidates, small, text_of
from tests.tabulated import tabulated

CASES = ("nothing differs", "a result of a middle layer")


@cache
def variants_of(case: str) -> Variants:
    target = small("avx512")
    program = merge_elementwise(parse_program(text_of(case), "p.eqs"))
    graph = saturate(program, load_rulesets(["default"]), target)
    pool, found = candidates(graph, target)
    costs = Costs(pool.space, target)
    goals = linear_goals(("time", "memory", "dispatches"))
    return Variants(pool, costs, found.candidates, goals)


def kernel(variants: Variants, table: OptionTable, row: int) -> tuple[object, ...]:
    """What an option reads, writes and computes, and by which bodies, told one by one."""
    space, nodes = variants.space, variants.space.egraph.nodes
    members = table.candidates[int(table.candidate[row])].members
    moving = ("view", "conversion")
    computing = [nodes[m] for m in members if space.kinds[m] not in moving]
    bodies = [repr((n.op, getattr(n.attr, "yields", None))) for n in computing]
    sets = (table.reads, table.resident, table.writes, table.exclusive, table.computes)
    return (*[tuple(s[row].tolist()) for s in sets], tuple(sorted(bodies)), int(table.adds[row, 2]))


@pytest.mark.parametrize("case", CASES)
def test_each_kernel_is_left_once(case: str):
    variants = variants_of(case)
    table = tabulated(variants)
    kept = one_of_each_kernel(variants.space, table)
    space = variants.space

    def is_own(row: int) -> bool:
        members = table.candidates[int(table.candidate[row])].members
        return all(space.is_own[m] for m in members)

    every = [kernel(variants, table, i) for i in range(len(table))]
    left = [every[i] for i in kept.tolist() if not is_own(i)]
    assert len(left) == len(set(left))
    assert {e for i, e in enumerate(every) if not is_own(i)} == set(left)
    assert {i for i in range(len(table)) if is_own(i)} <= set(kept.tolist())
    assert len(kept) < len(table)


def relaxed_time(found: FreeOptions) -> Relaxation | None:
    return free_relaxation(found.problem, tuple(found.variants.goals), {"time": 1})


@pytest.mark.parametrize("case", CASES)
def test_the_bound_of_late_plans_is_that_of_all_plans(case: str):
    variants = variants_of(case)
    floored, every = FreeOptions.floored(variants), FreeOptions.of(variants)
    exact = relaxed_time(every)
    assert not floored.is_asked.any() and every.is_asked.all() and exact is not None

    class Look:
        """Knows an answer as good as the bound, so that all others are excluded."""

        cap = exact.bound

        def near(self, free: FreeOptions, relaxed: Relaxation) -> None:
            assert relaxed.bound == exact.bound

    asked = list[int]()

    def relax(few: FreeOptions) -> Relaxation | None:
        asked.append(int(few.is_asked.sum()))
        return relaxed_time(few)

    few = with_late_plans(floored, relax, Look())
    assert few is not None and few.is_asked.all()
    again = relaxed_time(few)
    assert again is not None and again.bound == exact.bound
    assert asked[0] == 0 and len(few) < len(floored)
