"""The schedules of a run: its selections built, their temporaries placed, checked by the target."""

from __future__ import annotations

from dataclasses import replace

from eqsat.model.diag import fail
from eqsat.model.layout import Encoding
from eqsat.model.schedule import Schedule
from eqsat.model.selection import Selection
from eqsat.run import Run

PLACING_SECONDS = 3.0  # at most; ordinary schedules need milliseconds, whatever the clock says


def with_schedules(run: Run, seconds: float = PLACING_SECONDS) -> Run:
    """With the schedules of its selection and baseline; `seconds` to place temporaries, each."""
    from eqsat.schedule import build

    assert run.egraph is not None
    assert run.selection is not None
    schedule, base = schedule_of(run, run.selection, seconds), None
    if run.baseline is not None:
        base = place_temporaries(build(run.egraph, run.baseline, run.target), seconds)
    return replace(run, schedule=schedule, baseline_schedule=base)


def schedule_of(run: Run, selection: Selection, seconds: float = PLACING_SECONDS) -> Schedule:
    """The placed schedule of a selection from a run's e-graph; EqsatError if it is not legal."""
    from eqsat.schedule import build

    assert run.egraph is not None
    schedule = place_temporaries(build(run.egraph, selection, run.target), seconds)
    check_legality(schedule, run)
    return schedule


def place_temporaries(schedule: Schedule, seconds: float = PLACING_SECONDS) -> Schedule:
    """The schedule with an offset in one arena for every temporary."""
    from eqsat.extract.place import place
    from eqsat.model.placement import Lifetime

    buffers = [Lifetime(f"%{b.node}", b.first, b.last + 1, b.nbytes) for b in schedule.temporaries]
    return schedule.placed(place(buffers, quick=True, seconds=max(seconds, 0.0)).offsets)


def _refuse_requests(schedule: Schedule, run: Run) -> None:
    """EqsatError if a requested layout was not resolved: E390, or E410 if time ran out."""
    left = [i for _, i in schedule.ops({*Encoding.ops})]
    left += [i for i in schedule.ahead if schedule.program.nodes[i].op in Encoding.ops]
    assert run.egraph is not None
    assert run.selection is not None
    if left and (run.selection.cuts or run.egraph.stop != "saturated"):
        message = f"nothing admissible found in time: {len(left)} requested layout(s) are left"
        hint = "give the search more time (`--time-limit`), or raise the limit that stopped it"
        raise fail("E410", message, help=hint, exit_code=3)
    if left:
        message = f"no rule says what becomes of {len(left)} requested layout(s) of the program"
        hint = "use `layout/encoding`, which `default` holds, beside your rule sets"
        raise fail("E390", message, help=hint)


def check_legality(schedule: Schedule, run: Run) -> None:
    """EqsatError E905 (our bug) if a schedule breaks what the target's file says."""
    from eqsat.schedule import faults

    _refuse_requests(schedule, run)
    found = faults(schedule, run.target, run.canonical)
    if found:
        message = f"the schedule is not legal on `{run.target.name}`: {'; '.join(found)}"
        raise fail("E905", message, exit_code=4)
