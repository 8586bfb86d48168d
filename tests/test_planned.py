"""Candidates cost what their plans do; search, checker and schedule agree on every dispatch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eqsat.api import Run, optimize
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.check import check
from eqsat.extract.dispatch.floors import floors
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.dispatch.plans import PlanPrices
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.groups.borders import Borders
from eqsat.extract.groups.grow import PartialGroup
from eqsat.lang.programs import parse_program
from eqsat.lang.targets import load_target
from eqsat.model.diag import EqsatError
from eqsat.model.nest import NoNest
from eqsat.model.rules import RuleSet
from eqsat.model.schedule import Schedule
from eqsat.model.selection import Group, Selection
from eqsat.ops.nests.nest import nest_of_dispatch
from eqsat.schedule.build import build

AVX512 = load_target("avx512")
RNG = np.random.default_rng(0)


def _weight(*shape: int) -> jax.Array:
    return jnp.asarray(RNG.standard_normal(shape), jnp.float32)


W = [_weight(48, 64), _weight(64, 64), _weight(64, 64)]


def _blocks(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Two equal blocks, sorted rows in front: an op that no kernel takes."""
    x = jnp.sort(x, axis=0) @ W[0]
    for w in W[1:]:
        x = jnp.maximum(x @ w + 1.0, 0.0)
    return x, jnp.transpose(x)


@pytest.fixture(scope="module")
def run() -> Run:
    return optimize(_blocks, jnp.zeros((24, 48)), target=AVX512, time_limit=30)


def test_dispatches_have_plans_that_cost_what_was_searched(run: Run):
    assert run.schedule is not None and run.selection is not None
    by = {bool(d.plan): d for d in run.schedule.dispatches}
    assert set(by) == {True, False}, "the sort has no plan, the rest does"
    for d in run.schedule.dispatches:
        assert (d.plan is None) == (d.parts is None) == bool(d.no_plan)
        assert d.parts is None or d.parts.time_ps == d.time_ps
    contractions = [d for d in run.schedule.dispatches if "contraction" in d.ops]
    assert len(contractions) == 3 and all(d.plan for d in contractions)
    assert check(run.egraph, AVX512, run.selection) == []


def test_the_schedule_keeps_its_plans(run: Run):
    assert run.schedule is not None
    again = Schedule.from_json(json.loads(json.dumps(run.schedule.to_json())))
    assert again.dispatches == run.schedule.dispatches


@pytest.mark.slow  # an interpreter, 7 s
def test_a_saved_run_is_read_in_another_process(run: Run, tmp_path: Path):
    """Where nothing has planned anything yet."""
    run.save(tmp_path / "saved")
    code = f"import eqsat; print(eqsat.load({str(tmp_path / 'saved')!r}).schedule.dispatches[-1])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.schedule is not None
    assert done.stdout.strip() == str(run.schedule.dispatches[-1])


def test_a_wrong_price_is_found(run: Run):
    """By the checker, which prices anew, and by the schedule, which plans anew."""
    assert run.selection is not None
    last = len(run.selection.groups) - 1
    cheap = tuple(
        replace(g, time_ps=g.time_ps - (i == last)) for i, g in enumerate(run.selection.groups)
    )
    wrong = replace(run.selection, groups=cheap)
    assert any("ps, not" in fault for fault in check(run.egraph, AVX512, wrong))
    with pytest.raises(EqsatError, match="takes"):
        build(run.egraph, replace(wrong, goals=()), AVX512)


def test_equal_blocks_are_planned_once(run: Run, monkeypatch: pytest.MonkeyPatch):
    asked: Counter[str] = Counter()
    plan = PlanPrices._planned_ps

    def counted(self: PlanPrices, *sides: tuple[int, ...]) -> int | None:
        asked["planned"] += 1
        return plan(self, *sides)

    monkeypatch.setattr(PlanPrices, "_planned_ps", counted)
    assert run.selection is not None
    costs = Costs(Space(run.egraph), AVX512)
    for g in [*run.selection.groups, *run.selection.groups]:
        assert costs.group_ps(g.members, g.reads, g.writes) == g.time_ps
    assert asked["planned"] < len(run.selection.groups) + 1


def test_floors_are_below_the_answer(run: Run):
    assert run.selection is not None
    space = Space(run.egraph)
    found = floors(Pool(Legality(space, AVX512), False), Costs(space, AVX512))
    goals = dict(run.selection.goals)
    assert 0 < found["time"] <= goals["time"].value


def test_the_nest_of_a_group_is_that_of_its_dispatch(run: Run):
    """Up to names: the search's e-nodes and the schedule's nodes are one kernel."""
    assert run.selection is not None and run.schedule is not None
    planned = PlanPrices(Space(run.egraph), AVX512)
    for g, d in zip(run.selection.groups, run.schedule.dispatches, strict=True):
        try:
            one = planned.nest(g.members, g.reads, g.writes)
        except NoNest:
            with pytest.raises(NoNest):
                nest_of_dispatch(run.schedule, d)
            continue
        two = nest_of_dispatch(run.schedule, d)
        names = dict(zip((*one.reads, *one.writes), (*two.reads, *two.writes), strict=True))
        nodes = {a.node: b.node for a, b in zip(one.stages, two.stages, strict=True)}
        assert one.renumbered(names | nodes) == two.renumbered({n: n for n in range(10**4)})


def test_conversions_inside_make_no_other_kernel(monkeypatch: pytest.MonkeyPatch):
    """One group of each kernel is enough: all of them give no better answer."""

    def layer(x: jax.Array) -> jax.Array:
        for w in (W[1], W[2]):
            x = jnp.maximum(x @ w + 1.0, 0.0)
        return x

    def searched() -> Run:
        return optimize(layer, jnp.zeros((24, 64)), target=AVX512, time_limit=30)

    few = searched()
    every = Borders.one_of_each
    left_out: Counter[bool] = Counter()

    def counted(self: Borders, states: Iterable[PartialGroup]) -> list[PartialGroup]:
        states = list(states)
        left_out[len(every(self, states)) < len(states)] += 1
        return states

    monkeypatch.setattr(Borders, "one_of_each", counted)
    monkeypatch.setattr(Borders, "projects", False)  # nor any left out early
    assert searched().selection.goal("time") == few.selection.goal("time")
    assert left_out[True]


def test_a_weight_that_is_turned_in_every_run_costs_the_same_everywhere():
    """What one dispatch writes and another reads as a weight is near to the one that writes it."""
    text = """program turned
input x: f32[32, 48]
input y: f32[1, 768]
weight w: f32[48, 32]
weight v: f32[768, 768]
t = transpose(w, perm=[1, 0])
z = add(x, t)
m = matmul(y, v)
return z, m
"""
    run = optimize(
        parse_program(text), target=AVX512, rules=RuleSet("none", "", ()), stop_after="egraph"
    )
    egraph = run.egraph
    assert egraph is not None
    space, at = Space(egraph), {n.op: i for i, n in enumerate(egraph.nodes)}
    costs, nodes = Costs(space, AVX512), egraph.nodes
    ops = [at["transpose"], *(i for i, n in enumerate(nodes) if n.op == "generic")]
    groups = tuple(
        Group((i,), tuple(dict.fromkeys(nodes[i].children)), (nodes[i].eclass,), 0, step)
        for step, i in enumerate(ops)
    )
    priced = [replace(g, time_ps=costs.group_ps(g.members, g.reads, g.writes)) for g in groups]
    weights = tuple(i for i, n in enumerate(nodes) if n.op == "weight")
    found = build(egraph, Selection(tuple(priced), weights, (), "cut"), AVX512)
    assert [d.time_ps for d in found.dispatches] == [g.time_ps for g in priced]
    levels = [dict(d.parts.traffic_ps).keys() for d in found.dispatches if d.parts]
    assert levels[0] == {"l1", "l3"}, "the weight comes from where all weights are"
