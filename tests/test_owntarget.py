"""`target: auto`: which target is this machine's, and what is said of one that is not."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

import eqsat
from eqsat import host
from eqsat.cli import run
from eqsat.lang import owntarget
from eqsat.lang.owntarget import measured_on, own_target, warn_if_elsewhere
from eqsat.lang.programs import parse_program
from eqsat.lang.targets import find_target, load_target, read_target
from eqsat.model.diag import EqsatWarning
from eqsat.model.target import Target
from eqsat.plugins import user_folder

INTEL = (
    "model name\t: A Xeon(R) @ 2 GHz\n"
    "flags\t\t: fpu avx avx2 fma avx512f avx512bw avx512dq avx512vl\n"
)
ARM = "processor\t: 0\nFeatures\t: fp asimd i8mm\n"
RISCV = "isa\t\t: rv64imafdcv_zicsr\n"
TEXT = """target: host
doc: d
executor: xla
data_tiling: true
memory:
  - {name: ram, size: 1 GiB, bandwidth: 2 GB/s}
"""
PROGRAM = "program p\ninput x: f32[4]\ny = relu(x)\nreturn y\n"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder of targets, empty."""
    monkeypatch.setenv("EQSAT_CONFIG", str(tmp_path))
    monkeypatch.setattr(owntarget, "_warned", set())
    folder = user_folder("targets")
    folder.mkdir()
    return folder


def here(*changes: tuple[str, str]) -> str:
    """A target that was calibrated on this machine, or on one that differs."""
    text = TEXT + "\n".join(measured_on({"eqsat": "0.1.0"})) + "\n"
    for a, b in changes:
        assert a in text
        text = text.replace(a, b)
    return text


@pytest.mark.parametrize(
    ("text", "features", "processor"),
    [
        (INTEL, {"avx512f", "avx512vl", "fma"}, "A Xeon(R) @ 2 GHz"),
        (ARM, {"neon", "i8mm"}, ""),
        (RISCV, {"v"}, ""),
        ("isa\t: rv64imafdc_zve32v\n", set(), ""),
    ],
)
def test_features_as_the_system_tells_them(
    text: str, features: set[str], processor: str, tmp_path: Path
):
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    assert set(host.features(path)) >= features
    assert bool(host.features(path)) is bool(features)
    assert processor in host.processor(path)


@pytest.mark.parametrize(
    ("features", "name"),
    [
        (("avx2", "avx512bw", "avx512dq", "avx512f", "avx512vl"), "avx512"),
        (
            ("avx2", "avx512bw", "avx512dq", "avx512f", "avx512vl", "avx512vnni"),
            "avx512-vnni",
        ),
        (("avx512vnni",), "reference"),  # without what else its code uses
        (("avx2", "fma"), "avx2"),
        (("neon",), "arm64"),
        (("v",), "riscv64"),
        ((), "reference"),
        (("avx512f",), "reference"),
    ],
)
def test_the_features_of_a_cpu_name_a_shipped_target(
    features: tuple[str, ...], name: str, own: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(host, "features", lambda: features)
    found = load_target("auto")
    assert found.name == name
    assert "`eqsat calibrate` measures this machine" in found.chosen
    assert find_target("auto") == find_target(name)


def test_a_target_calibrated_here_is_taken(own: Path):
    (own / "host.yaml").write_text(here())
    found = load_target("auto")
    assert (found.name, found.chosen) == ("host", "it was calibrated on this machine")
    assert Target.from_json(json.loads(json.dumps(found.to_json()))) == found
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_elsewhere(found)


def test_a_target_calibrated_elsewhere_is_not_taken_and_warns_once(own: Path):
    cores = f"cores: {host.cores()}\n"
    (own / "host.yaml").write_text(here((cores, f"cores: {host.cores() + 1}\n")))
    name, why = own_target((), load_target)
    assert name != "host"
    assert why.startswith("`host` was calibrated on another machine")
    program = parse_program(PROGRAM)
    with pytest.warns(EqsatWarning, match="E217.*differs in cores"):
        eqsat.optimize(program, target="host")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        eqsat.optimize(program, target="host")


def test_what_a_target_was_measured_on_is_read():
    measured = read_target(here(("caches: [", "caches: [7 KiB, "))).measured_on
    assert measured is not None
    assert measured.caches == (7 << 10, *host.caches().values())
    assert dict(measured.versions) == {"eqsat": "0.1.0"}


def test_the_summary_says_which_target_and_why(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "p.eqs"
    path.write_text(PROGRAM)
    (own / "host.yaml").write_text(here())
    assert run(["optimize", str(path)]) == 0
    assert "target host: it was calibrated on this machine\n" in capsys.readouterr().out
    assert run(["optimize", str(path), "-q", "--output-format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["target"], told["target_reason"]) == ("host", "it was calibrated on this machine")
    assert run(["optimize", str(path), "-q", "--target", "reference"]) == 0
    assert "target" not in capsys.readouterr().out
