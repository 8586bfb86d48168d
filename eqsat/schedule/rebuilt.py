"""Schedule × (EGraph, Selection, Target) → what of it is not what these make, a sentence each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from eqsat.model.diag import EqsatError
from eqsat.model.egraph import EGraph
from eqsat.model.schedule import Buffer, Schedule
from eqsat.model.selection import Selection
from eqsat.model.target import Target
from eqsat.schedule.build import build

LONGEST = 60  # characters of a value that is told
SHOWN = 8  # rebuilt_differences that are told


def rebuilt_differences(
    schedule: Schedule, egraph: EGraph, selection: Selection, target: Target
) -> list[str]:
    """How a schedule differs from the one of its selection; nothing if it is that one.

    Offsets of temporaries are any that do not overlap.
    """
    try:
        made = build(egraph, selection, target)
    except EqsatError as error:
        return [d.message for d in error.diagnostics]
    found = [
        *_records("dispatch", schedule.dispatches, made.dispatches),
        *_records("buffer", [_unplaced(b) for b in schedule.buffers], made.buffers),
        *_program_faults(schedule, made),
        *_fields(schedule, made, ("program", "dispatches", "buffers")),
    ]
    return found[:SHOWN] or _order_faults(schedule)


def _order_faults(schedule: Schedule) -> list[str]:
    """What offsets break."""
    try:
        schedule.verify()
    except ValueError as error:
        return [str(error)]
    return []


def _unplaced(buffer: Buffer) -> Buffer:
    return replace(buffer, offset=None)


def _program_faults(schedule: Schedule, made: Schedule) -> Iterator[str]:
    yield from _records("node", schedule.program.nodes, made.program.nodes)
    yield from _fields(schedule.program, made.program, ("nodes",))


def _records(word: str, have: Sequence[Any], want: Sequence[Any]) -> Iterator[str]:
    if len(have) != len(want):
        yield f"it has {len(have)} records `{word}`, its selection makes {len(want)}"
    for i, (a, b) in enumerate(zip(have, want, strict=False)):
        yield from (f"{word} {i}: {f}" for f in _fields(a, b))


def _fields(a: Any, b: Any, without: tuple[str, ...] = ()) -> Iterator[str]:
    """The fields in which two records differ."""
    if a == b:
        return
    for f in fields(a):
        x, y = getattr(a, f.name), getattr(b, f.name)
        if f.compare and f.name not in without and x != y:
            yield f"`{f.name}` is {_shown(x)}, its selection makes {_shown(y)}"


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"
