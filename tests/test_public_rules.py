"""Public rules about tensors: both sides are equal, and what published.md claims is true."""

from __future__ import annotations

import re
from collections import Counter

import jax
import numpy as np
import pytest
from fuzz.publicrules import REASONS, Rule, public_rules
from fuzz.runs import published
from seeds import one_in

SCALE = 32
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
SMALL = {r.name: r for r in public_rules(lambda size: size // SCALE)}
RULES = public_rules()
SAMPLE = RULES[::12]  # the whole table is `python benchmarks/run.py published`
LINE = re.compile(r"^\| (.+) \| (.+) \| (proven|matched|missing)(?:: (.+))? \|$", re.M)
CLAIMED = LINE.findall(published.PAGE.read_text(encoding="utf-8"))
RANK = (published.MISSING, published.MATCHED, published.PROVEN)


@pytest.mark.parametrize("name", one_in(8, SMALL))
def test_sides_are_equal(name: str) -> None:
    """In float64, or in whole numbers, both functions give the same."""
    rule = SMALL[name]
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        arrays = [i.draw(rng, "float64") for i in rule.inputs]
        both = jax.jit(lambda *a: (rule.left(*a), rule.right(*a))).lower(*arrays)
        left, right = map(jax.tree.leaves, both.compile(compiler_options=QUICK)(*arrays))
    assert [a.shape for a in left] == [b.shape for b in right]
    for a, b in zip(left, right, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_the_page_lists_every_rule() -> None:
    assert [(name, source) for name, source, _, _ in CLAIMED] == [
        (r.name, r.source) for r in RULES
    ], "python benchmarks/run.py published --page"


def test_what_is_missing_has_its_reason() -> None:
    for name, _, status, reason in CLAIMED:
        assert reason == (REASONS[name] if status == published.MISSING else ""), name
    assert set(REASONS) <= {r.name for r in RULES}


def test_the_page_counts() -> None:
    rows = [{"status": status} for _, _, status, _ in CLAIMED]
    assert published.counted(rows) in published.PAGE.read_text(encoding="utf-8")
    assert sum(Counter(r["status"] for r in rows).values()) == len(RULES)


@pytest.mark.parametrize("rule", one_in(3, SAMPLE), ids=lambda r: r.name)
def test_the_page_claims_no_more_than_is_true(rule: Rule) -> None:
    claimed = next(status for name, _, status, _ in CLAIMED if name == rule.name)
    found = published.row(rule, ["full"])["status"]
    assert RANK.index(found) >= RANK.index(claimed), "python benchmarks/run.py published --page"


def test_a_false_rule_is_neither_proven_nor_matched() -> None:
    rule = SMALL["Add(Dot(X, Y), Dot(X, Z)) ⇒ Dot(X, Add(Y, Z))"]
    false = Rule("false", "", rule.left, lambda x, y, z: y + 0 * z, rule.inputs)
    left, right = (published.program_of(f, false) for f in (false.left, false.right))
    assert not published.is_proven(left, right, ["full"])
