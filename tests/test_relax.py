"""What is known before the search: presolve, claims, liveness, and the relaxation's bounds."""

from __future__ import annotations

import math
import random
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from problems import (
    Chosen,
    Column,
    choice_of,
    every_answer,
    peak,
    questions,
    random_choice,
    relaxed,
    stated,
    value,
    worth,
)
from seeds import seeds

import eqsat
from eqsat.extract.choice.columns import GOALS, Columns
from eqsat.extract.choice.legal import is_legal, needed_numbers, presolved
from eqsat.extract.choice.relax import LinearProgram, Relaxation, relaxation
from eqsat.extract.choice.relax import solve_linear as solve_lp
from eqsat.extract.choice.rows import RowList, RowTable
from eqsat.extract.choice.statement import Statement
from eqsat.extract.ragged import Ragged

SEEDS = range(80)


def choice_at(seed: int) -> Columns:
    """A random choice in which most columns hold exclusive numbers."""
    return random_choice(seed, some_held=True)


def answers_of(choice: Columns) -> list[Chosen]:
    return sorted(every_answer(choice))


def test_most_choices_have_several_answers() -> None:
    """Or what holds in every answer would hold in none."""
    counts = [len(answers_of(choice_at(seed))) for seed in SEEDS]
    assert sum(n > 1 for n in counts) > len(SEEDS) / 2


@pytest.mark.parametrize("seed", seeds(8, SEEDS))
def test_presolve_keeps_every_answer(seed: int) -> None:
    choice = choice_at(seed)
    kept = set(presolved(choice).tolist())
    assert all(kept.issuperset(a) for a in answers_of(choice))


def test_presolve_takes_something_away() -> None:
    choices = [choice_at(seed) for seed in SEEDS]
    gone = [len(c) - len(presolved(c)) for c in choices]
    assert sum(n > 0 for n in gone) > len(SEEDS) / 4


def test_a_column_that_contradicts_its_operand_is_impossible() -> None:
    """Both makers of buffer 0 hold number 7, and so does its reader."""
    adds = (1, 0, 1)
    makers = (Column(adds, (), (0,), (7,)), Column(adds, (), (0,), (7, 8)))
    readers = (Column(adds, (0,), (1,), (7,)), Column(adds, (0,), (1,)))
    choice = choice_of((*makers, *readers), {0: 4, 1: 4}, (1,))
    assert needed_numbers(choice).contradicts.tolist() == [False, False, True, False]
    assert presolved(choice).tolist() == [0, 1, 3]


@pytest.mark.parametrize("seed", seeds(8, SEEDS))
def test_legal_is_what_keeps_the_rules(seed: int) -> None:
    choice = choice_at(seed)
    assert all(is_legal(choice, a) for a in answers_of(choice))
    rng = random.Random(seed)
    for _ in range(50):
        some = sorted(rng.sample(range(len(choice)), rng.randint(0, len(choice))))
        rows = np.array(some, dtype=np.int64)
        there, held, kept, reads = (
            getattr(choice, name).take(rows).index.tolist()
            for name in ("writes", "exclusive", "resident", "reads")
        )
        want = (
            len(set(there)) == len(there)
            and len(set(held)) == len(held)
            and {*reads, *choice.facts.roots.tolist()} <= set(there)
            and not set(kept) & set(there)
        )
        assert is_legal(choice, some) == want


def point(told: Statement, answer: Chosen) -> np.ndarray:
    """The variables of an answer, as small as rows let them be; amounts are not among them."""
    found = np.zeros(len(told.upper))
    for v, size in told.smallest(answer).items():
        found[v] = size
    return found


@pytest.mark.parametrize("seed", seeds(8, SEEDS))
def test_rows_hold_in_every_answer(seed: int) -> None:
    _rows_hold(choice_at(seed))


def test_rows_hold_where_values_have_layouts_and_are_computed_again() -> None:
    for seed in range(300):
        _rows_hold(random_choice(seed, some_held=True, some_layouts=True))


def _rows_hold(choice: Columns) -> None:
    told = Statement(choice)
    matrix = told.table.matrix(len(told.upper))
    for answer in answers_of(choice):
        x = point(told, answer)
        assert (x <= told.upper).all()
        assert (matrix @ x <= told.table.high).all() and (matrix @ x >= told.table.low).all()


@pytest.mark.parametrize("seed", seeds(12, SEEDS))
def test_rows_of_liveness_are_at_most_the_peak_bytes(seed: int) -> None:
    choice = choice_at(seed)
    told = stated(choice, {"memory": 1}, {})
    ((amount, unit),) = told.terms("memory")
    assert amount in told.amounts
    for answer in answers_of(choice):
        x = point(told, answer)
        needs = [
            sum(c * x[v] for v, c in terms if v != amount) - most for terms, most in told.weighed
        ]
        assert all((amount, -1) in terms for terms, _ in told.weighed)
        assert max(needs) * unit <= peak(choice, answer)


@pytest.mark.parametrize("seed", seeds(8, SEEDS))
def test_the_relaxation_bounds_every_answer_and_keeps_those_within_a_cap(seed: int) -> None:
    choice = choice_at(seed)
    answers = answers_of(choice)
    for weights in ({"time": 1}, {"dispatches": 1}, {"memory": 1}, {"time": 3, "memory": 2}):
        found = relaxed(choice, weights)
        assert found is not None or not answers
        if found is None:
            continue
        for answer in answers:
            known = worth(choice, weights, answer)
            assert found.bound <= known
            assert known % found.unit == 0
            assert set(found.within(known).tolist()).issuperset(answer)


def test_an_answer_worth_the_cap_is_within_it_whatever_floating_point_adds() -> None:
    """Its bound and its reduced cost are fractions, whose sum may be rounded above the cap."""
    tried = [
        (least, cap) for least in range(32_965_850, 32_965_950) for cap in (5_532_680, 5_532_681)
    ]
    kept = []
    for least, cap in tried:
        reduced = np.array([(6 * cap - least) / 6, (6 * cap - least + 1) / 6])
        found = Relaxation(math.nextafter(least / 6, math.inf), reduced, np.arange(0), 1)
        kept.append(tuple(found.within(cap).tolist()))
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


@pytest.mark.parametrize("seed", seeds(8, SEEDS))
def test_caps_are_part_of_the_relaxation(seed: int) -> None:
    tries = (choice_at(seed + 1000 * n) for n in range(100))
    choice = next(c for c in tries if answers_of(c))
    answers, rng = answers_of(choice), random.Random(seed)
    for goal, other in (("time", "memory"), ("memory", "time"), ("dispatches", "time")):
        cap = value(choice, other, rng.choice(answers))
        found = relaxed(choice, {goal: 1}, {other: cap})
        assert found is not None, "the answer the cap is from keeps it"
        kept = [value(choice, goal, a) for a in answers if value(choice, other, a) <= cap]
        assert found.bound <= min(kept)


@pytest.mark.parametrize("seed", seeds(12, SEEDS))
def test_a_cap_that_is_just_met_loosens_no_bound(seed: int) -> None:
    choice = choice_at(seed)
    least, alone = (relaxation(choice, {g: 1}) for g in ("time", "dispatches"))
    if least is not None and alone is not None:
        found = relaxation(choice, {"dispatches": 1}, {"time": least.bound})
        assert found is not None
        assert found.bound >= alone.bound


def test_where_the_dual_simplex_does_not_end_the_primal_one_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choices = [choice_at(seed) for seed in range(20)]
    known = [relaxation(c, {"time": 1}) for c in choices]
    monkeypatch.setattr("eqsat.extract.choice.relax.STEPS", (0, 0))
    found = [relaxation(c, {"time": 1}) for c in choices]
    assert [r and r.bound for r in found] == [r and r.bound for r in known]


@pytest.mark.parametrize("seed", seeds(12, SEEDS))
def test_questions_agree_with_every_answer_in_any_order(seed: int) -> None:
    choice = choice_at(seed)
    answers = answers_of(choice)
    for goal in GOALS:
        least = min((value(choice, goal, a) for a in answers), default=None)
        found = questions(choice).least({goal: 1}, {})
        if least is None:
            assert found.status == "infeasible"
            continue
        assert found.best is not None
        assert set(found.best.columns) in map(set, answers)
        assert choice.value(goal, found.best) == value(choice, goal, found.best.columns) == least
        assert found.bound <= least
        assert (found.status, found.bound) == ("optimal", least) or goal == "memory"


def test_a_budget_below_the_bound_needs_no_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    choice = choice_at(3)
    asked = questions(choice)
    monkeypatch.setattr("eqsat.extract.minimisation.solve", None)
    found = asked.least({"time": 1}, {"memory": asked.fits.least_bytes - 1})
    assert found.status == "infeasible"
    least = relaxation(choice, {"time": 1})
    assert least is not None
    assert asked.least({"time": 1}, {"time": least.bound - 1}).status == "infeasible"


@pytest.mark.parametrize("seed", seeds(12, 40))
def test_bounds_hold_for_any_multipliers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Multipliers of the LP solver are only ever a hint."""
    choice = choice_at(seed)
    answers = answers_of(choice)
    rng = np.random.default_rng(seed)
    from eqsat.extract.choice import relax

    bounded = relax._bounded

    def disturbed(program, matrix, duals, values):
        return bounded(program, matrix, duals + rng.normal(0, 2, len(duals)), values)

    monkeypatch.setattr(relax, "_bounded", disturbed)
    for goal in GOALS:
        found = relaxed(choice, {goal: 1})
        for answer in answers if found is not None else ():
            known = value(choice, goal, answer)
            assert found.bound <= known
            assert set(found.within(known).tolist()).issuperset(answer)


def test_an_integral_optimum_is_met_exactly() -> None:
    """min x0 + 3 x1 with x0 + x1 >= 1 and x0 <= x1 in 0..1: 2, at x0 = x1 = 1/2."""
    rows = RowList()
    rows.add(1, math.inf, [0, 1])
    rows.add(-math.inf, 0, [0], [1])
    found = solve_lp(
        LinearProgram(np.array([1.0, 3.0]), rows.table(), np.zeros(2), np.ones(2), is_plain=True)
    )
    assert found is not None
    assert found.least == 2.0
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
    found = solve_lp(LinearProgram(*sides, is_plain=True))
    assert found is not None
    assert 11.4 < found.least <= 80 / 7
    assert (found.reduced >= 0).all()


@pytest.mark.parametrize("large", [1.0, 2.0**30, 3e11])
def test_a_variable_of_any_size_is_counted_as_it_is(large: float) -> None:
    sides = np.array([1, -math.inf]), np.array([math.inf, 0])
    weights = np.array([1.0, 1.0, large / 2, large / 4, -1.0])
    rows = RowTable(*sides, Ragged.of([(0, 1), (0, 1, 2)]), weights)
    objective, upper = np.array([0.0, 0.0, 1.0]), np.array([1.0, 1.0, large])
    found = solve_lp(LinearProgram(objective, rows, np.zeros(3), upper, is_plain=False))
    assert found is not None
    assert found.values == pytest.approx([0, 1, large / 4])
    assert large / 4 * (1 - 1e-8) <= found.least <= large / 4
