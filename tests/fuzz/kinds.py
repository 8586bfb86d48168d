"""The kinds of a rule's variables and expressions, worked out from its checked terms."""

from __future__ import annotations

from collections.abc import Iterator

from eqsat.model.rules import Apply, AttrExpr, Field, Function, Name, Rule, Splat, Term, Value, Var
from eqsat.ops.attrs import FUNCTIONS, ROWS, RULE_OPS
from eqsat.ops.vocabulary import PLURAL

_ITEMS = {many: one for one, many in PLURAL.items()} | {"ints": "int"}
Kinds = dict[str, str]


def attr_kind(op: str, key: str, zipped: bool = False) -> str:
    """The kind of an op's attribute; `zipped`: one per operand of a splat."""
    kind = RULE_OPS[op].keys[key]
    return PLURAL.get(kind, kind) if zipped else kind


def kinds_of(rule: Rule) -> Kinds:
    """Every variable of a rule and its kind."""
    found: Kinds = {}
    for term in (rule.left, *rule.also):
        for name, kind in _bound(term, zipped=False):
            found.setdefault(name, kind)
    for name, expr in rule.foreach:
        many = kind_of(expr, found)
        item = many.replace("rows:", "row:") if many.startswith("rows:") else _ITEMS.get(many, "")
        found[name] = item
    for name, expr in rule.lets:
        found[name] = kind_of(expr, found)
    return found


def _bound(term: Term, zipped: bool) -> Iterator[tuple[str, str]]:
    match term:
        case Var(name):
            yield name, "tensors" if zipped else "tensor"
        case Splat(inner):
            yield from _bound(inner, zipped=True)
        case Apply():
            if term.name:
                yield term.name, "tensor"
            for key, expr in term.attrs:
                if isinstance(expr, Name):
                    yield expr.name, _pattern_kind(term.op, key, zipped)
            for o in term.operands:
                yield from _bound(o, zipped)


def _pattern_kind(op: str, key: str, zipped: bool) -> str:
    """In a splat of a left side a whole key binds a list, a field is one value for all."""
    whole = RULE_OPS[op].whole == key
    return attr_kind(op, key, zipped and whole)


def kind_of(expr: AttrExpr, kinds: Kinds) -> str:
    """The kind of an expression; "" where it is not known."""
    match expr:
        case Name(name):
            return kinds.get(name, "")
        case Function(name, args):
            known = FUNCTIONS.get(name)
            return "" if known is None else known.given([kind_of(a, kinds) for a in args])
        case Field(base, name):
            row = kind_of(base, kinds)
            if row == "tile":
                return "int"
            return ROWS.get(row.removeprefix("row:"), {}).get(name, "")
        case Value(value):
            return _literal_kind(value)
    return "bool"


def _literal_kind(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int"
    return "str" if isinstance(value, str) else "ints"
