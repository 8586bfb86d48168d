"""The command line on saved runs: run, compare, explain, rules, show, report."""

from __future__ import annotations

import json
import shutil

import pytest
from seeds import one_in, seeds

from eqsat.cli import run

TILE = "tiles.matmul=[{mnk: [16, 16, 16], rate: 0.68}]"
PLAIN = "[elementwise, reduction, conversion, move]"
APART = f"fusion.join={{elementwise: {PLAIN}, conversion: {PLAIN}}}"
MULTI = "fusion.multi_result=true"
FORCED = ["--set", TILE, "--set", "tiles_forced=true", "--set", APART, "--set", MULTI]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two saved runs of one program: everything folded, and the search's choice."""
    place = tmp_path_factory.mktemp("runs")
    found = []
    for name, rules in (("fold", "policy/always-fold"), ("best", "default")):
        folder = place / name
        args = [
            "optimize",
            "transposed_pack",
            "--target",
            "reference",
            "--rules",
            rules,
            *FORCED,
            "-o",
            str(folder),
            "-q",
        ]
        assert run(args) == 0
        found.append(str(folder))
    return found


def test_run_verifies_a_saved_run(folders, capsys):
    assert run(["run", folders[1], "--samples", "2", "--output-format", "json"]) == 0
    verify = json.loads(capsys.readouterr().out)["verify"]
    assert verify["ok"] is True
    assert verify["samples"] == 2


def test_compare_names_rules_and_dispatches(folders, capsys):
    assert run(["compare", *folders]) == 0
    out = capsys.readouterr().out
    assert "always-fold-transpose" in out
    assert "rules: policy/always-fold → default" in out
    assert run(["compare", *folders, "--output-format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["facts"]["dispatches"] == [4, 3]


def test_compare_of_a_run_with_itself_finds_nothing(folders, capsys):
    assert run(["compare", folders[0], folders[0]]) == 0
    assert "same work in the same layouts" in capsys.readouterr().out


def test_explain_a_run_a_value_and_a_code(folders, capsys):
    assert run(["explain", folders[0]]) == 0
    out = capsys.readouterr().out
    assert "always-fold-transpose" in out
    assert "always-fold.yaml:" in out
    assert run(["explain", folders[1], "%3"]) == 0
    assert "next best: none" in capsys.readouterr().out
    assert run(["explain", folders[1], "%3", "--no-price"]) == 0
    assert "next best" not in capsys.readouterr().out
    assert run(["explain", folders[1], "%33"]) == 2
    assert "E303" in capsys.readouterr().err
    assert run(["explain", "e020"]) == 0
    assert capsys.readouterr().out.startswith("E020")


@pytest.mark.parametrize("sort", ["rule", "matches", "nodes", "time", "result"])
def test_rules_by_every_column(folders, sort, capsys):
    assert run(["rules", folders[1], "--sort", sort]) == 0
    out = capsys.readouterr().out
    assert "pack-contraction" in out
    assert "contract.yaml:" in out
    assert run(["rules", folders[1], "--sort", sort, "--output-format", "json"]) == 0
    for rule in json.loads(capsys.readouterr().out):
        assert list(rule) == ["rule", "matches", "nodes", "seconds", "in_result", "at"]
        assert isinstance(rule["matches"], int)
        assert isinstance(rule["seconds"], float)


@pytest.mark.parametrize("stage", ["program", "canonical", "target", "egraph", "selection"])
@pytest.mark.parametrize("form", ["text", "json"])
def test_show_every_stage(folders, stage, form, capsys):
    assert run(["show", folders[1], stage, "--output-format", form]) == 0
    out = capsys.readouterr().out
    assert out
    if form == "json":
        assert json.loads(out).keys() & {"format", "root_eclasses"}


@pytest.mark.parametrize(
    "name", one_in(2, ("1-program", "2-egraph", "3-selection", "rules", "manifest"))
)
@pytest.mark.parametrize("damage", seeds(3, ["half", "a list", "a figure", "nothing", "gone"]))
def test_a_damaged_run_is_a_sentence(folders, tmp_path, name, damage, capsys):
    folder = tmp_path / "run"
    shutil.copytree(folders[1], folder)
    file = folder / f"{name}.json"
    text = file.read_text()
    digits = [i for i, c in enumerate(text) if c.isdigit()]
    at = digits[len(digits) // 2]
    other = {
        "half": text[: len(text) // 2],
        "nothing": "",
        "a list": "[]",
        "a figure": f"{text[:at]}{9 - int(text[at])}{text[at + 1 :]}",
    }
    file.unlink() if damage == "gone" else file.write_text(other[damage])
    for command in (["show"], ["explain"], ["rules"], ["report"], ["run"], ["compare"]):
        more = [folders[0]] if command == ["compare"] else []
        assert run([*command, str(folder), *more]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("error[E309]")


def test_a_page_that_cannot_be_written_is_a_sentence(folders, tmp_path, capsys):
    assert run(["report", folders[1], "-o", str(tmp_path)]) == 2
    assert "error[E407]" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_report_writes_a_page(folders, tmp_path, capsys):
    page = tmp_path / "deep" / "page.html"
    assert run(["report", folders[1], "-o", str(page)]) == 0
    assert capsys.readouterr().out == f"{page}\n"
    assert 'id="page-data"' in page.read_text(encoding="utf-8")
    assert [p.name for p in page.parent.iterdir()] == ["page.html"]
