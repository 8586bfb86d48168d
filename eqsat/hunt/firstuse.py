"""Rules about to be used: unknown ones are hunted for a second first."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace

from eqsat.hunt.findings import Findings, diagnose
from eqsat.hunt.remembered import recall, remember
from eqsat.hunt.shipped import known_keys
from eqsat.lang.content import rule_key
from eqsat.model.diag import Diagnostic, EqsatError, EqsatWarning
from eqsat.model.rules import Rule, RuleCheck, RuleSet

SECONDS = 1.0  # of CPU time, for all rules of a set that were never hunted
INSTANCES = 200  # of each at most, as `eqsat check --test` tries
_warned: set[str] = set()  # once per process is enough


def check_rules(ruleset: RuleSet, unchecked: bool = False) -> RuleCheck:
    """Hunt the rules of a set that are neither shipped nor were hunted on this machine.

    unchecked: hunt nothing, refuse nothing, and say which rules that holds for. Otherwise raises
    EqsatError (E100, exit code 1) with a counterexample for every rule that has one; an
    EqsatWarning (E103) names rules of which the hunt found no instance.
    """
    known = known_keys()
    unknown = [r for r in ruleset.rules if rule_key(r) not in known]
    count = len(ruleset.rules) - len(unknown)
    found = {r.name: recall(r) for r in unknown}
    if unchecked:
        trusted = {n for n, f in found.items() if f is not None and _is_tried(f)}
        rest = tuple(r.name for r in unknown if r.name not in trusted)
        return RuleCheck(count, tuple(r.name for r in unknown if r.name in trusted), (), rest)
    hunts = _hunted([r for r in unknown if found[r.name] is None])
    every = [found[r.name] or hunts[r.name] for r in unknown]
    _refuse(every)
    barren = tuple(f.rule.name for f in every if not f.instances)
    _warn([f for f in every if not f.instances])
    return RuleCheck(count, tuple(f.rule.name for f in every if f.instances), barren)


def _is_tried(f: Findings) -> bool:
    return f.counterexample is None and f.instances > 0


def _hunted(rules: list[Rule]) -> dict[str, Findings]:
    """Each gets its share of what is left of the time, so quick ones leave theirs to the rest."""
    if not rules:
        return {}
    from eqsat.hunt.search import hunt

    found: dict[str, Findings] = {}
    end = time.thread_time() + SECONDS
    for i, rule in enumerate(rules):
        share = max(end - time.thread_time(), 0.0) / (len(rules) - i)
        found[rule.name] = hunt(rule, instances=INSTANCES, seconds=share)
        remember(found[rule.name])
    return found


def _refuse(found: list[Findings]) -> None:
    problems = [d for f in found if (d := diagnose(f)) is not None]
    if problems:
        way = "`--unchecked` (`unchecked=True`) uses the rule all the same"
        raise EqsatError(*(replace(d, help=f"{d.help}; {way}") for d in problems), exit_code=1)


def _warn(barren: list[Findings]) -> None:
    for f in barren:
        if f.rule.name not in _warned:
            _warned.add(f.rule.name)
            warnings.warn(EqsatWarning(_untried(f.rule)), stacklevel=4)


def _untried(rule: Rule) -> Diagnostic:
    return Diagnostic(
        "E103",
        f"rule `{rule.name}` was not hunted: no instance of it was found in its share of a second",
        rule.left.span,
        help="an example beside it shows where it applies; `eqsat check FILE --test` takes longer",
        severity="warning",
    )
