"""Mutants of a rule, judged: is a broken rule refused, refuted, or shown to be the rule itself?

All mutants that leave the left side alone are tried on the same matches, and only where they give
another row than the rule does: that is where they could be wrong.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from eqsat.hunt.instances import Instance
from eqsat.hunt.search import Attempt, attempt, rows_at
from eqsat.hunt.sides import Ref, Side, left_trees, right_tree
from eqsat.hunt.vary import vary
from eqsat.model.rules import Rule
from eqsat.saturate.rows import Row
from fuzz.breaks import FUNCTIONS
from fuzz.drawer import Drawer
from fuzz.exhaustive import exhaust, is_index_map
from fuzz.mutants import OTHER, Mutant, mutants

MATCHES = 400  # on which a mutant must give the rule's own rows to be the same rule
EVIDENCE = 2000  # instances without a counterexample for a mutant to be called sound …
VARIED = 8  # variants of a match on which a mutant differs and is right
LEAST = 50  # … and on how many of them it must differ from the rule
DIFFERING = 8  # or on one in so many of EVIDENCE alone: those it shares with the rule tell nothing
DRAWS = 12  # attempts to draw a match, per match wanted
EXHAUSTIVE = (1, 2)  # ranks on which survivors that only move data are tried on everything
MOST = 20_000  # instances of one rank; beyond it only a share of them is tried
# verdicts
REFUSED, KILLED, EQUAL, SOUND, MISSED = "refused", "killed", "equal", "sound", "missed"


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant.

    refused: ill-typed where it first differs. killed: `why` is the counterexample. equal: no
    right side that the rule does not give. sound: other right sides on `differing` instances, none
    of them wrong, so what was broken is no matter of soundness. missed: too little was tried.
    matches: those on which the rule or its mutant gave a right side.
    """

    mutant: Mutant
    verdict: str
    matches: int
    differing: int
    why: str = ""

    def __str__(self) -> str:
        m = self.mutant
        seen = f"{self.matches} matches, {self.differing} differing"
        return f"{self.verdict}: {m.rule.name}: {m.change} ({seen})" + self.why.join(
            (": ", "") if self.why else ("", "")
        )


@dataclass(frozen=True)
class Match:
    """A match of the left side, and what the rule itself makes of it."""

    instance: Instance
    forms: frozenset[Form]
    applies: bool


def judge(
    rule: Rule,
    seed: int = 0,
    *,
    matches: int = MATCHES,
    evidence: int = EVIDENCE,
    wanted: Sequence[Mutant] | None = None,
) -> list[Verdict]:
    """All mutants of a rule (or the `wanted` ones), judged; deterministic in (name, seed)."""
    found = mutants(rule) if wanted is None else wanted
    rng = Random(zlib.crc32(f"{rule.name}:{seed}".encode()))
    drawn = _Matches(rule, rng)
    return [_decided(_judged(m, drawn, matches, evidence)) for m in found]


def _judged(m: Mutant, drawn: _Matches, matches: int, evidence: int) -> Verdict:
    if (m.rule.left, m.rule.also) == (drawn.rule.left, drawn.rule.also):
        return _of_same_left(m, drawn, matches, evidence)
    return _of_other_left(m, drawn, evidence)


def _decided(v: Verdict) -> Verdict:
    """A survivor that only moves data is tried on everything of small rank."""
    if v.verdict not in (SOUND, MISSED) or not is_index_map(v.mutant.rule):
        return v
    complete, tried = True, 0
    for rank in EXHAUSTIVE:
        found = exhaust(v.mutant.rule, rank, most=MOST, functions=FUNCTIONS)
        if found.counterexample is not None:
            return replace(v, verdict=KILLED, why=str(found.counterexample))
        complete &= found.complete
        tried += found.instances
    if not complete or not tried:
        return v
    return replace(v, verdict=SOUND, why=f"on all instances of ranks {EXHAUSTIVE}")


class _Matches:
    """Matches of a rule, drawn once for all of its mutants."""

    def __init__(self, rule: Rule, rng: Random):
        self.rule, self.draw = rule, Drawer(rule, rng)
        self.known: list[Match] = []
        self.draws = 0

    def upto(self, most: int) -> Iterator[Match]:
        """The first matches, new ones drawn as they are needed."""
        at = 0
        while at < most:
            if at == len(self.known) and not self._more():
                return
            yield self.known[at]
            at += 1

    def _more(self) -> bool:
        while self.draws < DRAWS * (len(self.known) + 500):
            self.draws += 1
            instance = self.draw()
            found = None if instance is None else _match(instance, self.rule)
            if found is not None:
                self.known.append(found)
                return True
        return False


def _match(instance: Instance, rule: Rule) -> Match | None:
    """None if the functions of the rule fail there."""
    rows = rows_at(instance, rule)
    if rows is None:
        return None
    # the left side itself is no news either
    return Match(instance, _forms(instance, rule, rows) | {_left_form(instance)}, bool(rows))


Form = tuple[Any, ...]


def _forms(instance: Instance, rule: Rule, rows: Sequence[Row]) -> frozenset[Form]:
    """The right sides of these rows; an op that a row leaves out is not in them."""
    arity = dict(instance.arity)
    named = left_trees(instance.rule, arity, instance.attrs).named
    return frozenset(_form(right_tree(rule, arity, row, named)) for row in rows)


def _left_form(instance: Instance) -> Form:
    return _form(left_trees(instance.rule, dict(instance.arity), instance.attrs).root)


def _form(side: Side) -> Form:
    if isinstance(side, Ref):
        return side.key
    return (side.op, side.attr, *map(_form, side.operands))


@dataclass
class _Case:
    """A mutant of the same left side on trial."""

    mutant: Mutant
    rng: Random
    applied: int = 0
    differing: int = 0

    def look(self, match: Match) -> Attempt | None:
        """Where it gives a right side that the rule does not give: whether that is wrong."""
        rule = self.mutant.rule
        rows = rows_at(match.instance, rule, FUNCTIONS)
        self.applied += match.applies or bool(rows)
        if rows is not None and match.forms.issuperset(_forms(match.instance, rule, rows)):
            return None
        outcome = attempt(match.instance, self.rng, rule, FUNCTIONS)
        self.differing += outcome.is_valid
        return outcome

    def look_around(self, match: Match, rule: Rule) -> Attempt | None:
        """The same match again with other extents, until it is wrong somewhere."""
        for _ in range(VARIED):
            varied = vary(match.instance, self.rng)
            found = None if varied is None else _match(varied, rule)
            outcome = None if found is None else self.look(found)
            if outcome is not None and outcome.why:
                return outcome
        return None

    def verdict(self, outcome: Attempt) -> Verdict:
        return Verdict(self.mutant, _word(outcome), self.applied, self.differing, outcome.why)


def _of_same_left(m: Mutant, drawn: _Matches, matches: int, evidence: int) -> Verdict:
    # values must not depend on which mutants came before
    case = _Case(m, Random(zlib.crc32(f"{m.rule.name}: {m.change}".encode())))
    for tried, match in enumerate(drawn.upto(20 * evidence)):
        if _is_enough(tried, case, matches, evidence):
            break
        outcome = case.look(match)
        if outcome is not None and not outcome.why:
            outcome = case.look_around(match, drawn.rule)
        if outcome is not None and outcome.why:
            return case.verdict(outcome)
    tried = len(drawn.known)
    if not _is_enough(tried, case, matches, evidence):
        return Verdict(m, MISSED, case.applied, case.differing)
    return Verdict(m, SOUND if case.differing else EQUAL, case.applied, case.differing)


def _is_enough(tried: int, case: _Case, matches: int, evidence: int) -> bool:
    if not case.differing:
        return tried >= matches and case.applied >= matches // 4
    if case.differing >= max(LEAST, evidence // DIFFERING):
        return True
    return case.applied >= evidence and case.differing >= min(LEAST, evidence // 4)


def _fresh(drawn: _Matches, number: int) -> Random:
    """Values of a match that do not depend on which mutants came before."""
    return Random(zlib.crc32(f"{drawn.rule.name}:{number}".encode()))


def _word(outcome: Attempt) -> str:
    """Refused before any value is computed, or refuted by values."""
    ill = ("it builds", "its functions fail", "the right side is ill-typed", "its left side has")
    is_refused = outcome.why.startswith((*ill, "shapes differ", "element types differ"))
    return REFUSED if is_refused else KILLED


def _of_other_left(m: Mutant, drawn: _Matches, evidence: int) -> Verdict:
    """A mutant that matches more than the rule does."""
    tried = 0
    for instance in _other_matches(m, drawn, 20 * evidence):
        if tried >= evidence:
            return Verdict(m, SOUND, tried, tried)
        outcome = attempt(instance, _fresh(drawn, tried), m.rule, FUNCTIONS)
        if outcome.why:
            return Verdict(m, _word(outcome), tried + 1, tried + 1, outcome.why)
        tried += outcome.rows > 0 and outcome.is_valid
    return Verdict(m, MISSED, tried, tried)


def _other_matches(m: Mutant, drawn: _Matches, most: int) -> Iterator[Instance]:
    """With new variables: the rule's own matches, where these are of the types of the old ones."""
    if len(m.rule.also) < len(drawn.rule.also):
        drawer = Drawer(m.rule, Random(zlib.crc32(m.change.encode())))
        for _ in range(most):
            instance = drawer()
            if instance is not None:
                yield instance
        return
    for match in drawn.upto(most):
        old = match.instance
        known = dict(old.tensors)
        more = [(n + OTHER, t) for n, t in known.items() if n + OTHER in m.variables]
        yield replace(old, rule=m.rule, tensors=(*old.tensors, *more))
