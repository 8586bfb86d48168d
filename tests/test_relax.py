"""What is known before the search: presolve, claims, liveness, and the relaxation's bounds."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from problems import every_answer, random_problem

import eqsat
from eqsat.extract.solve.cpsat import Effort, Request, solve
from eqsat.extract.solve.goals import Search
from eqsat.extract.solve.live import Claims, liveness
from eqsat.extract.choice.lp import LinearProgram, RowList
from eqsat.extract.choice.lp import solve_linear as solve_lp
from eqsat.extract.solve.objective import Objective
from eqsat.extract.solve.presolve import needs, presolve
from eqsat.extract.choice.columns import GOALS, Answer, ExtractionProblem, Option
from eqsat.extract.solve.relax import Relaxation, relaxation
from eqsat.extract.solve.supply import availabilities

SEEDS = range(120)


def problem_of(seed: int) -> ExtractionProblem:
    """A random problem in which most options hold exclusive numbers."""
    rng = random.Random(-1 - seed)
    problem = random_problem(seed)
    options = tuple(
        replace(o, exclusive=tuple(sorted(rng.sample(range(5), rng.choice((0, 1, 1, 2))))))
        for o in problem.options
    )
    return replace(problem, options=options)


def answers_of(problem: ExtractionProblem) -> list[Answer]:
    return sorted(every_answer(problem))


def test_most_problems_have_several_answers() -> None:
    """Or what holds in every answer would hold in none."""
    counts = [len(answers_of(p)) for p in map(problem_of, SEEDS)]
    assert sum(n > 1 for n in counts) > len(SEEDS) / 2


@pytest.mark.parametrize("seed", SEEDS)
def test_presolve_keeps_every_answer(seed: int) -> None:
    problem = problem_of(seed)
    kept = set(presolve(problem))
    assert all(kept.issuperset(a) for a in answers_of(problem))


def test_presolve_takes_something_away() -> None:
    gone = [len(p.options) - len(presolve(p)) for p in map(problem_of, SEEDS)]
    assert sum(n > 0 for n in gone) > len(SEEDS) / 4


def test_an_option_that_contradicts_its_operand_is_impossible() -> None:
    """Both makers of buffer 0 hold number 7, and so does its reader."""
    adds = (1, 0, 1)
    makers = (Option(0, adds, (), (), (0,), (7,)), Option(1, adds, (), (), (0,), (7, 8)))
    readers = (Option(2, adds, (0,), (), (1,), (7,)), Option(2, adds, (0,), (), (1,), ()))
    problem = ExtractionProblem((*makers, *readers), {0: 4, 1: 4}, (1,), 0, ())
    assert needs(problem).impossible == {2}
    assert presolve(problem) == (0, 1, 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_claims_hold_in_every_answer(seed: int) -> None:
    problem = problem_of(seed)
    known = availabilities(problem)
    for answer in answers_of(problem):
        chosen = set(answer)
        there: list[bool] = []
        for level in known:
            before = level.before is not None and there[level.before]
            there.append(before or not chosen.isdisjoint(level.writers))
            assert all(len(chosen & set(c)) <= there[-1] for c in level.claims)


def true_if(claims: Claims, chosen: set[int]) -> bool:
    counts = [len(chosen & set(c)) for c in claims]
    assert all(n <= 1 for n in counts), "options of a claim exclude each other"
    return any(counts)


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_of_liveness_are_the_peak_bytes(seed: int) -> None:
    problem = problem_of(seed)
    known = liveness(problem)
    for answer in answers_of(problem):
        chosen = set(answer)
        reads: list[bool] = []
        for r in known.reads:
            reads.append(true_if(r.claims, chosen) or (r.later is not None and reads[r.later]))
        spans = [reads[s.read] and not chosen.isdisjoint(s.writers) for s in known.spans]
        live = [
            row.base
            + sum(n for n, i in row.written if i in chosen)
            + sum(n for n, k in row.read if reads[k])
            + sum(n for n, k in row.spans if spans[k])
            for row in known.rows
        ]
        weights = sum(n for n, claims in known.weights if true_if(claims, chosen))
        assert problem.fixed_bytes + weights + max(live, default=0) == problem.peak_bytes(answer)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_relaxation_bounds_every_answer_and_keeps_those_within_a_cap(seed: int) -> None:
    problem = problem_of(seed)
    answers = answers_of(problem)
    for weights in ({"time": 1}, {"dispatches": 1}, {"memory": 1}, {"time": 3, "memory": 2}):
        worth = {a: sum(w * problem.value(g, a) for g, w in weights.items()) for a in answers}
        relaxed = relaxation(problem, weights)
        assert relaxed is not None or not answers
        if relaxed is None:
            continue
        for answer, value in worth.items():
            assert relaxed.bound <= value
            assert value % relaxed.unit == 0
            assert set(relaxed.within(value)).issuperset(answer)


def test_an_answer_worth_the_cap_is_within_it_whatever_floating_point_adds() -> None:
    """Its bound and its reduced cost are fractions, whose sum may be rounded above the cap."""
    tried = [
        (least, cap) for least in range(32_965_850, 32_965_950) for cap in (5_532_680, 5_532_681)
    ]
    kept = []
    for least, cap in tried:
        reduced = ((6 * cap - least) / 6, (6 * cap - least + 1) / 6)
        kept.append(Relaxation(math.nextafter(least / 6, math.inf), reduced, (), 1).within(cap))
    assert set(kept) == {(0,)}
    assert any(
        math.nextafter(least / 6, math.inf) + (6 * cap - least) / 6 > cap for least, cap in tried
    )


def test_parts_of_a_product_beside_parts_of_an_argument_have_an_answer() -> None:
    """What another answer equals was "proven" to be inadmissible."""

    def function(a: Any, b: Any, c: Any) -> Any:
        v, w, x, y = jnp.split(a @ b, 4, -1)
        return v * w + x * y, *jnp.split(c, 3, -1)

    arrays = [np.ones(s, np.float32) for s in ((33, 8), (8, 60), (8, 99))]
    assert eqsat.optimize(function, *arrays, target="avx512-xla").selection.claim == "optimal"


@pytest.mark.parametrize("seed", SEEDS)
def test_caps_are_part_of_the_relaxation(seed: int) -> None:
    tries = (problem_of(seed + 1000 * n) for n in range(100))
    problem = next(p for p in tries if answers_of(p))
    answers, rng = answers_of(problem), random.Random(seed)
    for goal, other in (("time", "memory"), ("memory", "time"), ("dispatches", "time")):
        cap = problem.value(other, rng.choice(answers))
        relaxed = relaxation(problem, {goal: 1}, {other: cap})
        assert relaxed is not None, "the answer the cap is from keeps it"
        kept = [problem.value(goal, a) for a in answers if problem.value(other, a) <= cap]
        assert relaxed.bound <= min(kept)


def test_where_the_dual_simplex_does_not_end_the_primal_one_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problems = [problem_of(seed) for seed in range(20)]
    known = [relaxation(p, {"time": 1}) for p in problems]
    monkeypatch.setattr("eqsat.extract.choice.lp.STEPS", 0)
    monkeypatch.setattr("eqsat.extract.choice.lp.LEAST_STEPS", 0)
    found = [relaxation(p, {"time": 1}) for p in problems]
    assert [r and r.bound for r in found] == [r and r.bound for r in known]


@pytest.mark.parametrize("seed", SEEDS)
def test_search_and_solver_agree_with_every_answer(seed: int) -> None:
    problem = problem_of(seed)
    answers = answers_of(problem)
    for goal in GOALS:
        least = min((problem.value(goal, a) for a in answers), default=None)
        solved = solve(problem, Request({goal: 1}, {}), Effort(20, 0))
        found = Search(problem, {}, math.inf, 0).minimise(Objective({goal: 1}, {}), None, 20)
        if least is None:
            assert solved.status == found.status == "infeasible"
            continue
        assert (solved.status, solved.value) == ("optimal", least)
        assert found.answer is not None
        assert (found.status, problem.value(goal, found.answer)) == ("optimal", least)
        assert found.bound == least


def test_a_budget_below_the_bound_needs_no_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of(3)
    least = relaxation(problem, {"memory": 1})
    assert least is not None
    monkeypatch.setattr("eqsat.extract.solve.goals.solve", None)
    budget = {"memory": least.bound - 1}
    found = Search(problem, budget, math.inf, 0).minimise(Objective({"time": 1}, budget), None, 20)
    assert found.status == "infeasible"


@pytest.mark.parametrize("seed", range(40))
def test_bounds_hold_for_any_multipliers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Multipliers of the LP solver are only ever a hint."""
    problem = problem_of(seed)
    answers = answers_of(problem)
    rng = np.random.default_rng(seed)
    from eqsat.extract.solve import lp

    bounded = lp._bounded

    def disturbed(program, matrix, duals, values):
        return bounded(program, matrix, duals + rng.normal(0, 2, len(duals)), values)

    monkeypatch.setattr(lp, "_bounded", disturbed)
    for goal in GOALS:
        relaxed = relaxation(problem, {goal: 1})
        for answer in answers if relaxed is not None else ():
            value = problem.value(goal, answer)
            assert relaxed.bound <= value
            assert set(relaxed.within(value)).issuperset(answer)


def test_an_integral_optimum_is_met_exactly() -> None:
    """min x0 + 3 x1 with x0 + x1 >= 1 and x0 <= x1 in 0..1: 2, at x0 = x1 = 1/2."""
    rows = RowList()
    rows.add(1, math.inf, [0, 1])
    rows.add(-math.inf, 0, [0], [1])
    solved = solve_lp(
        LinearProgram(np.array([1.0, 3.0]), rows.table(), np.zeros(2), np.ones(2), is_plain=True)
    )
    assert solved is not None
    assert solved.least == 2.0
    rows.add(3, math.inf, [0, 1])
    assert (
        solve_lp(LinearProgram(np.zeros(2), rows.table(), np.zeros(2), np.ones(2), is_plain=True))
        is None
    )


def test_multipliers_that_are_no_small_fractions_lose_nothing() -> None:
    """Of 80 in a circle every 7 side by side hold one: 80 / 7, all multipliers are a seventh."""
    count, beside, rows = 80, 7, RowList()
    for first in range(count):
        rows.add(1, math.inf, sorted((first + n) % count for n in range(beside)))
    sides = np.ones(count), rows.table(), np.zeros(count), np.ones(count)
    solved = solve_lp(LinearProgram(*sides, is_plain=True))
    assert solved is not None
    assert 11.4 < solved.least <= 80 / 7
    assert (solved.reduced >= 0).all()


@pytest.mark.parametrize("large", [1.0, 2.0**30, 3e11])
def test_a_variable_of_any_size_is_counted_as_it_is(large: float) -> None:
    rows = RowList()
    rows.add(1, math.inf, [0, 1])
    rows.weigh(-math.inf, 0, [(0, large / 2), (1, large / 4), (2, -1.0)])
    objective, upper = np.array([0.0, 0.0, 1.0]), np.array([1.0, 1.0, large])
    solved = solve_lp(LinearProgram(objective, rows.table(), np.zeros(3), upper, is_plain=False))
    assert solved is not None
    assert solved.values == pytest.approx([0, 1, large / 4])
    assert large / 4 * (1 - 1e-8) <= solved.least <= large / 4
