"""Extraction: exact goals, proofs, budgets, and what is the same every time."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from graphs import (
    ALL,
    DISPATCHES,
    FUSIONS,
    GRAPHS,
    MEMORY,
    TIME,
    Graph,
    assembled,
    chain,
    diamond,
    elementwise,
    reference,
    run,
    transposed_pack,
    weighted_matmul,
)
from problems import every_answer, questions, value
from seeds import one_in

from eqsat.extract import extract, session
from eqsat.extract.choice.columns import GOALS
from eqsat.extract.choice.legal import greedy, is_legal
from eqsat.extract.choice.relax import relaxation
from eqsat.extract.memory.bestorder import in_best_order
from eqsat.extract.minimiser import Shares
from eqsat.model.diag import EqsatError
from eqsat.model.selection import GoalRequest, Selection
from eqsat.model.target import DispatchLimits, Fusion, Tile


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("graph", one_in(3, GRAPHS))
def test_questions_agree_with_brute_force(graph: str, fusion: str):
    choice = assembled(GRAPHS[graph](), reference(FUSIONS[fusion])).choice
    worth = {a: {g: value(choice, g, a) for g in GOALS} for a in every_answer(choice)}
    assert worth
    for goal in GOALS:
        least = min(w[goal] for w in worth.values())
        found = questions(choice).least({goal: 1}, {})
        assert found.best is not None
        assert (found.status, found.bound) == ("optimal", least)
        assert choice.value(goal, found.best) == least
    for first, second in itertools.permutations(GOALS, 2):
        best = min(w[first] for w in worth.values())
        least = min(w[second] for w in worth.values() if w[first] == best)
        found = questions(choice).least({second: 1}, {first: best})
        assert found.best is not None
        assert choice.value(second, found.best) == found.bound == least


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_the_relaxation_bounds_every_answer_and_keeps_the_best(graph: str, fusion: str):
    choice = assembled(GRAPHS[graph](), reference(FUSIONS[fusion])).choice
    answers = every_answer(choice)
    for goal in ("time", "dispatches"):
        relaxed = relaxation(choice, {goal: 1})
        assert relaxed is not None
        least = min(value(choice, goal, a) for a in answers)
        assert relaxed.bound <= least
        for cap in {value(choice, goal, a) for a in answers}:
            kept = set(relaxed.within(cap).tolist())
            assert all(kept.issuperset(a) for a in answers if value(choice, goal, a) <= cap)


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_greedy_answers_are_legal_and_there_is_one(graph: str, fusion: str):
    assembly = assembled(GRAPHS[graph](), reference(FUSIONS[fusion]))
    answers = greedy(assembly.choice, assembly.single_ops, "time")
    assert answers
    assert all(is_legal(assembly.choice, a) for a in answers)
    assert all(in_best_order(assembly.choice, a) is not None for a in answers)


def test_ahead_weights_are_packed_once_and_stay_in_memory():
    tiles = (("matmul", (Tile((("m", 16), ("n", 16), ("k", 1)), 1.0),)),)
    target = reference(rates=(("f32", 1e9),), untiled_rate=0.1, tiles=tiles)
    graph = weighted_matmul()
    found, baseline = extract(graph, target, ALL)
    assert [graph.nodes[i].op for i in found.ahead] == ["weight", "pack"]
    assert baseline is not None
    assert [graph.nodes[i].op for i in baseline.ahead] == ["weight"]
    assert found.goal("time").value < baseline.goal("time").value
    weight, x, y = 64 * 48 * 4, 32 * 64 * 4, 32 * 48 * 4
    assert baseline.goal("memory").value == x + weight + y
    assert all(graph.nodes[m].op != "weight" for g in found.groups for m in g.members)


def test_forced_tiles_leave_no_unpacked_contraction():
    target = reference(tiles_forced=True)
    found, baseline = extract(weighted_matmul(), target, ALL)
    assert baseline is None
    assert {m for g in found.groups for m in g.members} >= {6, 7}
    with pytest.raises(EqsatError) as e:
        extract(weighted_matmul(rules=False), target, ALL)
    assert e.value.exit_code == 3
    assert "`tiles_forced`" in str(e.value)
    assert "generic %2" in str(e.value)


def test_subsumed_nodes_serve_the_baseline_only():
    graph = weighted_matmul()
    nodes = tuple(replace(n, subsumed=i == 2) for i, n in enumerate(graph.nodes))
    found, baseline = extract(replace(graph, nodes=nodes), reference(), ALL)
    assert baseline is not None
    assert 2 in {m for g in baseline.groups for m in g.members}
    assert 2 not in {m for g in found.groups for m in g.members}


def test_the_answer_is_never_worse_than_the_baseline_whatever_the_tolerance():
    target = reference(Fusion(members=1))
    loose = GoalRequest("time", within=10.0)
    for graph in (transposed_pack(), weighted_matmul(), diamond()):
        found, baseline = extract(graph, target, (loose, MEMORY))
        assert baseline is not None
        assert found.goal("time").value <= baseline.goal("time").value


def test_a_looser_first_goal_makes_room_for_the_second():
    g = Graph()
    x = g.leaf("input", "x", 1024)
    a = g.add("generic", elementwise((1024,), 1, "exp"), x)
    b = g.add("generic", elementwise((1024,), 2, "add"), a, x)
    c = g.add("generic", elementwise((1024,), 2, "mul"), a, b)
    # a shared value: either kept beside, or computed again in a larger dispatch
    graph = g.build(c, b)
    target = reference(Fusion(members=2, clone=("all",)))
    tight = run(graph, target, TIME, DISPATCHES)
    loose = run(graph, target, GoalRequest("time", within=1.0), DISPATCHES)
    assert loose.goal("dispatches").value <= tight.goal("dispatches").value
    assert loose.goal("time").value >= tight.goal("time").value
    assert tight.goal("time").bound == tight.goal("time").value


def test_weighted_goals_weigh_against_the_baseline():
    goals = (GoalRequest("time", 1.0), GoalRequest("dispatches", 1.0))
    found, baseline = extract(diamond(), reference(Fusion(members=2)), goals)
    assert baseline is not None
    choice = assembled(diamond(), reference(Fusion(members=2))).choice

    def worth(time: int, dispatches: int) -> float:
        t, d = baseline.goal("time").value, baseline.goal("dispatches").value
        return time / t + dispatches / d

    best = min(
        worth(value(choice, "time", a), value(choice, "dispatches", a))
        for a in every_answer(choice)
    )
    assert worth(found.goal("time").value, found.goal("dispatches").value) == pytest.approx(best)


@pytest.mark.parametrize(
    "goals",
    [
        (GoalRequest("time"), GoalRequest("memory", 1.0)),
        (GoalRequest("speed"),),
        (),
        (TIME, TIME),
        (GoalRequest("time", -1.0),),
    ],
)
def test_goals_that_make_no_sense_are_refused(goals: tuple[GoalRequest, ...]):
    with pytest.raises(EqsatError) as e:
        extract(chain(1), reference(), goals)
    assert e.value.diagnostics[0].code == "E404"


def test_an_infeasible_budget_names_itself_its_place_and_the_least_needed():
    places = (("budget.memory", "toy.yaml:4:10"), ("budget.dispatches", "toy.yaml:5:10"))
    budget = (("memory", 500), ("dispatches", 5))
    with pytest.raises(EqsatError) as e:
        extract(chain(2), reference(budget=budget, places=places), ALL)
    assert e.value.exit_code == 3
    (found,) = e.value.diagnostics
    assert found.code == "E410"
    for words in ("proven", "memory <= 500 bytes", "toy.yaml:4:10", "toy.yaml:5:10",
                  "the least memory any choice needs is 512 bytes",
                  "the least dispatches any choice needs is 1 dispatches"):  # fmt: skip
        assert words in found.message


def test_an_infeasible_budget_names_the_group_a_limit_removed():
    fusion = Fusion(multi_result=True, siblings=True)
    target = reference(fusion, limits=DispatchLimits(vector_bytes=8192), budget=(("time", 1000),))
    with pytest.raises(EqsatError, match="the unfused transpose %1 needs 524,288 bytes") as e:
        extract(transposed_pack(), target, ALL)
    assert "the vector limit is 8,192" in str(e.value)


def test_a_budget_is_kept_and_may_rule_out_the_baseline():
    graph, target = transposed_pack(), reference(Fusion(multi_result=True))
    limited = replace(target, budget=(("dispatches", 1),))
    found, baseline = extract(graph, limited, ALL)
    assert found.goal("dispatches").value == 1
    nodes = tuple(n for i, n in enumerate(graph.nodes) if i != 2)  # no pack(t) in the program
    assert baseline is not None
    one_op = replace(limited, fusion=Fusion(members=1), budget=(("dispatches", 2),))
    with pytest.raises(EqsatError, match="dispatches <= 2"):
        extract(replace(graph, nodes=nodes), one_op, ALL)


def test_a_budget_that_the_input_keeps_is_kept_however_short_the_time(
    monkeypatch: pytest.MonkeyPatch,
):
    graph, target = diamond(), reference(Fusion(multi_result=True))
    goals = (GoalRequest("memory"), GoalRequest("time"))
    _, own = extract(graph, target, goals)
    assert own is not None
    least = own.goal("memory").value
    tight = replace(target, budget=(("memory", least),))
    monkeypatch.setattr(session, "SHARES", Shares(own_seconds=60.0))  # it ends by its proof
    found, baseline = extract(graph, tight, goals, time_limit=0.0)
    assert baseline is not None and baseline.goal("memory").value == least
    assert found.goal("memory").value <= least


def test_the_input_is_an_answer_however_short_the_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(session, "plain_columns", lambda *_: None)  # as where it gets stuck
    monkeypatch.setattr(session, "SHARES", Shares(own_seconds=60.0))  # it ends by its proof
    found, baseline = extract(diamond(), reference(), ALL, time_limit=0.0)
    assert baseline is not None and found.goal("time").value <= baseline.goal("time").value


def test_memory_counts_what_is_live_together():
    g = Graph()
    x = g.leaf("input", "x", 64)
    a = g.add("generic", elementwise((64,), 1, "exp"), x)
    b = g.add("generic", elementwise((64,), 1, "tanh"), a)
    c = g.add("generic", elementwise((64,), 2), a, b)
    d = g.add("generic", elementwise((64,), 1, "neg"), c)
    found = run(g.build(d), reference(Fusion(members=1)))
    # x and d all the time; a, b and c are live together while c is computed
    assert found.goal("memory").value == (2 + 3) * 256


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("graph", one_in(4, GRAPHS))
def test_the_same_request_gives_the_same_selection(graph: str, fusion: str):
    target = reference(FUSIONS[fusion])
    first, second = (extract(GRAPHS[graph](), target, ALL, seed=3)[0] for _ in range(2))
    assert replace(first, seconds=0) == replace(second, seconds=0)
    assert Selection.from_json(first.to_json()) == first
