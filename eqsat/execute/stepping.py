"""An executable run so that the operands and the results of every dispatch can be looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.execute.executable import held_view
from eqsat.model.executor import Executable
from eqsat.model.schedule import Schedule

Array = np.ndarray[Any, Any]
MOST_BYTES = 1 << 30  # that the dispatches of one part write; all of them are held at once


@dataclass(frozen=True)
class DispatchRun:
    """A dispatch that ran: its number, the buffers it read and those it wrote, in their order."""

    number: int
    reads: list[Array]
    writes: list[Array]


def steps(
    executable: Executable, inputs: Sequence[Any], most_bytes: int = MOST_BYTES
) -> Iterator[DispatchRun]:
    """Every dispatch as the executor runs it, in order; values that nobody reads any more go.

    Dispatches are compiled together, in parts of so many bytes that they write.
    """
    import jax

    schedule = executable.schedule
    program = schedule.program
    typed = zip(program.inputs, executable.typed(inputs), strict=True)
    held: dict[int, Any] = dict(executable.packed) | dict(typed)
    last = {schedule.buffer_of(r): n for n, d in enumerate(schedule.dispatches) for r in d.reads}
    for numbers in _parts(schedule, most_bytes):
        asked = {r for n in numbers for r in schedule.dispatches[n].reads}
        given = {i: x for i, x in held.items() if _is_asked(schedule, i, asked)}
        held |= jax.jit(lambda given, numbers=numbers: _run(executable, numbers, given))(given)
        for n in numbers:
            d = schedule.dispatches[n]
            reads, writes = ([np.asarray(held_view(schedule, held, i)) for i in side]
                             for side in (d.reads, d.writes))  # fmt: skip
            yield DispatchRun(n, reads, writes)
        held = {i: x for i, x in held.items() if last.get(schedule.buffer_of(i), -1) > numbers[-1]}


def _parts(schedule: Schedule, most_bytes: int) -> Iterator[tuple[int, ...]]:
    own: list[int] = []
    written = 0
    for n, d in enumerate(schedule.dispatches):
        nbytes = sum(schedule.nbytes(w) for w in d.writes)
        if own and written + nbytes > most_bytes:
            yield tuple(own)
            own, written = [], 0
        own.append(n)
        written += nbytes
    if own:
        yield tuple(own)


def _is_asked(schedule: Schedule, node: int, asked: set[int]) -> bool:
    return any(schedule.buffer_of(r) == schedule.buffer_of(node) for r in asked)


def _run(
    executable: Executable, numbers: Sequence[int], given: Mapping[int, Any]
) -> dict[int, Any]:
    """What these dispatches write; to be traced. XLA sees no dispatch through another, so that what
    one reads is what the other wrote."""
    from jax import lax

    schedule, held = executable.schedule, dict(given)
    made: dict[int, Any] = {}
    for n in numbers:
        d = schedule.dispatches[n]
        reads = [held_view(schedule, held, r) for r in d.reads]
        found = lax.optimization_barrier(executable.dispatch(n)(*reads))
        own = dict(zip(d.writes, found, strict=True))
        held, made = held | own, made | own
    return made
