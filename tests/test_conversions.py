"""Conversions left when every contraction is packed by one tile: one pack and one unpack."""

from __future__ import annotations

from dataclasses import replace

import pytest

import eqsat

SHORT = ("fusion.members=2", "fusion.template=8")


SLOW = [
    pytest.param(f"{name}@16x16x1", marks=pytest.mark.slow) for name in ("encoder", "bottlenecks")
]


@pytest.mark.parametrize("row", ["mlp@16x16x1", *SLOW])
def test_only_the_input_is_packed_and_only_the_result_unpacked(row: str):
    experiment = eqsat.Experiment.read("experiments/conversions.yaml")
    experiment.plan = replace(experiment.plan, runs=0)
    if row.startswith("bottlenecks"):  # short dispatches: the same conversions, a tenth of the time
        cells = tuple(replace(c, set=(*c.set, *SHORT)) for c in experiment.plan.cells)
        experiment.plan = replace(experiment.plan, cells=cells)
    (found,) = experiment.run(rows=[row]).outcomes
    run = found.run
    assert not found.problems
    assert run is not None and run.schedule is not None and run.verification is not None
    assert run.verification.ok
    goals = dict(run.selection.goals)  # memory's bound holds in every order, it may stay open
    assert goals["relayout"].gap == goals["time"].gap == 0
    counts = run.schedule.counts()
    assert counts["packs"] + counts["unpacks"] + counts["fused_conversions"] <= 2
    assert counts["transposes"] == 0
    program = run.program
    ends = [program.nodes[i].type.nbytes for i in (*program.inputs, *program.results)]
    assert run.schedule.relayout_bytes <= sum(ends)
