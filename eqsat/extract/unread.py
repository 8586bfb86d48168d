"""Dispatches write nothing that nobody reads, where no goal gets worse by that.

A candidate is an option for each set of values that it may write. A search that ended before its
proof may have chosen one that writes a value for a reader which is not in the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from eqsat.extract.candidates.assemble import Assembly
from eqsat.extract.candidates.space import Space
from eqsat.extract.check import Checker, check
from eqsat.extract.goalvalues import goal_values
from eqsat.model.goal import Goal
from eqsat.model.selection import Group, Selection
from eqsat.model.target import Target


def with_read_results(
    assembly: Assembly, target: Target, found: Selection, linear: Mapping[str, Goal]
) -> Selection:
    """The selection without results that nobody reads, or as it was; no goal is worse.

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
    before, after = (goal_values(space, target, linear, s) for s in (found, made))
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
