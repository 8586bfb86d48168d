"""What experiments/README.md shows was made with today's rules, targets and programs, or says not.

python docs/questions.py NAME                  run a question again
python docs/questions.py --stale REASON NAME   declare that what is shown of it is older
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import stamps
from test_questions import QUESTIONS

import eqsat
from eqsat.lang.experiments import load_experiment
from eqsat.report.formatting import time_text

KEPT = stamps.load()
PAGE = stamps.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_table_is_as_it_was_stamped_or_declared_stale(name: str) -> None:
    stamp = KEPT[name]
    found = stamps.staleness(name, stamp, PAGE)
    assert not {"table", "figure"} & set(found), "the page was changed by hand"
    if stamp["stale"]:
        assert found, "nothing of it has changed: it is not stale"
    else:
        assert not found, __doc__
    assert stamps.line_of(stamp) in PAGE
    assert ("**stale**" in stamps.line_of(stamp)) is bool(stamp["stale"])


def test_every_stamp_is_shown_once() -> None:
    assert set(KEPT) == set(QUESTIONS)
    assert len(re.findall(r"^\*Stamp ", PAGE, re.M)) == len(QUESTIONS)
    assert stamps.stamped(PAGE, KEPT) == PAGE


# ---- what a stamp is of --------------------------------------------------------------------------
QUESTION = "scratch-limits"
PROGRAM, TARGET = "programs/conv_qdq_residual.py", "gfx942.yaml"


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, dict[str, str]]:
    """The files of a question where they may be edited, and its inputs as they are."""
    before = stamps.inputs(QUESTION)
    for folder in ("experiments", "targets"):
        shutil.copytree(stamps.ROOT / folder, tmp_path / folder)
    experiment = tmp_path / "experiments" / f"{QUESTION}.yaml"
    targets = tmp_path / "targets"
    text = experiment.read_text(encoding="utf-8").replace(
        "conv_qdq_residual.py:", f"{tmp_path}/experiments/{PROGRAM}:"
    )
    experiment.write_text(re.sub(r"(gfx942-unpadded|gfx942|sm_90)(?=[,\]])",
                                 rf"{targets}/\1.yaml", text), encoding="utf-8")  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stamps, "find_experiment", lambda _: experiment)
    monkeypatch.setattr(stamps, "load_experiment", lambda _: load_experiment(experiment))
    return tmp_path, before


EDITS = [
    (f"experiments/{PROGRAM}", lambda t: t + "\nX = 1\n", "program"),
    (f"experiments/{PROGRAM}", lambda t: t + "\n# a comment\n\n", ""),
    ("targets/sm_90.yaml", lambda t: t.replace("227 KiB", "226 KiB"), "sm_90"),
    ("targets/sm_90.yaml", lambda t: re.sub(r"(?m)^doc: .*", "doc: other", t), ""),
    ("targets/sm_90.yaml", lambda t: t + "\n# a comment\n", ""),
    (f"experiments/{QUESTION}.yaml", lambda t: t.replace("60 s", "61 s"), "experiment"),
]


def test_a_stamp_is_of_what_decides_and_of_nothing_else(copied: tuple[Path, Any]) -> None:
    folder, _ = copied
    before = stamps.inputs(QUESTION)
    for file, edit, part in EDITS:
        path = folder / file
        text = path.read_text(encoding="utf-8")
        assert edit(text) != text
        path.write_text(edit(text), encoding="utf-8")
        after = stamps.inputs(QUESTION)
        path.write_text(text, encoding="utf-8")
        changed = [k for k in before if before[k] != after[k]]
        assert len(changed) == bool(part) and all(part in k for k in changed), (file, changed)


def test_a_target_s_stamp_is_also_of_what_it_extends(copied: tuple[Path, Any]) -> None:
    folder, _ = copied
    before = stamps._machine("target", str(folder / "targets" / "gfx942-unpadded.yaml"))
    assert len(before) == 2


def test_a_changed_rule_set_or_version_changes_a_stamp(monkeypatch: pytest.MonkeyPatch) -> None:
    before = stamps.inputs(QUESTION)
    monkeypatch.setattr(eqsat, "__version__", "9")
    less = eqsat.rules("default").without("unpack-of-pack")
    monkeypatch.setattr(eqsat, "rules", lambda *_: less)
    after = stamps.inputs(QUESTION)
    assert {k for k in before if before[k] != after[k]} == {"version", "rules default"}


def test_an_edited_table_is_found_out() -> None:
    edited = PAGE.replace("17.1 us", "11.3 us")
    assert stamps.staleness(QUESTION, KEPT[QUESTION], edited) == ["table"]


def test_a_declared_one_says_why_on_the_page() -> None:
    stamp = KEPT[QUESTION] | {"stale": "a new target"}
    page = stamps.stamped(PAGE, KEPT | {QUESTION: stamp})
    assert "; **stale**: a new target.*" in page
    assert stamps.tables(page) == stamps.tables(PAGE)


# ---- eqsat's own code is in no stamp: some rows are asked again ----------------------------------
@pytest.mark.parametrize(
    ("name", "line", "wanted"),
    [
        ("scratch-limits", "sm_90", {"target": "sm_90", "varied": ("limits.scratch", "64 KiB")}),
        ("scratch-limits", "sm_90", {"target": "sm_90", "varied": ("limits.scratch", "227 KiB")}),
        ("encodings", "tiled", {"name": "tiled"}),
        ("greedy", "residual", {"program": "residual"}),
    ],
)
def test_a_row_of_the_table_is_found_again(name: str, line: str, wanted: dict[str, Any]) -> None:
    if KEPT[name]["stale"]:
        pytest.skip("what is shown is declared to be of another day")
    (cell, *_) = [c for c in load_experiment(name).cells if _is(c, wanted)]
    plan = load_experiment(name)
    from dataclasses import replace

    found = eqsat.Experiment(replace(plan, cells=(cell,), runs=0, verify=False)).run().rows()
    block = next(b for b in stamps.BLOCK.findall(PAGE) if b[2].split()[3:4] == [name])
    row = next(r for r in block[2].splitlines() if r.split()[:1] == [line])
    assert time_text(found[0]["time_us"] * 1e6) in row


def _is(cell: Any, wanted: dict[str, Any]) -> bool:
    varied = wanted.get("varied")
    plain = all(getattr(cell, k) == v for k, v in wanted.items() if k != "varied")
    return plain and (varied is None or tuple(varied) in cell.varied)
