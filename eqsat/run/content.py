"""What a search depends on, as content: a target's figures, what rules say, versions."""

from __future__ import annotations

import hashlib
from functools import cache, lru_cache
from importlib.metadata import version
from typing import Any

from eqsat.lang.content import rule_content, spread_content
from eqsat.model.rules import Rule, RuleSet
from eqsat.model.target import Target

PACKAGES = ("eqsat", "egglog", "ortools", "jax", "numpy")
_SAYINGS = ("doc", "source", "file", "places", "chosen", "measured_on")  # of a target


def target_content(target: Target) -> dict[str, Any]:
    """The figures of a target, without where they stand and who says so."""
    return {k: v for k, v in target.to_json().items() if k not in _SAYINGS}


@lru_cache(maxsize=64)
def rules_content(ruleset: RuleSet) -> str:
    """A hash of what the rules say and when each is tried, in their order."""
    contents = [(r.name, sorted(r.tags), rule_content(r), _tried(r)) for r in ruleset.rules]
    spreads = [(r.name, sorted(r.tags), spread_content(r)) for r in ruleset.spreads]
    return hashlib.sha256(repr((contents, spreads, ruleset.imports)).encode()).hexdigest()


def _tried(rule: Rule) -> tuple[object, ...]:
    return (rule.phase, rule.apply, rule.max_matches)


@cache
def used_versions() -> dict[str, str]:
    """Packages that searching depends on, by name."""
    return {p: version(p) for p in PACKAGES}
