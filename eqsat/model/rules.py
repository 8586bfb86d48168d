"""RuleSet: rewrite rules as typed terms, every part of them with its place in the YAML file.

How far the rules of a run are known to be sound is a record beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any

from eqsat.model.diag import Span
from eqsat.model.files import JsonRecord
from eqsat.model.printed import Printed

PHASES = ("canonicalise", "contract", "propagate", "cancel")
FEWEST_FIRST = 16  # rules of a set that is searched first though it is not most of the whole


# ---- attribute expressions: evaluated in Python, between saturation steps -----------------------
@dataclass(frozen=True)
class Name:
    """A variable bound by the left side, `let:` or `foreach:`."""

    name: str
    span: Span


@dataclass(frozen=True)
class Value:
    """A literal: int, string, bool, or a list of ints."""

    value: Any
    span: Span


@dataclass(frozen=True)
class Function:
    """A call of an attribute function of `ops.attrs.FUNCTIONS`."""

    name: str
    args: tuple[AttrExpr, ...]
    span: Span


@dataclass(frozen=True)
class Field:
    """A column of a `let:` row, or a field of an attribute: `c.operands`, `l.is_padded`."""

    base: AttrExpr
    name: str
    span: Span


@dataclass(frozen=True)
class Compare:
    """`left op right` with op one of == != < <= > >= ; only in conditions."""

    op: str
    left: AttrExpr
    right: AttrExpr
    span: Span


@dataclass(frozen=True)
class Not:
    inner: AttrExpr
    span: Span


AttrExpr = Name | Value | Function | Field | Compare | Not


def expressions_within(expr: AttrExpr) -> Iterator[AttrExpr]:
    """An expression and all inside of it."""
    yield expr
    match expr:
        case Field(inner, _) | Not(inner):
            yield from expressions_within(inner)
        case Compare(_, left, right):
            yield from expressions_within(left)
            yield from expressions_within(right)
        case Function(_, args):
            for a in args:
                yield from expressions_within(a)


# ---- terms ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Var:
    """A tensor variable."""

    name: str
    span: Span


@dataclass(frozen=True)
class Splat:
    """`*xs` (several operands) or `*pack(xs, layout=c.operands)` (one op per operand)."""

    inner: Var | Apply
    span: Span


@dataclass(frozen=True)
class Apply:
    """`op(operands…, key=attribute…)`.

    A key is the op's whole-attribute key (`sig`, `layout`, `groups`; see `ops.attrs.OP_KEYS`) or
    one of its fields (`perm`, `pos`, `tiles`, `outer`, `pad`, `shape` …).
    """

    op: str
    operands: tuple[Term, ...]
    attrs: tuple[tuple[str, AttrExpr], ...]
    span: Span
    name: str = ""  # a left-side op may be named: `pack(t := transpose(x, perm=p), layout=l)`


Term = Var | Splat | Apply


def _attributes(term: Term) -> Iterator[AttrExpr]:
    if isinstance(term, Splat):
        yield from _attributes(term.inner)
    if isinstance(term, Apply):
        yield from (e for _, e in term.attrs)
        for o in term.operands:
            yield from _attributes(o)


@dataclass(frozen=True)
class Example:
    """`start` must become equal to `reaches`, or must not become equal to `avoids`."""

    name: str
    given: tuple[tuple[str, str], ...]  # operand name -> type text
    start: str
    reaches: str
    avoids: str
    span: Span
    start_span: Span
    goal_span: Span


# how far apart floats take the sides of a rule that is tagged `inexact` (`hunt.compare`)
ROUNDINGS, FINITE = "roundings", "finite"
INTEGERS = "integers"  # the tag of rules that round otherwise as they sum integers, exactly


@dataclass(frozen=True)
class Rule:
    """One rewrite: wherever `left` matches and `where` holds, `right` is equal."""

    name: str
    ruleset: str
    doc: str
    left: Apply
    right: Term
    lets: tuple[tuple[str, AttrExpr], ...]
    where: tuple[AttrExpr, ...]
    foreach: tuple[tuple[str, AttrExpr], ...]
    phase: str
    apply: str  # add | replace
    tags: tuple[str, ...]
    source: str
    max_matches: int | None
    examples: tuple[Example, ...]
    span: Span
    also: tuple[Apply, ...] = ()  # further left sides that must match somewhere in the e-graph
    bound: str = ""  # of an inexact rule: ROUNDINGS | FINITE

    @property
    def at(self) -> str:
        """Where the rule stands, as `file:line:column`."""
        return str(self.span)

    @cached_property
    def calls(self) -> tuple[Function, ...]:
        """The attribute functions that it calls; every variant of it in a search asks for them."""
        expressions = (*self.where, *(e for _, e in (*self.lets, *self.foreach)))
        sides = (*expressions, *_attributes(self.right))
        return tuple(p for e in sides for p in expressions_within(e) if isinstance(p, Function))


@dataclass(frozen=True)
class SpreadRule:
    """A permission on a mesh: what one axis of devices may do to an op or a value.

    verb, what: `cut` and what of an op is divided (`parallel`, `summed` …), `keep` and how a value
    may be held (`whole`, `blocks`, `parts`), or `convert` and a collective. Conditions are on the
    variables of the verb (`ops.attrs.SPREAD_SCOPES`); all must hold. It changes no value.
    """

    name: str
    ruleset: str
    doc: str
    verb: str
    what: str
    where: tuple[AttrExpr, ...]
    tags: tuple[str, ...]
    source: str
    span: Span

    @property
    def at(self) -> str:
        """Where the rule stands, as `file:line:column`."""
        return str(self.span)


# per verb of a spread rule what it may be about
SPREAD_VERBS: dict[str, tuple[str, ...]] = {
    "cut": ("parallel", "summed", "moved", "streamed", "parts", "nothing"),
    "keep": ("whole", "blocks", "parts"),
    "convert": ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "slice"),
}


@dataclass(frozen=True)
class RuleSet(Printed):
    """Rules in the order of their files; imports are already resolved.

    `imports`: the sets that this one contains, with the names of their rules. `spreads`: what may
    be done on a mesh of devices; the search on one device does not ask them.
    """

    name: str
    doc: str
    rules: tuple[Rule, ...]
    imports: tuple[tuple[str, tuple[str, ...]], ...] = ()
    spreads: tuple[SpreadRule, ...] = ()

    @property
    def everything(self) -> tuple[Rule | SpreadRule, ...]:
        """Rewrites, then spreads."""
        return (*self.rules, *self.spreads)

    @property
    def reorders_sums(self) -> bool:
        """Whether sums of floats may be taken in another order."""
        return any("inexact" in r.tags and INTEGERS not in r.tags for r in self.rules)

    @property
    def start(self) -> frozenset[str]:
        """The rules to begin with: the largest set that this one contains; none if there is none.

        It is most of this set, or two fifths if these are many rules (`full` has as many rules of
        algebra as `default` has in all), but not all. Rules with `apply: replace` belong to every
        part: what they remove is removed for all.
        """
        all_names = {r.name for r in self.rules}
        always = {r.name for r in self.rules if r.apply == "replace"}
        parts = [all_names & {*names, *always} for _, names in self.imports]
        most = max((p for p in parts if len(p) < len(all_names)), key=len, default=set[str]())
        is_large = len(most) >= FEWEST_FIRST and len(most) * 5 > len(all_names) * 2
        return frozenset(most if is_large or len(most) * 2 > len(all_names) else ())

    def without(self, *names: str) -> RuleSet:
        """The set without these rules (or tags)."""

        def is_kept(r: Rule | SpreadRule) -> bool:
            return r.name not in names and not set(r.tags) & set(names)

        rules, spreads = filter(is_kept, self.rules), filter(is_kept, self.spreads)
        return replace(self, rules=tuple(rules), spreads=tuple(spreads))

    def verify(self) -> None:
        """ValueError if two rules have one name, or a rule has an unknown phase or way to apply."""
        names = [r.name for r in self.everything]
        if len(set(names)) < len(names):
            raise ValueError(f"two rules of `{self.name}` have one name")
        for r in self.rules:
            if r.phase not in PHASES or r.apply not in ("add", "replace"):
                raise ValueError(f"rule `{r.name}`: phase `{r.phase}`, apply `{r.apply}`")
        for r in self.spreads:
            if r.what not in SPREAD_VERBS.get(r.verb, ()):
                raise ValueError(f"rule `{r.name}`: {r.verb} `{r.what}`")

    def to_text(self) -> str:
        """One line per rule: its name, phase, and where it stands."""
        lines = [f"ruleset {self.name}: {self.doc}"]
        lines += [f"  {r.name}  {r.phase}, {r.apply}  {r.at}  {r.doc}" for r in self.rules]
        lines += [f"  {r.name}  {r.verb} {r.what}  {r.at}  {r.doc}" for r in self.spreads]
        return "\n".join(lines) + "\n"

    def to_json(self) -> dict[str, Any]:
        return {"format": 1} | _plain(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RuleSet:
        ruleset = _record({k: v for k, v in data.items() if k != "format"})
        assert isinstance(ruleset, cls)
        if not all(isinstance(r, Rule) for r in ruleset.rules):
            raise TypeError("a rule is none")
        if not all(isinstance(r, SpreadRule) for r in ruleset.spreads):
            raise TypeError("a rule of a mesh is none")
        return ruleset

    def __add__(self, other: RuleSet) -> RuleSet:
        names = {r.name for r in self.everything}
        rules = (*self.rules, *(r for r in other.rules if r.name not in names))
        spreads = (*self.spreads, *(r for r in other.spreads if r.name not in names))
        imports = parts((self, other), (*rules, *spreads))
        return RuleSet(f"{self.name} + {other.name}", self.doc, rules, imports, spreads)


Part = tuple[str, tuple[str, ...]]  # a rule set's name and those of its rules


def parts(sets: Iterable[RuleSet], rules: Iterable[Rule | SpreadRule]) -> tuple[Part, ...]:
    """The sets of which all rules are among these as they were (`RuleSet.imports`)."""
    by_name = {r.name: r for r in rules}
    whole = (s for s in sets if all(by_name.get(r.name) == r for r in s.everything))
    return tuple((s.name, tuple(r.name for r in s.rules)) for s in whole)


def _plain(value: Any) -> Any:
    """Records as dicts that name their class under `is`; tuples as lists."""
    if is_dataclass(value):
        parts = {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
        return {"is": type(value).__name__} | parts
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


_RECORDS: dict[str, type[Any]] = {
    c.__name__: c
    for c in (
        Apply, Compare, Example, Field, Function, Name, Not, Rule, RuleSet, Span, Splat, SpreadRule,
        Value, Var,
    )
}  # fmt: skip


def _record(data: Any) -> Any:
    """Undo `_plain`; only the value of a `Value` is a list, all else are tuples."""
    if isinstance(data, list):
        return tuple(_record(d) for d in data)
    if not isinstance(data, dict):
        return data
    cls = _RECORDS[data["is"]]
    parts = {k: _record(v) for k, v in data.items() if k != "is"}
    if cls is Value and isinstance(parts["value"], tuple):
        parts["value"] = list(parts["value"])
    return cls(**parts)


@dataclass(frozen=True)
class RuleCheck(JsonRecord):
    """Rules of a run that eqsat does not ship, by name.

    known: the number of those it ships, which its own tests hunt. hunted: no counterexample was
    found on well-typed instances. no_instance: the hunt found nothing that their left sides match,
    so they were not tried. unchecked: used without a hunt, or in spite of a counterexample, because
    the request said so.
    """

    known: int = 0
    hunted: tuple[str, ...] = ()
    no_instance: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
