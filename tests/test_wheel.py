"""The wheel, built as it is published and tried in an empty environment of each Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
PYTHONS = ("3.11", "3.13")
TRIED = """
import importlib.metadata as metadata, importlib.resources as resources, sys
import eqsat

assert "site-packages" in eqsat.__file__, eqsat.__file__
assert (resources.files(eqsat) / "py.typed").is_file()
(backend,) = metadata.entry_points(group="torch_dynamo_backends", name="eqsat")
version = f"Programming Language :: Python :: 3.{sys.version_info.minor}"
assert version in metadata.metadata("eqsat").get_all("Classifier")
run = eqsat.optimize("two_packs", target="reference", verify=True)
assert run.verification.ok and "<Run two_packs" in repr(run)
"""


def interpreter(version: str) -> str | None:
    """A Python of this version, on the path or where pyenv puts them."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    ours = sorted(pyenv.glob(f"{version}.*/bin/python{version}"))
    return str(ours[-1]) if ours else shutil.which(f"python{version}")


def ran(*words: str | Path, where: Path) -> subprocess.CompletedProcess[str]:
    """A process that sees nothing of this environment."""
    keys = ("HOME", "PATH", "LANG", "TMPDIR", "PIP_INDEX_URL", "PIP_CONFIG_FILE", "PIP_CERT")
    given = {k: v for k, v in os.environ.items() if k in keys}
    return subprocess.run(
        [str(w) for w in words], cwd=where, env=given, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    python = next(p for p in map(interpreter, PYTHONS) if p)
    built = ran(python, "-m", "pip", "wheel", "--no-deps", "-w", folder, PROJECT, where=folder)
    if "Could not find a version" in built.stderr:
        pytest.skip("hatchling cannot be installed here")
    assert built.returncode == 0, built.stderr
    (made,) = folder.glob("eqsat-*.whl")
    return made


@pytest.mark.slow
def test_the_wheel_holds_what_is_read_at_run_time_and_no_more(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for part in ("py.typed", "lang/errors.md", "_data/rules/default.yaml", "_data/docs/rules.md"):
        assert f"eqsat/{part}" in names, part
    strangers = [n for n in names if not n.startswith(("eqsat/", "eqsat-")) or "__pycache__" in n]
    assert not strangers


@pytest.mark.slow
@pytest.mark.parametrize("version", PYTHONS)
def test_an_empty_environment_runs_it(version: str, wheel: Path, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    assert ran(python, "-m", "venv", tmp_path / "env", where=tmp_path).returncode == 0
    empty = tmp_path / "env" / "bin"
    done = ran(empty / "python", "-m", "pip", "install", "--no-compile", wheel, where=tmp_path)
    assert done.returncode == 0, done.stderr
    done = ran(empty / "python", "-W", "error", "-c", TRIED, where=tmp_path)
    assert done.returncode == 0, done.stderr
    done = ran(empty / "eqsat", "list", "programs", where=tmp_path)
    assert done.returncode == 0 and "two_packs" in done.stdout, done.stderr
