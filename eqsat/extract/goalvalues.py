"""What a selection is worth by every goal, recomputed from its groups alone."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat.extract.candidates.space import Space
from eqsat.extract.check import Checker
from eqsat.extract.choice.linear import TIE_BREAK, value_stated
from eqsat.model.goal import Goal
from eqsat.model.selection import Selection
from eqsat.model.target import Target


def goal_values(
    space: Space, target: Target, linear: Mapping[str, Goal], selection: Selection
) -> dict[str, int]:
    """Every goal that is asked for, those of budgets, and what breaks ties."""
    names = dict.fromkeys([*dict(selection.goals), *dict(target.budget), TIE_BREAK])
    checker = Checker(space, target, selection)
    sides = space.egraph, target, selection
    values = {n: value_stated(n, linear[n], *sides) for n in names if n in linear}
    values["memory"] = checker.peak_bytes()
    weights = checker.weights
    kept = {"resident": weights.resident_bytes, "load_peak": weights.load_peak_bytes}
    return values | {n: value() for n, value in kept.items() if n in names}
