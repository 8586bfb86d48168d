"""One rule of a rule-set file → `model.rules.Rule` (two with `both_ways`) and its examples."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from eqsat.lang.attributes import Scope
from eqsat.lang.content import plain_form
from eqsat.lang.opsugar import MOST_ORDERS, NamedOps, Order
from eqsat.lang.problems import OneOrMore, Record, coded
from eqsat.lang.source import KeyPath, Placed, YamlSource, placed_at
from eqsat.lang.terms import TermReader
from eqsat.model.diag import Diagnostic, EqsatError, Span
from eqsat.model.program import Program
from eqsat.model.rules import (
    SPREAD_VERBS,
    Apply,
    AttrExpr,
    Compare,
    Example,
    Function,
    Not,
    Rule,
    SpreadRule,
    Term,
)
from eqsat.model.rules import Field as FieldOf
from eqsat.ops.attrs import SPREAD_SCOPES

_NAME = r"[a-z][a-z0-9]*(-[a-z0-9]+)*"


def _named(what: str, pattern: str, sample: str) -> AfterValidator:
    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise coded("E005", f"`{value}` is not {what}", f"small letters, as in `{sample}`")
        return value

    return AfterValidator(check)


def _schema(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern}$"})


RuleName = Annotated[str, _named("a rule name", _NAME, "fold-transpose"), _schema(_NAME)]
_SET = rf"{_NAME}(/{_NAME})*"
SetName = Annotated[str, _named("a rule-set name", _SET, "layout/pack"), _schema(_SET)]
Phase = Literal["canonicalise", "contract", "propagate", "cancel"]
Bound = Literal["roundings", "finite"]
_BOUND = "of `inexact` rules: how far apart rounding takes their sides"


class ExampleRecord(Record):
    """`start` must become equal to `reaches`, or must not become equal to `avoids`."""

    name: RuleName = Field(default="", description="`example-1` and so on if left out")
    given: dict[str, str] = Field(description="operand name → type, e.g. `f32[64, 48]`")
    start: str
    reaches: str | None = None
    avoids: str | None = None


class RuleRecord(Record):
    """One rewrite rule."""

    name: RuleName
    doc: str = Field(default="", description="one sentence: what the rule does and why it is true")
    rewrite: str = Field(description="the left side, a pattern")
    to: str = Field(description="the right side")
    both_ways: bool = False
    also: OneOrMore = Field(default=[], description="patterns that must match somewhere")
    where: OneOrMore = Field(default=[], description="conditions; all must hold")
    let: OneOrMore = Field(default=[], description="`c = pack_loops(g, tile)`")
    foreach: OneOrMore = Field(default=[], description="`tile in target.tiles(g)`")
    phase: Phase | None = None
    apply: Literal["add", "replace"] = "add"
    tags: list[RuleName] = Field(default=[])
    source: str = Field(default="", description="the paper or upstream pattern it comes from")
    max_matches: Annotated[int, Field(ge=1)] | None = None
    bound: Bound | None = Field(default=None, description=_BOUND)
    examples: list[ExampleRecord] = Field(default=[])


Cut = Literal["parallel", "summed", "moved", "streamed", "parts", "nothing"]
Keep = Literal["whole", "blocks", "parts"]
Convert = Literal["all-gather", "reduce-scatter", "all-reduce", "all-to-all", "slice"]
_CUT = "what an axis does to an op: `nothing` is to compute it on every device"
_KEEP = "how an axis may leave a value: all of it on every device, blocks of a dim, parts of a sum"
_CONVERT = "the collective that takes a value from one spread to another"


class SpreadRecord(Record):
    """A permission on a mesh of devices: exactly one of `cut`, `keep` and `convert`."""

    name: RuleName
    doc: str = Field(default="", description="one sentence: what becomes of operands and result")
    cut: Cut | None = Field(default=None, description=_CUT)
    keep: Keep | None = Field(default=None, description=_KEEP)
    convert: Convert | None = Field(default=None, description=_CONVERT)
    where: OneOrMore = Field(default=[], description="conditions; all must hold")
    tags: list[RuleName] = Field(default=[])
    source: str = Field(default="", description="the paper it comes from")


class OverrideRecord(Record):
    """Imported rules in another form; the rules as they were are left out."""

    rules: list[str] = Field(description="imported rules or tags")
    prefix: RuleName = Field(description="in front of their names")
    apply: Literal["add", "replace"] | None = None
    single_use: bool = Field(
        default=False,
        description="every op inside of the left side has one use in the input program",
    )
    where: OneOrMore = Field(default=[], description="further conditions")
    phase: Phase | None = None
    tags: list[RuleName] = Field(default=[], description="further tags")
    source: str = Field(default="", description="in place of theirs")


class RuleSetRecord(Record):
    """A rule set."""

    ruleset: SetName
    doc: str = ""
    imports: list[str] = Field(default=[], alias="import")
    enable: list[str] = Field(default=[], description="keep only these imported rules or tags")
    disable: list[str] = Field(default=[], description="drop these imported rules or tags")
    override: list[OverrideRecord] = Field(default=[], description="change imported rules")
    tags: list[RuleName] = Field(default=[])
    phase: Phase = "canonicalise"
    bound: Bound | None = Field(default=None, description=_BOUND)
    rules: list[RuleRecord] = Field(default=[])
    spreads: list[SpreadRecord] = Field(default=[], description="what may be done on a mesh")


BOUNDS = (
    "`bound: roundings` if sums are taken in another order, `bound: finite` if the sides are equal"
    " where nothing is infinite or NaN"
)


@dataclass
class _RuleSides:
    """Parts of a rule; one that could not be read is missing."""

    left: Apply | None
    right: Term | None
    also: tuple[Apply, ...]
    foreach: tuple[tuple[str, AttrExpr], ...]
    lets: tuple[tuple[str, AttrExpr], ...]
    where: tuple[AttrExpr, ...]
    orders: list[tuple[Order, ...]]  # of operands of named ops, in which the left side is matched


@dataclass(eq=False)
class RuleReader:
    """Reads the rule at `path`; what is wrong goes to `problems`."""

    source: YamlSource
    path: KeyPath
    ruleset: RuleSetRecord
    record: RuleRecord
    problems: list[Diagnostic]

    def read(self, *, checks_examples: bool = True) -> list[Rule]:
        """The rule, and with `both_ways` its reverse; empty if it is refused."""
        before = len(self.problems)
        sides = self._sides("rewrite", "to", self.problems)
        examples = [self._example(i, e) for i, e in enumerate(self.record.examples)]
        if len(self.problems) > before or sides.left is None or sides.right is None:
            return []
        rule = self._rule(sides, sides.left, sides.right, tuple(examples))
        for i, example in enumerate(rule.examples if checks_examples else ()):
            self._check_example(rule, example, i)
        self._refuse_no_change(rule)
        return [rule, *self._reordered(rule, sides, "rewrite", "to"), *self._reverse(rule)]

    def _texts(self, key: str) -> list[Placed]:
        return self.source.strings((*self.path, key))

    def _sides(
        self, left: str, right: str, problems: list[Diagnostic], orders: tuple[Order, ...] = ()
    ) -> _RuleSides:
        """Read in the order of evaluation: patterns, foreach, let, where, right side."""
        reader = TermReader(problems=problems, named=NamedOps(orders))
        start = len(problems)
        first = reader.left(self.source.placed((*self.path, left)))
        also = [reader.left(t) for t in self._texts("also")]
        loops = [reader.foreach(t) for t in self._texts("foreach")]
        lets = [reader.let(t) for t in self._texts("let")]
        where = [reader.condition(t) for t in self._texts("where")]
        self._explain_flow_list(start, problems)
        last = reader.right(self.source.placed((*self.path, right)))
        if len(problems) == start:
            self._refuse_unused(reader, [x[0] for x in (*loops, *lets) if x], problems)
        return _RuleSides(
            first, last,
            tuple(x for x in also if x),
            tuple(x for x in loops if x),
            tuple(x for x in lets if x),
            (*reader.named.guards(), *(x for x in where if x)),
            reader.named.every_order(),
        )  # fmt: skip

    def _explain_flow_list(self, start: int, problems: list[Diagnostic]) -> None:
        """`where: [f(a, b)]` is split at its comma by YAML: say so."""
        hint = "write one per line (`- …`): commas split a list in brackets"
        for key in ("where", "let", "foreach", "also"):
            spans = [t.whole() for t in self._texts(key)]
            if (*self.path, key) not in self.source.flow:
                continue
            for i in range(start, len(problems)):
                at = problems[i].span
                if problems[i].code in ("E010", "E019") and at is not None:
                    inside = any(s.line == at.line and s.column <= at.column for s in spans)
                    problems[i] = replace(problems[i], help=hint) if inside else problems[i]

    def _refuse_unused(
        self, reader: TermReader, names: list[str], problems: list[Diagnostic]
    ) -> None:
        for name in names:
            if name not in reader.scope.used:
                span = reader.scope.bindings[name][1]
                problems.append(Diagnostic("E019", f"`{name}` is never used", span))

    def _rule(
        self, sides: _RuleSides, left: Apply, right: Term, examples: tuple[Example, ...]
    ) -> Rule:
        r = self.record
        tags = tuple(dict.fromkeys((*self.ruleset.tags, *r.tags)))
        return Rule(
            r.name, self.ruleset.ruleset, r.doc, left, right, sides.lets, sides.where,
            sides.foreach, r.phase or self.ruleset.phase, r.apply,
            tags, r.source, r.max_matches,
            examples, self.source.span((*self.path, "name"), key=True), sides.also,
            self._bound(tags),
        )  # fmt: skip

    def _bound(self, tags: tuple[str, ...]) -> str:
        """How far apart the sides may be: what an inexact rule says, and no other (E027)."""
        if "inexact" in tags:
            said = self.record.bound or self.ruleset.bound
            if said is None:
                span = self.source.span((*self.path, "name"), key=True)
                message = f"rule `{self.record.name}` is `inexact` and states no bound"
                self.problems.append(Diagnostic("E027", message, span, help=BOUNDS))
            return said or ""
        if self.record.bound is not None:
            span = self.source.span((*self.path, "bound"), key=True)
            hint = "a rule that is not tagged `inexact` rounds nothing otherwise: leave it out"
            message = f"rule `{self.record.name}` states a bound and is exact"
            self.problems.append(Diagnostic("E027", message, span, help=hint))
        return ""

    def _refuse_no_change(self, rule: Rule) -> None:
        names: dict[str, str] = {}
        if plain_form(rule.left, names) == plain_form(rule.right, names):
            span = self.source.span((*self.path, "to"))
            self.problems.append(Diagnostic("E018", "both sides are the same term", span))

    def _reordered(self, rule: Rule, sides: _RuleSides, left: str, right: str) -> list[Rule]:
        """The rule for every other order that a program may have operands of named ops in."""
        if len(sides.orders) > MOST_ORDERS:
            message = f"operands of named ops can be in {len(sides.orders)} orders"
            hint = f"{MOST_ORDERS} at most: write some of the ops as `generic(…, sig=g)`"
            span = self.source.span((*self.path, left))
            self.problems.append(Diagnostic("E012", message, span, help=hint))
            return []
        others: list[Rule] = []
        for number, orders in enumerate(sides.orders[1:], 2):
            other = self._sides(left, right, [], orders)
            assert other.left is not None
            assert other.right is not None
            same = self._rule(other, other.left, other.right, ())
            tags = (*same.tags, rule.name)
            others.append(replace(same, name=f"{rule.name}-{number}", tags=tags))
        return others

    # ---- both ways --------------------------------------------------------------------------
    def _reverse(self, rule: Rule) -> list[Rule]:
        if not self.record.both_ways:
            return []
        if rule.lets or rule.foreach or rule.also or rule.apply == "replace":
            self._one_way("a rule with `let`, `foreach`, `also` or `apply: replace` has no reverse")
            return []
        problems: list[Diagnostic] = []
        sides = self._sides("to", "rewrite", problems)
        if problems or sides.left is None or sides.right is None:
            why = problems[0].message if problems else "a side cannot be matched"
            self._one_way(f"the rule cannot be turned round: {why}")
            return []
        back = replace(self._rule(sides, sides.left, sides.right, ()), name=f"{rule.name}-back")
        return [back, *self._reordered(back, sides, "to", "rewrite")]

    def _one_way(self, message: str) -> None:
        span = self.source.span((*self.path, "both_ways"), key=True)
        self.problems.append(Diagnostic("E024", message, span))

    # ---- examples ---------------------------------------------------------------------------
    def _example(self, i: int, e: ExampleRecord) -> Example:
        path = (*self.path, "examples", i)
        example_name = e.name or f"example-{i + 1}"
        if (e.reaches is None) == (e.avoids is None):
            message = f"example `{example_name}` needs one of `reaches` and `avoids`"
            self.problems.append(Diagnostic("E004", message, self.source.span(path)))
        goal = "reaches" if e.reaches is not None else "avoids"
        start = self.source.placed((*path, "start")).whole()
        end = self.source.span((*path, goal))
        if (*path, goal) in self.source.scalars:
            end = self.source.placed((*path, goal)).whole()
        name = self.source.span((*path, "name") if e.name else path, key=True)
        given = tuple(e.given.items())
        return Example(
            example_name, given, e.start, e.reaches or "", e.avoids or "", name, start, end
        )

    def _check_example(self, rule: Rule, example: Example, i: int) -> None:
        path = (*self.path, "examples", i)
        goal = "reaches" if example.reaches else "avoids"
        texts = (self.source.placed((*path, "start")), self.source.placed((*path, goal)))
        types = {n: self.source.span((*path, "given", n)) for n, _ in example.given}
        try:
            example_programs(rule, example, texts, types)
        except EqsatError as error:
            self.problems += error.diagnostics


def parse_example(rule: Rule, example: Example) -> tuple[Program, Program]:
    """Start and goal of an example as programs over the same inputs.

    EqsatError (E3xx) if a term cannot be read, or if the two differ in type (E305).
    """
    texts = (
        placed_at(example.start, example.start_span),
        placed_at(example.reaches or example.avoids, example.goal_span),
    )
    return example_programs(rule, example, texts, {n: example.span for n, _ in example.given})


def example_programs(
    rule: Rule, example: Example, texts: tuple[Placed, Placed], types: Mapping[str, Span]
) -> tuple[Program, Program]:
    """`parse_example` for texts whose every character has its place."""
    from eqsat.lang.programs import parse_term

    name = f"{rule.name}.{example.name}"
    start = parse_term(texts[0], name, example.given, types)
    want = start.nodes[start.results[0]].types
    return start, parse_term(texts[1], name, example.given, types, want)


def read_spreads(
    source: YamlSource, ruleset: RuleSetRecord, problems: list[Diagnostic]
) -> list[SpreadRule]:
    """The set's own ones; what is wrong goes to `problems` (E028 for none or two of the verbs)."""
    spreads = [
        _read(source, ("spreads", i), ruleset, record, problems)
        for i, record in enumerate(ruleset.spreads)
    ]
    return [r for r in spreads if r is not None]


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
    conditions: list[AttrExpr] = []
    for text in texts:
        condition = reader.condition(text)
        called = None if condition is None else _called(condition)
        if called is not None:
            message = f"`{called.name}` cannot be asked here: a spread rule has no tensors"
            help = 'compare fields, as in `axis.name == "model"` or `not cut.of_argument`'
            reader.problems.append(Diagnostic("E028", message, called.span, help=help))
        elif condition is not None:
            conditions.append(condition)
    return tuple(conditions)


def _called(e: AttrExpr) -> Function | None:
    """The first function in a condition."""
    if isinstance(e, Function):
        return e
    inner: dict[type, tuple[str, ...]] = {
        Compare: ("left", "right"), Not: ("inner",), FieldOf: ("base",)
    }  # fmt: skip
    return next(
        (f for k in inner.get(type(e), ()) if (f := _called(getattr(e, k))) is not None), None
    )


def spread_scope(verb: str, span: Span) -> Scope:
    """Names that the conditions of a spread rule may use."""
    scope = Scope()
    for name, kind in SPREAD_SCOPES[verb].items():
        scope.bind(name, kind, span)
    return scope
