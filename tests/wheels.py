"""What tests of plug-ins share: the package `plugin/` as a wheel, and Python with it installed."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path

import eqsat as eqsat_package

PACKAGE = Path(__file__).parent / "plugin"


def build_wheel(project: Path, folder: Path, changes: Iterable[tuple[str, str]] = ()) -> Path:
    """A pure wheel of a project folder, as a build backend makes it (PEP 427), without one.

    changes: text to put in place of other text in its files; each must occur.
    """
    missing = {old for old, _ in changes}

    def read(path: Path) -> str:
        text = path.read_text(encoding="utf-8")
        for old, new in changes:
            missing.difference_update({old} if old in text else ())
            text = text.replace(old, new)
        return text

    data = tomllib.loads(read(project / "pyproject.toml"))["project"]
    name, version = data["name"].replace("-", "_"), data["version"]
    info = f"{name}-{version}.dist-info"
    entries = [
        line
        for group, points in data["entry-points"].items()
        for line in (f"[{group}]", *(f"{k} = {v}" for k, v in points.items()), "")
    ]
    files = {
        p.relative_to(project).as_posix(): read(p)
        for p in sorted(project.rglob("*"))
        if p.suffix in (".py", ".yaml")
    } | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {data['name']}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: eqsat tests\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        f"{info}/entry_points.txt": "\n".join(entries),
    }
    assert not missing, f"nothing to change: {missing}"
    record = "".join(f"{k},{digest(v)},{len(v.encode())}\n" for k, v in files.items())
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
    return wheel


def digest(text: str) -> str:
    raw = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def unpack(wheel: Path) -> Path:
    """What pip does with a pure wheel."""
    site = wheel.parent / "site"
    zipfile.ZipFile(wheel).extractall(site)
    return site


def changed(folder: Path, *changes: tuple[str, str]) -> Path:
    """The package with some text replaced, installed."""
    folder.mkdir(exist_ok=True)
    return unpack(build_wheel(PACKAGE, folder, changes))


def run(
    *words: str, site: Path | None = None, where: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Python with the installed plug-in on its path, and the eqsat under test."""
    return subprocess.run(
        [sys.executable, *words], cwd=where, capture_output=True, text=True, check=False,
        env=environment(site),
    )  # fmt: skip


def environment(site: Path | None) -> dict[str, str]:
    own = Path(eqsat_package.__file__).parent.parent
    paths = [str(p) for p in (site, own) if p is not None]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "JAX_PLATFORMS": "cpu"}


def eqsat(
    *words: str, site: Path | None = None, where: Path | None = None
) -> subprocess.CompletedProcess[str]:
    main = "import sys; from eqsat.cli import main; sys.argv[0] = 'eqsat'; main()"
    return run("-c", main, *words, site=site, where=where)


def python(code: str, site: Path | None, where: Path | None = None) -> None:
    """A script whose assertions must hold."""
    done = run("-c", code, site=site, where=where)
    assert done.returncode == 0, done.stderr


RUNS_SCRIPTS = """
import json, sys, traceback
answers, sys.stdout = sys.stdout, sys.stderr
for line in sys.stdin:
    said = ""
    try:
        exec(json.loads(line), {"__name__": "__main__"})
    except BaseException:
        said = traceback.format_exc()
    print(json.dumps(said), file=answers, flush=True)
"""


class Interpreter:
    """Python with the plug-in in a process that runs one script after another.

    Importing JAX takes longer than most of them. A script that patches something mends it.
    """

    def __init__(self, site: Path, where: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUNS_SCRIPTS], cwd=where, env=environment(site), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def __call__(self, code: str) -> None:
        """A script whose assertions must hold."""
        assert self.process.stdin and self.process.stdout
        print(json.dumps(code), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        assert answer, f"the process ended with {self.process.wait()}"
        assert json.loads(answer) == ""

    def close(self) -> None:
        self.process.communicate()


PROGRAM = """
program rolled
input x: f32[64, 48]
input w: f32[48, 32]
weight b: f32[64, 48]
y = roll(roll(add(x, b), shift=1, axis=0), shift=-3, axis=0) : f32[64, 48]
h = matmul(y, w)
return roll(h, axis=1, shift=5)
"""


TARGET = """
target: squared
doc: One byte moved costs 1 ns, and unpacked contractions are slow.
executor: xla
data_tiling: true
memory: [{name: ram, size: 1 GiB, bandwidth: 1000 GB/s}]
rates: {f32: 1 GFLOP/s}
source: invented
untiled_rate: 0.01
tiles: {matmul: {strategy: square}}
"""


STEPPED = """
target: stepped
doc: The executor of the plug-in.
extends: reference
executor: stepwise
"""


def work_folder(folder: Path) -> Path:
    """The folder with a program of the plug-in's op, and targets with its strategy and executor."""
    (folder / "rolled.eqs").write_text(PROGRAM)
    (folder / "stepped.yaml").write_text(STEPPED)
    (folder / "squared.yaml").write_text(TARGET)
    return folder
