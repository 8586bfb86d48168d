"""Run → what of its stages is not what eqsat makes of its e-graph and target, a sentence each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from eqsat.model.diag import EqsatError
from eqsat.model.egraph import EGraph
from eqsat.model.program import Program
from eqsat.model.schedule import Schedule
from eqsat.model.selection import Selection
from eqsat.model.target import Target
from eqsat.run.filenames import FILES

if TYPE_CHECKING:
    from eqsat.run.run import Run

# what reading the figures of a stranger may raise
STRANGE = (
    ArithmeticError, AssertionError, AttributeError, EqsatError, LookupError, RecursionError,
    TypeError, ValueError,
)  # fmt: skip
NO_PLUGIN = "E601"


@dataclass(frozen=True)
class Stages:
    """What one search made, as it was read.

    judged: the answer is another compiler's, which the target need not permit, and the baseline is
    of another e-graph.
    """

    target: Target
    program: Program
    canonical: Program
    egraph: EGraph | None = None
    selection: Selection | None = None
    baseline: Selection | None = None
    schedule: Schedule | None = None
    baseline_schedule: Schedule | None = None
    judged: bool = False


def stages_of(run: Run) -> Stages:
    """The stages of a run that was read."""
    return Stages(**{f.name: getattr(run, f.name) for f in fields(Stages)})


def stage_faults(stages: Stages) -> list[str]:
    """What they say that does not follow from the e-graph and the target; nothing if all does.

    EqsatError (E601) if that takes a plug-in that is not installed.
    """
    stage = "egraph"
    found: list[str] = []
    try:
        for stage, fault in _found(stages):
            found.append(f"`{FILES[stage]}`: {fault}")
    except STRANGE as e:
        if isinstance(e, EqsatError) and e.diagnostics[0].code == NO_PLUGIN:
            raise
        found.append(f"a stage behind `{FILES[stage]}` makes no sense: {type(e).__name__}: {e}")
    return found


def _found(run: Stages) -> Iterator[tuple[str, str]]:
    """(stage, fault) of each fault; what follows from a faulty stage is not looked at."""
    from eqsat.extract import check
    from eqsat.schedule.rebuilt import rebuilt_differences
    from eqsat.schedule.replanned import replanned_faults

    run.program.verify()
    run.canonical.verify()
    if run.egraph is None:
        return
    run.egraph.verify()
    pairs = [("selection", run.selection, "schedule", run.schedule)]
    if not run.judged:
        pairs.append(("baseline", run.baseline, "baseline_schedule", run.baseline_schedule))
    for chosen, selection, made, schedule in pairs:
        plans = [] if schedule is None else list(replanned_faults(schedule, run.target))
        if selection is None or plans:
            yield from ((made, f) for f in plans)
            continue
        illegal = [] if run.judged else check(run.egraph, run.target, selection)
        yield from ((chosen, f) for f in illegal)
        if schedule is not None and not illegal:
            rest = run.egraph, selection, run.target
            yield from ((made, f) for f in rebuilt_differences(schedule, *rest))
