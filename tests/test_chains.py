"""Chains of rules: sound rules pass, an unsound one is found, named and cut down."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from fuzz.chains import Chain, chain, chains, make_trial, run
from fuzz.classes import evaluate_classes
from fuzz.leaves import leaf_values
from fuzz.programs import STEPS, Maker
from seeds import one_in

import eqsat
from eqsat.lang.programs import parse_program
from eqsat.lang.rulesets import read_ruleset
from eqsat.model.egraph import EGraph
from eqsat.model.rules import RuleSet
from eqsat.saturate import Limits, saturate

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


def test_random_programs_hold_every_op():
    programs = [Maker(seed, seed % 2 == 0).program(8) for seed in range(150)]
    for p in programs:
        p.verify()
    ops = {n.op for p in programs for n in p.nodes}
    moves = {"transpose", "reshape", "pad", "slice", "concat", "gather", "pack", "unpack"}
    assert ops >= moves | {"generic", "fill", "result", "weight", "input", "set_encoding"}
    dtypes = {n.type.dtype for p in programs for n in p.nodes if len(n.types) == 1}
    assert dtypes >= {"f32", "i32", "i8", "u8", "bool"}
    assert any(p.uses[i] > 1 for p in programs for i, n in enumerate(p.nodes) if n.op != "input")
    assert len(STEPS) >= 19


OPEN = """
program open
input x: f32[7]
p = pack(x, pos=[0], tiles=[4], pad=any)
q = generic(p, loops=[2, 4], maps=[[d0, d1]], body=mul(x0, 0.0)) : f32[2, 4]
s = generic(p, loops=[2, 4], maps=[[d0, d1]], body=x0, combine=max) : f32[2]
u = unpack(q, pos=[0], tiles=[4], pad=any, shape=[7])
return q, s, u
"""


def graph_of(text: str) -> tuple[EGraph, dict]:
    program = parse_program(text, "open.eqs")
    none = RuleSet("none", "", ())
    return saturate(program, none, eqsat.target("reference")), leaf_values(program, 0, True)


def test_open_lanes_are_followed_through_ops():
    graph, leaves = graph_of(OPEN)
    found = evaluate_classes(graph, leaves)
    q, s, u = (found.classes[r] for r in graph.roots)
    assert q is not None
    assert s is not None
    assert u is not None
    np.testing.assert_array_equal(q[0].is_open, np.arange(8).reshape(2, 4) == 7)  # 0 · NaN is NaN
    np.testing.assert_array_equal(s[0].is_open, [False, True])
    assert not u[0].is_open.any()


@pytest.mark.parametrize("dtype", ["i8", "u8", "bool"])
def test_garbage_shows_in_integers_and_bools_too(dtype: str):
    body = "or(x0, x0)" if dtype == "bool" else "max(x0, 0)"
    text = OPEN.replace("f32", dtype).replace("mul(x0, 0.0)", body)
    text = text.replace("combine=max", "combine=or") if dtype == "bool" else text
    graph, leaves = graph_of(text)
    q, s, u = (evaluate_classes(graph, leaves).classes[r] for r in graph.roots)
    assert q is not None
    assert s is not None
    assert u is not None
    assert q[0].is_open.sum() == 1
    assert not u[0].is_open.any()
