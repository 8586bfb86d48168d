"""Calibration of kernels: what is measured, the target it makes, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from runnable import WIDEST

import eqsat
from eqsat import host
from eqsat.cli import run
from eqsat.lab import calibrate as lab
from eqsat.lab.bench import operand_arrays, repeated
from eqsat.lab.calibrate import kernelprograms, kernels
from eqsat.lab.calibrate.kernelprograms import probed_programs
from eqsat.lab.calibrate.kernels import KernelCalibration, RunTimer, calibrate_kernels
from eqsat.lab.calibrate.probes import Probe
from eqsat.lang.targets import load_target, read_target
from eqsat.model.diag import EqsatError
from eqsat.ops.meaning.programs import evaluate_program

EVERY = {s.name: s for s in probed_programs()}
SMALL = tuple(EVERY[n] for n in ("25x64x130 kn", "25x64x130 nk", "128x512x10 panels bias"))
BASE = load_target(WIDEST)


def invented(probe: Probe) -> float:
    """A machine on which the second form takes twice as long."""
    return 2e-5 if "nk" in probe.name else 1e-5


@pytest.fixture(scope="module")
def found() -> KernelCalibration:
    return calibrate_kernels(BASE, quick=True, timer=invented, programs=SMALL)


def test_the_target_extends_its_base_with_what_was_fitted(found: KernelCalibration):
    target = found.to_target()
    assert target.is_planned
    assert target.kernels is not None and BASE.kernels is not None
    assert target.kernels.vector_bytes == BASE.kernels.vector_bytes
    fitted = found.fit.rates.constants
    assert target.kernels.constants.fma_ps == pytest.approx(fitted.fma_ps, rel=0.01)
    assert target.kernels.constants.overlap == pytest.approx(fitted.overlap, abs=0.01)
    assert target.launch_ps == found.fit.rates.launch_ps
    assert [m.size_bytes for m in target.memory][:-1] == list(host.caches().values())
    assert target.tiles == BASE.tiles
    assert target.measured_on is not None
    assert target.measured_on.processor == host.processor()
    assert "left out of the fit: median error" in target.kernels.source
    target.verify()


def test_every_dispatch_is_told_with_its_times(found: KernelCalibration):
    told = json.loads(json.dumps(found.to_json()))
    assert {d["name"]: d["measured_us"] for d in told["dispatches"]} == {
        s.name: 20.0 if "nk" in s.name else 10.0 for s in SMALL
    }
    assert told["leave_one_shape_out"]["pairs"] == 1
    assert set(told["bandwidths"]) == {m.name for m in found.memory}
    assert any("25x64x130 nk" in line for line in found.lines())


def test_programs_of_probes_have_distinct_names_and_the_shapes_they_say():
    assert len(EVERY) == len(probed_programs())
    assert len({s.group for s in probed_programs()}) >= 40
    for name in ("128x384x384 panels add", "128x512x10 panels bias", "12x128x32x128 heads"):
        program = EVERY[name].make()
        rng = np.random.default_rng(0)
        inputs = [rng.standard_normal(program.nodes[i].type.shape) for i in program.inputs]
        (got,) = evaluate_program(program, inputs, {}, {})
        sizes = [int(v) for v in name.split()[0].split("x")]
        assert np.shape(got) == (*sizes[:-2], sizes[-1])


def test_every_probe_that_is_no_kernel_can_be_run_and_has_a_price():
    """An opaque op has neither a function, in a program alone, nor a price."""
    for source in kernelprograms._by_xla():
        assert "opaque" not in {n.op for n in source.make().nodes}, source.name


def test_a_dispatch_is_run_as_often_as_asked():
    """XLA may take what has no side effects out of a loop, if it is the same in every turn."""
    runs = []

    def computed(x: Any) -> Any:
        runs.append(1)
        return np.asarray(x) * 2

    def dispatch(x: Any) -> tuple[Any, ...]:
        return (jax.pure_callback(computed, jax.ShapeDtypeStruct(x.shape, x.dtype), x),)

    call = repeated(dispatch, [jax.numpy.arange(4.0)])
    runs.clear()
    (got,) = call(5)
    assert len(runs) == 5
    np.testing.assert_array_equal(got, [0, 2, 4, 6])


def test_operands_are_what_the_dispatches_before_wrote():
    run = eqsat.optimize(
        lambda x: jax.nn.softmax(x @ x.T), np.ones((8, 4), "f4"), target="reference"
    )
    assert run.schedule is not None
    every = operand_arrays(run)
    assert [len(r) for r in every] == [len(d.reads) for d in run.schedule.dispatches]
    found = jax.jit(run.executable.dispatch(len(every) - 1))(*every[-1])
    np.testing.assert_allclose(np.asarray(found[0]).sum(-1), 1, rtol=1e-5)


def test_short_runs_are_repeated_until_they_can_be_measured():
    now, asked = [0.0], []

    def call(count: int) -> None:
        asked.append(count)
        now[0] += 1e-4 + count * 1e-5  # a call by itself takes ten times as long as a run

    timer = RunTimer(clock=lambda: now[0])
    probe = Probe("p", 1, lambda: call)
    assert timer(probe) == pytest.approx(1e-5)
    assert max(asked) * 1e-5 >= 2e-3
    first = len(asked)
    timer(probe)
    assert len(asked) == first + 2


def test_runs_take_longer_than_a_call_without_any():
    """E420 of a pass over 48 MB: three runs took less than what a call by itself varies by."""
    now, asked = [0.0], []

    def call(count: int) -> None:
        asked.append(count)
        now[0] += 3e-2 + count * 4e-3

    assert RunTimer(clock=lambda: now[0])(Probe("p", 1, lambda: call)) == pytest.approx(4e-3)
    assert max(asked) * 4e-3 > 3 * 3e-2


# ---- the command -----------------------------------------------------------------------------
def test_the_command_writes_the_target_that_auto_takes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any, found: KernelCalibration
):
    monkeypatch.setenv("EQSAT_CONFIG", str(tmp_path))
    monkeypatch.setattr(lab, "base_target", lambda: BASE)
    monkeypatch.setattr(lab, "calibrate_kernels", lambda *_, **__: found)
    assert run(["calibrate", "--output-format", "json", "-q"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["target"] == "host"
    assert told["file"] == str(tmp_path / "targets" / "host.yaml")
    taken = load_target("auto")
    assert (taken.name, taken.chosen) == ("host", "it was calibrated on this machine")
    assert taken.executor == "kernels"
    assert read_target((tmp_path / "targets" / "host.yaml").read_text()).kernels == taken.kernels


def test_too_few_kernels_are_no_fit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernels, "probed_programs", lambda: SMALL)
    with pytest.raises(EqsatError, match=r"E425.*only 3 of 3"):
        calibrate_kernels(BASE, timer=invented)


def test_a_machine_without_kernels_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(host, "features", lambda: ())
    out = tmp_path / "mine.yaml"
    assert run(["calibrate", "--executor", "kernels", "-o", str(out)]) == 2
    assert "E425" in capsys.readouterr().err
    assert not out.exists()
