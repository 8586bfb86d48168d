"""The hunt for a counterexample to a rule: random instances tried, the smallest failure kept."""

from __future__ import annotations

import math
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from eqsat.hunt.arrays import Contents, fill_leaves, keeps_sign, writes_values
from eqsat.hunt.compare import RELATIVE, Tolerance, beyond_bound, false_claim, first_difference
from eqsat.hunt.findings import ConditionCount, Counterexample, Findings, bound_value_text
from eqsat.hunt.instances import Functions, Instance, draw, seeds
from eqsat.hunt.nests import EXACT, Scale
from eqsat.hunt.sides import (
    Application,
    Evaluation,
    Garbage,
    Key,
    Lefts,
    OpenLanes,
    Ref,
    Side,
    Values,
    left_trees,
    right_tree,
    side_types,
)
from eqsat.hunt.vary import vary
from eqsat.lang.content import expression_text
from eqsat.model.attr import Attr, ShapeError
from eqsat.model.diag import EqsatError
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.rules import Apply, Name, Rule
from eqsat.model.tensor import TensorType, is_float
from eqsat.ops.attrs import RULE_OPS
from eqsat.saturate.rows import Row, is_closed, slots, variables_asked

MOST_ROWS = 6  # of one match that are compared
CONFIRMATIONS = 4  # other values tried when rounding could be what differs
# what attribute functions fail with on a match that their author did not think of
SLIPS = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True)
class Attempt:
    """Outcome of one instance: right sides compared, whether padding took part, and the fault."""

    rows: int
    is_padded: bool = False
    why: str = ""
    is_valid: bool = True  # the left side can be what it says


def rows_at(instance: Instance, rule: Rule, functions: Functions | None = None) -> list[Row] | None:
    """Rows that the rule makes of a match; None if its functions fail there."""
    try:
        return instance.rows(rule, functions)
    except (EqsatError, *SLIPS):
        return None


def attempt(
    instance: Instance, rng: Random, rule: Rule | None = None, functions: Functions | None = None
) -> Attempt:
    """Compare both sides of the rule (or of another one with the same left side)."""
    tried = rule or instance.rule
    try:
        rows = instance.rows(tried, functions)
    except EqsatError as error:
        return Attempt(1, why=_sentence(tried, error))
    except SLIPS as error:
        return Attempt(1, why=f"its functions fail: {type(error).__name__}: {error}")
    if not rows:
        return Attempt(0)
    return _Trial(instance, tried, rng).outcome(rows[:MOST_ROWS])


def _sentence(rule: Rule, error: EqsatError) -> str:
    """The table's sentence on an ill-typed right side, without the name of the rule."""
    text = error.diagnostics[0].message
    for start in (
        f"rule `{rule.name}` is unsound: ",
        f"rule `{rule.name}` ",
        f"rule `{rule.name}`: ",
    ):
        text = text.removeprefix(start)
    return f"it {text}" if text.startswith("builds") else text


class _Trial:
    """The sides of one instance under one set of contents."""

    def __init__(self, instance: Instance, rule: Rule, rng: Random):
        self.instance, self.rule, self.rng = instance, rule, rng
        self.arity = dict(instance.arity)
        self.left: Lefts = left_trees(rule, self.arity, instance.attrs)
        self.types: dict[Key, TensorType] = {
            (name, i): t for name, ts in instance.tensors for i, t in enumerate(ts)
        }
        self.is_inexact = "inexact" in rule.tags
        # variables without garbage, where the instance matches
        self.defined = variables_asked(rule, "defined")

    def outcome(self, rows: Sequence[Row]) -> Attempt:
        padded = any(
            isinstance(a, Layout) and a.is_padded
            for row in (self.instance.attrs, *rows)
            for a in row
        )
        rights = [right_tree(self.rule, self.arity, row, self.left.named) for row in rows]
        for right in rights:
            why = self._misfit(right)
            if why:
                return Attempt(len(rows), padded, why)
        contents = self._contents()
        if contents is None:
            return Attempt(len(rows), padded, is_valid=False)
        for right in rights:
            why = self._compare(right, contents)
            if why and self._confirmed(right):
                return Attempt(len(rows), padded, why)
        return Attempt(len(rows), padded, self._beyond(rights, contents))

    def _beyond(self, rights: Sequence[Side], contents: Contents) -> str:
        """The fault of the bound that an inexact rule states, "" if there is none."""
        if not self.rule.bound or contents.any_open or any(map(self._makes_garbage, rights)):
            return ""
        is_open = self.opened(self.left.root)[0]
        faults = (
            beyond_bound(self.rule.bound, self.left.root, right, contents.held, is_open)
            for right in rights
        )
        return next(filter(None, faults), "")

    def _misfit(self, right: Side) -> str:
        left = side_types(self.left.root, self.types)
        try:
            right_types = side_types(right, self.types)
        except (ShapeError, KeyError) as error:
            return f"the right side is ill-typed: {error}"
        if left == right_types:
            return ""
        if len(left) != len(right_types):
            return f"the left side has {len(left)} result(s), the right side {len(right_types)}"
        a, b = next((a, b) for a, b in zip(left, right_types, strict=True) if a != b)
        what = "shapes" if a.shape != b.shape else "element types"
        return f"{what} differ: left {a}, right {b}"

    def _contents(self) -> Contents | None:
        """Contents that bear out what the left side says of paddings; None if none were found."""
        for _ in range(3):
            contents = fill_leaves(self.rng, self.left, self.types, self.is_inexact, self.defined)
            values = Values(contents.filled(Garbage(None)), Garbage(None))
            opened = OpenLanes(contents.is_open, values)
            for side in (self.left.root, *self.left.also):
                values(side)
                opened(side)
            inner = [self.left.named[n] for n in self.defined if n in self.left.named]
            is_defined = not any(lanes.any() for side in inner for lanes in opened(side))
            if is_defined and not false_claim(values.claims):
                self.values, self.opened = values, opened
                return contents
        return None

    def _compare(self, right: Side, contents: Contents) -> str:
        root = self.left.root
        left, left_open = [self.values(root)], self.opened(root)
        values = Values(self.values.leaves, Garbage(None))
        try:
            runs = [values(right)]
            opened = OpenLanes(contents.is_open, values)
            right_open = opened(right)
            claims = values.claims
            if contents.any_open or self._makes_garbage(right):
                other = Garbage(np.random.default_rng(self.rng.getrandbits(32)))
                again = Values(contents.filled(other), other)
                runs.append(again(right))
                claims = claims + again.claims
                left.append(again(root))
            why = false_claim(claims)
        except (ArithmeticError, ValueError, LookupError, TypeError) as error:
            return f"the right side cannot be computed: {error}"
        how = self._tolerance(right, (self.values, values))
        return why or first_difference(left, left_open, runs, right_open, how)

    def _trees(self, right: Side) -> list[Application]:
        return [*self.left.root.walk(), *(right.walk() if isinstance(right, Application) else ())]

    def _makes_garbage(self, right: Side) -> bool:
        attrs = (t.attr for t in self._trees(right))
        return any(isinstance(a, Layout) and "?" in a.pads for a in attrs)

    def _tolerance(self, right: Side, evaluations: Sequence[Evaluation]) -> Tolerance:
        attrs = [t.attr for t in self._trees(right)]
        generics = [a for a in attrs if isinstance(a, Generic)]
        if self.is_inexact or any(_may_round(g) for g in generics):
            return Tolerance(RELATIVE, _scale(evaluations), finite_only=self.is_inexact)
        # a zero that fills is a zero of either sign, once a body is applied to it
        is_filled = any(writes_values(a) for a in attrs)
        return Tolerance(signs=not generics or (not is_filled and all(map(keeps_sign, generics))))

    def _confirmed(self, right: Side) -> bool:
        """Whether it is no accident of rounding: exact sides need no second look."""
        generics = [t.attr for t in self._trees(right) if isinstance(t.attr, Generic)]
        if not self.is_inexact and not any(_may_round(g) for g in generics):
            return True
        for _ in range(CONFIRMATIONS):
            contents = self._contents()
            if contents is not None and self._compare(right, contents):
                return True
        return False


def _may_round(g: Generic) -> bool:
    """Whether float64 may round in it, so that the order of computation shows."""
    return any(
        (is_float(y.dtype) and y.combine == "mul") or any(e.fn not in EXACT for e in y.body.walk())
        for y in g.yields
    )


def _scale(evaluations: Sequence[Evaluation]) -> float:
    """The largest finite value any of these trees came to."""
    largest = 0.0
    for evaluation in evaluations:
        for side, arrays in evaluation.done.values():
            for x in arrays:
                if x.dtype.kind == "f" and x.size and not isinstance(side, Ref):
                    finite = np.abs(x[np.isfinite(x)])
                    largest = max(largest, float(finite.max(initial=0.0)))
    return largest if math.isfinite(largest) else 0.0


TRIES = 60  # draws per instance asked for
FIRST = 8000  # draws beside, as the first match may be rare
KEPT = 30  # instances that others are made like
BARREN = 1000  # draws without a right side, after which examples of the rule are varied
SHRINKS = 400  # smaller draws once a counterexample is found
SMALLER = (Scale(2, 2, 60), Scale(2, 3, 200), Scale(3, 3, 400), Scale(4, 4, 800), Scale(4, 6, 1500))


def hunt(
    rule: Rule,
    *,
    instances: int = 200,
    seed: int = 0,
    functions: Functions | None = None,
    seconds: float = math.inf,
) -> Findings:
    """Compare both sides on `instances` well-typed matches; deterministic in (rule name, seed).

    At least half of the instances have padding, if any can have it. functions: attribute functions
    to use in place of, or beside, the closed table. seconds: of CPU time, after which no further
    instance is tried; it decides only how far the same hunt goes.
    """
    return _Hunt(rule, instances, seed, functions, seconds).run()


class _Hunt:
    def __init__(
        self, rule: Rule, wanted: int, seed: int, functions: Functions | None, seconds: float
    ):
        self.rule, self.wanted, self.functions = rule, wanted, functions
        self.begin, self.seconds = time.thread_time(), seconds
        self.rng = Random(zlib.crc32(f"{rule.name}:{seed}".encode()))
        self.count: Counter[str] = Counter()
        self.matched: list[Instance] = []  # some that had a right side
        self.seeds: list[Instance] = []  # from examples, where nothing drawn has one
        self.met: Counter[int] = Counter()
        self.missed: Counter[int] = Counter()

    def run(self) -> Findings:
        example: Counterexample | None = None
        has_seeds = False
        for tried in range(FIRST + TRIES * self.wanted):
            spent = time.thread_time() - self.begin
            if self.count["instances"] >= self.wanted or spent >= self.seconds:
                break
            if not self.matched and not has_seeds and self._is_barren(tried, spent):
                self.seeds = [s for s in seeds(self.rule, self.rng) if rows_at(s, self.rule)]
                has_seeds = True
            instance = self._next()
            if instance is None:
                continue
            outcome = self._note(instance)
            if outcome.why:
                example = self._shrunk(instance, outcome)
                break
        return self._findings(example)

    def _is_barren(self, tried: int, spent: float) -> bool:
        """Whether draws had their chance: half of the time, if there is little."""
        return tried >= BARREN or 2 * spent >= self.seconds

    def _next(self) -> Instance | None:
        if self.seeds:
            return vary(self.rng.choice(self.seeds), self.rng)
        return draw(self.rule, self.rng, like=self._like())

    def _note(self, instance: Instance) -> Attempt:
        """Try an instance and count what came of it."""
        for i, met in enumerate(instance.conditions(self.functions)):
            if met is not None:
                (self.met if met else self.missed)[i] += 1
        outcome = attempt(instance, self.rng, None, self.functions)
        if not outcome.rows:
            self.count["refused"] += 1
        elif len(self.matched) < KEPT:
            self.matched.append(instance)
        if outcome.rows and outcome.is_valid and (outcome.is_padded or self._may_be_plain()):
            self.count["instances"] += 1
            self.count["padded"] += outcome.is_padded
        return outcome

    def _like(self) -> Instance | None:
        """One to be like, if right sides are rare; every third draw is made from nothing."""
        is_rare = self.count["refused"] > 2 * self.count["instances"]
        if not self.matched or not is_rare or self.rng.random() < 0.33:
            return None
        return self.rng.choice(self.matched)

    def _may_be_plain(self) -> bool:
        """Instances without padding count up to half, once padding was seen."""
        plain = self.count["instances"] - self.count["padded"]
        return not self.count["padded"] or 2 * plain < self.wanted

    def _shrunk(self, instance: Instance, outcome: Attempt) -> Counterexample:
        best, why = instance, outcome.why
        for i in range(SHRINKS):
            other = draw(self.rule, self.rng, SMALLER[i * len(SMALLER) // SHRINKS])
            if other is None or other.size >= best.size:
                continue
            tried = attempt(other, self.rng, None, self.functions)
            if tried.why:
                best, why = other, tried.why
        return Counterexample(describe(best), why, best.size)

    def _findings(self, example: Counterexample | None) -> Findings:
        conditions = tuple(
            ConditionCount(expression_text(c), self.met[i], self.missed[i])
            for i, c in enumerate(self.rule.where)
            if not is_closed(c)  # what a target says is no matter of matches
        )
        return Findings(
            self.rule, self.wanted, self.count["instances"], self.count["padded"],
            self.count["refused"], conditions, example,
        )  # fmt: skip


def describe(instance: Instance) -> tuple[tuple[str, str], ...]:
    """Variables and their values: tensors by their types, then attributes as terms write them."""
    shown: list[tuple[str, str]] = []
    splats = dict(instance.arity)
    for name, types in instance.tensors:
        text = ", ".join(map(str, types))
        shown.append((name, f"({text})" if name in splats else text))
    rest = iter(instance.attrs)
    values: dict[str, object] = {}
    for side in (instance.rule.left, *instance.rule.also):
        for node, count in slots(side, splats):
            attrs = [next(rest) for _ in range(1 if count is None else count)]
            for key, pattern in node.attrs:
                if isinstance(pattern, Name):
                    values.setdefault(pattern.name, _value(node, key, attrs, count))
    shown += [(name, bound_value_text(value)) for name, value in values.items()]
    asked = variables_asked(instance.rule, "uses")
    return (*shown, *((f"uses({n})", str(u)) for n, u in instance.uses if n in asked))


def _value(node: Apply, key: str, attrs: Sequence[Attr], count: int | None) -> Any:
    whole = RULE_OPS[node.op].whole
    parts = [a if key == whole else a.field(key) for a in attrs]
    return parts[0] if count is None or (parts and key != whole) else tuple(parts)
