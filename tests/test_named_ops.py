"""Ops by their names in rules, pictures of rules, and where they match without a search."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import eqsat
from eqsat.cli import run
from eqsat.hunt.instances import check_examples
from eqsat.hunt.search import hunt
from eqsat.lang.rulesets import read_ruleset

RULES = """ruleset: mine
rules:
  - name: relu-through-transpose
    rewrite: relu(transpose(x, perm=p))
    to: transpose(relu(x), perm=p)
    both_ways: true
    examples:
      - given: {x: "f32[4, 8]"}
        start: relu(transpose(x, perm=[1, 0]))
        reaches: transpose(relu(x), perm=[1, 0])
  - name: one-product
    rewrite: add(matmul(a, b), matmul(a, c))
    to: matmul(a, add(b, c))
    tags: [inexact]
    bound: roundings
    examples:
      - given: {a: "f32[4, 8]", b: "f32[8, 6]", c: "f32[8, 6]"}
        start: add(matmul(a, b), matmul(a, c))
        reaches: matmul(a, add(c, b))
      - given: {a: "f32[4, 8]", b: "f32[8, 6]", c: "f32[8, 6]"}
        start: relu(add(matmul(a, b), matmul(a, c)))
        avoids: relu(matmul(a, add(b, c)))
"""
WRONG = RULES.replace("to: transpose(relu(x), perm=p)", "to: transpose(exp(x), perm=p)")
PROGRAM = """program p
input a: f32[8, 8]
input b: f32[8, 8]
input c: f32[8, 8]
x = matmul(a, b)
y = matmul(a, c)
z = sub(y, x)
t = transpose(a, perm=[1, 0])
r = relu(t)
s = add(x, y)
return z, r, s
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "mine.yaml").write_text(RULES, encoding="utf-8")
    (tmp_path / "p.eqs").write_text(PROGRAM, encoding="utf-8")
    return str(tmp_path / "mine.yaml"), str(tmp_path / "p.eqs")


def test_examples_hold_and_every_order_of_operands_is_a_rule():
    ruleset = read_ruleset(RULES, "mine.yaml")
    names = [r.name for r in ruleset.rules]
    assert names == [
        "relu-through-transpose", "relu-through-transpose-back", "one-product", "one-product-2",
    ]  # fmt: skip
    assert check_examples(ruleset) == []
    assert [r.name for r in ruleset.without("one-product").rules] == names[:2]


def test_named_ops_are_hunted_without_examples():
    for text, is_sound in ((RULES, True), (WRONG, False)):
        finding = hunt(read_ruleset(text, "mine.yaml").rules[0], instances=20)
        assert (finding.counterexample is None) is is_sound
        assert not is_sound or finding.instances == 20


def test_a_rule_is_shown_with_its_place_and_both_sides(files, capsys):
    assert run(["show", "rule", f"{files[0]}:one-product"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.startswith("one-product of mine, ") and head.endswith("mine.yaml:11:5")
    assert "    to: matmul(a, add(b, c))" in lines
    assert lines[-7:-4] == ["add        =  matmul", "├─ matmul     ├─ a", "│  ├─ a       └─ add"]
    assert run(["show", "rule", "fold-transpose-into-pack", "--json"]) == 0
    (rule,) = json.loads(capsys.readouterr().out)
    assert rule["at"].startswith("rules/layout/pack.yaml:") or "/rules/layout/" in rule["at"]
    assert "rewrite: pack(transpose(x, perm=p), layout=l)" in rule["yaml"]


def test_places_of_a_rule_are_told_without_a_search(files, capsys):
    rules, program = files
    asked = ["rules", "match", f"{rules}:one-product", program, "--target", "reference"]
    assert run([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["places"]
    assert [(p["value"], p["at"].rpartition("/")[2]) for p in found] == [("%s", "p.eqs:10")]
    assert found[0]["bound"] == {"a": "a: f32[8, 8]", "b": "b: f32[8, 8]", "c": "c: f32[8, 8]"}
    found = eqsat.optimize(
        program, rules=("default", rules), target="reference", stop_after="egraph", unchecked=True
    )
    assert found.egraph is not None
    assert {"one-product", "relu-through-transpose"} <= {
        r.name for r in found.egraph.rules if r.matches
    }


def test_a_condition_that_fails_at_a_place_is_named(files, capsys):
    asked = ["rules", "match", "pack-contraction", files[1], "--target", "reference"]
    assert run(asked) == 0
    told = capsys.readouterr().out
    assert told.startswith("pack-contraction applies at 2 places of p\n")
    assert "refused: no answer for tile = target.tiles(g)" in told
