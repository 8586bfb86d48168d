"""Goals are proven in every order: the order of a program's lines changes no value."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from drawnprograms import SETTINGS, Maker
from problems import Column, choice_of, questions
from seeds import seeds

import eqsat
from eqsat.extract import extract, minimiser
from eqsat.extract.choice.legal import circle, is_legal
from eqsat.extract.memory.bestorder import best_order, graph_of, in_best_order
from eqsat.lang.programs import parse_program
from eqsat.lang.requests import override
from eqsat.lang.rulesets import load_rulesets
from eqsat.lang.targets import load_target
from eqsat.model.deadline import SEARCH_TIME
from eqsat.model.program import Builder, Program
from eqsat.model.selection import GoalRequest, Selection
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.saturate import saturate


def matmul(a: str, b: str, n: int, *, turned: bool = False) -> str:
    second = "[d1, d2]" if turned else "[d2, d1]"
    body = f"maps=[[d0, d2], {second}], body=mul(x0, x1), combine=add, rank=2"
    return f"generic({a}, {b}, loops=[64, {n}, 64], {body}) : f32[64, {n}]"


def by_row(read: str, body: str, *more: str, combine: str = "") -> str:
    maps = ", ".join(["[d0, d1]", *("[d0]" for _ in more)])
    args = ", ".join([read, *more])
    kind = f"combine={combine}, rank=1) : f32[64]" if combine else "rank=2) : f32[64, 32]"
    return f"generic({args}, loops=[64, 32], maps=[{maps}], body={body}, {kind}"


# products of one argument, the softmax of one of them, and one of its exponential
LINES = {
    "x": "input x: f32[64, 64]",
    "u": "weight u: f32[64, 64]",
    "v": "weight v: f32[64, 32]",
    "w": "weight w: f32[32, 64]",
    "wide": f"wide = {matmul('x', 'u', 64)}",
    "score": f"score = {matmul('x', 'v', 32)}",
    "top": f"top = {by_row('score', 'x0', combine='max')}",
    "power": f"power = {by_row('score', 'exp(sub(x0, x1))', 'top')}",
    "total": f"total = {by_row('power', 'x0', combine='add')}",
    "share": f"share = {by_row('power', 'div(x0, x1)', 'total')}",
    "grown": "grown = generic(x, loops=[64, 64], maps=[[d0, d1]], body=exp(x0)) : f32[64, 64]",
    "last": f"last = {matmul('grown', 'w', 32, turned=True)}",
}
ONE = "x u wide v score top power total share grown w last"
OTHER = "u w v x score grown top wide power total share last"


def spelled(order: str) -> Program:
    lines = [LINES[name] for name in order.split()]
    text = "\n".join(["program m", *lines, "return wide, share, last, score", ""])
    return parse_program(text)


@pytest.mark.parametrize("goals", seeds(1, ["memory time dispatches", "time:1 memory:1"]))
def test_later_goals_are_the_same_whatever_the_order_of_lines(goals: str):
    found = []
    for order in (ONE, OTHER):
        run = eqsat.optimize(spelled(order), target="avx512-xla", goals=goals.split())
        assert run.selection is not None
        assert run.selection.stop == "optimal"
        found.append([(n, r.value, r.bound) for n, r in run.selection.goals])
    assert found[0] == found[1]
    values = {n: (v, b) for n, v, b in found[0]}
    if ":" not in goals:
        assert values["memory"] == (106_496, 106_496)
        assert values["dispatches"] == (6, 6)
        assert values["time"][0] == values["time"][1]


def shuffled(program: Program, seed: int) -> Program:
    """The same program, its nodes in another order."""
    rng, b = random.Random(seed), Builder(program.name)
    new: dict[int, int] = {}
    while len(new) < len(program.nodes):
        ready = [
            i
            for i, n in enumerate(program.nodes)
            if i not in new and all(o in new for o in n.operands)
        ]
        i = rng.choice(ready)
        n = program.nodes[i]
        new[i] = b.add(n.op, tuple(new[o] for o in n.operands), n.attr)
    return b.build([new[r] for r in program.results])


def searched(program: Program, seed: int, goals: tuple[GoalRequest, ...]) -> Selection:
    target = load_target("avx512-xla" if seed % 2 else "reference")
    target = override(target, list(SETTINGS[list(SETTINGS)[seed % 4]]))
    egraph = saturate(merge_elementwise(program), load_rulesets(["default"]), target)
    found, baseline = extract(egraph, target, goals, time_limit=20.0)
    assert baseline is not None
    return found


@pytest.mark.parametrize("first", seeds(2, ["time", "memory", "dispatches"]))
@pytest.mark.parametrize("seed", seeds(1, [11, 4]))
def test_shuffled_programs_have_the_same_values(seed: int, first: str):
    names = [first, *(g for g in ("time", "memory", "dispatches") if g != first)]
    goals = tuple(GoalRequest(n) for n in names)
    program = Maker(seed).program(6)
    found = [searched(p, seed, goals) for p in (program, shuffled(program, seed))]
    proven = [{n: r.value for n, r in s.goals} for s in found if s.stop == "optimal"]
    assert len(proven) == 2 and proven[0] == proven[1]


def test_dispatches_that_wait_for_each_other_are_cut_as_a_kind():
    def column(time: int, reads: tuple[int, ...], writes: tuple[int, ...]) -> Column:
        return Column((time, 0, 1), reads, writes)

    columns = (
        column(1, (1,), (0,)),  # two ways to make 0 from 1
        column(2, (1,), (0,)),
        column(1, (0,), (1,)),
        column(3, (0,), (1, 2)),
        column(50, (), (0,)),
    )
    choice = choice_of(columns, dict.fromkeys(range(3), 8), (0, 1))
    assert is_legal(choice, (0, 2))  # but for the order
    with pytest.raises(ValueError, match="wait for each other"):
        best_order(graph_of(choice, (0, 2)))
    assert in_best_order(choice, (0, 2)) is None
    assert circle(choice, (2, 4)) is None
    barred = circle(choice, (0, 2))
    assert barred is not None
    assert sorted(barred[0]) == [0, 1, 2, 3] and barred[1] == 1
    cut = replace(choice, barred=(barred,))
    for some in (choice, cut):
        found = questions(some).least({"time": 1}, {})
        assert found.best is not None
        assert (found.status, found.best.columns, found.bound) == ("optimal", (4, 2), 51)
    assert cut.take(np.array([2, 3, 4])).barred == (((0, 1), 1),)
    assert cut.take(np.array([2, 4])).barred == ()


def test_without_time_for_other_orders_only_the_first_goal_is_proven(
    monkeypatch: pytest.MonkeyPatch,
):
    answered = minimiser.Minimiser.least

    def ended(self: minimiser.Minimiser, weights: dict[str, int], *sides: Any, **more: Any):
        if weights == {"time": 1}:
            return answered(self, weights, *sides, **more)
        return minimiser.Least("time", best=more["best"])

    monkeypatch.setattr(minimiser.Minimiser, "least", ended)
    goals = tuple(GoalRequest(n) for n in ("time", "dispatches"))
    found = searched(spelled(ONE), 0, goals)
    assert found.stop == SEARCH_TIME
    time_ps, dispatches = found.goal("time"), found.goal("dispatches")
    assert time_ps.bound == time_ps.value and time_ps.proof == "relaxation"
    assert 0 < dispatches.bound < dispatches.value and dispatches.proof == ""
