"""Examples beside rules: what they reach or avoid, and the instances that they are."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from random import Random

from eqsat.hunt.instances import MANY, Instance, all_facts, random_tiles, target_functions
from eqsat.model.attr import Attr
from eqsat.model.diag import Diagnostic, EqsatError, Note
from eqsat.model.generic import Result
from eqsat.model.program import Builder, Program
from eqsat.model.rules import Apply, Example, Rule, RuleSet, Splat, Term, Var
from eqsat.model.target import Target
from eqsat.saturate.rows import is_moot, splat_name


# ---- reached or avoided --------------------------------------------------------------------------
def check_examples(ruleset: RuleSet) -> list[Diagnostic]:
    """Every example of the set's own rules, run with all of its rules, imported ones too.

    A diagnostic (E101, E110) per failure.
    """
    machine = example_target()
    problems: list[Diagnostic] = []
    without_imports = replace(
        ruleset, rules=tuple(r for r in ruleset.rules if r.ruleset == ruleset.name)
    )
    for rule, example in all_examples(without_imports):
        try:
            failed = check_example(ruleset, rule, example, machine)
        except EqsatError as error:  # E110: a rule of the set builds what cannot be
            problems += error.diagnostics
        else:
            problems += [failed] if failed else []
    return list(dict.fromkeys(problems))


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


# ---- instances -----------------------------------------------------------------------------------
MOST = 40  # matches per rule
TARGETS = 20  # draws of what a target answers, until the rule may apply there


@dataclass(frozen=True)
class _Bindings:
    """A partial match: nodes of variables and splats, attributes so far in pre-order."""

    nodes: Mapping[str, int] = field(default_factory=dict)
    splats: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    named: frozenset[str] = frozenset()
    attrs: tuple[Attr, ...] = ()


def seeds(rule: Rule, rng: Random) -> list[Instance]:
    """Matches of the left side in the programs the rule's examples start from."""
    from eqsat.lang.rule import parse_example

    instances: list[Instance] = []
    for example in rule.examples:
        try:
            program, _ = parse_example(rule, example)
        except EqsatError:
            continue
        instances += [_instance(rule, program, m, rng) for m in _matches(rule, program)]
    return instances[:MOST]


def _matches(rule: Rule, program: Program) -> Iterator[_Bindings]:
    """Every way to match the left side somewhere, and the further patterns anywhere."""
    sides = (rule.left, *rule.also)
    for roots in product(range(len(program.nodes)), repeat=len(sides)):
        matches = [_Bindings()]
        for side, root in zip(sides, roots, strict=True):
            matches = [m for f in matches for m in _match(program, side, root, f)]
        yield from matches


def _match(program: Program, term: Term, node: int, match: _Bindings) -> Iterator[_Bindings]:
    if isinstance(term, Var):
        if match.nodes.get(term.name, node) == node:
            yield replace(match, nodes={**match.nodes, term.name: node})
        return
    n = program.nodes[node]
    if not isinstance(term, Apply) or n.op != term.op:
        return
    if term.name:
        if match.nodes.get(term.name, node) != node:
            return
        match = replace(
            match, nodes={**match.nodes, term.name: node}, named=match.named | {term.name}
        )
    attr: Attr = n.attr if isinstance(n.attr, Result) or n.op != "result" else Result(0)
    yield from _operands(program, term, n.operands, replace(match, attrs=(*match.attrs, attr)))


def _operands(
    program: Program, term: Apply, operands: tuple[int, ...], match: _Bindings
) -> Iterator[_Bindings]:
    splats = sum(isinstance(o, Splat) for o in term.operands)
    free = len(operands) - (len(term.operands) - splats)
    if free < 0 or (not splats and free):
        return
    for ends in itertools.combinations_with_replacement(range(free + 1), max(splats - 1, 0)):
        sizes = [b - a for a, b in itertools.pairwise((0, *ends, free))]
        yield from _in_order(program, term.operands, operands, sizes, match)


def _in_order(
    program: Program,
    terms: tuple[Term, ...],
    operands: tuple[int, ...],
    sizes: list[int],
    match: _Bindings,
) -> Iterator[_Bindings]:
    if not terms:
        yield match
        return
    first, *rest = terms
    if not isinstance(first, Splat):
        for m in _match(program, first, operands[0], match):
            yield from _in_order(program, tuple(rest), operands[1:], sizes, m)
        return
    taken, left = operands[: sizes[0]], operands[sizes[0] :]
    for m in _splat(program, first, taken, match):
        yield from _in_order(program, tuple(rest), left, sizes[1:], m)


def _splat(
    program: Program, term: Splat, taken: tuple[int, ...], match: _Bindings
) -> Iterator[_Bindings]:
    inner, name = term.inner, splat_name(term)
    if isinstance(inner, Apply):
        nodes = [program.nodes[t] for t in taken]
        if any(n.op != inner.op for n in nodes):
            return
        match = replace(match, attrs=(*match.attrs, *(n.attr for n in nodes)))
        taken = tuple(n.operands[0] for n in nodes)
    if match.splats.get(name, taken) == taken:
        yield replace(match, splats={**match.splats, name: taken})


def _instance(rule: Rule, program: Program, m: _Bindings, rng: Random) -> Instance:
    type_of = [n.types[0] for n in program.nodes]
    single = {n: (type_of[i],) for n, i in m.nodes.items() if n not in m.named}
    several = {n: tuple(type_of[i] for i in nodes) for n, nodes in m.splats.items()}
    arity = tuple(sorted((n, len(nodes)) for n, nodes in m.splats.items()))
    uses = (*((name, rng.choice((1, MANY))) for name in m.nodes), *all_facts(rule))
    drawn = (target_functions(rng, random_tiles(rng)) for _ in range(TARGETS))
    functions = next((f for f in drawn if not is_moot(rule, f)), {})
    tensors = tuple({**single, **several}.items())
    return Instance(rule, arity, m.attrs, tensors, uses, functions)
