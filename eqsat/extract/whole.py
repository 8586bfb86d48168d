"""The answer for the short program of four blocks → the selection of the whole program."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from eqsat.extract.blocks import NOWHERE, Rolled
from eqsat.extract.candidates.assemble import Assembly
from eqsat.extract.candidates.cover import served_by
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.sources import CandidateTable, choice_facts
from eqsat.extract.candidates.space import Space
from eqsat.extract.check import Checker
from eqsat.extract.choice.linear import TIE_BREAK
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.groups.grow import Candidate
from eqsat.extract.memory.bestorder import best_order
from eqsat.extract.memory.dispatchgraph import DispatchGraph
from eqsat.extract.ragged import Ragged
from eqsat.extract.session import Session
from eqsat.model.selection import GoalRequest, GoalResult, Group, Selection
from eqsat.model.target import Target


def whole_selection(
    rolled: Rolled,
    target: Target,
    goals: tuple[GoalRequest, ...],
    selection: Selection,
) -> Selection:
    """Its dispatches in all blocks; the values of the goals are computed anew, bounds stay.

    Bounds of the short problem are those of the whole one (`choice.blockrows`). Where the order of
    the short answer, repeated block by block, needs more bytes, a better one is looked for.
    """
    space = Space(rolled.whole, target.padding)
    pool = Pool(Legality(space, target), False)
    groups = rolled.unrolled(selection.groups, space.buffer)
    buffers = {space.buffer[r] for g in groups for r in g.reads} | set(space.roots)
    buffers -= {space.buffer[w] for g in groups for w in g.writes}
    ahead = pool.ahead_nodes(b for b in buffers if b in pool.resident)
    unrolled = replace(selection, groups=groups, ahead=ahead)
    names = (*dict(selection.goals), *dict(target.budget), TIE_BREAK)
    values = Checker(space, target, unrolled).goal_values(names)
    memory = selection.goal("memory").value
    if values["memory"] > memory:
        other = replace(unrolled, groups=_in_best_order(space, groups))
        after = Checker(space, target, other).goal_values(names)
        if after["memory"] < values["memory"]:
            unrolled, values = other, after
    results = tuple(
        (n, GoalResult(values[n], min(r.bound, values[n]), r.proof if r.bound >= values[n] else ""))
        for n, r in selection.goals
        if n != TIE_BREAK
    )
    unrolled = replace(unrolled, goals=results)
    is_open = any(unrolled.goal(g.name).gap > 0 for g in goals if g.weight is None)
    return replace(
        unrolled, stop="gap" if is_open and selection.stop == "optimal" else selection.stop
    )


def _in_best_order(space: Space, groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """The same dispatches in the order of least peak."""
    sides = (
        tuple(tuple(sorted({space.buffer[c] for c in side})) for side in of)
        for of in ([g.reads for g in groups], [g.writes for g in groups])
    )
    reads, writes = sides
    used = {b for of in writes for b in of}
    nbytes = {b: 0 if b in space.roots else space.sizes[b] for b in sorted(used)}
    reads = tuple(tuple(b for b in of if b in used) for of in reads)
    order = best_order(DispatchGraph(reads, writes, nbytes)).order
    return tuple(replace(groups[i], step=n) for n, i in enumerate(order))


def whole_session(
    short: Session, rolled: Rolled, selection: Selection, baseline: Selection | None
) -> Session:
    """What survives of the short problem in all blocks, so that they may differ as well.

    The survivors hold every answer that is no worse than the best known one by the first goal, also
    those whose blocks differ, as the relaxation is about all of them. `selection` and
    `baseline` are those of the whole program so far.
    """
    pool = short.assembly.pool
    space = Space(rolled.whole, short.target.padding)
    whole = replace(pool, legality=Legality(space, short.target))
    assembly = unrolled_assembly(short.assembly, whole, rolled)
    best = assembly.locate(selection.groups)
    # a bound behind others is of answers as good by these, as whatever is found from here on is
    values = {n: r.value for n, r in selection.goals}
    is_there = best is not None and assembly.choice.keeps(best, values)
    told = selection.goals if is_there else selection.goals[:1]
    least = {n: (r.bound, r.proof or "relaxation") for n, r in told}
    sides = short.seed, short.stop, short.floors, least
    return Session(rolled.whole, short.target, short.linear, assembly, best, baseline, *sides)


def unrolled_assembly(short: Assembly, pool: Pool, rolled: Rolled) -> Assembly:
    """The columns of the short program, in all blocks in which they are there."""
    choice, space = short.choice, pool.space
    sides = {n: list[tuple[int, ...]]() for n in ("reads", "resident", "writes", "extras")}
    candidates, adds, exclusive, of = list[Candidate](), list[list[int]](), list[list[int]](), []
    for i in range(len(choice)):
        c = short.candidate(i)
        times = rolled.times(c.members)
        for back in rolled.copies(c.members):
            members = rolled.nodes_at(c.members, back)
            parts = (rolled.classes_at(side, back) for side in (c.reads, c.writes, c.exposable))
            reads, writes, exposable = parts
            moved = c._replace(members=members, reads=reads, writes=writes, exposable=exposable)
            candidates.append(moved)
            adds.append([a // times for a in choice.adds[i].tolist()])
            exclusive.append(sorted(pool.legality.exclusive(members)))
            of.append(i)
            for name, buffers in sides.items():
                there = rolled.classes_at(getattr(choice, name).tuples[i], back)
                buffers.append(tuple(sorted({space.buffer[b] for b in there})))
    sources = replace(
        short.sources, pool=pool, candidates=CandidateTable(candidates),
        costs=space.remembered(Costs, pool.legality.target),
    )  # fmt: skip
    rows, count = np.array(of, dtype=np.int64), len(of)
    computes = [tuple(sorted(space.computes(c.members))) for c in candidates]
    columns: dict[str, Any] = {name: Ragged.of(buffers) for name, buffers in sides.items()}
    values = [{space.value[b] for b in w} for w in sides["writes"]]
    serves = [
        sorted(served_by(pool, c.members, w)) for c, w in zip(candidates, values, strict=True)
    ]
    whole = replace(
        choice.take(rows), facts=choice_facts(pool, choice.facts.linear), **columns,
        adds=np.array(adds, dtype=choice.adds.dtype).reshape(count, -1),
        exclusive=Ragged.of(exclusive), computes=Ragged.of(computes), serves=Ragged.of(serves),
        candidate=np.arange(count), last=np.full(count, NOWHERE),
        key=np.arange(count), image=np.full(count, -1),
    )  # fmt: skip
    return replace(short, sources=sources, choice=whole)
