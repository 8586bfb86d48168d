"""A rule set that contains another one starts from what that one reaches."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
from seeds import seeds

import eqsat
from eqsat.api import rules, target
from eqsat.extract import check, extract, search
from eqsat.extract.search import better_of, contained, may_be_beaten
from eqsat.lang.programs import parse_program
from eqsat.model import deadline
from eqsat.model.egraph import EGraph
from eqsat.model.limits import Limits
from eqsat.model.rules import RuleSet
from eqsat.model.selection import CAP, Cut, GoalRequest, GoalResult, Selection
from eqsat.saturate import saturate

# the product of two projections: algebra merges their matmuls, layouts fuse the rest
PROGRAM = parse_program("""program mix
input x: f32[512, 256]
input b: f32[256, 512]
weight w: f32[512, 128] key=w
weight v: f32[512, 128] key=v
t = transpose(x, perm=[1, 0]) : f32[256, 512]
h = matmul(t, w)
k = matmul(t, v)
y = generic(t, b, loops=[256, 256, 512], maps=[[d0, d2], [d1, d2]], body=mul(x0, x1), combine=add)
u = generic(h, k, loops=[256, 128], maps=[[d0, d1], [d0, d1]], body=mul(mul(x0, 0.5), x1))
return y, u
""")
GOALS = tuple(GoalRequest(n) for n in ("time", "memory", "dispatches"))


# ---- the rule sets -----------------------------------------------------------------------------
def test_a_set_starts_from_the_largest_one_it_contains() -> None:
    full, default = rules("full"), rules("default")
    names = {r.name for r in default.rules}
    always = {r.name for r in full.rules if r.apply == "replace"}
    assert full.start == names | always
    assert len(full.start) < len(full.rules)
    assert dict(full.imports)["default"] == tuple(r.name for r in default.rules)
    assert RuleSet.from_json(json.loads(json.dumps(full.to_json()))) == full
    assert rules("default", "algebra/merge").start == names
    assert (default + rules("algebra/merge")).start == names


@pytest.mark.parametrize("names", [("default",), ("layout/pack",), ("default", "policy/keep")])
def test_parts_of_a_set_are_no_start(names: tuple[str, ...]) -> None:
    """A good part of the set has to be one it contains, and more than rules that take away."""
    assert rules(*names).start == frozenset()


def test_a_set_of_which_rules_are_left_out_is_not_contained() -> None:
    assert "default" not in dict(rules("keep-contractions").imports)
    without = rules("full").without(rules("default").rules[0].name)
    assert rules("default").rules[0].name not in without.start
    assert without.start


# ---- the e-graph -------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def graphs() -> dict[str, EGraph]:
    machine = target("iree-like")
    return {n: saturate(PROGRAM, rules(n), machine) for n in ("default", "full")}


def own_nodes(small: EGraph, large: EGraph) -> set[int]:
    """Where the larger e-graph holds the nodes of the smaller one; all of them have to be there."""
    at = dict(zip(small.values, large.values, strict=True))
    found: set[int] = set()
    left = list(small.nodes)
    while left:
        ready = [n for n in left if all(c in at for c in n.children)]
        assert ready
        for n in ready:
            i = large.find(n.op, n.attr, tuple(at[c] for c in n.children))
            assert i is not None
            assert at.setdefault(n.eclass, large.nodes[i].eclass) == large.nodes[i].eclass
            found.add(i)
        left = [n for n in left if n not in ready]
    return found


def test_the_e_graph_knows_what_the_contained_set_reaches(graphs: dict[str, EGraph]) -> None:
    small, large = graphs["default"], graphs["full"]
    own = {i for i, n in enumerate(large.nodes) if not n.extra}
    assert own == own_nodes(small, large)
    assert 0 < len(own) < len(large.nodes)
    assert EGraph.from_json(json.loads(json.dumps(large.to_json()))) == large
    assert not any(n.extra for n in small.nodes)
    assert contained(small) is None
    part = contained(large)
    assert part is not None
    assert {i for i, n in enumerate(part.nodes) if not n.subsumed} == own


def test_stages_reach_what_all_rules_at_once_do(graphs: dict[str, EGraph]) -> None:
    flat = saturate(PROGRAM, replace(rules("full"), imports=()), target("iree-like"))
    assert own_nodes(flat, graphs["full"]) == set(range(len(graphs["full"].nodes)))
    assert not any(n.extra for n in flat.nodes)


def test_a_limit_leaves_the_contained_e_graph_whole(graphs: dict[str, EGraph]) -> None:
    most = Limits(nodes=len(graphs["default"].nodes) + 1)
    cut = saturate(PROGRAM, rules("full"), target("iree-like"), most)
    assert cut.stop == "nodes"
    own = {i for i, n in enumerate(cut.nodes) if not n.extra}
    assert own == own_nodes(graphs["default"], cut)


# ---- the search --------------------------------------------------------------------------------
@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Ticks that the searches to come have, one after the other; more have all the time."""
    given: list[int] = []
    left = 1 << 60

    def is_over(scope: deadline._Scope) -> bool:
        nonlocal left
        if scope.at == math.inf:
            return False
        left -= 1
        return left < 0

    real = search._searched

    def searched(*args: object) -> search.Searched:
        nonlocal left
        left = given.pop(0) if given else 1 << 60
        try:
            return real(*args)  # type: ignore[arg-type]
        finally:
            left = 1 << 60

    monkeypatch.setattr(deadline._Scope, "is_over", property(is_over))
    monkeypatch.setattr(search, "_searched", searched)
    yield given
    monkeypatch.undo()


def values(found: Selection) -> list[int]:
    return [found.goal(g.name).value for g in GOALS]


@pytest.mark.parametrize("ends", seeds(1, [300, 0, 1000]))
def test_a_larger_set_is_never_worse_when_its_search_is_cut(
    graphs: dict[str, EGraph], ticks: list[int], ends: int
) -> None:
    machine = target("iree-like")
    best, baseline = extract(graphs["default"], machine, GOALS)
    assert baseline is not None
    assert values(best) < values(baseline)
    ticks.append(ends)
    alone = search._searched(graphs["full"], machine, GOALS, 60.0, 0, None).selection
    ticks.append(ends)
    found, _ = extract(graphs["full"], machine, GOALS)
    assert alone is not None
    assert not ticks
    assert values(found) <= values(best)
    assert values(found) <= values(alone)
    assert found.stop != "optimal"
    assert check(graphs["full"], machine, found) == []
    proven, _ = extract(graphs["full"], machine, GOALS)
    assert found.goal("time").bound <= proven.goal("time").value


def test_what_is_proven_is_searched_once(graphs: dict[str, EGraph], ticks: list[int]) -> None:
    ticks += [1 << 60, 0]
    found, _ = extract(graphs["full"], target("iree-like"), GOALS)
    assert found.stop == "optimal"
    assert ticks == [0]


def test_a_budget_only_the_contained_set_keeps_in_time(
    graphs: dict[str, EGraph], ticks: list[int]
) -> None:
    machine = target("iree-like")
    best, _ = extract(graphs["default"], machine, GOALS)
    tight = replace(machine, budget=(("time", best.goal("time").value),))
    ticks.append(0)
    found, _ = extract(graphs["full"], tight, GOALS)
    assert values(found) == values(best)
    whole, _ = extract(graphs["full"], machine, GOALS)
    ticks += [0, 0]
    none = replace(machine, budget=(("time", whole.goal("time").bound - 1),))
    with pytest.raises(eqsat.EqsatError) as refused:
        extract(graphs["full"], none, GOALS)
    assert "nothing admissible found in time" in str(refused.value)


# ---- which answer is the better one ------------------------------------------------------------
def answer(stop: str, *results: tuple[int, int]) -> Selection:
    goals = tuple((g.name, GoalResult(*r)) for g, r in zip(GOALS, results, strict=True))
    return Selection((), (), goals, stop, candidates=100)


def test_the_better_answer_keeps_the_bounds_of_all_rules() -> None:
    whole = replace(answer("time", (100, 80), (9, 3), (5, 1)), cuts=(Cut("groups", 2, CAP),))
    part = replace(answer("optimal", (90, 90), (12, 12), (5, 5)), candidates=40)
    found = better_of(whole, part, GOALS, None)
    assert dict(found.goals) == {
        "time": GoalResult(90, 80), "memory": GoalResult(12, 3), "dispatches": GoalResult(5, 1),
    }  # fmt: skip
    assert (found.stop, found.cuts, found.candidates) == ("time", whole.cuts, 100)
    assert better_of(part, whole, GOALS, None) is part
    assert better_of(whole, whole, GOALS, None) is whole
    loose = (replace(GOALS[0], within=0.2), *GOALS[1:])
    assert better_of(whole, part, loose, None) is whole  # 100 is within 20 % of 90; 9 is less
    weighted = tuple(GoalRequest(g.name, 1.0) for g in GOALS)
    assert better_of(whole, part, weighted, {"time": 100, "memory": 9, "dispatches": 5}) is whole


@pytest.mark.parametrize(
    ("found", "open_"),
    [
        (answer("optimal", (1, 1), (1, 0), (1, 1)), False),
        (answer("gap", (1, 1), (2, 1), (1, 1)), True),
        (answer("time", (1, 1), (1, 1), (1, 1)), False),
        (replace(answer("cut", (1, 1), (1, 1), (1, 1)), cuts=(Cut("merges", 1, CAP),)), True),
        (None, True),
    ],
)
def test_only_what_is_not_proven_may_be_beaten(found: Selection | None, open_: bool) -> None:
    assert may_be_beaten(found, GOALS) is open_
