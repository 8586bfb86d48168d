"""Results that are written where operands lie that nothing reads any more.

A caller that donates an argument reads it no more, and nothing reads a value whose last reader is
done. The dispatch that makes a state's next value from such a one then writes in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from eqsat.model.leaves import is_donated
from eqsat.model.nest import NoNest
from eqsat.model.schedule import Dispatch, Schedule
from eqsat.ops.nests.nest import nest_of_dispatch
from eqsat.plan.inplace import in_place
from eqsat.plan.updates import lines_of, updated


def with_in_place(schedule: Schedule, *, updates: bool = True) -> Schedule:
    """The schedule with results in place of operands, where it can; the rest has its own bytes.

    A donated argument holds a result that is computed from it element by element. updates: also, in
    place of a donated argument or of each other, the values of which few elements change.
    """
    arguments = [i for i in schedule.program.inputs if is_donated(schedule.program.nodes[i].attr)]
    found: dict[int, int] = {}  # operand → what is written in its place
    for d in schedule.dispatches:
        for old in d.reads:
            given = old in arguments
            if given or updates:
                new = next(_written_over(schedule, d, old, given, updates), None)
                if new is not None and new not in found.values():
                    found[old] = new
    results = {schedule.buffer_of(r) for r in schedule.program.results}
    for a in arguments:  # XLA uses up no argument that no result takes the place of
        if a in found and _last(found, a) not in results:
            del found[a]
    made = replace(schedule, in_place=tuple((new, old) for old, new in found.items()))
    return _living_longer(made, found)


def _written_over(
    schedule: Schedule, writer: Dispatch, old: int, is_given: bool, updates: bool
) -> Iterator[int]:
    """What a dispatch may write in the bytes of a value that it reads and nothing reads later."""
    nodes = schedule.program.nodes
    results = {schedule.buffer_of(r) for r in schedule.program.results}
    written = {w for d in schedule.dispatches for w in d.writes}
    others = [d for d in schedule.dispatches if d is not writer]
    if old in results or not (is_given or old in written):
        return
    if any(old in d.reads and d.step >= writer.step for d in others):
        return
    for new in writer.writes:
        if nodes[new].type != nodes[old].type or any(new in d.writes for d in others):
            continue
        try:
            nest = in_place(nest_of_dispatch(schedule, writer), old, new)
        except NoNest:
            continue
        is_update = updates and updated(nest, lines_of(schedule, writer.reads)) is not nest
        if is_update or (is_given and new in results):
            yield new


def _last(found: Mapping[int, int], node: int) -> int:
    while node in found:
        node = found[node]
    return node


def _living_longer(schedule: Schedule, found: Mapping[int, int]) -> Schedule:
    """The first of values that lie in its bytes, one after another, lives as long as they do."""
    ends = {b.node: b.last for b in schedule.buffers}
    last = {n: max(ends[n], ends[_last(found, n)]) for n in found if n in schedule.owners.values()}
    buffers = tuple(
        replace(b, last=last[b.node]) if b.role == "temporary" and b.node in last else b
        for b in schedule.buffers
    )
    return replace(schedule, buffers=buffers)
