"""`ablate:` of an experiment: every row again without one of its rules, sets or tags at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from eqsat.model.rules import RuleSet

if TYPE_CHECKING:
    from eqsat.lang.experiments import Cell

NOTHING_LEFT_OUT = "–"
Loader = Callable[[tuple[str, ...]], RuleSet]  # the rule sets of a cell as one


def ablated(cells: Iterable[Cell], what: str, load: Loader) -> list[Cell]:
    """Each cell, and behind it one cell for each of its rules (what: `rules`, `sets` or `tags`).

    Those say by `whole` which row they are compared with, and by `left_out` the rules they lack.
    """
    found = []
    for cell in cells:
        found.append(replace(cell, varied=(*cell.varied, ("without", NOTHING_LEFT_OUT))))
        ruleset = load(cell.rules).without(*cell.without)
        for name, rules in _parts(ruleset, what).items():
            found.append(
                replace(
                    cell,
                    name=f"{cell.name} without={name}",
                    without=(*cell.without, *rules),
                    varied=(*cell.varied, ("without", name)),
                    whole=cell.name,
                    left_out=rules,
                )
            )
    return found


def _parts(ruleset: RuleSet, what: str) -> dict[str, tuple[str, ...]]:
    """Name of a rule, set or tag -> its rules, in the order of the set."""
    found: dict[str, tuple[str, ...]] = {}
    for r in ruleset.rules:
        names = {"rules": (r.name,), "sets": (r.ruleset,), "tags": r.tags}[what]
        for name in names:
            found[name] = (*found.get(name, ()), r.name)
    return found
