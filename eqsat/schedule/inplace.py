"""Results that are written where donated arguments lie, found once an answer is chosen.

A caller that donates an argument reads it no more. The dispatch that makes a state's next value
from it then writes in its place, if nothing reads the old one later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from eqsat.model.nest import NoNest
from eqsat.model.schedule import Schedule
from eqsat.ops.nests.nest import nest_of_dispatch
from eqsat.plan.inplace import in_place


def with_donated(schedule: Schedule, arguments: Iterable[int]) -> Schedule:
    """The schedule with results in place of these arguments, inputs of its program, where it can.

    An argument whose result no dispatch can write in place keeps a buffer of its own.
    """
    pairs: list[tuple[int, int]] = []
    results = {r for r in schedule.program.results if schedule.buffer_of(r) == r}
    for argument in arguments:
        taken = {r for r, _ in pairs}
        found = (r for r in sorted(results - taken) if _fits(schedule, r, argument))
        pairs += [(r, argument) for r in list(found)[:1]]
    return replace(schedule, in_place=tuple(pairs))


def with_state(schedule: Schedule, states: Sequence[int]) -> Schedule:
    """The body of a loop that writes its first results, the next values of these inputs of its
    program, in place of them, where it can."""
    results = [schedule.buffer_of(r) for r in schedule.program.results]
    pairs = [
        (r, argument)
        for r, argument in zip(schedule.program.results, states, strict=False)
        if results.count(r) == 1 and _fits(schedule, r, argument)
    ]
    return replace(schedule, in_place=tuple(pairs))


def _fits(schedule: Schedule, result: int, argument: int) -> bool:
    nodes = schedule.program.nodes
    writers = [d for d in schedule.dispatches if result in d.writes]
    if nodes[result].type != nodes[argument].type or len(writers) != 1:
        return False
    if argument in map(schedule.buffer_of, schedule.program.results):
        return False
    (writer,) = writers
    readers = [d for d in schedule.dispatches if argument in d.reads and d is not writer]
    if argument not in writer.reads or any(d.step >= writer.step for d in readers):
        return False
    try:
        in_place(nest_of_dispatch(schedule, writer), argument, result)
    except NoNest:
        return False
    return True
