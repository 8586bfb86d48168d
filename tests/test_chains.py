"""Chains of rules: sound rules pass, an unsound one is found, named and cut down."""

from __future__ import annotations

from functools import cache

import pytest
from fuzz.chains import Chain, chain, chains, make_trial, run
from seeds import one_in

from eqsat.lang.rulesets import read_ruleset
from eqsat.model.rules import RuleSet
from eqsat.saturate import Limits

CHAINS = 8  # a quick share; `make rules` runs hundreds, and further
LIMITS = Limits(nodes=800, rounds=5, seconds=120.0)


def broken(rewrite: str, to: str, *more: str) -> RuleSet:
    """The rules on transposes and packs, and one that is wrong."""
    lines = [f"    {m}\n" for m in more]
    text = (
        "ruleset: broken\ndoc: One rule is wrong.\nimport: [layout/transpose]\nrules:\n"
        f"  - name: wrong\n    doc: Never right.\n    rewrite: {rewrite}\n    to: {to}\n"
    )
    return read_ruleset(text + "".join(lines), "broken.yaml")


@cache
def first_failure(rewrite: str, to: str, *more: str) -> Chain:
    rules = broken(rewrite, to, *more)
    return next(c for c in (chain(s, rules) for s in range(400)) if c.failure)


def test_the_shipped_rules_agree_with_each_other():
    found = chains(CHAINS, limits=LIMITS)
    assert [str(c.failure) for c in found if c.failure] == []
    assert sum(c.compared for c in found) > 4 * CHAINS
    assert {c.stop for c in found} <= {"saturated", "nodes", "rounds"}
    assert "saturated" in {c.stop for c in found}


@pytest.mark.parametrize(
    ("rewrite", "to", "more"),
    one_in(
        3,
        [
            ("transpose(transpose(x, perm=p), perm=q)", "transpose(x, perm=compose(q, p))", ()),
            ("pack(unpack(y, layout=m), layout=l)", "y", ("where: ['same_tiles(m, l)']",)),
            ("unset_encoding(x, encoding=e)", "transpose(x, perm=[1, 0])", ()),
        ],
    ),
)
def test_a_wrong_rule_is_found_and_named(rewrite: str, to: str, more: tuple[str, ...]):
    failure = first_failure(rewrite, to, *more).failure
    assert failure is not None
    assert "wrong" in [r.name for r in failure.trial.rules.rules]
    assert len(failure.trial.rules.rules) <= 2
    assert failure.trial.program.op_count <= 6
    assert "chain " in str(failure)


def test_a_failure_is_reproduced_from_its_seed():
    wrong = ("transpose(transpose(x, perm=p), perm=q)", "transpose(x, perm=compose(q, p))")
    rules, found = broken(*wrong), first_failure(*wrong)
    assert chain(found.seed, rules) == found
    trial = make_trial(found.seed, rules)
    assert run(trial)[0] is not None
    assert found.failure is not None
    assert run(found.failure.trial)[0] == found.failure.why
