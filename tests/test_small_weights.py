"""Scale and shift of a norm are there in every answer where time comes first."""

from __future__ import annotations

from dataclasses import replace

import pytest

import eqsat
from eqsat.extract import session
from eqsat.extract.candidates.pool import Pool, small_bytes
from eqsat.extract.candidates.space import Space
from eqsat.extract.dispatch.legality import Legality
from eqsat.lang.programs import parse_program
from eqsat.model.program import Program
from eqsat.model.selection import GoalRequest
from eqsat.saturate import saturate

LAYER = """weight gamma{i}: f32[48]
weight beta{i}: f32[48]
weight mean{i}: f32[48]
weight var{i}: f32[48]
weight w{i}: f32[48, 48]
s{i} = generic(gamma{i}, var{i}, loops=[48], maps=[[d0], [d0]], \
body=mul(x0, rsqrt(add(x1, 0.001))))
t{i} = generic(beta{i}, mean{i}, s{i}, loops=[48], maps=[[d0], [d0], [d0]], \
body=sub(x0, mul(x1, x2)))
m{i} = matmul(y{i}, w{i})
y{j} = generic(m{i}, s{i}, t{i}, loops=[32, 48], maps=[[d0, d1], [d1], [d1]], \
body=max(add(mul(x0, x1), x2), 0.0))
"""
TIME, MEMORY = GoalRequest("time"), GoalRequest("memory")


def program() -> Program:
    body = "".join(LAYER.format(i=i, j=i + 1) for i in range(3))
    return parse_program(f"program p\ninput y0: f32[32, 48]\n{body}return y3\n", "p.eqs")


def test_small_buffers_from_weights_are_no_choice_where_time_comes_first():
    target = eqsat.target("avx512")
    small, slowest = small_bytes(target, (TIME, MEMORY)), min(m.bandwidth for m in target.memory)
    assert small * 1e12 <= target.launch_ps * slowest < (small + 1) * 1e12
    graph = saturate(program(), eqsat.rules("default"), target)
    space = Space(graph)

    def optional(*goals: GoalRequest) -> set[tuple[int, ...]]:
        asked = frozenset(g.name for g in goals)
        least = small_bytes(target, goals)
        pool = Pool(Legality(space, target), False, asked, small_bytes=least)
        return {space.type(b).shape for b in pool.optional}

    assert (48,) not in optional(TIME, MEMORY)
    assert (48,) in optional(MEMORY, TIME)


@pytest.mark.parametrize(
    "goals",
    [
        (MEMORY, TIME),
        (GoalRequest("time", within=0.01), MEMORY),
        (GoalRequest("time", weight=1.0), GoalRequest("memory", weight=1.0)),
    ],
)
def test_all_is_a_choice_where_bytes_may_decide(goals: tuple[GoalRequest, ...]):
    assert small_bytes(eqsat.target("avx512"), goals) == 0


def test_all_is_a_choice_under_a_budget_of_memory():
    target = replace(eqsat.target("avx512"), budget=(("memory", 1 << 20),))
    assert small_bytes(target, (TIME, MEMORY)) == 0


@pytest.mark.slow
def test_no_goal_is_worse_than_with_all_choices(monkeypatch: pytest.MonkeyPatch):
    few = eqsat.optimize(program(), target="avx512")
    monkeypatch.setattr(session, "small_bytes", lambda *_: 0)
    every = eqsat.optimize(program(), target="avx512")
    for run in (few, every):
        assert run.selection.stop == "optimal"
    assert [(n, g.value, g.bound) for n, g in few.selection.goals] == [
        (n, g.value, g.bound) for n, g in every.selection.goals
    ]
    assert few.selection.candidates <= every.selection.candidates
