"""Groups left out while they grow, as another one has their border, are in no best answer."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from seeds import one_in

import eqsat
from eqsat.extract.candidates.dominators import Waits
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.groups.borders import Borders, Inner, Seen
from eqsat.extract.groups.enumeration import Enumerated, enumerated
from eqsat.extract.groups.grow import Candidate
from eqsat.extract.groups.merge import Merger
from eqsat.extract.search import extract
from eqsat.lang.programs import parse_program
from eqsat.lang.rulesets import load_rulesets
from eqsat.lang.targets import load_target
from eqsat.model.egraph import EGraph
from eqsat.model.program import Program
from eqsat.model.selection import GoalRequest
from eqsat.model.target import Target
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.saturate import saturate

NORM = """
input x: f32[64, 96]
weight w: f32[96, 48]
m = generic(x, loops=[64, 96], maps=[[d0, d1]], body=x0, combine=add, rank=1)
c = generic(x, m, loops=[64, 96], maps=[[d0, d1], [d0]], body=sub(x0, mul(x1, 0.0104)))
v = generic(c, loops=[64, 96], maps=[[d0, d1]], body=mul(x0, x0), combine=add, rank=1)
n = generic(c, v, loops=[64, 96], maps=[[d0, d1], [d0]], body=div(x0, sqrt(add(x1, 0.1))))
y = generic(n, w, loops=[64, 48, 96], maps=[[d0, d2], [d2, d1]],
  body=mul(x0, x1), combine=add, rank=2)
z = generic(y, loops=[64, 48], maps=[[d0, d1]], body=max(x0, 0.0))
return z, n
""".replace(",\n  ", ", ")
# a conversion that two dispatches may hold only together
SHARED = """
input a: f32[48, 48]
t = transpose(a, perm=[1, 0])
m = mul(t, a)
d = matmul(a, t)
return m, d
"""
PROGRAMS = ("norm", "shared", "two_packs", "three_readers")
TARGETS = ("avx512", "gfx942", "tpu-v5e")


def program(name: str) -> Program:
    text = {"norm": NORM, "shared": SHARED}.get(name)
    if text is not None:
        return parse_program(text, f"{name}.eqs")
    return eqsat.optimize(eqsat.read(name), stop_after="program").program


def saturated(name: str, target: Target) -> EGraph:
    return saturate(merge_elementwise(program(name)), load_rulesets(["default"]), target)


def every(graph: EGraph, target: Target) -> Enumerated:
    costs = Costs(Space(graph), target)
    asked = frozenset({"time"})
    pool = Pool(Legality(costs.space, target), input_only=False, asked=asked)
    return enumerated(pool, costs)


@pytest.mark.parametrize("of", TARGETS)
@pytest.mark.parametrize("name", one_in(5, PROGRAMS))
def test_what_is_left_out_is_in_no_best_answer(
    name: str, of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = load_target(of)
    graph = saturated(name, target)
    goals = (GoalRequest("time"),)
    few, found = every(graph, target), extract(graph, target, goals, time_limit=60)[0]
    monkeypatch.setattr(Borders, "projects", False)
    many, best = every(graph, target), extract(graph, target, goals, time_limit=60)[0]
    assert dict(found.goals)["time"] == dict(best.goals)["time"]
    assert len(few.candidates) <= len(many.candidates)


def test_a_group_is_dominated_by_one_that_costs_holds_and_hides_no_more() -> None:
    seen, held, shown = Seen(), frozenset({1}), frozenset({7})
    seen.add("border", Inner((2.0, 3.0), held, shown))
    assert seen.has("border", Inner((2.0, 4.0), frozenset({1, 2}), frozenset()))
    assert not seen.has("another", Inner((2.0, 4.0), held, shown))
    assert not seen.has("border", Inner((1.0, 4.0), held, shown))
    assert not seen.has("border", Inner((2.0, 3.0), frozenset(), shown))
    assert not seen.has("border", Inner((2.0, 3.0), held, frozenset({8})))
    seen.add("border", Inner((1.0, 1.0), frozenset(), shown))
    assert len(seen["border"]) == 1


@pytest.mark.parametrize("of", ["avx512", "tpu-v5e"])
def test_merges_of_a_list_are_those_of_the_enumeration(of: str) -> None:
    target = load_target(of)
    graph = saturated("shared", target)
    costs = Costs(Space(graph), target)
    pool = Pool(Legality(costs.space, target), input_only=False, asked=frozenset({"time"}))
    found = enumerated(pool, costs).candidates
    single = [c for c in found if len(c.writes) == 1]
    made = Merger(pool, costs).merges(single)

    def what(merges: Iterable[Candidate]) -> list[tuple[list[int], ...]]:
        return sorted((sorted(c.members), sorted(c.reads), sorted(c.writes)) for c in merges)

    assert made and what(made) == what(c for c in found if len(c.writes) > 1)


def test_no_group_reads_what_waits_for_something_that_it_alone_computes() -> None:
    target = load_target("gfx942")
    graph = saturated("norm", target)
    costs = Costs(Space(graph), target)
    pool = Pool(Legality(costs.space, target), input_only=True)
    waits, value = Waits(pool), costs.space.value
    found = enumerated(pool, costs).candidates
    last = max(found, key=lambda c: c.members[-1])
    computed = costs.space.computes(last.members)
    assert not any(waits.for_itself(costs.space.computes(c.members), c.reads) for c in found)
    first = min(found, key=lambda c: (len(c.members), c.members[-1]))
    exclusive = costs.space.computes(first.members)
    read = next(r for r in last.reads if value[r] not in exclusive and r not in pool.held)
    assert computed and waits.for_itself(exclusive, [read])
