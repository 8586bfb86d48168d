"""A schedule with the elementwise ops of each dispatch as one op: no reader of the text parts them.

IREE writes what is cast to a narrower type down, in a dispatch of its own; in the body of one
`linalg.generic` it is a step like any other.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from eqsat.model.schedule import Schedule
from eqsat.ops.spelling.chains import merge_within


def merged(schedule: Schedule) -> Schedule:
    """The same dispatches; without buffers, as nodes have other numbers."""
    program = schedule.program
    ahead = {*schedule.ahead, *program.weights}
    times = Counter(m for d in schedule.dispatches for m in d.members)
    place = {
        m: number
        for number, d in enumerate(schedule.dispatches)
        for m in d.members
        if times[m] == 1 and m not in ahead
    }
    written = {w for d in schedule.dispatches for w in d.writes}
    found, new = merge_within(program, place, {*written, *program.results})
    dispatches = tuple(
        replace(
            d,
            members=tuple(new[m] for m in d.members if m in new),
            reads=tuple(new[r] for r in d.reads),
            writes=tuple(new[w] for w in d.writes),
        )
        for d in schedule.dispatches
    )
    kept = tuple(new[a] for a in schedule.ahead if a in new)
    return replace(
        schedule, program=found, dispatches=dispatches, ahead=kept, buffers=(), in_place=()
    )
