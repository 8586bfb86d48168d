"""`--measure N`: programs near the best one, which is kept, and what a run then is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from runnable import WIDEST

import eqsat
from eqsat.cli import run as command
from eqsat.execute import timing
from eqsat.extract.ask.near import TOLERANCES, near_optimal
from eqsat.model.compiled import Measured
from eqsat.model.diag import EqsatError

W = np.random.default_rng(0).standard_normal((64, 96)).astype("f4")
X = np.random.default_rng(1).standard_normal((32, 64)).astype("f4")
OPTIONS: dict[str, Any] = {"target": WIDEST, "time_limit": 10}


def layer(x: Any) -> Any:
    return jax.nn.relu(x @ W + 1) @ W.T


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, float]], None]:
    """Programs take the seconds that are given by name, others one second."""

    def given(seconds: Mapping[str, float]) -> None:
        def interleave(sides: Mapping[str, Callable[[], Any]]) -> Any:
            for call in sides.values():
                call()  # each of them runs
            took = {name: seconds.get(name, 1.0) for name in sides}
            return 1, {name: [(s, s)] * 30 for name, s in took.items()}

        monkeypatch.setattr("eqsat.run.contenders.interleave", interleave)

    return given


@pytest.fixture(scope="module")
def searched() -> eqsat.Run:
    return eqsat.optimize(layer, X, **OPTIONS)


def test_near_programs_are_others_and_nearly_as_good(searched: eqsat.Run):
    run = searched
    assert run.egraph is not None and run.selection is not None
    found = near_optimal(
        run.egraph, run.target, run.goals, run.selection, run.baseline, count=3, seconds=10
    )
    assert len(found) == 3
    best = run.selection.goal("time").value
    times = [s.goal("time").value for s in found]
    assert times == sorted(times)
    assert all(best <= t <= best * (1 + TOLERANCES[-1]) for t in times)
    made = {tuple((g.members, g.writes) for g in s.groups) for s in (run.selection, *found)}
    assert len(made) == 4
    assert found == near_optimal(
        run.egraph, run.target, run.goals, run.selection, run.baseline, count=3, seconds=10
    )


def test_the_fastest_is_kept_and_runs(clock: Any, tmp_path: Path):
    clock({"near 1": 0.5})
    run = eqsat.optimize(layer, X, measure=4, **OPTIONS)
    assert run.measured is not None and run.schedule is not None
    names = [p.name for p in run.measured.programs]
    assert len(names) == 4  # the input is one of its own where it was not chosen
    assert names[:2] == ["chosen", "near 1"] and names[-1] == "input by XLA"
    kept = run.measured.programs[run.measured.kept]
    assert (kept.name, kept.ratio) == ("near 1", (2.0, 2.0, 2.0))
    assert kept.predicted_us == pytest.approx(run.schedule.time_ps / 1e6, abs=1e-3)
    np.testing.assert_allclose(run.compile()(X), layer(X), rtol=1e-5, atol=1e-5)
    assert run.verify(samples=1).ok
    told = json.loads(json.dumps(run.summary()))
    assert Measured.from_json(told["measured"]) == run.measured
    again = eqsat.load(run.save(tmp_path / "run"))
    assert again.measured == run.measured
    assert again.summary()["measured"] == told["measured"]


def test_the_input_as_xla_has_it_may_be_the_fastest(clock: Any, tmp_path: Path):
    clock({"input by XLA": 0.9})
    run = eqsat.optimize(layer, X, measure=2 + 1, **OPTIONS)
    assert run.runs_on.executor == "xla"
    assert run.execution.executor == "xla"
    assert run.callee is not None and run.callee.is_input
    np.testing.assert_allclose(run.compile()(X), layer(X), rtol=1e-5, atol=1e-5)
    assert eqsat.load(run.save(tmp_path / "run")).runs_on.executor == "xla"


def test_the_chosen_one_stays_where_nothing_is_surely_faster(
    monkeypatch: pytest.MonkeyPatch, clock: Any
):
    clock({})
    noisy = [(0.8 if i % 2 else 1.2, 1.0) for i in range(30)]

    def interleave(sides: Mapping[str, Any]) -> Any:
        return 1, {n: noisy if n != "chosen" else [(1.0, 1.0)] * 30 for n in sides}

    monkeypatch.setattr("eqsat.run.contenders.interleave", interleave)
    run = eqsat.optimize(layer, X, measure=3, **OPTIONS)
    assert run.measured is not None
    assert run.measured.kept == 0


def test_the_command_tells_what_it_measured(
    clock: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    clock({"input by XLA": 0.25})
    path = tmp_path / "p.eqs"
    path.write_text("program p\ninput x: f32[8, 8]\ny = relu(x)\nz = matmul(y, x)\nreturn z\n")
    asked = ["optimize", str(path), "--target", WIDEST, "--measure", "3"]
    assert command(asked) == 0
    out = capsys.readouterr().out
    assert "in 30 interleaved rounds" in out
    assert "kept: input by XLA: the function itself, as XLA compiles it" in out
    assert "4.00x" in out


def test_what_cannot_be_measured_is_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(EqsatError, match=r"E400.*at least 2"):
        eqsat.optimize(layer, X, measure=1, **OPTIONS)

    def steps(x: Any) -> Any:
        return jax.lax.scan(lambda c, r: (c + jnp.exp(r), c), x[0], x)[0]

    with pytest.raises(EqsatError, match="E426"):
        eqsat.optimize(steps, X, measure=2, **OPTIONS)
    assert command(["optimize", "two_packs", "--measure", "2", "--stop-after", "egraph"]) == 2
    assert "--measure" in capsys.readouterr().err


def test_calls_are_timed_in_turn():
    order: list[str] = []
    sides = {n: (lambda n=n: order.append(n) or np.zeros(1)) for n in "ab"}
    count, seconds = timing.interleave(sides, most=30)
    assert {len(s) for s in seconds.values()} == {30}
    assert count >= 1
    assert all(w > 0 for s in seconds.values() for w, _ in s)
    tail = order[-4 * count :]
    assert tail[0] != tail[count] and tail[count] == tail[2 * count]
    middle, low, high = timing.interval([1.0, 1.1, 0.9] * 10)
    assert (middle, low <= middle <= high) == (1.0, True)
