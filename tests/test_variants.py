"""Variants of one dispatch: which plans there are, that all compute the same, how they are told."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from runnable import WIDEST, needs

import eqsat
from eqsat.cli import run as cli
from eqsat.lab.variants import bench_plans, evenly, priced_plans
from eqsat.lang.programs import parse_program
from eqsat.model.diag import EqsatError
from eqsat.plan.plancheck import plan_faults
from eqsat.plan.updates import nest_in_place

PROGRAM = """
program layers
input x: f32[48, 96]
weight v: f32[96, 80]
a = matmul(x, v)
b = tanh(a)
s = generic(b, loops=[48, 80], maps=[[d0, d1]], body=x0, combine=max, rank=1)
return s
"""


@pytest.fixture(scope="module")
def run() -> eqsat.Run:
    source = eqsat.Source(parse_program(PROGRAM))
    return eqsat.optimize(source, target=WIDEST, rules=())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every side is called once; the later ones are the faster."""

    def interleave(sides: Any, most: int) -> Any:
        for call in sides.values():
            call()
        took = {name: 1e-3 * (len(sides) - i) for i, name in enumerate(sides)}
        return 2, {name: [(s, s / 2)] * most for name, s in took.items()}

    monkeypatch.setattr("eqsat.lab.bench.interleave", interleave)
    monkeypatch.setattr("eqsat.lab.variants.turns_of", lambda many: 5)


def test_every_plan_of_every_dispatch_is_sound_and_the_schedules_own_is_first(run: eqsat.Run):
    assert run.schedule is not None
    kinds = set()
    for i, d in enumerate(run.schedule.dispatches):
        plans = priced_plans("run", run, i)
        assert plans[0] == (d.plan, d.parts)
        assert len({p for p, _ in plans}) == len(plans) > 3
        times = [parts.time_ps for _, parts in plans[1:]]
        assert times == sorted(times)
        nest = nest_in_place(run.schedule, d)
        assert not [f for p, _ in plans for f in plan_faults(nest, p)]
        kinds.add(plans[0][0].kind)
        if plans[0][0].kind == "contraction":
            differ = {(p.vector_loop, p.rows, p.vectors, p.copied) for p, _ in plans}
            blocks = {(p.tile_block, p.panel_block, p.k_block) for p, _ in plans}
            assert len(differ) > 8 and len(blocks) > 4
    assert "contraction" in kinds


@pytest.mark.usefixtures("clock")
def test_plans_are_timed_beside_the_schedules_own_and_ranked(run: eqsat.Run):
    needs(WIDEST)
    (number,) = [i for i, d in enumerate(run.schedule.dispatches) if d.plan.kind == "contraction"]
    found = bench_plans("run", run, number, 7)
    assert not found.refused  # all give what the schedule's own plan gives
    assert len(found.plans) == 7 < found.known
    assert found.plans[0].plan == run.schedule.dispatches[number].plan
    assert [p.timing.rank for p in found.plans] == [7, 6, 5, 4, 3, 2, 1]
    assert found.quality(found.wall_us).kendall_tau < 0  # the clock has the dearest the fastest
    text = found.to_text()
    assert "7.00x of the fastest" in text
    assert "by CPU time prices order 0 of" in text
    assert text.count("\n*") == 1


@pytest.mark.usefixtures("clock")
def test_a_plan_that_computes_otherwise_is_told_and_not_timed(
    run: eqsat.Run, monkeypatch: pytest.MonkeyPatch
):
    needs(WIDEST)
    answers = iter(["", "%a differs by 1", "%a differs by 1"])
    monkeypatch.setattr("eqsat.lab.variants.disagreement", lambda *_: next(answers))
    found = bench_plans("run", run, 0, 3)
    assert len(found.plans) == 1
    assert all("%a differs by 1" in line for line in found.refused)
    assert found.to_text().count("not timed") == 2


def test_plans_are_spread_from_the_first_to_the_dearest():
    plans: Any = list("abcdefg")
    assert evenly(plans, 3) == ["a", "d", "g"]
    assert evenly(plans, 100) == plans
    with pytest.raises(EqsatError, match="E428"):
        evenly(plans[:1], 2)


@pytest.mark.usefixtures("clock")
def test_the_command_is_about_one_dispatch(run: eqsat.Run, tmp_path: Any, capsys: Any):
    needs(WIDEST)
    folder = str(run.save(tmp_path / "run"))
    asked = ["bench", folder, "--dispatch", "0", "--variants", "3", "-q"]
    assert cli([*asked, "--output-format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["plans"]) == 3
    assert found["plans"][0]["text"] == run.schedule.dispatches[0].plan.to_text()
    for wrong in ([folder], [folder, folder, "--dispatch", "0"]):
        assert cli(["bench", *wrong, "--variants", "3"]) == 2
        assert "one dispatch of one run" in capsys.readouterr().err
    assert cli(["bench", folder, "--dispatch", "9", "--variants", "3"]) == 2
    assert "error[E427]" in capsys.readouterr().err


def test_what_has_no_plan_has_no_variants(run: eqsat.Run, monkeypatch: pytest.MonkeyPatch):
    plain = eqsat.optimize(eqsat.Source(parse_program(PROGRAM)), target="reference", rules=())
    with pytest.raises(EqsatError, match=r"E428.*reference plans no kernels"):
        priced_plans("run", plain, 0)
    monkeypatch.setattr(eqsat.Run, "runs_on", replace(run.target, executor="xla"))
    with pytest.raises(EqsatError, match=r"E428.*follows none"):
        bench_plans("run", run, 0, 2)
