"""What proposed rules gain on programs: how often each matches, and predicted time with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from eqsat.api import optimize, read
from eqsat.model.rules import Rule, RuleSet
from eqsat.model.target import Target
from eqsat.run import Run

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
    found: Sequence[Rule],
    rules: RuleSet,
    target: Target,
    programs: Sequence[str],
    is_over: Callable[[], bool],
) -> Iterator[tuple[str, Gain]]:
    """Rules by name with their gains so far, program by program, until it is over.

    One search with all of them says which match; only these get a search of their own.
    """
    known: dict[str, Gain] = {}
    for program in programs if found else ():
        if is_over():
            return
        with_all = _searched(program, _joined(rules, found), target)
        assert with_all.egraph is not None  # no phase was left out
        matches = {r.name: r.matches for r in with_all.egraph.rules}
        matching = [r for r in found if matches.get(r.name)]
        before = _time(_searched(program, rules, target)) if matching else 0.0
        for rule in matching:
            gain = known.setdefault(rule.name, Gain())
            gain.matches += matches[rule.name]
            if not is_over():
                after = _time(_searched(program, _joined(rules, [rule]), target))
                if after < before * (1 - LEAST):
                    gain.by_program[program] = 1 - after / before
            yield rule.name, gain


def _joined(rules: RuleSet, found: Sequence[Rule]) -> RuleSet:
    return replace(rules, rules=(*rules.rules, *found))


def _searched(program: str, rules: RuleSet, target: Target) -> Run:
    return optimize(
        read(program), rules=rules, target=target, goals=("time",),
        time_limit=SEARCH_SECONDS, unchecked=True,
    )  # fmt: skip


def _time(run: Run) -> float:
    return run.summary()["goals"]["time_us"]["value"]
