"""Plans and the parts of prices are told wherever dispatches are."""

from __future__ import annotations

import json
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.cli import run as cli
from eqsat.model.dispatch import Parts
from eqsat.run.saved import load_folder as load


@pytest.fixture(scope="module")
def run() -> eqsat.Run:
    x, w = np.zeros((96, 80), "f4"), np.zeros((80, 64), "f4")
    return eqsat.optimize(lambda x, w: jnp.sort(x @ w + 1.0), x, w, target="avx512", rules=())


def test_a_dispatch_says_what_bounds_it() -> None:
    parts = Parts(1_500_000, 1_200_000, (("l1", 300_000), ("l2", 0)), 0, 300_000, 0.92)
    assert parts.bound_text == "compute-bound at 92 % of peak"
    assert str(parts) == "compute 1.200 us, l1 0.300 us, launch 0.300 us"
    moving = replace(parts, compute_ps=0, peak_share=0.0)
    assert moving.bound_text == "l1-bound"


def test_schedule_explanation_page_and_json_tell_plans(run, tmp_path, capsys) -> None:
    planned, opaque = (run.schedule.dispatches[i] for i in (0, -1))
    assert planned.plan is not None and opaque.plan is None and opaque.no_plan
    folder = run.save(tmp_path / "kept")
    again = load(folder)
    assert again.schedule.dispatches[0].plan == planned.plan
    plan, bound = planned.price_lines
    assert plan.startswith("plan contraction:") and planned.bound_text in bound
    why = f"no plan: {opaque.no_plan}"
    for text in (str(again.schedule), str(again.explain())):
        assert text.count(plan) == text.count(bound) == text.count(why) == 1, text
    page = again.report(tmp_path / "page.html").read_text()
    assert planned.bound_text in page and planned.plan.to_text() in page
    assert cli(["explain", str(folder), "--output-format", "json"]) == 0
    choices = json.loads(capsys.readouterr().out)["choices"]
    told = [c["dispatch"] for c in choices if c["dispatch"]]
    assert told[0]["parts"] == json.loads(json.dumps(planned.parts.to_json()))
    assert told[0]["plan"] in plan and told[0]["layouts_tie"] == planned.layouts_tie
    assert told[-1]["no_plan"] == opaque.no_plan and told[-1]["plan"] is None
    rows = again.summary()["dispatches"]
    assert [r["plan"] for r in rows] == ["contraction", None]
    assert rows[0]["bound"] == planned.parts.bound and rows[0]["time_us"] > 0


def test_layouts_tie_where_a_dispatch_only_computes(run) -> None:
    d = run.schedule.dispatches[0]
    parts = replace(d.parts, compute_ps=10**9, relayout_ps=0)
    work = replace(d.plan.work, strided=0, pages=0, copied=0)
    alone = replace(d, parts=parts, plan=replace(d.plan, work=work))
    assert alone.layouts_tie and alone.bound_text.endswith("of peak; layouts tie")
    strided = replace(alone, plan=replace(d.plan, work=replace(work, strided=9)))
    assert not strided.layouts_tie
    assert not replace(alone, parts=replace(parts, compute_ps=0)).layouts_tie
    assert not replace(d, plan=None).layouts_tie
