"""Programs of one search that may each be the answer: the best, those near it, and the input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from eqsat.model.measured import CHOSEN, INPUT, INPUT_BY_XLA, NEAR
from eqsat.model.schedule import Schedule
from eqsat.model.selection import Selection
from eqsat.run import Run
from eqsat.search.schedules import schedule_of

XLA = "xla"


@dataclass(frozen=True)
class Contender:
    """A program that is admissible, as it was found and as it runs."""

    name: str
    origin: str
    selection: Selection
    schedule: Schedule


def near_contenders(run: Run, count: int, seconds: float) -> Iterator[Contender]:
    """At most so many programs other than the chosen one, nearly as good, the best first."""
    from eqsat.extract.ask.near import near_optimal

    assert run.egraph is not None and run.selection is not None
    found = near_optimal(
        run.egraph, run.target, run.goals, run.selection, run.baseline,
        count=count, seconds=seconds, seed=run.search["seed"],
    )  # fmt: skip
    for i, s in enumerate(found, 1):
        yield Contender(f"{NEAR} {i}", NEAR, s, schedule_of(run, s))


def input_contenders(run: Run, *, by_xla: bool) -> Iterator[Contender]:
    """The input's own fusion, unless it is what was chosen; by_xla: also as XLA compiles it."""
    assert run.schedule is not None
    if run.baseline is None or run.baseline_schedule is None:
        return
    same = run.baseline_schedule.program == run.schedule.program
    sides = run.baseline, run.baseline_schedule
    if not (same and run.baseline_schedule.dispatches == run.schedule.dispatches):
        yield Contender(INPUT, INPUT, *sides)
    if by_xla:
        yield Contender(INPUT_BY_XLA, INPUT_BY_XLA, *sides)


def chosen_contender(run: Run) -> Contender:
    """What the search chose."""
    assert run.selection is not None and run.schedule is not None
    return Contender(CHOSEN, CHOSEN, run.selection, run.schedule)
