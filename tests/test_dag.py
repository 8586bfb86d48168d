"""DAG extraction: right against brute force, honest about its bound, quick to give up well."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seeds import one_in
from smallegraphs import (
    COSTS,
    cheapest,
    choices,
    egraph,
    hard,
    is_acyclic,
    random_egraph,
)

from eqsat.dag import model, search
from eqsat.dag.check import WrongChoiceError, cost_of_choice
from eqsat.dag.greedy import by_tree, cheap_choice, waiting_of
from eqsat.dag.model import eliminate
from eqsat.dag.presolve import smaller
from eqsat.dag.problem import (
    Derivation,
    Reduced,
    build_problem,
    dag_cost,
    derivable,
    dominators,
    reached,
)
from eqsat.dag.search import extract_dag, improve
from eqsat.model.deadline import Stop, elapsed
from eqsat.model.diag import EqsatError
from eqsat.model.serialized import SerializedEGraph


def plenty() -> float:
    return 60.0


def extract(
    graph: SerializedEGraph, seconds: float = 60.0, seed: int = 0, stop: Stop | None = None
):
    return extract_dag(graph, deadline=elapsed() + seconds, seed=seed, stop=stop)


def assert_right(graph: SerializedEGraph) -> str:
    wanted, found = cheapest(graph), extract(graph)
    if wanted is None:
        assert (found.status, found.cost, found.bound) == ("infeasible", None, None)
        assert found.lacking
        return found.status
    assert found.cost is not None and found.bound is not None
    assert found.bound <= wanted <= found.cost
    assert cost_of_choice(graph, found.choices) == found.cost
    if found.status == "optimal":
        assert abs(found.cost - wanted) <= abs(wanted) / 10**9
    return found.status


@pytest.mark.parametrize("kind", one_in(3, COSTS))
def test_brute_force_agrees(kind) -> None:
    found = [assert_right(random_egraph(seed, kind)) for seed in range(120)]
    assert found.count("infeasible") > 5
    assert found.count("optimal") > 60
    if kind != "wide":  # 10^15 beside 0.1, and no bound to drop it: rounding may stay visible
        assert "feasible" not in found


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from(sorted(COSTS)))
def test_brute_force_agrees_anywhere(seed, kind) -> None:
    assert_right(random_egraph(seed, kind))


def whole_of(graph: SerializedEGraph) -> Reduced | None:
    """A problem without presolve, but for what no finite choice holds."""
    whole = build_problem(graph).whole
    finite = derivable(whole.classes).keys()
    if not whole.roots <= finite:
        return None
    kept = {
        c: tuple(o for o in whole.classes[c] if o.children <= finite)
        for c in whole.classes
        if c in finite
    }
    return Reduced(kept, whole.roots)


@pytest.mark.parametrize("triples", [model.MOST_TRIPLES, -1], ids=["elimination", "levels"])
def test_the_model_alone_is_right(triples, monkeypatch) -> None:
    """Presolve solves most small graphs by itself, so the model is asked without it too."""
    monkeypatch.setattr(model, "MOST_TRIPLES", triples)
    solved = 0
    for seed in range(70):
        kind = sorted(COSTS)[seed % 5]
        graph = random_egraph(seed + 1000, kind)
        whole, wanted = whole_of(graph), cheapest(graph)
        if whole is None or wanted is None:
            continue
        hint = cheap_choice(whole, 0, plenty)
        found = model.solve_dag(whole, hint, deadline=elapsed() + 60, seed=0)
        assert found.status == "optimal" and found.selection is not None
        scaled = wanted * build_problem(graph).scale
        cost = dag_cost(found.selection, whole.roots)
        assert abs(cost - scaled) <= abs(scaled) / 10**9
        solved += 1
    assert solved > 30


def test_presolve_keeps_the_optimum_and_greedy_is_an_answer() -> None:
    shrunk = 0
    for seed in range(150):
        kind = sorted(COSTS)[seed % len(COSTS)]
        graph = random_egraph(seed + 2000, kind)
        whole, wanted = whole_of(graph), cheapest(graph)
        if whole is None or wanted is None:
            continue
        reduced = smaller(whole, plenty)
        assert reduced is not None
        answer = cheap_choice(reduced, seed, plenty)
        cost = reduced.base + dag_cost(answer, reduced.roots)
        scaled = wanted * build_problem(graph).scale
        assert cost >= scaled
        again = smaller(reduced, plenty, cost)
        assert again is not None
        best = min(
            again.base + dag_cost(cheap_choice(again, s, plenty), again.roots) for s in range(3)
        )
        assert best >= scaled
        shrunk += len(again.classes) < len(whole.classes)
    assert shrunk > 80


# ---- named cases ---------------------------------------------------------------------------------
def test_shared_children_are_paid_once() -> None:
    """The tree is cheaper by the private leaves, the DAG by the shared one."""
    graph = egraph(
        ("top", "t", ["l", "r"], 0), ("l", "l", ["s"], 0), ("l2", "l", [], 5),
        ("r", "r", ["s"], 0), ("r2", "r", [], 5), ("s", "s", [], 6), roots=["t"],
    )  # fmt: skip
    found = extract(graph)
    assert (found.status, found.cost, found.bound, found.gap) == ("optimal", 6, 6, 0.0)
    assert dict(found.choices) == {"t": "top", "l": "l", "r": "r", "s": "s"}


def test_a_cycle_is_no_answer_however_cheap() -> None:
    graph = egraph(
        ("a", "1", ["b"], 0), ("b", "2", ["a"], 0), ("a2", "1", [], 7), ("b2", "2", [], 9),
        ("self", "1", ["self"], 0), roots=["1", "2"],
    )  # fmt: skip
    assert extract(graph).cost == 7


def test_negative_costs_are_earned_once_and_only_when_reached() -> None:
    graph = egraph(
        ("r", "r", [], 0), ("r2", "r", ["x"], 1), ("x", "x", [], -3), ("y", "y", [], -100),
        roots=["r"],
    )  # fmt: skip
    found = extract(graph)
    assert (found.status, found.cost) == ("optimal", -2)
    assert dict(found.choices) == {"r": "r2", "x": "x"}


def test_a_negative_cycle_earns_nothing() -> None:
    graph = egraph(
        ("r", "r", [], 0), ("p", "p", ["q"], -5), ("q", "q", ["p"], -5), ("q2", "q", [], 3),
        ("r2", "r", ["p"], 0), roots=["r"],
    )  # fmt: skip
    assert extract(graph).cost == -2


@pytest.mark.parametrize(
    "graph",
    [
        egraph(("a", "1", ["a"], 1), roots=["1"]),
        egraph(("a", "1", [], None), roots=["1"]),
        egraph(("a", "1", ["b"], 1), ("b", "2", [], None), ("c", "3", [], 1), roots=["3", "1"]),
        egraph(("a", "1", ["b"], -1), ("b", "2", ["a"], -1), roots=["1"]),
    ],
    ids=["self-loop", "infinite", "infinite-below", "negative-cycle"],
)
def test_no_finite_extraction(graph) -> None:
    found = extract(graph)
    assert (found.status, found.stop, found.lacking) == ("infeasible", "proof", ("1",))


def test_fine_costs_are_exact() -> None:
    graph = egraph(
        ("a", "1", ["b", "c"], "0.1"), ("b", "2", [], "0.2"), ("c", "3", [], "0.0000000000000003"),
        roots=["1"],
    )  # fmt: skip
    assert extract(graph).cost == Fraction("0.3000000000000003")


def test_out_of_time_is_said_with_a_bound() -> None:
    graph = hard(0)
    found = extract(graph, seconds=1.0)
    assert (found.status, found.stop) == ("feasible", "time")
    assert found.bound is not None and found.cost is not None
    assert 0 <= found.bound < found.cost == cost_of_choice(graph, found.choices)
    assert found.gap == pytest.approx(float(1 - found.bound / found.cost))


@pytest.mark.parametrize("seconds", [0.0, 1e-6, 0.05])
def test_hardly_any_time_still_gives_an_answer(seconds) -> None:
    for graph in (hard(1), random_egraph(7, "negative")):
        found = extract(graph, seconds=seconds)
        assert found.status in ("feasible", "optimal", "infeasible")
        if found.cost is not None:
            assert cost_of_choice(graph, found.choices) == found.cost


def test_the_same_seed_gives_the_same_choice() -> None:
    graph = random_egraph(12, "few")
    assert extract(graph, seed=3) == extract(graph, seed=3)


def test_a_stop_ends_the_search_with_its_best() -> None:
    stop = Stop()
    stop.request()
    found = extract(hard(2), stop=stop)
    assert stop.has_answer
    assert (found.status, found.stop) == ("feasible", "interrupted")


def test_out_of_memory_keeps_what_was_found(monkeypatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError

    graph = hard(3, classes=30)
    monkeypatch.setattr(search, "solve_dag", full)
    found = extract(graph)
    assert (found.status, found.stop) == ("feasible", "memory")
    assert found.cost == cost_of_choice(graph, found.choices)
    monkeypatch.setattr(search, "build_problem", full)
    with pytest.raises(EqsatError, match="out of memory") as caught:
        extract(graph)
    assert caught.value.exit_code == 3


def test_a_wrong_answer_is_our_bug(monkeypatch) -> None:
    graph = egraph(("a", "1", [], 1), ("b", "1", [], 2), roots=["1"])
    for wrong in ({"1": "b"}, {}, {"1": "zzz"}):
        monkeypatch.setattr(search, "_choices", lambda *_, wrong=wrong: wrong)
        with pytest.raises(EqsatError) as caught:
            extract(graph)
        assert caught.value.exit_code == 4
        assert caught.value.diagnostics[0].code == "E906"


# ---- the checker and the structure ---------------------------------------------------------------
def test_the_checker_refuses_what_is_no_choice() -> None:
    graph = egraph(
        ("a", "1", ["b"], 1), ("b", "2", ["a"], 1), ("b2", "2", [], 4), ("c", "1", [], None),
        roots=["1"],
    )  # fmt: skip
    assert cost_of_choice(graph, {"1": "a", "2": "b2", "9": "?"}) == 5
    for wrong in ({"1": "a"}, {"1": "a", "2": "b"}, {"1": "c"}, {"1": "b2", "2": "b2"}, {}):
        with pytest.raises(WrongChoiceError):
            cost_of_choice(graph, wrong)


def test_dominators_are_what_all_choices_share() -> None:
    for seed in range(60):
        graph = random_egraph(seed + 3000, "unit", most=8)
        whole = whole_of(graph)
        if whole is None:
            continue
        need = dominators(whole.classes)
        names = build_problem(graph).names
        shared = None
        for chosen in choices(graph):
            if is_acyclic(graph, chosen):
                shared = chosen.keys() if shared is None else shared & chosen.keys()
        found = {names[c] for r in whole.roots for c in range(len(names)) if need[r] >> c & 1}
        assert shared is not None
        assert found <= set(shared)
        for r in whole.roots:
            assert names[r] in found


def test_every_cycle_meets_two_facing_arcs() -> None:
    for seed in range(40):
        rng = random.Random(seed)
        n = rng.randint(2, 6)
        arcs = sorted({(a, b) for a in range(n) for b in range(n) if a != b and rng.random() < 0.5})
        found = eliminate(arcs, 10**6)
        assert found is not None
        for _ in range(20):
            drawn = {a for a in arcs if rng.random() < 0.5}
            cyclic = has_cycle(drawn, n)
            while True:
                more = {
                    (a, c) for a, b, c in found.joined if (a, b) in drawn and (b, c) in drawn
                } - drawn
                if not more:
                    break
                drawn |= more
            assert cyclic == any(x in drawn and y in drawn for x, y in found.facing)


def has_cycle(arcs: set[tuple[int, int]], n: int) -> bool:
    left = set(range(n))
    while left:
        free = {v for v in left if not any(a == v and b in left for a, b in arcs)}
        if not free:
            return True
        left -= free
    return False


def test_options_too_dear_for_the_solver_do_not_break_it() -> None:
    dear = Derivation(10**40, frozenset(), (2,))
    options = {
        0: (dear, Derivation(3, frozenset({1}), (0,))),
        1: (Derivation(4, frozenset(), (1,)), dear),
    }
    reduced = Reduced(options, frozenset({0}))
    found = model.solve_dag(
        reduced, cheap_choice(reduced, 0, plenty), deadline=elapsed() + 20, seed=0
    )
    assert (found.status, found.bound) == ("optimal", 7)


def test_local_search_never_gets_worse_and_finds_better() -> None:
    better = 0
    for seed in range(4):
        whole = whole_of(hard(seed + 10, classes=25))
        assert whole is not None
        part = smaller(whole, plenty)
        assert part is not None
        start = by_tree(waiting_of(part))
        start = {c: start[c] for c in reached(start, part.roots)}
        told: list[int] = []
        found = improve(
            part, start, seed=seed, deadline=elapsed() + 0.2, stopped=lambda: False,
            improved=lambda s, part=part, told=told: told.append(dag_cost(s, part.roots)),
        )  # fmt: skip
        costs = [dag_cost(start, part.roots), *told, dag_cost(found, part.roots)]
        assert costs == sorted(costs, reverse=True)
        better += costs[-1] < costs[0]
    assert better > 0
