"""The outcome of a search as a selection: its groups, and the value and bound of every goal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from eqsat.extract.candidates.assemble import Assembly
from eqsat.extract.goals import Outcome
from eqsat.model.selection import GoalRequest, GoalResult, Removed, Selection, short_of_time

REMOVED_KEPT = 256  # largest of the groups that a limit removed: for messages and `explain`


def selection_of(
    assembly: Assembly, outcome: Outcome, goals: tuple[GoalRequest, ...], seconds: float
) -> Selection:
    """The chosen groups with the value and the bound of every goal; not checked."""
    assert outcome.answer is not None
    groups = assembly.groups(outcome.answer)
    results = outcome.results(assembly.choice, goals)
    ahead, removed = assembly.ahead(groups), _largest(assembly.removed)
    sides = removed, seconds, assembly.cuts, assembly.looked_at
    return Selection(groups, ahead, results, outcome.status, *sides)


def with_floors(found: Selection, floors: Mapping[str, int]) -> Selection:
    """With bounds that are no less than the floors; where candidates were cut nothing is proven.

    What the time limit cut, the bounds hold for as well (`candidates.floors`); those that a cap
    leaves out are not among what they are about.
    """
    in_time = not short_of_time(found.cuts)
    bounds = {n: max(r.bound * in_time, min(r.value, floors.get(n, 0))) for n, r in found.goals}
    if not found.cuts:
        goals = tuple((n, replace(r, bound=bounds[n])) for n, r in found.goals)
        return replace(found, goals=goals)
    goals = tuple((n, GoalResult(r.value, bounds[n])) for n, r in found.goals)
    stop = found.stop
    if stop in ("optimal", "gap"):
        stop = "cut" if in_time else "wall"
    return replace(found, goals=goals, stop=stop)


def _largest(removed: tuple[Removed, ...]) -> tuple[Removed, ...]:
    """One record per name, the largest first."""
    best: dict[tuple[str, str], Removed] = {}
    for r in removed:
        key = (r.what, r.limit_name)
        if key not in best or best[key].bytes < r.bytes:
            best[key] = r
    return tuple(sorted(best.values(), key=lambda r: (-r.bytes, r.what))[:REMOVED_KEPT])
