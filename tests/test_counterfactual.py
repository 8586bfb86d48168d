"""Prices of rejected choices: exact against brute force, honest when the time ends."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from graphs import assembled
from problems import Columns, every_answer, random_choice, serves
from problems import questions as questions_of
from problems import value as value_of
from seeds import one_in, seeds, some

import eqsat
from eqsat.extract.ask.counterfactual import Counterfactuals, counterfactuals
from eqsat.extract.memory.bestorder import in_best_order
from eqsat.lang.programs import parse_program
from eqsat.model.selection import (
    AT_LEAST,
    EXACT,
    NOT_ADMISSIBLE,
    SPELLING,
    WEIGHTED,
    WHYS,
    Question,
)

GOALS = ("time", "memory", "dispatches")


@pytest.mark.parametrize("seed", seeds(10, 30))
def test_a_forced_column_has_the_price_that_brute_force_finds(seed: int):
    choice = random_choice(seed)
    rng = random.Random(seed)
    some = rng.sample(range(len(choice)), min(2, len(choice)))
    forced = tuple((i, (rng.choice(choice.writes.tuples[i]),)) for i in sorted(some))
    asked, goal = replace(choice, forced=forced), rng.choice(GOALS)
    found = questions_of(asked).least({goal: 1}, {})
    want = [a for a in every_answer(choice) if serves(asked, a)]
    assert set(want) == every_answer(asked)
    if not want:
        assert found.status == "infeasible"
        return
    assert found.status == "optimal"
    assert found.best is not None
    assert serves(asked, found.best.columns)
    assert choice.value(goal, found.best) == min(value_of(choice, goal, a) for a in want)


SMALL = {
    "transposed_pack": ("transposed_pack", "reference", ()),
    "several": (
        "transposed_pack",
        "reference",
        ("tiles.matmul=[{mnk: [16, 16, 16], rate: 0.68}]", "fusion.multi_result=true"),
    ),
    "tiles": ("two_packs", "avx512-xla", ("fusion.multi_result=false",)),
    "clone": ("twice", "reference", ("fusion.clone=[all]",)),
    "keep": ("twice", "reference", ()),
}
TWICE = """program twice
input x: f32[64, 64]
a = generic(x, loops=[64, 64], maps=[[d0, d1]], body=exp(x0))
b = transpose(a, perm=[1, 0])
c = add(a, b)
d = generic(b, loops=[64, 64], maps=[[d0, d1]], body=tanh(x0))
return c, d
"""
SEEN: dict[str, tuple[eqsat.Run, Counterfactuals]] = {}

WORTH: dict[tuple[int, str, Columns], int] = {}


def value(c: Counterfactuals, goal: str, answer: Columns) -> int:
    """Of memory that of the best order; `SEEN` keeps the choices apart."""
    key = id(c.choice), goal, answer
    if key not in WORTH:
        WORTH[key] = value_of(c.choice, goal, answer)
    return WORTH[key]


def opened(name: str, **request: Any) -> tuple[eqsat.Run, Counterfactuals]:
    program, target, settings = SMALL[name]
    key = f"{name} {request}"
    if key not in SEEN:
        source = parse_program(TWICE) if program == "twice" else eqsat.read(program)
        run = eqsat.optimize(source, target=target, settings=settings, **request)
        assert run.egraph
        assert run.selection
        parts = run.egraph, run.target, run.goals, run.selection, run.baseline
        SEEN[key] = run, counterfactuals(*parts)
    return SEEN[key]


def questions(run: eqsat.Run) -> list[Question]:
    assert run.egraph
    nodes = [
        i for i, n in enumerate(run.egraph.nodes) if n.op not in ("input", "weight", "reshape")
    ]
    classes = sorted({run.egraph.nodes[i].eclass for i in nodes})
    asked = [Question(kind, i) for kind in ("node", "without") for i in nodes]
    return asked + [Question(kind, c) for kind in ("written", "inside") for c in classes]


def makes(c: Counterfactuals, answer: Columns, question: Question) -> bool:
    """Whether an answer makes the choice; by its groups, not by what the search builds on."""
    space, reads, writes = c.assembly.space, c.choice.reads.tuples, c.choice.writes.tuples
    read = {b for i in answer for b in reads[i]} | set(space.roots)
    for i in answer:
        members = c.assembly.candidate(i).members
        seen = depends(c, members, question)
        useful = read.intersection(writes[i])
        if question.kind == "without":
            if question.subject in members:
                return False
        elif question.kind == "written":
            if space.buffer[question.subject] in useful:
                return True
        elif useful & seen and (question.kind == "node" or not written(c, i, question.subject)):
            return True
    return question.kind == "without"


def written(c: Counterfactuals, column: int, eclass: int) -> bool:
    """Whether a column writes the value of a class, in whatever layout."""
    value = c.assembly.space.value
    return any(value[b] == value[eclass] for b in c.choice.writes.tuples[column])


def depends(c: Counterfactuals, members: tuple[int, ...], question: Question) -> set[int]:
    """Buffers of a group that are made of what is asked about, followed to a fixed point."""
    space = c.assembly.pool.space
    start = {
        m
        for m in members
        if (question.kind == "node" and m == question.subject)
        or (question.kind == "inside" and space.value[question.subject] in space.computes((m,)))
    }
    made = {space.buffer[o] for m in start for o in space.outputs[m]}
    while True:
        more = {
            space.buffer[o]
            for m in members
            if made & set(space.operands[m])
            for o in space.outputs[m]
        }
        if more <= made:
            return made
        made |= more


# every answer of `tiles` is looked at for one goal only: that takes long, as do two more
OF_ONE_GOAL = {("tiles", "memory")}
LONG = {("several", "memory"), ("transposed_pack", "memory")}
EVERY = [(n, g) for n in SMALL for g in ("time", "memory") if (n, g) not in OF_ONE_GOAL]


@pytest.mark.parametrize(
    ("name", "goal"),
    some(lambda *e: e not in LONG and e[0] != "tiles" and e[1] == "time", EVERY),
)
def test_every_price_of_a_program_is_exact(name: str, goal: str):
    run, c = opened(name, goals=(goal, *(g for g in GOALS if g != goal)))
    assert run.selection
    answers = every_answer(c.choice)
    chosen = run.selection.goal(goal).value
    assert min(value(c, goal, a) for a in answers) == chosen
    asked = [q for q in questions(run) if not c.assembly.pool.is_ahead_node(q.subject)]
    for question, price in zip(asked, c.prices(asked, 30.0), strict=True):
        made = [a for a in answers if makes(c, a, question)]
        best = min((value(c, goal, a) for a in made), default=None)
        want = (NOT_ADMISSIBLE, None) if best is None else (EXACT, best - chosen)
        assert (price.status, price.delta) == want, question
    assert {q.kind for q in asked} == {"node", "without", "written", "inside"}


@pytest.mark.parametrize("name", one_in(3, SMALL))
def test_what_ties_has_a_reason_and_the_price_of_later_goals(name: str):
    run, c = opened(name, goals=("time", "memory", "dispatches"))
    assert run.selection
    chosen = {g: run.selection.goal(g).value for g in GOALS}
    answers = [a for a in every_answer(c.choice) if value(c, "time", a) == chosen["time"]]
    asked = [q for q in questions(run) if not c.assembly.pool.is_ahead_node(q.subject)]
    for question, price in zip(asked, c.prices(asked, 30.0), strict=True):
        assert (price.tie is not None) == (price.delta == 0), question
        if price.tie is None:
            continue
        assert price.tie.why in WHYS
        made = [a for a in answers if makes(c, a, question)]
        assert made
        best = min(c.ties.values(in_best_order(c.choice, a)) for a in made)
        later = dict(zip(GOALS[1:], best, strict=True))
        least = next((g for g, v in later.items() if v != chosen[g]), "")
        if not least:  # else what is known is an upper bound
            continue
        assert price.tie.why != SPELLING
        assert GOALS.index(price.tie.goal) <= GOALS.index(least)
        if price.tie.goal == least:
            assert price.tie.delta >= later[least] - chosen[least] > 0


def test_without_time_a_price_is_a_bound_that_holds():
    run, c = opened("several")
    asked = questions(run)
    exact = c.prices(asked, 30.0)
    fresh = Counterfactuals(c.assembly, c.budget, c.goals, c.chosen, c.reference)
    for price, known in zip(fresh.prices(asked, 0.0), exact, strict=True):
        assert price.status in (AT_LEAST, NOT_ADMISSIBLE)
        assert price.delta is None
        assert known.delta is None or price.bound <= known.delta
        assert price.status == AT_LEAST or known.status == NOT_ADMISSIBLE
    assert {p.status for p in exact} == {EXACT, NOT_ADMISSIBLE}


def test_prices_of_weighted_goals_are_shares_of_the_sum():
    run, c = opened("keep", goals=("time:1", "memory:3"))
    assert c.goal == WEIGHTED
    answers = every_answer(c.choice)

    def worth(answer: Columns) -> int:
        return sum(w * value(c, g, answer) for g, w in c.weights.items())

    assert run.selection
    chosen = sum(w * run.selection.goal(g).value for g, w in c.weights.items())
    asked = [q for q in questions(run) if q.kind != "without"]
    for question, price in zip(asked, c.prices(asked, 30.0), strict=True):
        best = min((worth(a) for a in answers if makes(c, a, question)), default=None)
        want = None if best is None else (best - chosen) * 1_000_000 // chosen
        assert price.delta == want, question


def test_prices_keep_the_budgets():
    free, _ = opened("several")
    assert free.selection
    least, _ = opened("several", goals=("memory", "time", "dispatches"))
    assert least.selection
    budget = {"memory": least.selection.goal("memory").value}
    run, c = opened("several", budget=budget)
    assert run.selection
    answers = [a for a in every_answer(c.choice) if value(c, "memory", a) <= budget["memory"]]
    asked = questions(run)
    for question, price in zip(asked, c.prices(asked, 30.0), strict=True):
        made = [a for a in answers if makes(c, a, question)]
        best = min((value(c, "time", a) for a in made), default=None)
        chosen = run.selection.goal("time").value
        want = (NOT_ADMISSIBLE, None) if best is None else (EXACT, best - chosen)
        assert (price.status, price.delta) == want, question


def test_a_question_is_asked_of_dominated_dispatches_as_well():
    run, c = opened("several")
    assert run.egraph
    assert len(c.choice) > len(assembled(run.egraph, run.target).choice)
