"""What users meet on their first day: completion, short options, mistakes that are told well."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

import eqsat
from eqsat.cli import run
from eqsat.lang.units import quantity
from eqsat.model.diag import EqsatError

X = jax.ShapeDtypeStruct((3,), "float32")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [("eqsat opt", "optimize"), ("eqsat optimize --targ", "--target"), ("eqsat que", "query")],
)
def test_completion_completes_and_says_nothing_else(words, wanted):
    asked = {
        "_EQSAT_COMPLETE": "complete_bash", "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", "from eqsat.cli import main; main()"],
        env=os.environ | asked, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert wanted in done.stdout.split()


def test_json_is_short_for_the_output_format(capsys):
    assert run(["list", "targets", "--json"]) == 0
    short = capsys.readouterr().out
    assert run(["list", "targets", "--output-format", "json"]) == 0
    assert short == capsys.readouterr().out
    assert json.loads(short)


def test_a_program_is_named_in_python_as_on_the_command_line():
    found = eqsat.optimize("two_packs", target="reference", budget={"memory": "2MiB"})
    assert found.program.name == "two_packs"
    assert found.selection.goal("memory").value <= 2 << 20
    assert "\n" not in repr(found)
    assert repr(found).startswith("<Run two_packs on reference: time ")
    with pytest.raises(EqsatError, match="E308"):
        eqsat.optimize("two_packs", 1, target="reference")


def test_a_file_with_one_function_needs_no_name(tmp_path):
    script = tmp_path / "mine.py"
    script.write_text(
        "import numpy as np\ndef helper(x): return x * 2\ndef block(x): return helper(x)\n"
        "def block_example(): return np.ones(3, np.float32)\n"
        "def twice(x): return block(x)\n"
    )
    assert eqsat.read(str(script)).program.name == "block"
    with script.open("a") as file:
        file.write("def twice_example(): return block_example()\n")
    with pytest.raises(EqsatError, match=r"E308.*no function `mine`"):
        eqsat.read(str(script))


def branches(x):
    if x.sum() > 0:  # no bool of a tracer
        return x
    return helper(-x)


def helper(x):
    return jnp.dot(x, jnp.ones((4, 4)))


def calls_helper(x):
    return helper(x) + 1


@pytest.mark.parametrize(
    ("function", "line"), [(branches, "if x.sum() > 0:"), (calls_helper, "return jnp.dot(")]
)
def test_what_cannot_be_traced_is_shown_where_the_user_wrote_it(function, line):
    with pytest.raises(EqsatError) as told:
        eqsat.optimize(function, X, target="reference")
    (problem,) = told.value.diagnostics
    assert problem.code == "E301"
    assert problem.span.file.endswith("test_first_day.py")
    assert line in problem.span.text


@pytest.mark.parametrize(
    ("number", "meant"),
    [(1048576, "1 MiB"), (32, "32 KiB"), (65536, "64 KiB"), (3 << 30, "3 GiB"), (5000, "5000 B")],
)
def test_a_size_without_a_unit_is_told_what_it_most_likely_is(number, meant):
    with pytest.raises(ValueError, match="has no unit") as told:
        quantity(number, "size")
    assert told.value.help == f"write `{meant}`"
    quantity(meant, "size")


RULE = """ruleset: mine
doc: d
rules:
  - name: a
    doc: d
    rewrite: {left}
    to:      x
"""


@pytest.mark.parametrize(
    ("left", "said"),
    [
        ("dot(x, y)", "products are `generic`"),
        ("where(x, y)", "elementwise ops are `generic`"),
        ("sum(x)", "reductions are `generic`"),
        ("transpse(x)", "did you mean `transpose`?"),
    ],
)
def test_words_of_other_tools_are_told_what_they_are_here(left, said, tmp_path, capsys):
    (tmp_path / "mine.yaml").write_text(RULE.format(left=left), encoding="utf-8")
    assert run(["check", str(tmp_path / "mine.yaml")]) == 2
    told = capsys.readouterr().out
    assert "error[E011]" in told
    assert said in told


SMALL_TARGET = """target: mine
memory: [{name: ram, size: 1 GiB, bandwidth: 4 GB/s}]
"""
SMALL_SET = """ruleset: mine
rules:
  - name: undo
    rewrite: transpose(transpose(x, perm=p), perm=q)
    to: transpose(x, perm=compose(p, q))
    examples: [{given: {x: "f32[4, 8]"}, start: "x", reaches: "x"}]
"""


def test_keys_that_have_a_default_may_be_left_out(tmp_path):
    (tmp_path / "target.yaml").write_text(SMALL_TARGET, encoding="utf-8")
    (tmp_path / "rules.yaml").write_text(SMALL_SET, encoding="utf-8")
    machine = eqsat.target(str(tmp_path / "target.yaml"))
    assert (machine.executor, machine.data_tiling, machine.doc) == ("xla", True, "")
    (rule,) = eqsat.rules(str(tmp_path / "rules.yaml")).rules
    assert [e.name for e in rule.examples] == ["example-1"]


@pytest.fixture(scope="module")
def packs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("first") / "run"
    assert run(["optimize", "two_packs", "--target", "reference", "-q", "-o", str(folder)]) == 0
    return folder


def test_an_egraph_is_read_by_the_extractor_and_by_other_tools(packs, tmp_path, capsys):
    assert run(["show", str(packs), "egraph", "--json"]) == 0
    text = capsys.readouterr().out
    data = json.loads(text)
    nodes = data["nodes"]
    assert all(set(n["children"]) <= set(nodes) for n in nodes.values())
    assert {n["eclass"] for n in nodes.values()} == set(data["class_data"])
    (tmp_path / "egraph.json").write_text(text, encoding="utf-8")
    assert run(["extract", str(tmp_path / "egraph.json"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    ops = eqsat.load(packs).canonical.op_count
    assert found["status"] == "optimal"
    assert 0 < found["dag_cost"] <= ops  # the input is among what may be extracted


def test_phases_are_logged_if_one_asks(capsys, caplog):
    assert run(["optimize", "two_packs", "--target", "reference", "-v"]) == 0
    told = capsys.readouterr().err
    phases = [line.split()[2] for line in told.splitlines() if " s  eqsat." in line]
    order = ["eqsat.read", "eqsat.saturate", "eqsat.extract", "eqsat.schedule"]
    assert [p for p in dict.fromkeys(phases) if p in order] == order
    assert "rules: " in told
    assert re.search(r"eqsat\.shares  baseline: \d+\.\d+ s of \d+\.\d+ s, ended", told)
    caplog.clear()
    with caplog.at_level("INFO", "eqsat.saturate"):
        eqsat.optimize("two_packs", target="reference", stop_after="egraph")
    assert {r.name for r in caplog.records} == {"eqsat.saturate"}


def test_nothing_is_logged_if_nobody_asks(capsys):
    assert run(["optimize", "two_packs", "--target", "reference", "-q"]) == 0
    assert capsys.readouterr().err == ""


def test_what_is_shipped_says_what_it_is():
    for name in ("default", "full"):
        assert all(r.doc for r in eqsat.rules(name).rules)
