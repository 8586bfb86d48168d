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
from eqsat.extract.blocks import NOWHERE, ONE, TWO, Rolled, rolled
from eqsat.extract.candidates.assemble import Assembly, choices, unrolled_assembly
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.sources import undominated
from eqsat.extract.candidates.space import Space
from eqsat.extract.candidates.tabulate import undominated_columns
from eqsat.extract.check import check
from eqsat.extract.choice.columns import Columns
from eqsat.extract.choice.legal import is_legal
from eqsat.extract.choice.linear import linear_goals
from eqsat.extract.choice.relax import relaxation
from eqsat.extract.dispatch.legality import Legality
from eqsat.lang.programs import parse_program
from eqsat.model.egraph import EGraph
from eqsat.model.rules import RuleSet
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


# blocks that elementwise ops lead through, from one to the next: these may be computed again, in a
# dispatch of three blocks, so that no `h` has to be in memory
CARRIED = """t{i} = matmul(h{i}, w)
s{i} = generic(t{i}, loops=[8, 2], maps=[[d0, d1]], body=x0, combine=max) : f32[]
h{j} = mul(tanh(generic(s{i}, h{i}, loops=[8, 8], maps=[[], [d0, d1]], body=add(x0, x1))), 0.5)"""


PLAIN = "h{j} = relu(matmul(matmul(h{i}, w), v))"


def unruled(block: str, there: Target) -> EGraph:
    """Six blocks as they are written."""
    body = "\n".join(block.format(i=i, j=i + 1) for i in range(6))
    head = "program p\ninput h0: f32[8, 8]\nweight w: f32[8, 2]\nweight v: f32[2, 8]"
    program = merge_elementwise(parse_program(f"{head}\n{body}\nreturn h6\n", "p.eqs"))
    return saturate(program, RuleSet("none", "", ()), there)


def test_the_least_memory_may_take_dispatches_of_three_blocks(monkeypatch: pytest.MonkeyPatch):
    there = eqsat.target("avx512")
    there = replace(there, fusion=replace(there.fusion, members=2))
    graph = unruled(CARRIED, there)
    assert short_of(graph).may_be_crossed(there.fusion)
    assert not short_of(unruled(PLAIN, there)).may_be_crossed(there.fusion)
    one, two = (answer(graph, there, ("memory",), way) for way in (None, monkeypatch))
    assert one.goal("memory") == two.goal("memory")


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


# a mask that all layers share, and what is behind it cheap enough to be computed twice; the first
# layer differs at its end, so that the blocks begin behind it
MASKED = """weight w{i}: f32[8, 8]
m{i} = matmul(h{i}, w{i})
n{i} = generic(m{i}, mask, loops=[8, 8], maps=[[d0, d1], [d1]], body=mul(x0, x1))
s{i} = generic(n{i}, loops=[8, 8], maps=[[d0, d1]], body=x0, combine=max) : f32[8]
h{j} = generic(n{i}, s{i}, loops=[8, 8], maps=[[d0, d1], [d0]], body=mul(sub(x0, x1), 0.5))"""
MASK = "mask = generic(x, loops=[8], maps=[[d0]], body=exp(x0))"


@cache
def stacked(
    layer: str, target: str, rules: str, *, differs: bool = True
) -> tuple[Assembly, Rolled]:
    """The choice of eight such layers, of which the first one may differ at its end."""
    body = "\n".join(layer.format(i=i, j=i + 1) for i in range(8))
    body = body.replace("0.5", "0.25", 1) if differs else body
    inputs = "input h0: f32[8, 8]" + ("\ninput x: f32[8]" if "mask" in layer else "")
    first = MASK if "mask" in layer else ""
    there = small(target)
    there = replace(there, fusion=replace(there.fusion, members=3 if rules == RULES else 2))
    text = f"program p\n{inputs}\n{first}\n{body}\nreturn h8\n"
    program = merge_elementwise(parse_program(text, "p.eqs"))
    roll = short_of(saturate(program, eqsat.rules(rules), there))
    pool = Pool(Legality(Space(roll.short, there.padding, roll), there), False, frozenset(GOALS))
    return choices(pool, linear_goals(GOALS)).assembled(), roll


def test_what_joins_the_front_with_a_block_has_a_place_in_each_block():
    """A part of a layer in front of all blocks is one of block -1, and far from block 1."""
    short, roll = stacked(MASKED, "avx512", RULES)
    assert any(
        image not in (-1, c) and level == NOWHERE
        for c, (image, level) in enumerate(zip(roll.images, roll.level, strict=True))
    )
    front = [n for n, low in enumerate(roll.low) if low == NOWHERE]
    assert front
    for column in np.flatnonzero(short.choice.last >= ONE).tolist():
        assert not set(front).intersection(short.candidate(column).members)


@pytest.mark.parametrize(
    ("layer", "target", "rules", "differs", "seed"),
    [
        (MASKED, "avx512", RULES, True, 2),
        pytest.param(LAYER, "avx512-xla", "default", False, 5, marks=pytest.mark.slow),
        *(
            pytest.param(MASKED, *further, marks=pytest.mark.slow)
            for further in (
                ("avx512", RULES, True, 13),
                ("avx512", "default", True, 0),
                ("avx512-xla", "default", False, 3),
            )
        ),
        *(
            pytest.param(layer, target, "default", differs, seed, marks=pytest.mark.slow)
            for layer in (MASKED, LAYER)
            for target in ("avx512-xla", "avx512")
            for differs in (False, True)
            for seed in range(10)
        ),
    ],
)
def test_an_answer_that_is_left_is_worth_no_less_than_the_bound(
    layer: str, target: str, rules: str, differs: bool, seed: int
):
    """Whatever other columns are gone, of one block or of all: as reduced costs take them out."""
    short, _ = stacked(layer, target, rules, differs=differs)
    choice = priced(short.choice, seed)
    alike = questions(choice).least({"time": 1}, {}).best
    assert alike is not None and is_legal(choice, alike.columns)
    value, random = choice.value("time", alike), np.random.default_rng(seed)
    for part in (0.3, 0.6, 0.8, 0.9, 0.95):
        for _ in range(4):
            kept = random.random(len(choice)) > part
            kept[list(alike.columns)] = True
            few = choice.take(np.flatnonzero(kept))
            for left in (few, undominated_columns(short.sources, few)):
                relaxed = relaxation(left, {"time": 1})
                assert relaxed is not None and relaxed.bound <= value


def test_what_is_gone_in_one_block_dominates_nothing_that_both_have():
    short, _ = stacked(MASKED, "avx512", RULES)
    choice = replace(short.choice, adds=np.zeros_like(short.choice.adds))
    dominated = set(choice.key.tolist()).difference(
        undominated_columns(short.sources, choice).key.tolist()
    )
    both = [i for i in np.flatnonzero(choice.image_row >= 0) if int(choice.key[i]) in dominated]
    assert both
    for one in both:
        same = [
            i
            for i in np.flatnonzero(choice.last == TWO)
            if choice.writes.tuples[i] == choice.writes.tuples[choice.image_row[one]]
        ]
        gone = set(same) - {int(choice.image_row[one])}
        few = choice.take(np.array(sorted(set(range(len(choice))) - gone)))
        rows = undominated(few, short.sources.candidates)
        assert int(choice.key[one]) in few.key[rows].tolist()
