"""One rule of `spreads:` in a rule-set file → `model.rules.SpreadRule`."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.lang.attributes import Scope
from eqsat.lang.ruleformat import RuleSetRecord, SpreadRecord
from eqsat.lang.source import KeyPath, Placed, YamlSource
from eqsat.lang.terms import TermReader
from eqsat.model.diag import Diagnostic, Span
from eqsat.model.rules import (
    SPREAD_VERBS,
    AttrExpr,
    Compare,
    Field,
    Function,
    Not,
    SpreadRule,
)
from eqsat.ops.attrs import SPREAD_SCOPES


def read_spreads(
    source: YamlSource, ruleset: RuleSetRecord, problems: list[Diagnostic]
) -> list[SpreadRule]:
    """The set's own ones; what is wrong goes to `problems` (E028 for none or two of the verbs)."""
    found = [
        _read(source, ("spreads", i), ruleset, record, problems)
        for i, record in enumerate(ruleset.spreads)
    ]
    return [r for r in found if r is not None]


def _read(
    source: YamlSource,
    path: KeyPath,
    ruleset: RuleSetRecord,
    record: SpreadRecord,
    problems: list[Diagnostic],
) -> SpreadRule | None:
    said = {v: str(getattr(record, v)) for v in SPREAD_VERBS if getattr(record, v) is not None}
    span = source.span((*path, "name"), key=True)
    if len(said) != 1:
        what = f"says {' and '.join(said)}" if said else "says nothing of what is done"
        hint = "write one of `cut: parallel`, `keep: blocks`, `convert: all-gather`"
        problems.append(
            Diagnostic("E028", f"the spread rule `{record.name}` {what}", span, help=hint)
        )
        return None
    ((verb, what),) = said.items()
    reader = TermReader(spread_scope(verb, span), problems)
    where = spread_conditions(reader, source.strings((*path, "where")))
    return SpreadRule(
        record.name, ruleset.ruleset, record.doc, verb, what, where,
        tuple(dict.fromkeys((*ruleset.tags, *record.tags))), record.source, span,
    )  # fmt: skip


def spread_conditions(reader: TermReader, texts: Sequence[Placed]) -> tuple[AttrExpr, ...]:
    """Conditions over the fields of a mesh; E028 for functions, as there are no tensors."""
    found: list[AttrExpr] = []
    for text in texts:
        condition = reader.condition(text)
        called = None if condition is None else _called(condition)
        if called is not None:
            message = f"`{called.name}` cannot be asked here: a spread rule has no tensors"
            help = 'compare fields, as in `axis.name == "model"` or `not cut.of_argument`'
            reader.problems.append(Diagnostic("E028", message, called.span, help=help))
        elif condition is not None:
            found.append(condition)
    return tuple(found)


def _called(e: AttrExpr) -> Function | None:
    """The first function in a condition."""
    if isinstance(e, Function):
        return e
    inner = {Compare: ("left", "right"), Not: ("inner",), Field: ("base",)}.get(type(e), ())
    return next((f for k in inner if (f := _called(getattr(e, k))) is not None), None)


def spread_scope(verb: str, span: Span) -> Scope:
    """What the conditions of a spread rule may name."""
    scope = Scope()
    for name, kind in SPREAD_SCOPES[verb].items():
        scope.bind(name, kind, span)
    return scope
