"""The hunt for a counterexample to a rule: random instances, the smallest failure kept."""

from __future__ import annotations

import math
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

from eqsat.hunt.examples import seeds
from eqsat.hunt.findings import ConditionCount, Counterexample, Findings, bound_value_text
from eqsat.hunt.instances import Functions, Instance, draw
from eqsat.hunt.nests import Scale
from eqsat.hunt.trial import Attempt, attempt, rows_at
from eqsat.hunt.vary import vary
from eqsat.lang.content import expression_text
from eqsat.model.attr import Attr
from eqsat.model.rules import Apply, Name, Rule
from eqsat.ops.attrs import RULE_OPS
from eqsat.saturate.rows import is_closed, slots, variables_asked

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
