"""Content of a rule, whatever its author calls things: a hash, and a line of algebra."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from eqsat.model.rules import (
    Apply,
    AttrExpr,
    Compare,
    Field,
    Function,
    Name,
    Not,
    Rule,
    Splat,
    SpreadRule,
    Term,
    Value,
    Var,
)
from eqsat.ops.attrs import SPREAD_SCOPES
from eqsat.plugins import data_folder

SHIPPED = "known.txt"


def rule_content(rule: Rule) -> tuple[object, ...]:
    """Both sides, conditions and tables, without names, places and the order of conditions."""
    names: dict[str, str] = {}
    terms = [plain_form(t, names) for t in (rule.left, *rule.also)]
    bound = []
    for kind, pairs in (("foreach", rule.foreach), ("let", rule.lets)):
        for name, e in pairs:
            bound.append((kind, plain_form(e, names)))
            names.setdefault(name, f"v{len(names)}")
    right = plain_form(rule.right, names)
    where = sorted(repr(plain_form(e, names)) for e in rule.where)
    return (tuple(terms), tuple(bound), right, tuple(where))


def spread_content(rule: SpreadRule) -> tuple[object, ...]:
    """Canonical text of a spread rule: no order of conditions, one name for its variables."""
    names = {name: name for name in SPREAD_SCOPES[rule.verb]}
    return (rule.verb, rule.what, tuple(sorted(repr(plain_form(e, names)) for e in rule.where)))


def rule_key(rule: Rule) -> str:
    """A hash of all that decides whether a rule is sound: 32 hexadecimal digits.

    When it is tried (`phase`, `apply`, `max_matches`) is no part of it; how it may
    round (`inexact`, `bound`) is, as the hunt compares accordingly.
    """
    said = (rule_content(rule), rule.bound if "inexact" in rule.tags else "")
    return hashlib.sha256(repr(said).encode()).hexdigest()[:32]


def file_key(text: str) -> str:
    """A hash of all that a file of rules says."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@lru_cache(maxsize=1)
def known_keys() -> frozenset[str]:
    """Keys of the rules and of the files of rules that this version was shipped with."""
    lines = (data_folder("rules") / SHIPPED).read_text(encoding="utf-8").splitlines()
    return frozenset(line.split()[0] for line in lines if line and line[0] != "#")


def plain_form(term: object, names: dict[str, str]) -> object:
    """A term or expression without places and with variables numbered by first use."""
    match term:
        case Var(name) | Name(name):
            return names.setdefault(name, f"v{len(names)}")
        case Value(value):
            return ("value", repr(value))
        case Function(name, args):
            return (name, *(plain_form(a, names) for a in args))
        case Splat(inner):
            return ("*", plain_form(inner, names))
        case Apply():
            return _plain_apply(term, names)
    return _plain_operator(term, names)


def _plain_apply(term: Apply, names: dict[str, str]) -> object:
    named = names.setdefault(term.name, f"v{len(names)}") if term.name else ""
    operands = tuple(plain_form(o, names) for o in term.operands)
    attrs = sorted(term.attrs, key=lambda a: a[0])
    return (term.op, named, operands, tuple((k, plain_form(v, names)) for k, v in attrs))


def _plain_operator(term: Any, names: dict[str, str]) -> object:
    match term:
        case Compare(op, left, right):
            return (op, plain_form(left, names), plain_form(right, names))
        case Field(base, name):
            return (".", plain_form(base, names), name)
        case Not(inner):
            return ("not", plain_form(inner, names))
    raise TypeError(f"no part of a rule: {term!r}")


def notation(rule: Rule | SpreadRule) -> str:
    """`h(g(x, y)) = c.rest(c.sum(x), y) with c = f(g, h) if …`: a generic is named by its loops.

    A law is printed as it is written. `→` instead of `=`: the left side is removed; `&` stands
    between patterns that must all match.
    """
    if isinstance(rule, SpreadRule):
        return f"{rule.verb} {rule.what}{_listed(' if ', map(expression_text, rule.where))}"
    conditions = [expression_text(c) for c in rule.where if not names_op(c)]
    law = next((text for _, e in rule.lets for text in _law(e)), "")
    if law:
        sides, _, guards = law.partition(" if ")
        line = sides.replace("=>", "=").strip()
        return line + _listed(" if ", [*([guards] if guards else []), *conditions])
    left = " & ".join(map(algebra_of, (rule.left, *rule.also)))
    line = f"{left} {'→' if rule.apply == 'replace' else '='} {algebra_of(rule.right)}"
    lets = (f"{name} = {expression_text(e)}" for name, e in rule.lets)
    each = (f"{name} in {expression_text(e)}" for name, e in rule.foreach)
    return line + _listed(" with ", lets) + _listed(" for ", each) + _listed(" if ", conditions)


def names_op(e: AttrExpr) -> bool:
    """Whether a condition only says which op a left side names."""
    return isinstance(e, Function) and e.name == "is_op" != expression_text(e)[:5]


def _law(e: AttrExpr) -> Iterator[str]:
    if isinstance(e, Function) and e.name == "law" and isinstance(e.args[0], Value):
        yield e.args[0].value


def _listed(word: str, parts: Iterable[str]) -> str:
    joined = (" and " if word == " if " else ", ").join(parts)
    return word + joined if joined else ""


def algebra_of(term: Term) -> str:
    """`g(*p, x)` for a generic with loops g, `pack[l](x)` for any other op."""
    if isinstance(term, Var):
        return term.name
    if isinstance(term, Splat):
        return f"*{algebra_of(term.inner)}"
    if any(e.span == term.span for _, e in term.attrs):  # an op by its name
        return (f"{term.name} := " if term.name else "") + expression_text(term.attrs[0][1])
    attrs = [expression_text(e) for _, e in term.attrs]
    if len(attrs) > 1:
        attrs = [f"{key}={a}" for (key, _), a in zip(term.attrs, attrs, strict=True)]
    is_loops = [key for key, _ in term.attrs] == ["sig"]
    head = attrs[0] if is_loops else term.op + (f"[{', '.join(attrs)}]" if attrs else "")
    operands = f"({', '.join(map(algebra_of, term.operands))})" if term.operands else ""
    return (f"{term.name} := " if term.name else "") + head + operands


def expression_text(e: AttrExpr) -> str:
    """An expression as it stands in its file."""
    return e.span.text[e.span.column - 1 : e.span.end - 1] or str(e)
