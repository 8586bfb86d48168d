"""The whole search for rules that are missing, from ops to ranked proposals.

Pairs of equal terms that the rules prove equal already are left out; a proposed rule gains on
programs: how often it matches, and predicted time with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from eqsat.api import optimize, read
from eqsat.lab.discover.forms import DEFAULT_FORMS, FORMS
from eqsat.lab.discover.pool import SIZES, Leaves, Pair, TermPool, leaf_choices, spelled_apart
from eqsat.lab.discover.propose import Proposal, Unwritten, file_text, proposal_of
from eqsat.model.deadline import Stop, elapsed
from eqsat.model.diag import check_known, fail
from eqsat.model.limits import Limits
from eqsat.model.rules import Rule, RuleSet
from eqsat.model.target import Target
from eqsat.run import Run
from eqsat.saturate import saturate

# ---- gains ---------------------------------------------------------------------------------------
SEARCH_SECONDS = 10.0  # of each search at most
LEAST = 1e-6  # of a predicted time; less is another order of additions


@dataclass
class Gain:
    """Of one rule: matches in all programs, and per program the share of predicted time saved."""

    matches: int = 0
    by_program: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        return sum(self.by_program.values())


def gains(
    proposed: Sequence[Rule],
    rules: RuleSet,
    target: Target,
    programs: Sequence[str],
    is_over: Callable[[], bool],
) -> Iterator[tuple[str, Gain]]:
    """Rules by name with their gains so far, program by program, until it is over.

    One search with all of them says which match; only these get a search of their own.
    """
    by_rule: dict[str, Gain] = {}
    for program in programs if proposed else ():
        if is_over():
            return
        with_all = _searched(program, _joined(rules, proposed), target)
        assert with_all.egraph is not None  # no phase was left out
        matches = {r.name: r.matches for r in with_all.egraph.rules}
        matching = [r for r in proposed if matches.get(r.name)]
        before = _time(_searched(program, rules, target)) if matching else 0.0
        for rule in matching:
            gain = by_rule.setdefault(rule.name, Gain())
            gain.matches += matches[rule.name]
            if not is_over():
                after = _time(_searched(program, _joined(rules, [rule]), target))
                if after < before * (1 - LEAST):
                    gain.by_program[program] = 1 - after / before
            yield rule.name, gain


def _joined(rules: RuleSet, proposed: Sequence[Rule]) -> RuleSet:
    return replace(rules, rules=(*rules.rules, *proposed))


def _searched(program: str, rules: RuleSet, target: Target) -> Run:
    return optimize(
        read(program), rules=rules, target=target, goals=("time",),
        time_limit=SEARCH_SECONDS, unchecked=True,
    )  # fmt: skip


def _time(run: Run) -> float:
    return run.summary()["goals"]["time_us"]["value"]


# ---- pairs proven already ------------------------------------------------------------------------
AT_ONCE = 40  # pairs in one e-graph: loading the rules costs as much as searching that many


class Prover:
    """The rules that are given, and those that were found since."""

    def __init__(self, rules: RuleSet, target: Target, limits: Limits):
        self.rules, self.limits = rules, limits
        # no tiles: packing what is multiplied proves nothing here and takes most of the time
        self.target = replace(target, tiles=())

    def add(self, rule: Rule) -> None:
        """Prove with this rule, too."""
        self.rules = replace(self.rules, rules=(*self.rules.rules, rule))

    def unproven(
        self, pairs: Sequence[Pair], leaves: Leaves, is_over: Callable[[], bool]
    ) -> Iterator[Pair]:
        """The pairs that reading and the rules leave apart; none any more once it is over."""
        for at in range(0, len(pairs), AT_ONCE):
            if is_over():
                return
            yield from self._apart(pairs[at : at + AT_ONCE], leaves)

    def proves(self, pair: Pair, leaves: Leaves) -> bool:
        """Whether the rules prove a pair by itself, where no other term uses what it is made of."""
        return not self._apart([pair], leaves)

    def _apart(self, pairs: Sequence[Pair], leaves: Leaves) -> list[Pair]:
        """Of a few pairs, whose terms are all put into one e-graph."""
        program = spelled_apart(tuple(t for p in pairs for t in p), leaves, SIZES)
        graph = saturate(program, self.rules, self.target, self.limits)
        roots = iter(graph.roots)
        return [p for p in pairs if next(roots) != next(roots)]


# ---- the search ----------------------------------------------------------------------------------
MOST_LEAVES, MOST_SIZE = 4, 5
SHARE = 0.7  # of the time that finding may take; the rest is for ranking on programs


@dataclass(frozen=True)
class Ask:
    """The request of a discovery.

    ops: names of `FORMS`. leaves: how many a term may have. size: ops of a term at most. seconds:
    for all of it. limits: of every proof.
    """

    ops: tuple[str, ...] = DEFAULT_FORMS
    leaves: int = 2
    size: int = 3
    seconds: float = 60.0
    seed: int = 0
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for op in self.ops:
            check_known(op, FORMS, "E418", f"--ops: terms have no op `{op}`")
        for key, value, most in (
            ("leaves", self.leaves, MOST_LEAVES), ("size", self.size, MOST_SIZE),
        ):  # fmt: skip
            if not 1 <= value <= most:
                help = "the number of terms grows with its power"
                raise fail("E418", f"--{key} is 1 to {most}, not {value}", help=help)


@dataclass
class Discoveries:
    """Counts and proposals of a search so far.

    equal: pairs of terms with equal values; unproven: those of them that the rules left apart, in
    the order in which each was tried; unwritten: why some became no rule. stop: "" if all terms
    were tried, else "seconds" or "interrupted".
    """

    terms: int = 0
    equal: int = 0
    unproven: int = 0
    proposals: list[Proposal] = field(default_factory=list)
    gains: dict[str, Gain] = field(default_factory=dict)
    unwritten: Counter[str] = field(default_factory=Counter)
    stop: str = ""

    def ranked(self) -> list[Proposal]:
        """Proposals by gain on the programs, then by the work they save by themselves."""

        def rank(p: Proposal) -> tuple[float, bool, float, int, str]:
            gain = self.gains.get(p.rule.name, Gain())
            return -gain.total, not gain.matches, -p.saving, len(p.lines), p.rule.name

        return sorted(self.proposals, key=rank)

    def file(self, name: str) -> str:
        """The rule set of all proposals, the best first."""
        doc = "Equalities that eqsat discover found; read each before you use it."
        return file_text(name, doc, [list(p.lines) for p in self.ranked()])

    def rows(self) -> list[dict[str, Any]]:
        """One row per proposal, the best first."""
        return [self._row(p) for p in self.ranked()]

    def _row(self, p: Proposal) -> dict[str, Any]:
        gain = self.gains.get(p.rule.name, Gain())
        return {
            "rule": p.rule.name,
            "says": p.rule.doc,
            "general": p.draft.is_general,
            "exact": "inexact" not in p.rule.tags,
            "instances": p.instances,
            "work": list(p.work),
            "matches": gain.matches,
            "gains": gain.by_program,
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "format": 1, "terms": self.terms, "equal": self.equal, "unproven": self.unproven,
            "stop": self.stop, "proposals": self.rows(), "unwritten": dict(self.unwritten),
        }  # fmt: skip


class Discovery:
    """One search; `result` is whole at any time, so it may be ended at any time."""

    def __init__(self, wish: Ask, rules: RuleSet, target: Target, stop: Stop | None = None):
        self.wish, self.target, self.stop = wish, target, stop or Stop()
        self.rules = rules
        self.result = Discoveries()
        limits = replace(wish.limits, seconds=None)
        self.prover = Prover(rules, target, limits)
        self.begin = elapsed()
        self.names = {r.name for r in rules.rules}

    def run(self, programs: Sequence[str] = ()) -> Discoveries:
        """Find rules, and rank them on programs that `eqsat.read` knows by these names."""
        self.stop.has_answer = True
        for pool, pairs in self._pairs():
            self._prove(pool, pairs)
        if self._is_over(SHARE):
            self.result.stop = "interrupted" if self.stop.is_requested else "seconds"
        rules = [p.rule for p in self.result.proposals]
        for name, gain in gains(rules, self.rules, self.target, programs, self._later):
            self.result.gains[name] = gain
        return self.result

    def _pairs(self) -> Iterator[tuple[TermPool, list[Pair]]]:
        """Equal terms, the smallest of all choices of leaves first."""
        has_indices = "gather" in self.wish.ops
        choices = leaf_choices(self.wish.leaves, has_indices)
        pools = [TermPool(leaves, self.wish.ops, self.wish.seed) for leaves in choices]
        for _ in range(self.wish.size):
            for pool in pools:
                if self._now():
                    return
                before = pool.terms
                pairs = pool.grow(self._now)
                self.result.terms += pool.terms - before
                self.result.equal += len(pairs)
                yield pool, sorted(pairs, key=lambda p: (p[0].size + p[1].size, str(p)))

    def _prove(self, pool: TermPool, pairs: list[Pair]) -> None:
        """Propose what is not proven; each proposal helps to prove the rest."""
        left = list(self.prover.unproven(pairs, pool.leaves, self._now))
        while left and not self._now():
            pair, *left = left
            if self.prover.proves(pair, pool.leaves):
                continue
            self.result.unproven += 1
            try:
                proposal = proposal_of(pair, pool, self.names, self.wish.seed)
            except Unwritten as error:
                self.result.unwritten[str(error)] += 1
                continue
            self.names.add(proposal.rule.name)
            self.result.proposals.append(proposal)
            self.prover.add(proposal.rule)
            left = list(self.prover.unproven(left, pool.leaves, self._now))

    # ---- time -----------------------------------------------------------------------------------
    def _now(self) -> bool:
        return self._is_over(SHARE)

    def _later(self) -> bool:
        return self._is_over(1.0)

    def _is_over(self, share: float) -> bool:
        spent = elapsed() - self.begin
        return self.stop.is_requested or spent >= share * self.wish.seconds


def discover(
    wish: Ask,
    rules: RuleSet,
    target: Target,
    programs: Sequence[str] = (),
    stop: Stop | None = None,
) -> Discoveries:
    """Small terms that are equal and that the rules do not prove equal, as hunted, ranked rules.

    programs: names that `eqsat.read` takes; proposals are ranked by what they gain there. Where
    time runs out or `stop` is requested, what was found until then is the answer.
    """
    return Discovery(wish, rules, target, stop).run(programs)
