"""Rules of spreads: what a mesh may do is permitted by named rules, and policies restrict it."""

from __future__ import annotations

import re

import pytest

import eqsat
from eqsat.execute.draw import drawn_weights
from eqsat.frontends.source import Source
from eqsat.lang.programs import parse_program
from eqsat.lang.rulesets import load_ruleset, read_ruleset
from eqsat.model.diag import EqsatError
from eqsat.model.mesh import MeshPlan
from eqsat.model.rules import SPREAD_VERBS, RuleSet
from eqsat.ops.mesh.cuts import cuts_of
from eqsat.report.facts import rule_facts
from eqsat.run import Run

MLP = """program mlp
input x: f32[8, 32, 128]
weight w1: f32[128, 256]
weight w2: f32[256, 128]
h = relu(matmul(reshape(x, shape=[256, 128]), w1))
y = reshape(matmul(h, w2), shape=[8, 32, 128])
return y
"""
HEAD = "ruleset: r\ndoc: d\nimport: [layout/fill, spread]\n"


def search(rules: str | RuleSet | tuple[str, ...], text: str = MLP, **request: object) -> Run:
    program = parse_program(text)
    request = {"mesh": "data=2,model=2"} | request
    given = Source(program, drawn_weights(program))
    return eqsat.optimize(given, target="tpu-v5e-4x2", rules=rules, **request)  # type: ignore[arg-type]


def plan_of(run: Run) -> MeshPlan:
    assert run.mesh_plan is not None
    return run.mesh_plan


def spreads(run: Run) -> dict[str, str]:
    found = run.summary()["mesh"]["spreads"]
    return {k: v for k, v in found.items() if k in ("x", "w1", "w2", "result0")}


def test_the_shipped_set_permits_everything_and_is_in_default() -> None:
    shipped = (*load_ruleset("default").spreads, *load_ruleset("spread/streams").spreads)
    found = {(r.verb, r.what) for r in shipped}
    assert found == {(verb, what) for verb, whats in SPREAD_VERBS.items() for what in whats}
    for r in load_ruleset("spread").spreads:
        assert r.doc
        assert re.fullmatch(r".*spread/\w+\.yaml:\d+:5", r.at)
    program = parse_program(MLP)
    made = {
        cut.form
        for n in program.nodes
        if n.operands
        for cut in cuts_of(n.op, n.attr, tuple(program.nodes[o].type.shape for o in n.operands), 2)
    }
    assert made <= {*SPREAD_VERBS["cut"]}


@pytest.mark.parametrize(
    ("policy", "weights", "sent"),
    [
        ("policy/data-parallel", ("[-, -]", "[-, -]"), {}),
        ("policy/fsdp", None, {"all-gather": 4}),
        ("policy/megatron", ("[-, model]", "[model, -]"), {"all-reduce": 1}),
    ],
)
def test_policies_give_the_plans_that_they_are_named_after(
    policy: str, weights: tuple[str, str] | None, sent: dict[str, int]
) -> None:
    budget = {"memory": "300 KiB"} if policy == "policy/megatron" else {}
    run = search(policy, budget=budget)
    found = spreads(run)
    assert plan_of(run).collectives == sent
    if weights is not None:
        assert (found["w1"], found["w2"]) == weights
    else:
        assert all({"data", "model"} <= set(re.findall(r"\w+", found[w])) for w in ("w1", "w2"))
    joint = plan_of(search("default", budget=budget))
    assert joint.time_ps <= plan_of(run).time_ps


def test_every_choice_names_its_rule_and_its_place() -> None:
    run = search("policy/megatron", budget={"memory": "300 KiB"})
    plan = plan_of(run)
    (sent,) = (s for r in plan.reshards for s in r.sent)
    assert sent.rule == "all-reduce"
    assert all(v.cut_by and all(v.cut_by) for v in plan.values if v.cuts)
    assert all(all(v.kept_by) for v in plan.values)
    facts = {f["rule"]: f for f in rule_facts(run, "result")}
    assert facts["all-reduce"]["in_result"] == 1
    assert facts["tensor-cut-summed-loop"]["in_result"] == 1
    assert "rules/policy/megatron.yaml:" in facts["tensor-cut-summed-loop"]["at"]
    assert "by all-reduce (" in run.explain(price=False).to_text()
    assert "it permits " in run.explain("all-reduce").to_text()
    assert run.summary()["mesh"]["rules"]["all-reduce"] == 1


def test_what_is_left_out_is_not_done() -> None:
    sets, budget = ("layout/fill", "spread"), {"memory": "200 KiB"}
    whole = plan_of(search(sets, budget=budget))
    assert whole.collectives == {"all-gather": 1, "reduce-scatter": 1}
    less = plan_of(search(sets, budget=budget, without=["reduce-scatter"]))
    assert "reduce-scatter" not in less.collectives
    assert less.time_ps > whole.time_ps
    unsummed = plan_of(search(sets, budget=budget, without=["cut-summed-loop"]))
    assert not any("add" in v.made for v in unsummed.values)
    with pytest.raises(EqsatError, match="E007"):
        search("default", without=["all-reduces"])


def test_conditions_restrict_by_axis_origin_role_and_name() -> None:
    def plan(override: str) -> Run:
        return search(read_ruleset(f"{HEAD}override:\n{override}", "r.yaml"))

    batch = plan(
        "  - rules: [divide]\n    prefix: my\n"
        "    where: ['axis.name == \"data\"', cut.argument_dim == 0]\n"
    )
    assert {c for v in plan_of(batch).values for c in v.cuts[1:]} == {""}
    assert all("model" not in s for s in spreads(batch).values())
    named = plan("  - {rules: [keep-whole], prefix: my, where: 'value.name != \"w1\"'}\n")
    assert not {"[-, -]", "[data, -]", "[model, -]"} & {spreads(named)["w1"]}
    inner = plan("  - {rules: [cut-parallel-loop], prefix: my, where: 'cut.role != \"m\"'}\n")
    assert {v.cuts for v in plan_of(inner).values if v.cuts} != {
        v.cuts for v in plan_of(plan("  []\n")).values if v.cuts
    }


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("ruleset: r\ndoc: d\nimport: [layout/fill]\n", "says nothing of how programs are cut"),
        (f"{HEAD}disable: [cut]\n", "a way to run `%"),
        (f"{HEAD}disable: [keep]\n", "permits to keep"),
        (
            f"{HEAD}disable: [convert, keep-blocks, compute-everywhere, cut-summed-loop]\n",
            "permit no plan",
        ),
    ],
)
def test_rules_that_permit_too_little_are_told(rules: str, words: str) -> None:
    with pytest.raises(EqsatError, match="E233") as caught:
        search(read_ruleset(rules, "r.yaml"))
    assert words in str(caught.value)


def test_rules_of_spreads_are_values() -> None:
    found = load_ruleset("policy/megatron")
    assert RuleSet.from_json(found.to_json()) == found
    assert "tensor-cut-summed-loop  cut summed" in found.to_text()
    found.verify()
    (rule,) = (r for r in found.spreads if r.name == "tensor-cut-summed-loop")
    assert rule.ruleset == "policy/megatron"
    assert len(rule.where) == 2
    assert found.without("cut").spreads != found.spreads
