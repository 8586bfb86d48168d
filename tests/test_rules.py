"""Every example beside every rule is a test: no Python is written to test a rule."""

from __future__ import annotations

import inspect
from dataclasses import replace

import pytest
from seeds import seeds, some
from shipped import SETS

import eqsat
from eqsat.hunt.instances import all_examples, check_example, check_examples, example_target
from eqsat.lang.rulesets import read_ruleset
from eqsat.model.diag import Span
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.mesh import Axis
from eqsat.model.movement import Reshape
from eqsat.model.rules import Example, Field, Name, Rule, RuleSet
from eqsat.model.target import Tile
from eqsat.ops.attrs import FIELDS, Operand
from eqsat.ops.mesh.strategies import NOWHERE, axis_facts, block_facts, cut_facts, value_facts
from eqsat.saturate.rows import NoRow, value

SPAN = Span("f.yaml", 1, 1, 2)
DEFAULT = eqsat.rules("default")
OWN = {(r.ruleset, r.name): (s, r) for s in SETS for r in s.rules if r.ruleset == s.name}
CASES = [(r, e) for r in DEFAULT.rules for _, e in all_examples(RuleSet("", "", (r,)))]
AVOIDING = [(r.name, e.name) for r, e in CASES if not e.reaches]


@pytest.mark.parametrize(
    ("rule", "example"),
    # what a set reaches by itself, more rules reach, too; of what is avoided one in two
    some(lambda r, e: (r.name, e.name) in AVOIDING[::2], CASES),
    ids=[f"{r.name}::{e.name}" for r, e in CASES],
)
def test_example(rule: Rule, example: Example):
    # with all rules: what must be avoided must not be reached by any chain of them either
    found = check_example(DEFAULT, rule, example, example_target())
    assert found is None, found.full() if found else ""


def with_one_example(rule: Rule) -> Rule:
    return replace(rule, examples=tuple(e for e in rule.examples if e.reaches)[:1])


@pytest.mark.parametrize("whole", seeds(1, [False, True]))
@pytest.mark.parametrize("ruleset", SETS, ids=[s.name for s in SETS])
def test_a_set_by_itself_keeps_its_examples(ruleset: RuleSet, whole: bool):
    """As `eqsat check --test` runs them: what each rule reaches first, or all of them."""
    one = tuple(map(with_one_example, ruleset.rules))
    assert check_examples(ruleset if whole else replace(ruleset, rules=one)) == []


def test_every_rule_says_what_it_is_and_where_it_comes_from():
    assert len(OWN) >= 168
    for _, rule in OWN.values():
        assert rule.doc.endswith("."), rule.at
        assert rule.source, rule.at


def test_a_wrong_example_is_found():
    text = """
ruleset: wrong
doc: Says too much.
rules:
  - name: compose-transposes
    doc: Two transposes are one.
    rewrite: transpose(transpose(x, perm=p), perm=q)
    to: transpose(x, perm=compose(p, q))
    examples:
      - name: not-reached
        given: {x: "f32[4, 4, 4]"}
        start: transpose(transpose(x, perm=[1, 2, 0]), perm=[1, 2, 0])
        reaches: x
      - name: not-avoided
        given: {x: "f32[4, 4, 4]"}
        start: transpose(transpose(x, perm=[1, 2, 0]), perm=[1, 2, 0])
        avoids: transpose(x, perm=[2, 0, 1])
"""
    found = check_examples(read_ruleset(text, "wrong.yaml"))
    assert [(d.code, d.span.line if d.span else 0) for d in found] == [("E101", 13), ("E101", 17)]


AXIS = Axis("data", 4, 45e9, 1_000_000)
SPREAD_FACTS = {
    "axis": axis_facts(AXIS),
    "cut": cut_facts("reshape", Reshape((4,), (2, 2)), None, NOWHERE),
    "block": block_facts(0, NOWHERE),
    "value": value_facts("weight", "w", (4, 4), AXIS),
}


def test_fields_of_values_are_typed_as_the_records_say():
    owners = {"tensor": Operand, "sig": Generic, "layout": Layout, "tile": Tile}
    kinds = {"int": "int", "str": "str", "bool": "bool", "Shape": "ints"}
    assert owners.keys() | SPREAD_FACTS.keys() == FIELDS.keys()
    for kind, owner in owners.items():
        for name, wanted in FIELDS[kind].items():
            found = inspect.getattr_static(owner, name, None)  # a property, or a field
            hint = found.fget.__annotations__["return"] if isinstance(found, property) else (
                owner.__annotations__[name])  # fmt: skip
            assert kinds[hint.removesuffix(" | None")] == wanted, (kind, name)


def test_fields_of_spread_rules_are_the_facts_that_conditions_are_asked_about():
    for kind, facts in SPREAD_FACTS.items():
        assert {name: type(f).__name__ for name, f in facts.items()} == FIELDS[kind], kind


def test_a_field_of_what_is_not_known_gives_no_row():
    rank = Field(Name("x", SPAN), "rank", SPAN)
    assert value(rank, {"x": Operand((4, 2))}, {}) == 2
    assert (
        value(Field(Name("t", SPAN), "n", SPAN), {"t": Tile((("m", 8), ("n", 16)), 1.0)}, {}) == 16
    )
    assert value(rank, {"x": None}, {}) is None  # an operand that is left out
    with pytest.raises(NoRow):
        value(rank, {"x": Operand(None)}, {})
