"""Examples beside rules: does the rule set reach, or avoid, what the example says?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from eqsat.model.diag import Diagnostic, EqsatError, Note
from eqsat.model.program import Builder, Program
from eqsat.model.rules import Example, Rule, RuleSet
from eqsat.model.target import Target


def check_examples(ruleset: RuleSet) -> list[Diagnostic]:
    """Every example of the set's own rules, run with all of its rules, imported ones too.

    A diagnostic (E101, E110) per failure.
    """
    machine = example_target()
    found: list[Diagnostic] = []
    own = replace(ruleset, rules=tuple(r for r in ruleset.rules if r.ruleset == ruleset.name))
    for rule, example in all_examples(own):
        try:
            failed = check_example(ruleset, rule, example, machine)
        except EqsatError as error:  # E110: a rule of the set builds what cannot be
            found += error.diagnostics
        else:
            found += [failed] if failed else []
    return list(dict.fromkeys(found))


def example_target() -> Target:
    """The reference machine, with kernels, whose producers and readers execute their loops alike.

    So what a rule asks of a target holds there.
    """
    from eqsat.lang.targets import load_target

    machine = load_target("reference")
    fusion = replace(machine.fusion, index_relation="identity")
    return replace(machine, executor="kernels", fusion=fusion)


def all_examples(ruleset: RuleSet) -> Iterator[tuple[Rule, Example]]:
    for rule in ruleset.rules:
        for example in rule.examples:
            yield rule, example


def check_example(
    ruleset: RuleSet, rule: Rule, example: Example, target: Target
) -> Diagnostic | None:
    """None if start and goal are one class (`reaches`), or are not (`avoids`)."""
    from eqsat.lang.rule import parse_example
    from eqsat.saturate import saturate

    start, goal = parse_example(rule, example)
    graph = saturate(side_by_side(start, goal), ruleset, target)
    equal = graph.roots[0] == graph.roots[1]
    if equal == bool(example.reaches):
        return None
    what = "goal was reached" if equal else "goal was not reached"
    return Diagnostic(
        "E101",
        f"example `{example.name}` of `{rule.name}`: {what}",
        example.goal_span,
        notes=(Note(example.start_span, "from here"),),
    )


def side_by_side(a: Program, b: Program) -> Program:
    """One program over the same inputs with the results of both."""
    builder = Builder(a.name)
    results: list[int] = []
    for p in (a, b):
        new: dict[int, int] = {}
        for i, n in enumerate(p.nodes):
            new[i] = builder.add(n.op, tuple(new[o] for o in n.operands), n.attr)
        results += [new[r] for r in p.results]
    return builder.build(results)
