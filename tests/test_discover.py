"""`eqsat discover`: terms with equal values that rules leave apart, as rules."""

from __future__ import annotations

import pytest

from eqsat.cli import run
from eqsat.hunt.instances import check_examples
from eqsat.lab.discover.find import Ask, discover
from eqsat.lang.rulesets import load_ruleset, read_ruleset
from eqsat.lang.targets import load_target
from eqsat.model.deadline import Stop

SUMS = Ask(("matmul", "sum"), size=2, seconds=600.0)


def _found(wish, name="algebra/simplify", stop=None):
    return discover(wish, load_ruleset(name), load_target("reference"), (), stop)


# ---- discoveries ---------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def sums():
    return _found(SUMS)


@pytest.mark.slow  # 9 s of terms and proofs
def test_sums_of_products_are_found_where_no_rule_knows_them(sums):
    said = {p.rule.doc for p in sums.proposals}
    assert "sum(matmul(x, y), 0) = matmul(sum(x, 0), y)" in said
    assert not sums.stop and sums.unproven <= sums.equal
    assert all(p.draft.is_general for p in sums.proposals)
    first = sums.ranked()[0]
    assert first.saving > 1


@pytest.mark.slow  # of the same run
def test_the_file_is_a_rule_set_whose_examples_hold_and_avoid(sums):
    ruleset = read_ruleset(sums.file("found/sums"), "sums.yaml")
    assert [r.name for r in ruleset.rules] == [p.rule.name for p in sums.ranked()]
    assert check_examples(ruleset) == []
    goals = {bool(e.reaches) for r in ruleset.rules for e in r.examples}
    assert goals == {True, False}


@pytest.mark.slow  # of the same run, and another one
def test_what_was_found_proves_the_rest_and_is_found_once(sums):
    """With the rules of the first run nothing is left to propose."""
    known = read_ruleset(sums.file("found/sums"), "sums.yaml")
    again = discover(SUMS, known, load_target("reference"))
    assert again.equal == sums.equal
    assert again.proposals == []


@pytest.mark.slow  # a whole run again
def test_a_run_is_deterministic(sums):
    assert _found(SUMS).file("found/sums") == sums.file("found/sums")


def test_what_is_interrupted_keeps_what_it_has():
    stop = Stop()
    stop.request()
    found = _found(SUMS, stop=stop)
    assert found.stop == "interrupted" and found.proposals == []
    assert "rules: []" in found.file("found/none")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--ops", "matmul,summ"], "terms have no op `summ`"),
        (["--leaves", "9"], "--leaves is 1 to 4, not 9"),
        (["--size", "0"], "--size is 1 to 5, not 0"),
        (["-o", "rules.txt"], "a rule set is a `.yaml` file"),
        (["-o", "missing/rules.yaml"], "no such folder"),
        (["--limit", "terms=3"], "no limit"),
        (["--rules", "fulll"], "no rule set named `fulll`"),
    ],
)
def test_bad_options_are_answered_with_a_sentence(options, says, capsys):
    assert run(["discover", *options]) == 2
    assert says in capsys.readouterr().err


def test_the_command_writes_its_rules(tmp_path, capsys):
    out = tmp_path / "Sums 1.yaml"
    options = ["--ops", "sum", "--leaves", "1", "--size", "2", "--rules", "algebra/simplify"]
    options += ["--without", "drop-copy"]
    assert run(["discover", *options, "-o", str(out)]) == 0
    told = capsys.readouterr()
    assert "sum(sum(x, " in told.out and "wrote" in told.err
    written = load_ruleset(out)
    assert written.name == "found/sums-1" and check_examples(written) == []
