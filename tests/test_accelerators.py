"""A quick share of `make accelerators` by a TPU's compiler, and how gates run beside each other."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import run as runner

import eqsat
from eqsat.cli import run as command
from eqsat.execute.compilers import ask
from eqsat.execute.compilers.ask import TPUS

PROGRAMS = Path(__file__).parent.parent / "experiments" / "programs"
HERTZ = 1.5e9  # of a v5e's core
QUICK = ("mesh", "steps")
needs_libtpu = pytest.mark.skipif(
    not ask.is_installed("libtpu"),
    reason="libtpu is not installed; `make slow` installs it where there is a wheel",
)


# -- a TPU's compiler -----------------------------------------------------------------------------


@pytest.mark.slow  # libtpu takes 30 s to start and compile
@needs_libtpu
def test_an_mlp_is_searched_and_compiled_for_a_tpu(tmp_path: Path, capsys: Any):
    """Cycles never above the function's, peak to the byte, time within twice."""
    place = tmp_path / "run"
    search = ["optimize", f"{PROGRAMS / 'mlp.py'}:mlp_784", "--target", "tpu-v5e"]
    asking = ["--set", "oracle='libtpu v5e'", "--check-compile", "-o", str(place)]
    assert command([*search, *asking]) == 0
    assert "kept by libtpu v5e" in capsys.readouterr().out
    run = eqsat.load(place)
    told = run.checked
    assert told is not None
    kept, plain = told.programs[told.kept].figures, told.programs[-1].figures
    assert kept.cycles and plain.cycles and kept.cycles <= plain.cycles
    assert command(["compile", str(place), "--for", "v5e", "--json", "-q"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["refused"], found["uncounted"]) == (None, [])
    predicted = found["predicted"]
    assert found["peak_bytes"] == predicted["peak_bytes"]
    seconds = found["cycles"] / HERTZ
    assert 0.5 < predicted["time_us"] * 1e-6 / seconds < 2


@pytest.mark.slow  # libtpu takes 30 s to start and compile
@needs_libtpu
def test_the_peak_of_a_program_that_vmem_does_not_hold_is_the_compilers():
    def skip(x: Any, a: Any, b: Any) -> Any:
        return jax.nn.relu(jax.nn.relu(x @ a) @ b + x)

    long, square = (jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((65536, 2048), (2048, 2048)))
    run = eqsat.optimize(
        skip, long, square, square, target="tpu-v5e", weights=("a", "b"), time_limit=10
    )
    told = run.compile_for("v5e")
    assert told.chosen.kernels == told.predicted.dispatches
    assert told.chosen.peak_bytes == told.predicted.peak_bytes == 822083584


@cache
def said(*questions: str) -> Any:
    """What `ontpu.py` prints: one process, as libtpu is slow to start."""
    command = [sys.executable, Path(__file__).with_name("ontpu.py"), *questions]
    env = runner.environment()
    done = subprocess.run(command, env=env, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return json.loads(done.stdout)


@pytest.mark.slow  # five kernels, 15 s, and the gate `scratch` has more; one is compiled below
@needs_libtpu
def test_vmem_of_pallas_kernels_is_predicted_to_the_byte():
    kernels = said("scratch")["scratch"]
    assert {k["admits"] for k in kernels} == {True, False}
    for kernel in kernels:
        stated = kernel["stated"]
        assert kernel["admits"] == stated["admits"], kernel
        if kernel["refusal"]:
            assert "divisible by 8 and 128" in stated["says"]
        else:
            assert kernel["predicted"] == stated["nbytes"], kernel


@pytest.mark.slow  # libtpu takes 25 s to start and compile
@needs_libtpu
def test_a_mesh_of_chips_runs_the_collectives_of_the_plan():
    mesh = said(*QUICK)["mesh"]
    assert mesh["compiled"] == mesh["plan"] == {"all-reduce": 1}
    assert mesh["plan_bytes"] == pytest.approx(mesh["stated_bytes"], rel=0.01)


@pytest.mark.slow  # libtpu takes 25 s to start and compile
@needs_libtpu
def test_a_kernel_that_takes_every_other_column_fits_into_vmem():
    """Split into pairs where they lie, in lanes, columns took several times its 16 MiB."""
    assert said(*QUICK)["steps"] == ""


# -- where its package is -------------------------------------------------------------------------


def test_packages_are_looked_for_in_the_environment_and_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ask, "BESIDE", tmp_path)
    assert not ask.is_installed("no_such_plugins.xla")
    (tmp_path / "no_such_plugins" / "xla").mkdir(parents=True)
    assert ask.is_installed("no_such_plugins.xla")
    assert ask.is_installed("json") and ask.import_path(["json"]) == {}
    monkeypatch.setenv("PYTHONPATH", "/own")
    path = ask.import_path(["json", "no_such_plugins.xla"])["PYTHONPATH"]
    assert path.split(os.pathsep) == ["/own", str(tmp_path)]
    code = "import no_such_plugins.xla"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=os.environ | {"PYTHONPATH": path}, check=False
    )
    assert done.returncode == 0


def test_one_libtpu_asks_nobody_and_locks_nothing():
    for chip in TPUS.values():
        assert chip.environment["TPU_ACCELERATOR_TYPE"] == chip.accelerator
        assert chip.environment["ALLOW_MULTIPLE_LIBTPU_LOAD"] == "1"


# -- how gates run ---------------------------------------------------------------------------------


def test_every_gate_says_what_may_be_asked_and_guards_a_decision():
    pages = Path(__file__).parent.parent.joinpath("docs", "decisions").glob("*.md")
    heads = re.findall(r"^\*\*([\d, ]+)\.", "\n".join(p.read_text("utf-8") for p in pages), re.M)
    decided = {int(n) for head in heads for n in head.split(",")}
    for name, gate in runner.GATES.items():
        module = runner.import_module(gate.module)
        module.options(argparse.ArgumentParser())
        assert callable(module.measured) and module.__doc__, name
        assert gate.decision in decided, name


def test_an_unknown_gate_is_refused(capsys: Any):
    assert runner.main(["zzz"]) == 2
    assert "no gate zzz: there are rules, never-worse" in capsys.readouterr().err
    assert runner.main([]) == 0
    assert "cycles          9 min" in capsys.readouterr().out
