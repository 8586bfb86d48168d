"""The outcome of a search as a selection: its groups, and the value and bound of every goal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from eqsat.extract.candidates.assemble import Assembly
from eqsat.extract.candidates.space import Space
from eqsat.extract.check import Checker, check
from eqsat.extract.choice.linear import TIE_BREAK
from eqsat.extract.goals import Outcome
from eqsat.model.selection import (
    GoalRequest,
    GoalResult,
    Group,
    Removed,
    Selection,
    short_of_time,
)
from eqsat.model.target import Target


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

    What the time limit cut, the bounds hold for as well (`dispatch.floors`); those that a cap
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
    # the largest are for messages and `explain`
    return tuple(sorted(best.values(), key=lambda r: (-r.bytes, r.what))[:256])


# ---- results that nobody reads -------------------------------------------------------------------
def with_read_results(assembly: Assembly, target: Target, found: Selection) -> Selection:
    """The selection without results that nobody reads, or as it was; no goal is worse.

    A candidate is an option for each set of values that it may write: a search that ended before
    its proof may have chosen one that writes a value for a reader which is not in the answer.
    A dispatch whose price would rise keeps its results: without one of them it may be a kernel
    that costs more. Bounds, proofs and why the search ended stay. What is changed has passed
    `extract.check`.
    """
    space = assembly.pool.space
    made = found
    while (fewer := _once(space, target, made)) != made.groups:
        made = replace(made, groups=fewer, ahead=assembly.ahead(fewer))
    if made is found:
        return found
    names = (*dict(found.goals), *dict(target.budget), TIE_BREAK)
    before, after = (Checker(space, target, s).goal_values(names) for s in (found, made))
    if any(after[n] > before[n] for n in before):
        return found
    made = replace(made, goals=tuple((n, replace(r, value=after[n])) for n, r in found.goals))
    return found if check(space.egraph, target, made) else made


def _once(space: Space, target: Target, found: Selection) -> tuple[Group, ...]:
    """The groups, without what none of them reads as they are now."""
    wanted = {space.buffer[r] for g in found.groups for r in g.reads} | set(space.roots)
    checker = Checker(space, target, found)
    groups: list[Group] = []
    for g in found.groups:
        writes = tuple(w for w in g.writes if space.buffer[w] in wanted)
        if writes == g.writes or not writes:
            groups.append(g)
            continue
        less = _computing(space, g, writes)
        less = replace(less, time_ps=checker.price_ps(less))
        groups.append(min(less, g, key=lambda g: g.time_ps))
    return tuple(groups)


def _computing(space: Space, g: Group, writes: tuple[int, ...]) -> Group:
    """The group with these results alone, without the members and reads that they do not need."""
    needed = {space.buffer[w] for w in writes}
    members: list[int] = []
    for m in reversed(g.members):
        if not needed.isdisjoint(space.made[m]):
            members.append(m)
            needed.update(space.operands[m])
    reads = tuple(r for r in g.reads if space.buffer[r] in needed)
    return replace(g, members=tuple(reversed(members)), reads=reads, writes=writes)
