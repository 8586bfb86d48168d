"""Programs of equal blocks are searched with four of them: the answers, the bounds, and back."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from problems import questions
from seeds import one_in, seeds

import eqsat
from eqsat.extract import search
from eqsat.extract.blocks import ONE, TWO, Rolled, rolled
from eqsat.extract.candidates.assemble import choices
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.check import check
from eqsat.extract.choice.columns import Columns
from eqsat.extract.choice.legal import is_legal
from eqsat.extract.choice.linear import linear_goals
from eqsat.extract.choice.relax import relaxation
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.whole import unrolled_assembly
from eqsat.lang.programs import parse_program
from eqsat.model.egraph import EGraph
from eqsat.model.selection import GoalRequest, Selection
from eqsat.model.target import Target
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.saturate import saturate
from tests.equal_layers import CASES, LAYER, RULES, TARGETS, graph_of, small

REPEATING = ("nothing differs", "a result of every layer", "a weight of all but one")
GOALS = ("time", "memory", "dispatches")


@cache
def layers(count: int, target: str) -> tuple[EGraph, Target]:
    """So many equal layers."""
    body = "\n".join(LAYER.format(i=i, j=i + 1) for i in range(count))
    text = f"program p\ninput h0: f32[8, 8]\n{body}\nreturn h{count}\n"
    there = small(target)
    program = merge_elementwise(parse_program(text, "p.eqs"))
    return saturate(program, eqsat.rules(RULES), there), there


def short_of(graph: EGraph) -> Rolled:
    found = rolled(graph)
    assert found is not None
    return found


# ---- the short e-graph ---------------------------------------------------------------------------
@pytest.mark.parametrize("case", REPEATING[:2])
def test_the_short_e_graph_is_that_of_four_blocks(case: str):
    graph, _ = graph_of(case, "avx512-xla")
    found = short_of(graph)
    found.short.verify()
    if case == "nothing differs":  # however many layers there are, the short one is the same
        fewer = short_of(layers(6, "avx512-xla")[0])
        assert len(found.short.nodes) == len(fewer.short.nodes)
        assert len(found.short.types) == len(fewer.short.types)
        assert found.count == fewer.count + 1
    sizes = [sum(at == block for at in found.high) for block in (ONE, TWO)]
    assert sizes[0] == sizes[1]
    assert len(graph.nodes) == len(found.short.nodes) + (found.count - 1) * sizes[1]


@pytest.mark.parametrize("case", [c for c in CASES if c not in REPEATING])
def test_layers_that_differ_in_the_middle_are_searched_whole(case: str):
    graph, _ = graph_of(case, "avx512-xla")
    found, equal = rolled(graph), short_of(layers(7, "avx512-xla")[0])
    assert found is None or found.count < equal.count


def test_four_blocks_are_not_rolled():
    assert rolled(layers(4, "avx512-xla")[0]) is None


# ---- answers -------------------------------------------------------------------------------------
def answer(
    graph: EGraph, target: Target, goals: tuple[str, ...], monkeypatch: pytest.MonkeyPatch | None
) -> Selection:
    """The selection; with a patch that of the search of all blocks."""
    if monkeypatch is not None:
        monkeypatch.setattr(search, "rolled", lambda graph: None)
    asked = tuple(map(GoalRequest, goals))
    found, _ = search.extract(graph, target, asked, time_limit=300)
    if monkeypatch is not None:
        monkeypatch.undo()
    assert not check(graph, target, found)
    return found


@pytest.mark.parametrize("count", seeds(1, range(5, 9)))
@pytest.mark.parametrize("target", TARGETS)
def test_the_optimum_is_that_of_all_layers(
    count: int, target: str, monkeypatch: pytest.MonkeyPatch
):
    graph, there = layers(count, target)
    one, two = (answer(graph, there, GOALS, way) for way in (None, monkeypatch))
    assert [one.goal(g).value for g in GOALS] == [two.goal(g).value for g in GOALS]
    assert [one.goal(g).bound for g in GOALS] == [two.goal(g).bound for g in GOALS]
    assert one.stop == two.stop


@pytest.mark.parametrize("case", one_in(6, CASES))
def test_no_answer_is_worse_where_something_differs(case: str, monkeypatch: pytest.MonkeyPatch):
    graph, there = graph_of(case, "gfx942")
    one, two = (answer(graph, there, GOALS, way) for way in (None, monkeypatch))
    assert [one.goal(g).value for g in GOALS] == [two.goal(g).value for g in GOALS]


def test_plans_of_layers(monkeypatch: pytest.MonkeyPatch):
    graph, there = layers(6, "avx512")
    one, two = (answer(graph, there, ("time",), way) for way in (None, monkeypatch))
    assert one.goal("time").value == two.goal("time").value
    assert one.goal("time").bound == two.goal("time").bound


def test_a_budget_that_nothing_keeps_is_refused_by_all_layers():
    graph, there = layers(6, "avx512-xla")
    least_dispatches = answer(graph, there, ("dispatches",), None).goal("dispatches").value
    tight = replace(there, budget=(("dispatches", least_dispatches - 1),))
    with pytest.raises(eqsat.EqsatError) as error:
        search.extract(graph, tight, (GoalRequest("time"),), time_limit=60)
    assert error.value.diagnostics[0].code == "E410"


# ---- the bound -----------------------------------------------------------------------------------
def priced(found: Columns, seed: int) -> Columns:
    """Each column at a price of its own, which its images share."""
    assert found.facts.blocks is not None
    price = np.random.default_rng(seed).integers(1, 1000, len(found))
    first = np.flatnonzero(found.image_row >= 0)
    price[found.image_row[first]] = price[first]
    adds = found.adds.copy()
    adds[:, 0] = price * np.where(found.last == TWO, found.facts.blocks.count, 1)
    return replace(found, adds=adds)


@pytest.mark.parametrize("seed", seeds(1, 6))
@pytest.mark.parametrize("target", TARGETS)
def test_the_bound_holds_where_blocks_differ(seed: int, target: str):
    """With prices at random the best answer of all layers may treat them differently."""
    graph, there = layers(6 + seed % 3, target)
    roll = short_of(graph)
    space = Space(roll.short, there.padding, roll)
    pool = Pool(Legality(space, there), False, frozenset(GOALS))
    short = choices(pool, linear_goals(GOALS)).assembled()
    short = replace(short, choice=priced(short.choice, seed))
    relaxed = relaxation(short.choice, {"time": 1})
    assert relaxed is not None
    whole = replace(pool, legality=Legality(Space(graph, there.padding), there))
    every = unrolled_assembly(short, whole, roll).choice
    best = questions(every).least({"time": 1}, {})
    assert best.status == "optimal"
    assert 0 < relaxed.bound <= best.bound
    alike = questions(short.choice).least({"time": 1}, {})
    assert alike.best is not None and is_legal(short.choice, alike.best.columns)
    assert short.choice.value("time", alike.best) >= best.bound
