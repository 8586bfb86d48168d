"""What `make demo` shows: the joint choice beats every fixed policy by the model."""

from __future__ import annotations

from dataclasses import replace

import pytest

import eqsat
from eqsat.lab.results import Results
from eqsat.lang.experiments import load_experiment

GAIN = 1.2  # of the best policy over the joint choice


@pytest.fixture(scope="module")
def results() -> Results:
    """All rows, searched and not timed."""
    plan = load_experiment("quickstart")
    return eqsat.Experiment(replace(plan, runs=0, verify=False)).run()


def test_the_joint_choice_beats_every_policy(results: Results):
    assert results.problems() == ()  # it chose from all their programs, too
    *policies, joint = results.rows()
    assert joint["name"] == "eqsat"
    assert len(policies) == 7
    assert min(r["time_us"] for r in policies) > GAIN * joint["time_us"]
    assert joint["dispatches"] < min(r["dispatches"] for r in policies)
    assert all(r["stop"] == "optimal" for r in results.rows())


def test_the_demo_is_short_and_timed_as_it_says():
    plan = load_experiment("quickstart")
    assert len(plan.cells) <= 10
    assert plan.runs >= 20 and plan.verify
    assert {c.target for c in plan.cells} == {"avx512"}  # kernels: the schedule is what runs
    assert len({c.set for c in plan.cells}) == 1
