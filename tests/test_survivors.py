"""What the relaxation without an order leaves: a true bound, and every option of a best answer."""

from __future__ import annotations

import time
from functools import cache

import pytest

from eqsat.extract.candidates.free import free_problem, unordered
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.candidates.variants import Variants
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.groups.enumeration import enumerated
from eqsat.extract.solve.goals import Search
from eqsat.extract.solve.linear import OWN
from eqsat.extract.solve.objective import Objective
from eqsat.extract.solve.problem import ExtractionProblem
from eqsat.extract.survivors import narrowed
from eqsat.lang.rulesets import load_rulesets
from eqsat.lang.targets import load_target
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.saturate import saturate
from tests.test_every_order import ONE, spelled

WEIGHTS = [{"time": 1}, {"dispatches": 1}, {"memory": 1}, {"time": 3, "memory": 1}]


@cache
def variants_of(target_name: str = "avx512-xla") -> Variants:
    target = load_target(target_name)
    program = merge_elementwise(spelled(ONE))
    space = Space(saturate(program, load_rulesets(["default"]), target))
    pool, costs = Pool(Legality(space, target), False), Costs(space, target)
    return Variants(pool, costs, enumerated(pool, costs).candidates, OWN)


def least(problem: ExtractionProblem, weights: dict[str, int], caps: dict[str, int]) -> int:
    """What the best answer without an order is worth."""
    search = Search(problem, caps, time.monotonic() + 60, 0)
    found = search.minimise(Objective(weights, caps), None, 60)
    assert found.status == "optimal" and found.answer is not None
    return problem.worth(found.answer, weights)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_survivors_hold_a_best_answer_and_nothing_is_below_the_bound(weights: dict[str, int]):
    variants = variants_of()
    kept, free = free_problem(variants)
    best = least(free, weights, {})
    found = narrowed(variants, weights, {}, best, lambda _: None)
    assert found is not None and found.bound <= best == found.cap
    assert len(found.options) < len(kept)
    assert least(unordered(variants, found.options), weights, {}) == best


def test_without_a_known_answer_one_is_looked_for_near_the_bound():
    variants = variants_of()
    seen = []

    def find(options):
        seen.append(len(options))
        return None if len(seen) < 2 else 10**12

    found = narrowed(variants, {"time": 1}, {}, None, find, loose=lambda value: 2 * value)
    assert found is not None and found.cap == 2 * 10**12
    assert len(seen) > 1


def test_what_no_answer_keeps_is_told():
    assert narrowed(variants_of(), {"time": 1}, {"dispatches": 1}, None, lambda _: None) is None
