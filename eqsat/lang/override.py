"""Imported rules in another form: `override:` gives them guards, tags, another way to apply.

What comes in are the imported rules, what goes out the ones that stand in their place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from eqsat.lang.attributes import Scope
from eqsat.lang.rule import spread_conditions, spread_scope
from eqsat.lang.ruleformat import OverrideRecord, RuleSetRecord
from eqsat.lang.source import KeyPath, YamlSource
from eqsat.lang.terms import ITEMS, TermReader
from eqsat.model.diag import Diagnostic, Span, did_you_mean
from eqsat.model.rules import (
    ROUNDINGS,
    Apply,
    AttrExpr,
    Compare,
    Function,
    Name,
    Rule,
    Splat,
    SpreadRule,
    Term,
    Value,
    Var,
)
from eqsat.ops.attrs import FUNCTIONS, RULE_OPS
from eqsat.ops.vocabulary import PLURAL


def overridden(
    rules: list[Rule | SpreadRule],
    record: RuleSetRecord,
    source: YamlSource,
    problems: list[Diagnostic],
) -> list[Rule | SpreadRule]:
    """The rules with those that an `override:` names replaced; E009 for a name nothing has."""
    taken: set[str] = set()
    replacements: list[Rule | SpreadRule] = []
    for i, override in enumerate(record.override):
        path = ("override", i)
        for rule, span in _named(rules, source, (*path, "rules"), problems):
            taken.add(rule.name)
            rest = (override, record, source, path, problems)
            changed = _changed(rule, *rest) if isinstance(rule, Rule) else _restricted(rule, *rest)
            replacements.append(replace(changed, span=span))
    return [*(r for r in rules if r.name not in taken), *replacements]


def _named(
    rules: list[Rule | SpreadRule], source: YamlSource, path: KeyPath, problems: list[Diagnostic]
) -> Iterator[tuple[Rule | SpreadRule, Span]]:
    """The rules an `override:` names by name or tag, and where it does; each once."""
    rule_names = {r.name for r in rules} | {t for r in rules for t in r.tags}
    seen: set[str] = set()
    for placed in source.strings(path):
        if placed.text not in rule_names:
            message = f"no imported rule or tag is named `{placed.text}`"
            hint = did_you_mean(placed.text, rule_names)
            problems.append(Diagnostic("E009", message, placed.whole(), help=hint))
        for rule in rules:
            if placed.text in (rule.name, *rule.tags) and rule.name not in seen:
                seen.add(rule.name)
                yield rule, placed.whole()


def _changed(
    rule: Rule,
    override: OverrideRecord,
    record: RuleSetRecord,
    source: YamlSource,
    path: KeyPath,
    problems: list[Diagnostic],
) -> Rule:
    left, guards = _single_use(rule) if override.single_use else (rule.left, [])
    reader = TermReader(scope_of(replace(rule, left=left)), problems)
    more = [reader.condition(t) for t in source.strings((*path, "where"))]
    tags = tuple(dict.fromkeys((*record.tags, *rule.tags, *override.tags)))
    bound = rule.bound or ((record.bound or ROUNDINGS) if "inexact" in tags else "")
    return replace(
        rule,
        name=f"{override.prefix}-{rule.name}",
        ruleset=record.ruleset,
        left=left,
        where=(*rule.where, *guards, *(c for c in more if c is not None)),
        apply=override.apply or rule.apply,
        phase=override.phase or rule.phase,
        tags=tags,
        bound=bound,
        source=override.source or rule.source,
        examples=(),  # what they reach may be what the new guards forbid
    )


_OF_REWRITES = ("apply", "single_use", "phase")


def _restricted(
    rule: SpreadRule,
    override: OverrideRecord,
    record: RuleSetRecord,
    source: YamlSource,
    path: KeyPath,
    problems: list[Diagnostic],
) -> SpreadRule:
    """A spread rule with further conditions; E028 for what only a rewrite has."""
    for key in _OF_REWRITES:
        if getattr(override, key):
            message = f"`{key}` is of rewrites: `{rule.name}` is a rule of spreads"
            help = "leave it out, or name rewrites only"
            span = source.span((*path, key), key=True)
            problems.append(Diagnostic("E028", message, span, help=help))
    reader = TermReader(spread_scope(rule.verb, rule.span), problems)
    more = spread_conditions(reader, source.strings((*path, "where")))
    return replace(
        rule,
        name=f"{override.prefix}-{rule.name}",
        ruleset=record.ruleset,
        where=(*rule.where, *more),
        tags=tuple(dict.fromkeys((*record.tags, *rule.tags, *override.tags))),
        source=override.source or rule.source,
    )


# ---- one use of every op inside of the left side -------------------------------------------------
def _single_use(rule: Rule) -> tuple[Apply, list[AttrExpr]]:
    """The left side with all inner ops named, and a condition on the uses of each."""
    names: list[Apply] = []
    operands = tuple(_name_ops(o, names) for o in rule.left.operands)
    return replace(rule.left, operands=operands), [_used_once(t) for t in names]


def _used_once(t: Apply) -> AttrExpr:
    text = f"uses({t.name}) == 1"  # as if it stood there
    at = replace(t.span, column=1, end=len(text) + 1, text=text)
    return Compare("==", Function("uses", (Name(t.name, at),), at), Value(1, at), at)


def _name_ops(term: Term, names: list[Apply]) -> Term:
    if not isinstance(term, Apply):
        return term
    at = len(names)
    named = replace(term, name=term.name or f"inner{at}")
    names.append(named)
    return replace(named, operands=tuple(_name_ops(o, names) for o in term.operands))


# ---- the variables of a rule that was read before ------------------------------------------------
def scope_of(rule: Rule) -> Scope:
    """What the conditions of a rule may name."""
    scope = Scope()
    for term in (rule.left, *rule.also):
        _bind_term(term, scope)
    for name, expr in rule.foreach:
        scope.bind(name, ITEMS.get(_given(expr, scope), ""), rule.span)
    for name, expr in rule.lets:
        scope.bind(name, _given(expr, scope), rule.span)
    return scope


def _given(expr: AttrExpr, scope: Scope) -> str:
    if not isinstance(expr, Function):
        return ""
    kinds = [scope.kind(a.name) if isinstance(a, Name) else "" for a in expr.args]
    return FUNCTIONS[expr.name].given(kinds)


def _bind_term(term: Term, scope: Scope, over: bool = False) -> None:
    if isinstance(term, Var):
        scope.bind(term.name, "tensors" if over else "tensor", term.span)
    if isinstance(term, Splat):
        _bind_term(term.inner, scope, over=True)
    if not isinstance(term, Apply):
        return
    if term.name:
        scope.bind(term.name, "tensor", term.span)
    for key, value in term.attrs:
        if isinstance(value, Name):
            kind = RULE_OPS[term.op].keys[key]
            is_list = over and key == RULE_OPS[term.op].whole
            scope.bind(value.name, PLURAL[kind] if is_list else kind, value.span)
    for o in term.operands:
        _bind_term(o, scope, over)
