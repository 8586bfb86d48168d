"""What users meet on their first day: completion, short options, mistakes that are told well."""

from __future__ import annotations

import json
import os
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
        ("matmul(x, y)", "products are `generic`"),
        ("add(x, y)", "elementwise ops are `generic`"),
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
