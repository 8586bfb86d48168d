"""Rules that nobody hunted: a second of the hunt before their first use, remembered afterwards."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import eqsat
from eqsat.cli.app import run as command
from eqsat.hunt import findings
from eqsat.hunt.findings import Counterexample, Findings, check_rules
from eqsat.hunt.search import hunt
from eqsat.lang.content import SHIPPED, known_keys, rule_key
from eqsat.lang.rulesets import load_ruleset, read_ruleset
from eqsat.model.diag import EqsatError, EqsatWarning
from eqsat.model.rules import Rule, RuleSet
from eqsat.plugins import data_folder
from eqsat.report.text import rule_check_lines, summary_text

SOUND = """
  - name: three-transposes
    doc: Three in a row are one.
    rewrite: transpose(transpose(transpose(x, perm=p), perm=q), perm=r)
    to:      transpose(x, perm=compose(compose(p, q), r))
"""
UNSOUND = """
  - name: compose-the-other-way
    doc: Right where the permutations commute.
    rewrite: transpose(transpose(x, perm=p), perm=q)
    to:      transpose(x, perm=compose(q, p))
"""
BARREN = """
  - name: never
    doc: No permutation is that long.
    rewrite: transpose(x, perm=p)
    to:      transpose(transpose(x, perm=p), perm=identity(x.rank))
    where:   [len(p) == 77]
"""
HEAD = "ruleset: mine\ndoc: Rules of a user.\nrules:"


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is remembered, in this process or on disk."""
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(findings, "_done", {})
    monkeypatch.setattr(findings, "_warned", set())
    monkeypatch.setattr(findings, "INSTANCES", 200)


def rules(*texts: str) -> RuleSet:
    return read_ruleset(HEAD + "".join(texts), "mine.yaml")


def file_of(folder: Path, *texts: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(HEAD + "".join(texts), encoding="utf-8")
    return str(path)


def count_hunts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the rules that are hunted at their first use from now on."""
    names: list[str] = []
    hunted = findings._hunted

    def counted(rules: list[Rule]) -> dict[str, Findings]:
        names.extend(r.name for r in rules)
        return hunted(rules)

    monkeypatch.setattr(findings, "_hunted", counted)
    return names


# ---- known by content ----------------------------------------------------------------------------
def test_the_list_of_shipped_rules_is_current():
    stored = (data_folder("rules") / SHIPPED).read_text(encoding="utf-8")
    assert stored == findings.listing(), "write it: make known"


def test_no_shipped_set_is_hunted(monkeypatch: pytest.MonkeyPatch):
    names = count_hunts(monkeypatch)
    for path in sorted(data_folder("rules").rglob("*.yaml")):
        ruleset = load_ruleset(path)
        found = check_rules(ruleset)
        assert found.known == len(ruleset.rules)
    assert names == []


def test_a_shipped_rule_edited_in_place_is_not_known():
    (rule,) = (r for r in load_ruleset("layout/transpose").rules if r.name == "compose-transposes")
    assert rule_key(rule) in known_keys()
    (edited,) = rules(UNSOUND).rules
    assert rule_key(replace(rule, right=edited.right)) not in known_keys()


SAME = {
    "names": SOUND.replace("three-transposes", "other").replace("p)", "a)").replace("(p,", "(a,"),
    "phase": SOUND.rstrip() + "\n    phase: cancel\n    apply: replace\n    max_matches: 3\n",
}
OTHER = {
    "sides": SOUND.replace("compose(compose(p, q), r)", "compose(p, compose(q, r))"),
    "condition": SOUND.rstrip() + "\n    where: [len(p) == 3]\n",
    "rounding": SOUND.rstrip() + "\n    tags: [inexact]\n    bound: finite\n",
}


@pytest.mark.parametrize("change", SAME)
def test_what_does_not_decide_soundness_is_no_part_of_the_key(change: str):
    assert SAME[change] != SOUND
    assert rule_key(rules(SAME[change]).rules[0]) == rule_key(rules(SOUND).rules[0])


@pytest.mark.parametrize("change", OTHER)
def test_what_decides_soundness_is_part_of_the_key(change: str):
    assert rule_key(rules(OTHER[change]).rules[0]) != rule_key(rules(SOUND).rules[0])


# ---- the hunt at first use -----------------------------------------------------------------------
def test_a_sound_rule_is_hunted_once(monkeypatch: pytest.MonkeyPatch):
    names = count_hunts(monkeypatch)
    for _ in range(2):
        assert check_rules(rules(SOUND)).hunted == ("three-transposes",)
    assert names == ["three-transposes"]
    monkeypatch.setattr(findings, "_done", {})  # the next process
    check_rules(rules(SOUND))
    assert names == ["three-transposes"]


def test_an_unsound_rule_is_refused_with_place_and_counterexample(monkeypatch: pytest.MonkeyPatch):
    names = count_hunts(monkeypatch)
    told = []
    for _ in range(3):
        with pytest.raises(EqsatError) as caught:
            check_rules(rules(SOUND, UNSOUND))
        monkeypatch.setattr(findings, "_done", {})
        told.append(str(caught.value))
    (found,) = caught.value.diagnostics
    assert (found.code, str(found.span), caught.value.exit_code) == ("E100", "mine.yaml:12:14", 1)
    assert "counterexample" in found.help and "--unchecked" in found.help
    assert told[1:] == told[:-1]  # a remembered refutation says the same
    assert names == ["three-transposes", "compose-the-other-way"]


def test_a_rule_without_instances_is_told():
    with pytest.warns(EqsatWarning, match="E103.*`never` was not hunted"):
        found = check_rules(rules(SOUND, BARREN))
    assert (found.hunted, found.no_instance) == (("three-transposes",), ("never",))
    assert check_rules(rules(BARREN)).no_instance == ("never",)  # told once per process


def test_an_example_shows_where_a_rare_rule_applies():
    rare = """
  - name: rare
    doc: Only five dims in this order.
    rewrite: transpose(x, perm=p)
    to:      transpose(transpose(x, perm=p), perm=identity(x.rank))
    where:   [len(p) == 7]
    examples:
      - name: seven
        given:   {x: "f32[1, 2, 1, 2, 1, 2, 3]"}
        start:   transpose(x, perm=[6, 5, 4, 3, 2, 1, 0])
        avoids:  x
"""
    (rule,) = rules(
        rare.replace("avoids:  x", "reaches: transpose(x, perm=[6, 5, 4, 3, 2, 1, 0])")
    ).rules
    assert hunt(rule, instances=20, seconds=1.0).instances


def test_a_hunt_ends_with_its_time():
    (rule,) = rules(SOUND).rules
    assert hunt(rule, instances=10**6, seconds=0.0).instances == 0
    few = hunt(rule, instances=10**6, seconds=0.05)
    assert 0 < few.instances < 10**6


def test_unchecked_rules_are_used_and_named(monkeypatch: pytest.MonkeyPatch):
    names = count_hunts(monkeypatch)
    found = check_rules(rules(SOUND, UNSOUND), unchecked=True)
    assert found.unchecked == ("three-transposes", "compose-the-other-way") and names == []
    check_rules(rules(SOUND))
    found = check_rules(rules(SOUND, UNSOUND), unchecked=True)
    assert (found.hunted, found.unchecked) == (("three-transposes",), ("compose-the-other-way",))


# ---- what is remembered --------------------------------------------------------------------------
def test_a_broken_cache_is_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    check_rules(rules(SOUND))
    (kept,) = (tmp_path / "cache" / "hunts").iterdir()
    whole = kept.read_text(encoding="utf-8")
    names = count_hunts(monkeypatch)
    broken = ["[]", "[" * 100_000, whole[:-9], "\ud800"]
    for n, text in enumerate(broken, 1):
        kept.write_text(text, encoding="utf-8", errors="surrogatepass")
        monkeypatch.setattr(findings, "_done", {})
        assert check_rules(rules(SOUND)).hunted == ("three-transposes",)
        assert len(names) == n
    assert kept.read_text(encoding="utf-8") == whole


@pytest.mark.parametrize("obstacle", ["file", "link"])
def test_a_cache_that_cannot_be_written_is_no_problem(
    obstacle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    place = tmp_path / "cache"
    place.write_text("in the way") if obstacle == "file" else place.symlink_to("/nowhere/at/all")
    names = count_hunts(monkeypatch)
    for _ in range(2):
        assert check_rules(rules(SOUND)).hunted == ("three-transposes",)
    assert names == ["three-transposes"]  # this process still knows


def test_two_writers(tmp_path: Path):
    (rule,) = rules(SOUND).rules
    found = hunt(rule, instances=20)
    writers = [threading.Thread(target=lambda: findings.remember(found)) for _ in range(8)]
    for w in writers:
        w.start()
    for w in writers:
        w.join()
    (kept,) = (tmp_path / "cache" / "hunts").iterdir()
    assert json.loads(kept.read_text(encoding="utf-8"))["instances"] == 20


def test_a_refutation_counts_more_than_a_hunt_that_found_none(monkeypatch: pytest.MonkeyPatch):
    (rule,) = rules(SOUND).rules
    wrong = Findings(rule, 9, 9, 0, 0, (), Counterexample((("x", "f32[2]"),), "they differ", 2))
    findings.remember(wrong)
    findings.remember(hunt(rule, instances=5))
    for _ in range(2):
        again = findings.recall(rule)
        assert again is not None and again.counterexample == wrong.counterexample
        monkeypatch.setattr(findings, "_done", {})
    findings.remember(hunt(rule, instances=5))  # a process that knows nothing of it
    monkeypatch.setattr(findings, "_done", {})
    again = findings.recall(rule)
    assert again is not None and again.counterexample == wrong.counterexample


def test_another_version_of_the_code_hunts_again(monkeypatch: pytest.MonkeyPatch):
    names = count_hunts(monkeypatch)
    check_rules(rules(SOUND))
    monkeypatch.setattr(findings, "code_digest", lambda *_: "changed")
    check_rules(rules(SOUND))
    assert len(names) == 2


def test_the_long_hunt_is_remembered_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    path = file_of(tmp_path, SOUND)
    names = count_hunts(monkeypatch)
    assert command(["check", path, "--test", "--instances", "20"]) == 0
    assert not (tmp_path / "cache").exists()  # shorter than the hunt at first use
    assert command(["check", path, "--test"]) == 0
    check_rules(load_ruleset(path))
    assert names == []
    capsys.readouterr()


# ---- where rules are used ------------------------------------------------------------------------
def refused(capsys: Any, *args: str) -> str:
    code = command(list(args))
    told = capsys.readouterr()
    assert code == 1 and told.out == "", told
    return told.err


@pytest.mark.parametrize(
    "args", [["optimize"], ["pareto"], ["state", "--state", "b=1"]], ids=lambda a: a[0]
)
def test_every_command_with_rules_refuses(args: list[str], tmp_path: Path, capsys: Any):
    path = file_of(tmp_path, UNSOUND)
    told = refused(capsys, args[0], "transposed_pack", *args[1:], "--rules", path, "-q")
    assert f"{path}:7:14" in told and "E100" in told


def test_a_rule_left_out_is_not_hunted(tmp_path: Path, capsys: Any):
    path = file_of(tmp_path, SOUND, UNSOUND)
    without = ["--without", "compose-the-other-way", "--stop-after", "egraph"]
    assert (
        command(["optimize", "transposed_pack", "--target", "reference", "--rules", path, *without])
        == 0
    )
    assert "1 rule that eqsat does not ship" in capsys.readouterr().out


def test_a_run_says_that_its_rules_are_unchecked(tmp_path: Path, capsys: Any):
    path = file_of(tmp_path, UNSOUND)
    out = tmp_path / "run"
    args = [
        "optimize",
        "transposed_pack",
        "--target",
        "reference",
        "--rules",
        path,
        "--unchecked",
    ]
    assert command([*args, "-o", str(out)]) == 0
    line = "1 rule used unchecked: compose-the-other-way"
    assert line in capsys.readouterr().out
    found = eqsat.load(out)
    assert rule_check_lines(found) == [line]
    assert line in summary_text(found)
    assert found.summary()["rule_check"]["unchecked"] == ["compose-the-other-way"]
    assert line in found.report(tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_plain_run_says_nothing(capsys: Any):
    assert (
        command(
            [
                "optimize",
                "transposed_pack",
                "--target",
                "reference",
                "--stop-after",
                "egraph",
                "--unchecked",
            ]
        )
        == 0
    )
    told = capsys.readouterr()
    assert "unchecked" not in told.out and "hunt" not in told.out


@pytest.mark.parametrize("unchecked", [True, False])
def test_rows_of_an_experiment(unchecked: bool, tmp_path: Path, capsys: Any):
    rules = file_of(tmp_path, UNSOUND)
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "experiment: plan\ndoc: One row each.\nprograms: transposed_pack\ntargets: reference\n"
        f"rows:\n  - {{name: own, rules: '{rules}', unchecked: {str(unchecked).lower()}}}\n"
        "  - {name: plain}\n",
        encoding="utf-8",
    )
    code = command(["experiment", str(plan), "-o", str(tmp_path / "out")])
    told = capsys.readouterr().out
    data = json.loads((tmp_path / "out" / "plan.json").read_text(encoding="utf-8"))
    assert [r["status"] for r in data["rows"]] == (
        ["found"] * 2 if unchecked else ["error", "found"]
    )
    assert code == (0 if unchecked else 1)
    assert ("own: 1 rule used unchecked: compose-the-other-way" in told) == unchecked
    assert "plain: " not in told
    if unchecked:
        assert data["rows"][0]["rule_check"]["unchecked"] == ["compose-the-other-way"]
