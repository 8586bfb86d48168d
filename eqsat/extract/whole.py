"""The answer for the short program of four blocks → the selection of the whole program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from eqsat.extract.blocks import Rolled
from eqsat.extract.candidates.assemble import Choices
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.candidates.variants import Variant, Variants
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.goalvalues import goal_values
from eqsat.extract.order import DispatchGraph, best_order
from eqsat.extract.session import Session
from eqsat.extract.solve.linear import TIE_BREAK
from eqsat.model.goal import Goal
from eqsat.model.selection import GoalRequest, GoalResult, Group, Selection
from eqsat.model.target import Target


def whole_selection(
    rolled: Rolled,
    target: Target,
    linear: Mapping[str, Goal],
    goals: tuple[GoalRequest, ...],
    found: Selection,
) -> Selection:
    """Its dispatches in all blocks; the values of the goals are computed anew, bounds stay.

    Bounds of the short problem are those of the whole one (`solve.blockrows`). Where the order of
    the short answer, repeated block by block, needs more bytes, a better one is looked for.
    """
    space = Space(rolled.whole, target.padding)
    pool = Pool(Legality(space, target), False)
    groups = rolled.unrolled(found.groups, space.buffer)
    buffers = {space.buffer[r] for g in groups for r in g.reads} | set(space.roots)
    buffers -= {space.buffer[w] for g in groups for w in g.writes}
    ahead = pool.ahead_nodes(b for b in buffers if b in pool.resident)
    made = replace(found, groups=groups, ahead=ahead)
    values = goal_values(space, target, linear, made)
    memory = found.goal("memory").value
    if values["memory"] > memory:
        other = replace(made, groups=_in_best_order(space, groups))
        after = goal_values(space, target, linear, other)
        if after["memory"] < values["memory"]:
            made, values = other, after
    results = tuple(
        (n, GoalResult(values[n], min(r.bound, values[n]), r.proof if r.bound >= values[n] else ""))
        for n, r in found.goals
        if n != TIE_BREAK
    )
    made = replace(made, goals=results)
    is_open = any(made.goal(g.name).gap > 0 for g in goals if g.weight is None)
    return replace(made, stop="gap" if is_open and found.stop == "optimal" else found.stop)


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
    short: Session, rolled: Rolled, found: Selection, own: Selection | None
) -> Session:
    """What survives of the short problem in all blocks, so that they may differ as well.

    The survivors hold every answer that is no worse than the best known one by the first goal, also
    those whose blocks differ, as the relaxation is about all of them. `found`, `own`: the whole
    program's selection known so far, and its baseline.
    """
    pool = short.assembly.pool
    space = Space(rolled.whole, short.target.padding)
    whole = replace(pool, legality=Legality(space, short.target))
    known = short.assembly.variants
    options = tuple(o for v in known.options or () for o in unrolled_options(whole, rolled, v))
    candidates = tuple(dict.fromkeys(o.candidate for o in options))
    costs = space.remembered(Costs, short.target)
    variants = Variants(whole, costs, candidates, known.goals, options)
    choices = Choices(variants, short.assembly.removed, short.assembly.cuts)
    assembly = choices.under(found.groups)
    first = found.goals[0]
    least = {n: (r.bound, r.proof or "relaxation") for n, r in found.goals if n == first[0]}
    hints = assembly.locate(found.groups)
    sides = short.seed, short.stop, short.floors, least
    return Session(rolled.whole, short.target, short.linear, assembly, hints, own, *sides)


def unrolled_options(pool: Pool, rolled: Rolled, option: Variant) -> Iterator[Variant]:
    """An option of the short problem in all blocks in which it is there."""
    c, space = option.candidate, pool.space
    times = rolled.times(c.members)
    for back in rolled.copies(c.members):
        parts = (rolled.classes_at(side, back) for side in (c.reads, c.writes, c.exposable))
        reads, writes, exposable = parts
        members = rolled.nodes_at(c.members, back)
        moved = c._replace(members=members, reads=reads, writes=writes, exposable=exposable)
        sides = (rolled.classes_at(side, back) for side in option[3:6])
        read, kept, written = (tuple(space.buffer[b] for b in side) for side in sides)
        yield option._replace(
            candidate=moved,
            adds=tuple(a // times for a in option.adds),
            reads=frozenset(read),
            resident=frozenset(kept),
            writes=written,
            exclusive=pool.legality.exclusive(members),
        )
