"""How far rounding takes the sides of `inexact` rules apart, and what their bounds allow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import eqsat
from eqsat.hunt.compare import EPS, Terms, beyond_bound, count_roundings
from eqsat.hunt.search import hunt
from eqsat.hunt.sides import Application, Leaves, Ref
from eqsat.lang.rulesets import read_ruleset
from eqsat.model.affine import dim
from eqsat.model.diag import EqsatError
from eqsat.model.expr import Expr, arg, call, const
from eqsat.model.generic import Yield
from eqsat.model.tensor import NONE
from eqsat.ops.generics.canonical import canonical_generic

RULE = """
ruleset: mine
doc: A rule about one op.
rules:
  - name: mine
    doc: It has a bound.
    tags: [inexact]
    bound: {bound}
    phase: canonicalise
    rewrite: {left}
    let:     c = law("{law}", {args})
    to:      {right}
"""
TEXT = RULE.format(
    bound="finite", left="generic(x, sig=g)", law="mn->mn neg(x0) => mn->mn mul(x0, -1.0)",
    args="g", right="generic(x, sig=c.first)",
)  # fmt: skip
X = np.random.default_rng(3).uniform(0.5, 2.0, (40, 90)).astype(np.float32).astype(np.float64)


# ---- rules and their bounds ----------------------------------------------------------------------
def test_sums_in_another_order_are_within_roundings_and_not_finite() -> None:
    (rule,) = (r for r in eqsat.rules("algebra/reductions").rules if r.name == "join-sums")
    assert rule.bound == "roundings" and hunt(rule, instances=60).counterexample is None
    refuted = hunt(replace(rule, bound="finite"), instances=60).counterexample
    assert refuted is not None and "the bound `finite` allows 0.0e+00" in refuted.why


def test_what_cancels_is_refuted_though_float64_does_not_see_it() -> None:
    a_million = call("sub", call("add", arg(0), const(1e6)), const(1e6))
    left, right = elementwise(call("abs", arg(0))), elementwise(a_million)
    assert np.allclose(X + 1e6 - 1e6, X, rtol=1e-9)
    assert "the bound `roundings` allows" in beyond_bound("roundings", left, right, LEAVES, OPEN)
    # the other way round the terms are a million, and so is what the bound allows
    assert beyond_bound("roundings", right, left, LEAVES, OPEN) == ""
    assert beyond_bound("finite", right, left, LEAVES, OPEN) != ""
    assert beyond_bound("finite", right, left, LEAVES, ~OPEN) == ""  # nobody defined these lanes
    doubled = elementwise(call("mul", arg(0), const(2.0)))
    added = elementwise(call("add", arg(0), arg(0)))
    assert beyond_bound("finite", added, doubled, LEAVES, OPEN) == ""


def test_every_shipped_rule_that_may_round_states_a_bound() -> None:
    rules = eqsat.rules("full").rules
    for r in rules:
        assert bool(r.bound) == ("inexact" in r.tags), r.name
    assert {r.bound for r in rules} == {"", "roundings", "finite"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [("    bound: finite\n", "", "states no bound"), ("    tags: [inexact]\n", "", "is exact")],
)
def test_an_inexact_rule_states_a_bound_and_no_other_does(old: str, new: str, message: str) -> None:
    with pytest.raises(EqsatError) as caught:
        read_ruleset(TEXT.replace(old, new), "mine.yaml")
    (problem,) = caught.value.diagnostics
    assert problem.code == "E027" and message in problem.message and problem.help
    assert problem.span is not None and problem.span.line in (5, 7)


LEAVES: Leaves = {("x", 0): X}
OPEN = np.zeros(X.shape, bool)


# ---- what is counted -----------------------------------------------------------------------------
def one_op(body: Expr, rank: int, combine: str = "") -> Application:
    y = Yield(body, "f32", combine)
    read = [(dim(0), dim(1))]
    g = canonical_generic(X.shape, range(rank), read, [X.shape], [y], (), ("f32",), precision=NONE)
    return Application("generic", g, (Ref(("x", 0)),))


def elementwise(body: Expr) -> Application:
    return one_op(body, 2)


def test_terms_are_sums_of_sizes_and_slopes() -> None:
    total = one_op(call("sub", call("neg", arg(0)), const(4.0)), 1, "add")
    assert np.allclose(Terms(LEAVES)(total)[0], (X + 4.0).sum(1))
    assert count_roundings(total) == 1 + 90
    own = elementwise(call("exp", call("mul", arg(0), arg(0))))
    assert np.allclose(Terms(LEAVES)(own)[0], np.exp(X * X) * (1 + X * X), rtol=1e-6)


def test_the_bound_is_in_steps_of_f32() -> None:
    assert np.finfo(np.float32).eps == EPS
