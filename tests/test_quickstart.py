"""What `make demo` shows: the joint choice beats every fixed policy by the model."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from functools import partialmethod
from pathlib import Path

import pytest

import eqsat
from eqsat.cli import run
from eqsat.lab import experiment
from eqsat.lab.store.store import Measurement
from eqsat.lang.experiments import load_experiment
from tests.test_docs import QUICKSTART, assert_printed, blocks, steady

GAIN = 1.2  # of the best policy over the joint choice


def test_the_joint_choice_beats_every_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """As README shows it, but with one sample and no clock: test_experiment measures rows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(eqsat.Run, "verify", partialmethod(eqsat.Run.verify, samples=1))
    timed = Measurement(1, 1.0, 1.0, 1.0, 1.0, ((1.0, 1.0),))
    monkeypatch.setattr(
        experiment, "measure_groups", lambda rows, *_: [replace(r, measured=timed) for r in rows]
    )
    assert run(shlex.split(QUICKSTART)[1:]) == 0  # it chose from all their programs, too
    (shown,) = (b.text for b in blocks("README.md") if b.text.startswith(f"$ {QUICKSTART}"))
    printed, wanted = capsys.readouterr().out.splitlines(), shown.splitlines()[1:]
    assert_printed([steady(x) for x in printed], [steady(x) for x in wanted], QUICKSTART)
    *policies, joint = json.loads(Path("results/quickstart.json").read_text())["rows"]
    assert joint["name"] == "eqsat"
    assert len(policies) == 7
    assert min(r["time_us"] for r in policies) > GAIN * joint["time_us"]
    assert joint["dispatches"] < min(r["dispatches"] for r in policies)
    assert all(r["stop"] == "optimal" for r in (*policies, joint))


def test_the_demo_is_short_and_timed_as_it_says():
    plan = load_experiment("quickstart")
    assert len(plan.cells) <= 10
    assert plan.runs >= 20 and plan.verify
    assert {c.target for c in plan.cells} == {"avx512"}  # kernels: the schedule is what runs
    assert len({c.set for c in plan.cells}) == 1
