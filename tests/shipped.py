"""Every shipped rule set, read once for all tests that walk them."""

from __future__ import annotations

import eqsat
from eqsat.model.rules import Rule
from eqsat.plugins import find_names

SETS = [eqsat.rules(name) for name in find_names("rules", ".yaml")]
# by name; what a set overrides of another one is that set's
RULES: dict[str, Rule] = {r.name: r for s in SETS for r in s.rules}
OWN_RULES: dict[str, Rule] = {r.name: r for s in SETS for r in s.rules if r.ruleset == s.name}
