"""All legal selections of a small e-graph, by trying every dispatch and every order.

Only the checker says what is legal; nothing is shared with the search.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from eqsat.extract.candidates.space import Space
from eqsat.extract.check import Checker, check
from eqsat.model.egraph import EGraph
from eqsat.model.selection import GoalResult, Group, Selection
from eqsat.model.target import Target

Values = tuple[int, int, int]  # time, memory, dispatches


def every_value(egraph: EGraph, target: Target) -> set[Values]:
    """What the legal selections are worth, each in each of its orders."""
    target = replace(target, budget=())
    space = Space(egraph, target.padding)
    groups = list(_groups(space, target))
    found: set[Values] = set()
    for ahead in _ahead(space):
        there = {*space.inputs, *(space.buffer[egraph.nodes[a].eclass] for a in ahead)}
        for chosen in _chosen(space, groups, (), there):
            steps = tuple(replace(g, step=i) for i, g in enumerate(chosen))
            bare = Selection(steps, ahead, (), "optimal")
            peak = Checker(space, target, bare).peak_bytes()
            value = sum(g.time_ps for g in chosen), peak, len(chosen)
            goals = zip(("time", "memory", "dispatches"), value, strict=True)
            whole = replace(bare, goals=tuple((n, GoalResult(v, v)) for n, v in goals))
            if value not in found and not check(egraph, target, whole):
                found.add(value)
    return found


def _groups(space: Space, target: Target) -> Iterator[Group]:
    """Every dispatch: members in an order that computes them, and what of theirs is written."""
    nodes = space.egraph.nodes
    checker = Checker(space, target, Selection((), (), (), "optimal"))
    ops = [i for i, k in enumerate(space.kinds) if k not in ("leaf", "view")]
    for size in range(1, target.fusion.members + 1):
        for members in filter(None, map(lambda m: _sorted(space, m), combinations(ops, size))):
            made = [nodes[m].eclass for m in members]
            buffers = {space.buffer[c] for c in made}
            operands = (o for m in members for o in space.operands[m] if o not in buffers)
            reads = tuple(dict.fromkeys(operands))
            for writes in _some(made):
                bare = Group(members, reads, writes, 0, 0)
                if not any(checker._flow_faults(bare)):
                    group = replace(bare, time_ps=checker.price_ps(bare))
                    if not any(checker.group_faults(group)):
                        yield group


def _sorted(space: Space, members: tuple[int, ...]) -> tuple[int, ...]:
    """Operands first; nothing if they are in a circle."""
    left, done = list(members), []
    while left:
        made = {space.buffer[space.egraph.nodes[m].eclass] for m in left}
        ready = [m for m in left if made.isdisjoint(space.operands[m])]
        if not ready:
            return ()
        done += ready
        left = [m for m in left if m not in ready]
    return tuple(done)


def _some(classes: list[int]) -> Iterator[tuple[int, ...]]:
    for count in range(1, len(classes) + 1):
        yield from combinations(classes, count)


def _ahead(space: Space) -> Iterator[tuple[int, ...]]:
    """What may be computed once from weights, operands first; the checker refuses the rest."""
    nodes = space.egraph.nodes
    from_weights: list[int] = []
    for i, n in enumerate(nodes):
        known = {space.buffer[nodes[a].eclass] for a in from_weights}
        if n.op == "weight" or (n.op != "input" and known.issuperset(space.operands[i])):
            from_weights.append(i)
    yield ()
    yield from _some(from_weights)


def _chosen(
    space: Space, groups: list[Group], before: tuple[Group, ...], there: set[int]
) -> Iterator[tuple[Group, ...]]:
    """Dispatches one after another, until all results are there."""
    if there.issuperset(space.roots):
        yield before
        return
    for g in groups:
        writes = {space.buffer[c] for c in g.writes}
        if there.isdisjoint(writes) and there.issuperset(space.buffer[c] for c in g.reads):
            yield from _chosen(space, groups, (*before, g), there | writes)
