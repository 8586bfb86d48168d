"""What a rule says, whatever its author calls things and wherever it stands; and a hash of that."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

from eqsat.model.rules import (
    Apply,
    Compare,
    Field,
    Function,
    Name,
    Not,
    Rule,
    Splat,
    SpreadRule,
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
    """What a spread rule permits, without the order of conditions; its variables have one name."""
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
