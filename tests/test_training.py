"""A step of training is a program like any other: searched whole, its weights kept as state."""

from __future__ import annotations

import numpy as np
import pytest
from library import module

import eqsat

FORCED = ["tiles.matmul=[{mnk: [16, 16, 16], rate: 0.9}]", "tiles_forced=true"]


@pytest.fixture(scope="module")
def arguments() -> list[np.ndarray]:
    shapes = [s.shape for s in module("train").step_example()]
    rng = np.random.default_rng(0)
    return [(rng.standard_normal(s) / 8).astype(np.float32) for s in shapes]


def test_a_step_is_read_with_both_passes_and_runs(arguments):
    run = eqsat.optimize(eqsat.read("train.py:step"), settings=FORCED, rules="policy/keep")
    products = [n for n in run.program.nodes if n.op == "generic" and len(n.attr.maps) > 1]
    forward, of_weights, of_hidden = 2, 2, 1
    assert sum(bool(n.attr.reductions) for n in products) == forward + of_weights + of_hidden
    assert run.schedule is not None
    assert {n.op for n in run.schedule.program.nodes} >= {"pack", "unpack"}
    assert not any(n.op == "opaque" for n in run.program.nodes)
    for got, want in zip(run.compile()(*arguments), module("train").step(*arguments), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_its_weights_are_states_of_the_loop_around_it():
    from eqsat.reading import read_state

    assert read_state("train.py:step") == {"w1": 0, "w2": 1}
    kept = eqsat.keep_state(
        eqsat.read("train.py:step"), state={"w2": 1}, settings=FORCED, rules="policy/keep"
    )
    assert len(kept.alternatives) > 1
    assert kept.best.values <= kept.alternatives[0].values


@pytest.mark.slow
def test_no_policy_beats_the_search_of_a_step():
    times = []
    for rules in ("default", "policy/keep", "policy/always-fold"):
        run = eqsat.optimize(
            eqsat.read("train.py:step"), settings=FORCED, rules=rules, goals=["time"]
        )
        assert run.selection is not None
        times.append(run.selection.goal("time").value)
    assert times[0] <= min(times)
