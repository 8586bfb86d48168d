"""Schedules with one fault each, dispatch by dispatch: what a wrong search, planner or kernel
would run.

The schedule keeps its shape, so that an executable of the wrong one can be verified as if it were
one of the right one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from wrongprograms import faults, replaced

from eqsat.model.dispatch import Plan
from eqsat.model.executor import Executable
from eqsat.model.schedule import Schedule

COUNTS = ("row_tiles", "panels", "items")  # of a plan: one fewer leaves something out


@dataclass(frozen=True)
class Fault:
    """kind: what is wrong. schedule: the wrong one. spoiled: a dispatch of which an element of a
    tail is changed after it has run. is_rewrite: whether the program itself is another."""

    kind: str
    dispatch: int
    schedule: Schedule
    spoiled: int | None = None
    is_rewrite: bool = False

    def apply(self, executable: Executable) -> None:
        """Let an executable of the schedule have the rest of the fault."""
        if self.spoiled is None:
            return
        at, original = self.spoiled, executable.dispatch

        def dispatch(number: int) -> Callable[..., tuple[Any, ...]]:
            found = original(number)
            return _spoiled(found) if number == at else found

        executable.dispatch = dispatch


def schedule_faults(schedule: Schedule, rng: random.Random) -> Iterator[Fault]:
    """Faults of all kinds, each of another dispatch as long as there are any."""
    while True:
        numbers = list(range(len(schedule.dispatches)))
        rng.shuffle(numbers)
        for turn, number in enumerate(numbers):
            makers = (_of_ops, _of_plan, _of_ops, _of_tail)
            fault = makers[turn % len(makers)](schedule, number, rng)
            if fault is not None:
                yield fault


def _of_ops(schedule: Schedule, number: int, rng: random.Random) -> Fault | None:
    """One op of the dispatch is another; its kernel is planned anew."""
    d, nodes = schedule.dispatches[number], schedule.program.nodes
    found = [(kind, m, node) for m in d.members for kind, node in faults(nodes[m])]
    if not found:
        return None
    chosen = rng.choice(sorted({kind for kind, _, _ in found}))
    kind, at, node = rng.choice([f for f in found if f[0] == chosen])
    program = replaced(schedule.program, at, node)
    if program is None:
        return None
    dispatches = list(schedule.dispatches)
    dispatches[number] = replace(d, plan=None, parts=None)
    wrong = replace(schedule, program=program, dispatches=tuple(dispatches))
    return Fault(kind, number, wrong, is_rewrite=True)


def _of_plan(schedule: Schedule, number: int, rng: random.Random) -> Fault | None:
    """The plan of its kernel counts one row tile, panel or item less."""
    d = schedule.dispatches[number]
    counts = [c for c in COUNTS if isinstance(d.plan, Plan) and getattr(d.plan, c, 1) > 1]
    if not counts or d.plan is None:
        return None
    count = rng.choice(counts)
    plan: Any = replace(d.plan, **{count: getattr(d.plan, count) - 1})
    dispatches = list(schedule.dispatches)
    dispatches[number] = replace(d, plan=plan)
    return Fault(f"plan: {count}", number, replace(schedule, dispatches=tuple(dispatches)))


def _of_tail(schedule: Schedule, number: int, rng: random.Random) -> Fault | None:
    return Fault("element of a tail", number, schedule, spoiled=number)


def _spoiled(dispatch: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """The dispatch with one element behind the last whole vector of its first result changed."""

    def spoiled(*reads: Any) -> tuple[Any, ...]:
        import jax.numpy as jnp

        first, *rest = dispatch(*reads)
        if first.dtype.kind != "f" or not first.size:
            return (first, *rest)
        at = tuple(_in_tail(first.shape))
        largest = jnp.max(jnp.abs(first))
        return (first.at[at].add(1 + largest), *rest)

    return spoiled


def _in_tail(shape: Sequence[int], lanes: int = 16) -> list[int]:
    return [s - 1 - (s - 1) % lanes % 3 for s in shape]


def change(got: Sequence[Any], wanted: Sequence[Any]) -> float:
    """max|a − b| / max|b| over the results of two executables."""
    worst = 0.0
    for a, b in zip(got, wanted, strict=True):
        x, y = (np.asarray(v).astype(np.float64) for v in (a, b))
        with np.errstate(all="ignore"):
            away = np.where(np.isfinite(x), np.abs(x - y), np.inf)
        worst = max(worst, float(np.max(away, initial=0.0)) / (float(np.abs(y).max()) or 1.0))
    return worst
