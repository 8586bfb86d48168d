"""`eqsat bench`: what is timed beside what, and what the tables say."""

from __future__ import annotations

import json

import pytest

import eqsat
from eqsat.cli import run as cli
from eqsat.lab.bench import bench, work_key
from eqsat.lang.programs import parse_program
from eqsat.model.diag import EqsatError

PROGRAM = """
program twice
input x: f32[8, 16]
weight v: f32[16, 16]
weight w: f32[16, 16]
a = matmul(x, v)
b = matmul(a, w)
c = exp(b)
return c
"""


@pytest.fixture(scope="module")
def runs() -> dict[str, eqsat.Run]:
    source = eqsat.Source(parse_program(PROGRAM))
    asked = {"apart": ("fusion.members=1",), "fused": ()}
    return {
        name: eqsat.optimize(source, target="reference", rules=(), settings=settings)
        for name, settings in asked.items()
    }


@pytest.fixture
def clock(monkeypatch) -> list[list[str]]:
    """Every side is called once and takes its place in its round, in milliseconds."""
    asked = []

    def interleave(sides, most):
        asked.append(list(sides))
        for call in sides.values():
            call()
        took = {name: 1e-3 * i for i, name in enumerate(sides, 1)}
        return 2, {name: [(s, s / 2)] * most for name, s in took.items()}

    monkeypatch.setattr("eqsat.lab.bench.interleave", interleave)
    monkeypatch.setattr("eqsat.lab.bench.turns_of", lambda many: 5)
    return asked


def test_programs_and_their_dispatches_are_timed_beside_each_other(runs, clock) -> None:
    found = bench(runs)
    assert clock == [["apart", "fused"], ["apart 0", "apart 2"], ["fused 0", "fused 1"]]
    assert [(t.of, t.rank, t.measured_us) for t in found.programs] == [
        ("apart", 1, 500.0), ("fused", 2, 1000.0),
    ]  # fmt: skip
    predicted = [t.predicted_us for t in found.programs]
    assert predicted == [r.schedule.time_ps / 1e6 for r in runs.values()]
    apart = [t for t in found.dispatches if t.of == "apart"]
    assert [(t.dispatch, t.measured_us) for t in apart] == [(0, 100.0), (1, 100.0), (2, 200.0)]
    assert all(t.cpu_us == t.measured_us / 2 and t.low_us == t.high_us for t in apart)
    text = found.to_text()
    assert "2.00x  fused" in text and "sum" in text and "rank" in text
    assert json.loads(json.dumps(found.to_json()))["dispatches"][0]["name"] == "a"


def test_equal_dispatches_are_one(runs) -> None:
    s = runs["apart"].schedule
    first, second, third = (work_key(s, d) for d in s.dispatches)
    assert first == second != third


def test_one_dispatch_of_several_runs_is_ranked(runs, clock) -> None:
    found = bench(runs, [1])
    assert clock == [["apart 1", "fused 1"]] and found.programs == ()
    assert [(t.of, t.dispatch, t.rank) for t in found.dispatches] == [
        ("apart", 1, 1), ("fused", 1, 2),
    ]  # fmt: skip
    with pytest.raises(EqsatError, match="`fused` has no dispatch 2: it has 2 dispatches"):
        bench(runs, [2])


def test_the_command_times_saved_runs(runs, tmp_path, clock, capsys) -> None:
    folders = [str(r.save(tmp_path / name)) for name, r in runs.items()]
    assert cli(["bench", *folders, "--dispatch", "0", "-q", "--output-format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [t["of"] for t in found["dispatches"]] == folders and not found["programs"]
    assert cli(["bench", folders[0], "--dispatch", "9"]) == 2
    assert "error[E427]" in capsys.readouterr().err
    assert cli(["bench", folders[0], "--pin", "4096"]) == 2
    assert "no core 4096" in capsys.readouterr().err
