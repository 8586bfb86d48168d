"""A rule → the rules a careless author might have written instead, each with what was changed.

Every standard break is made at every place of the rule where it fits: conditions and further
patterns dropped, arguments and attributes exchanged, functions and ops left out, values off by one.
The left side stays, so a rule and its mutants match the same terms.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

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
    Term,
    Value,
    Var,
)
from eqsat.ops.attrs import FUNCTIONS
from eqsat.saturate.rows import is_closed
from fuzz.breaks import BREAKS
from fuzz.kinds import Kinds, attr_kind, kind_of, kinds_of

OTHER = "_other"  # a further pattern may match any operand instead of the same one: `x_other`
# both orders of their arguments mean the same, so exchanging them breaks nothing
SYMMETRIC = frozenset({"same_tiles"})


@dataclass(frozen=True)
class Mutant:
    """A broken rule; `change` says how it differs from the rule it was made from."""

    rule: Rule
    change: str

    @property
    def variables(self) -> set[str]:
        """Tensor variables of the left side that stand for one operand."""
        return set().union(*map(_variables, (self.rule.left, *self.rule.also)))


@dataclass(frozen=True)
class Site:
    """An attribute expression of a rule, its kind, and the rule with another one in its place."""

    expr: AttrExpr
    kind: str
    put: Callable[[AttrExpr], Rule]
    is_value: bool  # its value can be wrapped in a broken function


def mutants(rule: Rule) -> list[Mutant]:
    """All mutants of a rule, in a fixed order, without duplicates."""
    kinds = kinds_of(rule)
    sites = list(_sites(rule, kinds))
    found = itertools.chain(
        _dropped_conditions(rule),
        _dropped_patterns(rule),
        _exchanged_arguments(sites, kinds),
        _dropped_functions(sites, kinds),
        _exchanged_attributes(rule, kinds),
        _broken_terms(rule),
        _broken_values(sites),
    )
    known = {_rule_text(rule)}
    return [m for m in found if _is_new(_rule_text(m.rule), known)]


def _is_new(wanted: str, known: set[str]) -> bool:
    is_new = wanted not in known
    known.add(wanted)
    return is_new


def _rule_text(rule: Rule) -> str:
    """What a rule does; two breaks may come to the same."""
    parts = [*rule.also, *(e for _, e in rule.lets), *rule.where, rule.right]
    return "; ".join(map(text, parts))


# ---- conditions and patterns ---------------------------------------------------------------------
def _dropped_conditions(rule: Rule) -> Iterator[Mutant]:
    """Conditions on uses, reads and targets stay: they say nothing of what a value holds."""
    for i, condition in enumerate(rule.where):
        if {"uses", "wasted"} & set(_called(condition)) or is_closed(condition):
            continue
        where = (*rule.where[:i], *rule.where[i + 1 :])
        yield Mutant(replace(rule, where=where), f"without the condition `{text(condition)}`")


def _dropped_patterns(rule: Rule) -> Iterator[Mutant]:
    """A further pattern is dropped; or, where its names are needed, matches another operand."""
    for i, term in enumerate(rule.also):
        rest = (*rule.also[:i], *rule.also[i + 1 :])
        without = replace(rule, also=rest)
        if _is_bound(without):
            yield Mutant(without, f"without the pattern `{text(term)}`")
        for name in sorted(_variables(term) & _variables(rule.left)):
            other = _renamed(term, name, name + OTHER)
            assert isinstance(other, Apply)
            also = (*rule.also[:i], other, *rule.also[i + 1 :])
            yield Mutant(replace(rule, also=also), f"the pattern `{text(term)}` of any `{name}`")


def _is_bound(rule: Rule) -> bool:
    """Whether everything the rule uses is bound by what is left of its left side."""
    known = set(kinds_of(replace(rule, lets=(), foreach=())))
    used: set[str] = set()
    local = {n for n, _ in (*rule.foreach, *rule.lets)}
    for expr in (*rule.where, *(e for _, e in (*rule.foreach, *rule.lets))):
        used |= _names(expr)
    used |= _used_by(rule.right)
    return used <= known | local


def _used_by(term: Term) -> set[str]:
    if isinstance(term, Var):
        return {term.name}
    if isinstance(term, Splat):
        return _used_by(term.inner)
    found = set().union(*(_used_by(o) for o in term.operands))
    return found.union(*(_names(e) for _, e in term.attrs))


def _variables(term: Term) -> set[str]:
    """Tensor variables of a term that stand for one operand."""
    match term:
        case Var(name):
            return {name}
        case Apply():
            return set().union(*(_variables(o) for o in term.operands))
    return set()


def _renamed(term: Term, old: str, new: str) -> Term:
    match term:
        case Var(name):
            return replace(term, name=new) if name == old else term
        case Apply():
            return replace(term, operands=tuple(_renamed(o, old, new) for o in term.operands))
    return term


# ---- expressions ---------------------------------------------------------------------------------
def _sites(rule: Rule, kinds: Kinds) -> Iterator[Site]:
    """Every expression of `let:`, `where:` and the right side, outermost first."""
    for i, (name, expr) in enumerate(rule.lets):

        def put_let(e: AttrExpr, i: int = i, name: str = name) -> Rule:
            return replace(rule, lets=(*rule.lets[:i], (name, e), *rule.lets[i + 1 :]))

        yield from _inside(expr, kind_of(expr, kinds), put_let, kinds, is_value=True)
    for i, expr in enumerate(rule.where):

        def put_where(e: AttrExpr, i: int = i) -> Rule:
            return replace(rule, where=(*rule.where[:i], e, *rule.where[i + 1 :]))

        yield from _inside(expr, "bool", put_where, kinds, is_value=False)
    yield from _term_sites(rule.right, lambda t: replace(rule, right=t), kinds)


def _term_sites(
    term: Term, put: Callable[[Term], Rule], kinds: Kinds, zipped: bool = False
) -> Iterator[Site]:
    if isinstance(term, Splat) and isinstance(term.inner, Apply):
        yield from _term_sites(
            term.inner,
            lambda t: put(replace(term, inner=t)),  # pyrefly: ignore[bad-argument-type] no splat
            kinds,
            zipped=True,
        )
    if not isinstance(term, Apply):
        return
    for i, (key, expr) in enumerate(term.attrs):

        def put_attr(e: AttrExpr, i: int = i, key: str = key) -> Rule:
            return put(replace(term, attrs=(*term.attrs[:i], (key, e), *term.attrs[i + 1 :])))

        kind = attr_kind(term.op, key, zipped)
        if not isinstance(expr, Value):  # a literal has the kind of its place
            kind = kind_of(expr, kinds) or kind
        yield from _inside(expr, kind, put_attr, kinds, is_value=True)
    for i, operand in enumerate(term.operands):

        def put_operand(t: Term, i: int = i) -> Rule:
            return put(replace(term, operands=(*term.operands[:i], t, *term.operands[i + 1 :])))

        yield from _term_sites(operand, put_operand, kinds)


def _inside(
    expr: AttrExpr,
    kind: str,
    put: Callable[[AttrExpr], Rule],
    kinds: Kinds,
    is_value: bool,
) -> Iterator[Site]:
    """This expression and those inside of it."""
    yield Site(expr, kind, put, is_value)
    match expr:
        case Function(name, args):
            for i, a in enumerate(args):

                def put_argument(e: AttrExpr, i: int = i) -> Rule:
                    return put(replace(expr, args=(*args[:i], e, *args[i + 1 :])))

                wanted = FUNCTIONS[name].args[i]
                kind = wanted if isinstance(a, Value) else kind_of(a, kinds) or wanted
                yield from _inside(a, kind, put_argument, kinds, is_value)
        case Not(inner):
            yield from _inside(inner, "bool", lambda e: put(replace(expr, inner=e)), kinds, False)
        case Compare(_, left, right):
            sides = kind_of(left, kinds)
            yield from _inside(
                left, sides, lambda e: put(replace(expr, left=e)), kinds, is_value=False
            )
            yield from _inside(
                right, sides, lambda e: put(replace(expr, right=e)), kinds, is_value=False
            )


def _exchanged_arguments(sites: list[Site], kinds: Kinds) -> Iterator[Mutant]:
    for site in sites:
        call = site.expr
        if not isinstance(call, Function) or call.name in SYMMETRIC:
            continue
        for i, j in itertools.combinations(range(len(call.args)), 2):
            one, two = kind_of(call.args[i], kinds), kind_of(call.args[j], kinds)
            if one == two and text(call.args[i]) != text(call.args[j]):
                args = list(call.args)
                args[i], args[j] = args[j], args[i]
                new = replace(call, args=tuple(args))
                yield Mutant(site.put(new), f"`{text(new)}` for `{text(call)}`")


def _dropped_functions(sites: list[Site], kinds: Kinds) -> Iterator[Mutant]:
    """An argument of the same kind stands where the function of it stood."""
    for site in sites:
        if not isinstance(site.expr, Function) or not site.is_value:
            continue
        for a in site.expr.args:
            if site.kind and kind_of(a, kinds) == site.kind:
                yield Mutant(site.put(a), f"`{text(a)}` for `{text(site.expr)}`")


def _broken_values(sites: list[Site]) -> Iterator[Mutant]:
    for site in sites:
        if not site.is_value:
            continue
        for b in BREAKS.get(site.kind, ()):
            wrapped = Function(f"broken.{site.kind}.{b.name}", (site.expr,), site.expr.span)
            yield Mutant(site.put(wrapped), f"`{text(site.expr)}`: {b.text}")


# ---- right sides ---------------------------------------------------------------------------------
def _exchanged_attributes(rule: Rule, kinds: Kinds) -> Iterator[Mutant]:
    """Two attributes of one kind change places, on one op or on two."""
    places = list(_places(rule.right))
    for one, two in itertools.combinations(places, 2):
        (_, a), (_, b) = one, two
        same = kind_of(a, kinds) == kind_of(b, kinds) != ""
        if not same or text(a) == text(b) or isinstance(a, Value) or isinstance(b, Value):
            continue
        right = _with(_with(rule.right, {one[0]: b}), {two[0]: a})
        yield Mutant(replace(rule, right=right), f"`{text(a)}` and `{text(b)}` exchanged")


Path = tuple[int, ...]  # operand numbers down to an op, then the number of the attribute


def _places(term: Term, path: Path = ()) -> Iterator[tuple[Path, AttrExpr]]:
    if isinstance(term, Splat):
        yield from _places(term.inner, path)
    if isinstance(term, Apply):
        for i, (_, expr) in enumerate(term.attrs):
            yield (*path, i), expr
        for i, o in enumerate(term.operands):
            yield from _places(o, (*path, -1 - i))


def _with(term: Term, new: dict[Path, AttrExpr]) -> Term:
    """The term with other expressions at these places."""
    if isinstance(term, Splat) and isinstance(term.inner, Apply):
        inner = _with(term.inner, new)
        assert isinstance(inner, Apply)
        return replace(term, inner=inner)
    if not isinstance(term, Apply):
        return term
    attrs = tuple((k, new.get((i,), e)) for i, (k, e) in enumerate(term.attrs))
    operands = tuple(
        _with(o, {p[1:]: e for p, e in new.items() if p[0] == -1 - i})
        for i, o in enumerate(term.operands)
    )
    return replace(term, attrs=attrs, operands=operands)


def _broken_terms(rule: Rule) -> Iterator[Mutant]:
    """Operands exchanged, and ops of one operand left out."""
    for new, change in _term_breaks(rule.right):
        if not isinstance(new, Splat):
            yield Mutant(replace(rule, right=new), change)


def _term_breaks(term: Term) -> Iterator[tuple[Term, str]]:
    if isinstance(term, Splat) and isinstance(term.inner, Apply):
        first = term.inner.operands[0]
        assert not isinstance(first, Splat)
        yield replace(term, inner=first), f"without `{text(term)}`"
    if not isinstance(term, Apply):
        return
    if len(term.operands) == 1 and not isinstance(term.operands[0], Splat):
        yield term.operands[0], f"without the `{term.op}` of `{text(term)}`"
    for i, j in itertools.combinations(range(len(term.operands)), 2):
        operands = list(term.operands)
        operands[i], operands[j] = operands[j], operands[i]
        if text(operands[i]) != text(operands[j]):
            new = replace(term, operands=tuple(operands))
            yield new, f"operands of `{text(term)}` exchanged"
    for i, o in enumerate(term.operands):
        for new, change in _term_breaks(o):
            yield replace(term, operands=(*term.operands[:i], new, *term.operands[i + 1 :])), change


# ---- names and text ------------------------------------------------------------------------------
def _names(expr: AttrExpr) -> set[str]:
    match expr:
        case Name(name):
            return {name}
        case Function(_, args):
            return set().union(*(_names(a) for a in args))
        case Field(base):
            return _names(base)
        case Not(inner):
            return _names(inner)
        case Compare(_, left, right):
            return _names(left) | _names(right)
    return set()


def _called(expr: AttrExpr) -> set[str]:
    """Names of the functions in an expression."""
    match expr:
        case Function(name, args):
            return {name}.union(*(_called(a) for a in args))
        case Field(inner) | Not(inner):
            return _called(inner)
        case Compare(_, left, right):
            return _called(left) | _called(right)
    return set()


def text(term: Term | AttrExpr) -> str:
    """A term or an expression as it is written in a rule."""
    match term:
        case Var(name) | Name(name):
            return name
        case Value(value):
            return repr(value)
        case Field(base, name):
            return f"{text(base)}.{name}"
        case Not(inner):
            return f"not {text(inner)}"
        case Compare(op, left, right):
            return f"{text(left)} {op} {text(right)}"
        case Splat(inner):
            return f"*{text(inner)}"
        case Function(name, args):
            return f"{name}({', '.join(map(text, args))})"
    parts = [*map(text, term.operands), *(f"{k}={text(e)}" for k, e in term.attrs)]
    return f"{term.op}({', '.join(parts)})"
