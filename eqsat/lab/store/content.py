"""The key of a run in a store: a hash of all that decides its result."""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from eqsat.api import Run
from eqsat.lang.content import rule_content, spread_content
from eqsat.model.files import code_digest
from eqsat.model.origin import without_origins
from eqsat.model.rules import Rule, RuleSet
from eqsat.model.target import Target

PACKAGES = ("eqsat", "egglog", "ortools", "jax", "numpy")
_SAYINGS = ("doc", "source", "file", "places", "chosen", "measured_on")  # of a target


def run_key(request: Run, unchecked: bool, repeat: int = 1, judged: str = "") -> str:
    """32 hexadecimal digits for a run that stopped behind its program (`stop_after="program"`).

    The program as it was read, its weights by content; rules and target by what they say; goals,
    budgets, limits, seed, time limit and extractor; the versions of what searches, eqsat's own code
    included; judged: what another compiler chose, if that is the answer. Not: the machine, and how
    many threads and processes there are, which decide how soon an answer is there.
    """
    family = None if request.family is None else without_origins(request.family.to_json())
    content = {
        "program": without_origins(request.source.program.to_json()),
        "family": family,
        "opaque": {k: _digest(call.export()) for k, call in request.source.opaque.items()},
        "target": target_content(request.target),
        "rules": rules_content(request.rules),
        "goals": [astuple(g) for g in request.goals],
        "limits": request.limits.to_json(),
        "search": [request.search[k] for k in ("time_limit", "seed", "extractor")],
        "unchecked": unchecked,
        "repeat": repeat,
        "judged": judged,
        "versions": used_versions(),
        "code": code_digest(),
    }
    return _digest(json.dumps(content, sort_keys=True).encode())[:32]


def target_content(target: Target) -> dict[str, Any]:
    """The figures of a target, without where they stand and who says so."""
    return {k: v for k, v in target.to_json().items() if k not in _SAYINGS}


@lru_cache(maxsize=64)
def rules_content(ruleset: RuleSet) -> str:
    """A hash of what the rules say and when each is tried, in their order."""
    contents = [(r.name, sorted(r.tags), rule_content(r), _tried(r)) for r in ruleset.rules]
    spreads = [(r.name, sorted(r.tags), spread_content(r)) for r in ruleset.spreads]
    return _digest(repr((contents, spreads, ruleset.imports)).encode())


def _tried(rule: Rule) -> tuple[object, ...]:
    return (rule.phase, rule.apply, rule.max_matches)


def used_versions() -> dict[str, str]:
    """Packages that searching depends on, by name."""
    return {p: version(p) for p in PACKAGES}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
