"""docs/architecture.md against the tree: paths, the star, and a toy key by the files it names."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from house import shared_names, sources

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
FOLDERS = sorted(p.name for p in (ROOT / "eqsat").iterdir() if p.is_dir())
PATH = re.compile(rf"`((?:(?:eqsat|{'|'.join(FOLDERS)})/)[\w/]+\.py)`")
PAGES = sorted((ROOT / "docs").glob("*.md"))
MOST_FILES = 3
# a key of a target, `alignment` of the temporaries' offsets: file -> what is replaced by what
KEY = {
    "eqsat/model/target.py": (
        ("    trips: int = 1  #", "    alignment: int = 1  # bytes\n    trips: int = 1  #"),
    ),
    "eqsat/lang/targetformat.py": (
        (
            "    trips: Annotated[int, Field(ge=1)] = 1\n",
            "    trips: Annotated[int, Field(ge=1)] = 1\n"
            "    alignment: Annotated[int, Field(ge=1)] = 1\n",
        ),
    ),
    "eqsat/run/phases.py": (
        ("run.target), seconds)", "run.target), seconds, run.target.alignment)"),
        ("seconds: float = PLACING_SECONDS) -> Schedule:\n    \"\"\"The schedule with an offset",
         "seconds: float = PLACING_SECONDS, unit: int = 1) -> Schedule:\n"
         "    \"\"\"The schedule with an offset"),
        ("b.last + 1, b.nbytes)", "b.last + 1, -(-b.nbytes // unit) * unit)"),
    ),
}  # fmt: skip
ASKED = """
import json, eqsat
from eqsat.lang.targets import read_target
text = "target: aligned\\ndoc: x\\nextends: reference\\nalignment: 300000\\n"
run = eqsat.optimize(eqsat.read("mlp.py:mlp_784"), target=read_target(text))
print(json.dumps([b.offset for b in run.schedule.buffers if b.offset is not None]))
"""


def test_every_file_that_a_page_names_exists() -> None:
    named = [(p.stem, n) for p in PAGES for n in PATH.findall(p.read_text(encoding="utf-8"))]
    assert [(page, name) for page, name in named if not _exists(name)] == []


def _exists(name: str) -> bool:
    """Words in capitals stand for a name of the reader's."""
    is_example = Path(name).stem.isupper()
    return is_example or (ROOT / name).exists() or (ROOT / "eqsat" / name).exists()


def test_the_star_is_that_of_the_contracts() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = [
        set(re.findall(r"eqsat\.(\w+)", line)) for line in contracts["contracts"][0]["layers"]
    ]
    star = PAGE.split("```text\n")[1].split("```")[0].splitlines()
    assert [set(re.split(r" · ", re.split(r"\s{2,}", line)[0])) for line in star] == layers


def test_no_row_names_more_files_than_one_can_remember() -> None:
    rows = [
        line.split("|")[2]
        for line in PAGE.split("| you bring |")[1].splitlines()[2:]
        if line.startswith("|")
    ]
    assert len(rows) >= 8
    for files in rows:
        assert len(re.split(r"[,;]", files)) <= MOST_FILES, files


@pytest.mark.slow
def test_a_key_of_a_target_is_added_in_the_files_the_page_names(tmp_path: Path) -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith("| a key of a target"))
    assert set(KEY) - {"eqsat/run/phases.py"} == set(re.findall(r"`([\w/.]+)`", row))
    for folder in ("eqsat", "targets", "rules", "experiments", "devices"):
        shutil.copytree(
            ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name, changes in KEY.items():
        text = (tmp_path / name).read_text(encoding="utf-8")
        for old, new in changes:
            assert old in text, f"{name} has no `{old}`"
            text = text.replace(old, new)
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = json.loads(_python(tmp_path, ASKED))
    assert len(found) > 1
    assert all(offset % 300_000 == 0 for offset in found)


def _python(where: Path, code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(where), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=where, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_two_modules_define_one_name_with_two_meanings() -> None:
    texts = sources(ROOT)
    assert len(texts) > 300
    assert list(shared_names(texts)) == []
    twice = dict.fromkeys(("eqsat/a.py", "eqsat/b.py"), "class Found: pass")
    assert list(shared_names(twice)) == ["Found: eqsat/a.py eqsat/b.py"]
