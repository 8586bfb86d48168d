"""`auto` where nothing is calibrated: a shipped target scaled by figures measured at first use."""

from __future__ import annotations

import json
import os
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from runnable import needs_kernels

import eqsat
from eqsat import host
from eqsat.execute.kernels import scale
from eqsat.execute.kernels.scale import RateFigures, TimedProbe, alone, here, scaled_target
from eqsat.lang import owntarget as kept
from eqsat.lang.owntarget import TIMES, scaled_text
from eqsat.lang.programs import parse_program
from eqsat.lang.targets import find_target, load_target, read_target
from eqsat.model.diag import EqsatError, EqsatWarning
from eqsat.model.selection import GoalRequest
from eqsat.model.target import Target
from eqsat.plan.price import Rates, first_fetches, priced_parts, rates
from eqsat.report.finished import by_figures, is_measured_here

BASE = load_target("avx512")
FEATURES = ("avx2", "avx512bw", "avx512dq", "avx512f", "avx512vl", "fma")
MEASURED = kept._measured
PROGRAM = "program p\ninput x: f32[4]\ny = relu(x)\nreturn y\n"


def timed(text: str, truth: Rates) -> TimedProbe:
    """A kernel that takes what these rates say."""
    k = alone("k", parse_program(text), BASE.machine)
    parts = priced_parts(k.plan.work, replace(truth, launch_ps=0), first_fetches(k.nest))
    return TimedProbe(k, parts.time_ps)


def figures(target: Target, slower: float, bandwidths: dict[str, float]) -> RateFigures:
    """Of a machine whose cores and levels of memory are this much slower than the target's."""
    truth = rates(target)
    constants = replace(truth.constants, **{n: getattr(truth.constants, n) * slower for n in TIMES})
    memory = tuple(
        replace(m, bandwidth=m.bandwidth / bandwidths.get(m.name, slower)) for m in truth.memory
    )
    truth = replace(truth, constants=constants, memory=memory)
    machine = target.machine
    streams = {
        m.name: scale._stream(scale._probed_bytes(target, m), machine) for m in target.memory[1:]
    }
    texts = {name: k.program.to_text() for name, k in streams.items()}
    made = {name: timed(text, truth) for name, text in texts.items()}
    return RateFigures(timed(scale._product(machine), truth), made, 40_000)


# ---- the figures -----------------------------------------------------------------------------
def test_a_target_is_scaled_to_what_was_measured():
    found = scaled_target(BASE, figures(BASE, 0.4, {"l2": 0.5, "l3": 2.0, "dram": 0.8}))
    assert found.kernels is not None and BASE.kernels is not None
    now, before = found.kernels.constants, BASE.kernels.constants
    assert now.fma_ps == pytest.approx(0.4 * before.fma_ps, rel=0.01)
    assert now.scalar_ps == pytest.approx(0.4 * before.scalar_ps, rel=0.01)
    assert now.copy_rate == pytest.approx(before.copy_rate / 0.5, rel=0.01)
    for m, factor in zip(found.memory, (0.4, 0.5, 2.0, 0.8), strict=True):
        was = next(b for b in BASE.memory if b.name == m.name)
        assert m.bandwidth == pytest.approx(was.bandwidth / factor, rel=0.02)
    assert dict(found.rates)["f32"] == pytest.approx(dict(BASE.rates)["f32"] / 0.4, rel=0.01)
    assert found.launch_ps == 40_000
    assert now.loop_ps == pytest.approx(0.4 * before.loop_ps, rel=0.01)
    assert found.kernels.xla_op_ps == round(BASE.kernels.xla_op_ps * 40_000 / BASE.launch_ps)
    assert found.machine == BASE.machine, "what runs does not depend on what was measured"


def test_what_is_measured_as_predicted_stays_as_it_is():
    found = scaled_target(BASE, figures(BASE, 1.0, {}))
    assert found.kernels is not None and BASE.kernels is not None
    assert found.kernels.constants.fma_ps == pytest.approx(BASE.kernels.constants.fma_ps, rel=0.01)


def test_the_file_says_what_was_measured_and_what_follows_from_it():
    target = scaled_target(here(BASE), figures(here(BASE), 2.0, {}))
    found = read_target(scaled_text("avx512", target, 5), "here.yaml")
    assert (found.name, found.tiles) == ("avx512-here", BASE.tiles)
    assert found.kernels is not None and target.kernels is not None
    assert found.kernels.constants.load_ps == pytest.approx(
        target.kernels.constants.load_ps, rel=0.01
    )
    assert found.kernels.xla_op_ps == target.kernels.xla_op_ps
    assert found.measured_on is not None and found.measured_on.figures == 5
    assert [m.size_bytes for m in found.memory][:-1] == list(host.caches().values())
    assert "5 figures measured at first use" in found.source
    assert Target.from_json(json.loads(json.dumps(found.to_json()))) == found
    found.verify()


def test_a_proof_says_by_how_many_figures():
    target = read_target(scaled_text("avx512", BASE, 5), "here.yaml")
    assert is_measured_here(target)
    assert by_figures(target, (GoalRequest("time"),)) == " for 5 figures measured here"
    assert by_figures(target, (GoalRequest("memory"),)) == ""
    assert target.measured_on is not None
    everything = replace(target, measured_on=replace(target.measured_on, figures=0))
    assert by_figures(everything, (GoalRequest("time"),)) == ""


# ---- the file that is kept -------------------------------------------------------------------
@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine that may be measured, with folders of its own; what it was measured for."""
    asked: list[str] = []

    def measured(name: str) -> str:
        asked.append(name)
        time.sleep(0.05)
        return scaled_text(name, here(load_target(name)), 5)

    for variable, folder in (("EQSAT_CACHE", "cache"), ("EQSAT_CONFIG", "config")):
        monkeypatch.setenv(variable, str(tmp_path / folder))
    monkeypatch.setenv(kept.VARIABLE, kept.ONCE)
    monkeypatch.setattr(host, "features", lambda: FEATURES)
    monkeypatch.setattr(kept, "_measured", measured)
    return asked


def file_of(folder: str) -> Path:
    (found,) = Path(folder, "machine").glob("*.yaml")
    return found


def test_a_machine_is_measured_once(machine: list[str]):
    found = load_target("auto")
    assert machine == ["avx512"]
    assert found.name == "avx512-here"
    assert found.chosen == (
        "this CPU has avx512f; scaled by figures measured here, which `eqsat calibrate` refines"
    )
    kept._cached.cache_clear()  # another process
    assert load_target("auto") == found
    assert find_target("auto") == file_of(os.environ["EQSAT_CACHE"])
    assert machine == ["avx512"]
    assert load_target("avx512").name == "avx512", "a target that is named is as it is shipped"


def test_of_several_at_once_one_measures(machine: list[str]):
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(load_target("auto").name)) for _ in range(4)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == ["avx512-here"] * 4
    assert machine == ["avx512"]


def changed(path: Path) -> None:
    text = path.read_text()
    path.write_text(text.replace(host.processor(), "Another CPU"))


def damaged(path: Path) -> None:
    path.write_text("target: [")


def shared(path: Path) -> None:
    path.chmod(0o666)


@pytest.mark.parametrize("change", [changed, damaged, shared])
def test_a_file_that_is_not_of_this_machine_is_measured_anew(
    change: Callable[[Path], None], machine: list[str]
):
    before = load_target("auto")
    path = file_of(os.environ["EQSAT_CACHE"])
    change(path)
    kept._cached.cache_clear()
    found = load_target("auto")
    assert len(machine) == 2
    assert found.memory == before.memory
    assert ("figures of another machine (Another CPU) were not used" in found.chosen) is (
        change is changed
    )


def test_a_calibration_of_another_machine_is_said_and_this_one_measured(machine: list[str]):
    config = Path(os.environ["EQSAT_CONFIG"], "targets")
    config.mkdir(parents=True)
    text = scaled_text("avx512", BASE, 0).replace("avx512-here", "host")
    (config / "host.yaml").write_text(text.replace(host.processor(), "Another CPU"))
    found = load_target("auto")
    assert found.name == "avx512-here"
    assert found.chosen.startswith("`host` was calibrated on another machine (Another CPU); ")


def test_never_means_the_shipped_target(machine: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(kept.VARIABLE, kept.NEVER)
    assert load_target("auto").name == "avx512"
    assert not machine
    monkeypatch.setenv(kept.VARIABLE, "seldom")
    with pytest.raises(EqsatError, match=r"E271.*EQSAT_MEASURE=seldom"):
        load_target("auto")


def test_what_has_no_kernels_is_not_measured(machine: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(host, "features", lambda: ())
    assert load_target("auto").name == "reference"
    assert not machine


def test_a_folder_that_others_may_write_to_is_not_used(machine: list[str], tmp_path: Path):
    folder = tmp_path / "cache" / "machine"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.warns(EqsatWarning, match=r"E516.*nothing is measured"):
        found = load_target("auto")
    assert (found.name, machine) == ("avx512", [])
    assert "others may write" in found.chosen


def test_a_folder_that_cannot_be_made_is_said(machine: list[str], tmp_path: Path):
    (tmp_path / "cache").write_text("a file")
    found = load_target("auto")
    assert (found.name, machine) == ("avx512", [])
    assert "cannot be written, so it was not measured" in found.chosen


@pytest.mark.parametrize("text", ["print('no target')", "import sys; sys.exit('no clock')"])
def test_a_machine_that_cannot_be_measured_is_told(
    text: str, machine: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    child = tmp_path / "child.py"
    child.write_text(text)
    monkeypatch.setattr(kept, "CHILD", child)
    monkeypatch.setattr(kept, "_measured", MEASURED)
    with pytest.warns(EqsatWarning, match=r"E272.*(no clock|no target)"):
        found = load_target("auto")
    assert found.name == "avx512"
    assert "it could not be measured" in found.chosen
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_target("auto")  # once in a process
    assert not list((tmp_path / "cache" / "machine").glob("*.yaml"))


def test_a_saved_run_has_the_figures_that_were_used(machine: list[str], tmp_path: Path):
    run = eqsat.optimize(parse_program(PROGRAM), target="auto")
    run.save(tmp_path / "r")
    read = eqsat.load(tmp_path / "r")
    assert read.target == run.target
    assert read.target.kernels == load_target("auto").kernels
    told = read.summary()
    assert (told["target"], told["figures_measured_here"]) == ("avx512-here", True)


# ---- the clock -------------------------------------------------------------------------------
def test_a_clock_that_stands_still_is_a_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scale, "step_of", lambda _: 0.0)
    with pytest.raises(EqsatError, match=r"E420.*show no time"):
        scale.finest_clock()


def test_a_coarse_process_clock_is_replaced_by_that_of_the_wall(monkeypatch: pytest.MonkeyPatch):
    steps = {time.process_time: 0.0156, time.perf_counter: 1e-7}
    monkeypatch.setattr(scale, "step_of", steps.__getitem__)
    assert scale.finest_clock() is time.perf_counter


@pytest.mark.slow  # measures for 5 s
@needs_kernels("avx2")
def test_this_machine_is_measured_by_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """No time is asserted: only that there are figures, and that they are kept."""
    monkeypatch.setenv("EQSAT_CONFIG", str(tmp_path))
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(kept.VARIABLE, kept.ONCE)
    found = load_target("auto")
    assert is_measured_here(found)
    assert found.measured_on is not None
    assert found.measured_on.figures == len(found.memory) + 1
    assert found.launch_ps > 1000
    assert "scaled by figures measured here" in found.chosen
