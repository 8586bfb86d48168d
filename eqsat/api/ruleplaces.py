"""Where a rule matches a program as it is read: every place of it, without a search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from eqsat.hunt.instances import Bindings, ConditionProbe, matches
from eqsat.lang.content import expression_text, names_op
from eqsat.lang.rulesets import load_ruleset
from eqsat.model.attr import Attr
from eqsat.model.diag import did_you_mean, fail
from eqsat.model.program import Program
from eqsat.model.rules import Name, Rule, SpreadRule
from eqsat.model.symbols import sizes_judged
from eqsat.model.target import Target
from eqsat.ops.attrs import RULE_OPS
from eqsat.ops.programs.facts import FACTS, Facts, facts_of
from eqsat.plugins import find_names
from eqsat.report.formatting import count_text, elided
from eqsat.saturate.rows import Functions, RuleAtArity, fact_key, mark, variables_asked
from eqsat.saturate.search import target_answers

SHOWN = 60  # characters of what a variable is bound to
Bound = tuple[tuple[str, str], ...]  # variable -> value or attribute, printed


@dataclass(frozen=True)
class RulePlace:
    """A value that the left side matches.

    at: the line of the source that asked for it, "" if it is not known. refused: the condition that
    does not hold there, "" if the rule applies.
    """

    rule: str
    value: str
    at: str
    bound: Bound
    refused: str


@dataclass(frozen=True)
class RulePlaces:
    """All places of some rules in a program."""

    rules: tuple[str, ...]
    program: str
    places: tuple[RulePlace, ...]

    def to_text(self) -> str:
        """Places where a rule applies, then those where a condition refuses it."""
        applied = [p for p in self.places if not p.refused]
        refused = [p for p in self.places if p.refused]
        where = count_text(len(applied), "place") if applied else "no place"
        verb = "applies" if len(self.rules) == 1 else "apply"
        lines = [f"{', '.join(self.rules)} {verb} at {where} of {self.program}"]
        lines += [line for p in applied for line in self._lines(p)]
        if refused:
            lines.append(f"the left side matches at {len(refused)} more, where a condition fails")
            lines += [
                line for p in refused for line in (*self._lines(p), f"  refused: {p.refused}")
            ]
        if not self.places:
            lines.append("the left side matches nothing of the program as it is read")
        return "\n".join(lines) + "\n"

    def _lines(self, p: RulePlace) -> Iterator[str]:
        by = p.rule if len(self.rules) > 1 else ""
        yield "  ".join(filter(None, (p.value, p.at, by)))
        yield from (f"  {name} = {text}" for name, text in p.bound)

    def to_json(self) -> dict[str, Any]:
        """The object that `--output-format json` prints."""
        places = [vars(p) | {"bound": dict(p.bound)} for p in self.places]
        return {"format": 1, "rules": list(self.rules), "program": self.program, "places": places}


def rules_named(name: str) -> tuple[Rule | SpreadRule, ...]:
    """The rule of this name, with its reverse; or those that a file defines: `mine.yaml:NAME`.

    EqsatError E007 if there is none.
    """
    file, suffix, wanted = name.partition(".yaml")
    if suffix:
        ruleset = load_ruleset(f"{file}.yaml")
        rules = [r for r in ruleset.everything if r.ruleset == ruleset.name]
        wanted = wanted.removeprefix(":")
    else:
        wanted, rules = name, every_rule()
    named = [r for r in rules if wanted in ("", r.name, r.name.removesuffix("-back"))]
    if not named:
        hint = did_you_mean(wanted, [r.name for r in rules], "eqsat list rules")
        raise fail("E007", f"no rule named `{wanted}`", help=hint)
    return tuple(named)


def every_rule() -> list[Rule | SpreadRule]:
    """The rules of all sets on the search path, by name."""
    rules: dict[str, Rule | SpreadRule] = {}
    for name in find_names("rules", ".yaml"):
        for r in load_ruleset(name).everything:
            rules.setdefault(r.name, r)
    return [rules[k] for k in sorted(rules)]


def rule_places(rules: Sequence[Rule | SpreadRule], program: Program, target: Target) -> RulePlaces:
    """Where these rules match the program, which is canonical, on a target.

    EqsatError E400 if one is a rule of spreads, which has no left side.
    """
    rewrites = [r for r in rules if isinstance(r, Rule)]
    if len(rewrites) < len(rules):
        raise fail("E400", "a rule of spreads has no left side", help="`eqsat show rule NAME`")
    facts = facts_of(program, FACTS)
    functions = target_answers(target, sizes_judged(program.symbols))
    tried = [_place(r, program, m, facts, functions) for r in rewrites for m in matches(r, program)]
    places = tuple(p for p in tried if p is not None)
    return RulePlaces(tuple(r.name for r in rewrites), program.name, places)


def _place(
    rule: Rule, program: Program, m: Bindings, facts: Facts, functions: Functions
) -> RulePlace | None:
    """None where an attribute is not the one that is written out, or an op not the named one."""
    arity = {name: len(nodes) for name, nodes in m.splats.items()}
    probe = ConditionProbe(RuleAtArity(rule, 0, tuple(sorted(arity.items()))), functions)
    attrs, uses = list(m.attrs), _uses(rule, program, m, facts)
    if not probe.binds(attrs, uses):
        return None
    verdicts = zip(rule.where, probe.conditions(attrs, uses), strict=True)
    if any(names_op(condition) and not holds for condition, holds in verdicts):
        return None
    refused = "" if probe.rows(attrs, uses) else _refusal(probe, attrs, uses)
    name, at = program.value_name(m.root), program.nodes[m.root].origin.at
    return RulePlace(rule.name, name, at, _bound(probe, program, m), refused)


def _uses(rule: Rule, program: Program, m: Bindings, facts: Facts) -> dict[str, int]:
    """What the rule may ask of the values that its variables stand for."""
    uses = {name: facts.uses[i] for name, i in m.nodes.items()}
    for fact in FACTS:
        for name in variables_asked(rule, fact):
            uses[fact_key(fact, name)] = int(facts.holds[fact][m.nodes[name]])
    for name, nodes in m.splats.items():
        unpacked = [program.nodes[i].op == "unpack" for i in nodes]
        uses |= {mark(name, i): int(held) for i, held in enumerate(unpacked)}
    return uses


def _refusal(probe: ConditionProbe, attrs: list[Attr], uses: dict[str, int]) -> str:
    """The first condition that does not hold, as it is written."""
    rule = probe.rule
    for fact in FACTS:
        for name in variables_asked(rule, fact):
            if not uses[fact_key(fact, name)]:
                return f"{fact}({name})"
    for condition, verdict in zip(rule.where, probe.conditions(attrs, uses), strict=True):
        if verdict is False:
            return expression_text(condition)
    tables = [*rule.foreach, *rule.lets]
    answers = ", ".join(f"{name} = {expression_text(e)}" for name, e in tables)
    return f"no answer for {answers}" if answers else "a value that it asks for is not known"


def _bound(probe: ConditionProbe, program: Program, m: Bindings) -> Bound:
    """Values of tensor variables, then attributes, each as its op is printed."""
    bound = {n: f"{program.value_name(i)}: {program.nodes[i].types[0]}" for n, i in m.nodes.items()}
    for name, nodes in m.splats.items():
        bound[f"*{name}"] = ", ".join(map(program.value_name, nodes)) or "nothing"
    attrs = iter(m.attrs)
    for node, count in probe.slots:
        for attr in list(islice(attrs, 1 if count is None else count)):
            for key, pattern in node.attrs:
                if isinstance(pattern, Name) and pattern.span != node.span:
                    text = _attribute_text(node.op, attr, key)
                    bound.setdefault(pattern.name, elided(text, SHOWN))
    return tuple(bound.items())


def _attribute_text(op: str, attr: Attr, key: str) -> str:
    value = attr if key == RULE_OPS[op].whole else attr.field(key)
    if isinstance(value, Attr):
        return attr.text(op)
    return str(list(value)) if isinstance(value, tuple) else str(value)
