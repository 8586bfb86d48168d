"""The schedules of a run: selections built, temporaries placed, checked, and cut over a mesh."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from eqsat.model.diag import fail
from eqsat.model.layout import Encoding
from eqsat.model.mesh import ANSWER, INPUT, MeshPlan
from eqsat.model.schedule import Schedule
from eqsat.model.selection import Selection
from eqsat.report.units import bytes_text
from eqsat.run import Run

if TYPE_CHECKING:
    from eqsat.extract.mesh.plan import MeshPlanner

PLACING_SECONDS = 3.0  # at most; ordinary schedules need milliseconds, whatever the clock says


def with_schedules(run: Run, seconds: float = PLACING_SECONDS) -> Run:
    """The run with schedules of selection and baseline; `seconds` to place temporaries, each."""
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
    breaches = faults(schedule, run.target, run.canonical)
    if breaches:
        message = f"the schedule is not legal on `{run.target.name}`: {'; '.join(breaches)}"
        raise fail("E905", message, exit_code=4)


# ---- cut over a mesh -----------------------------------------------------------------------------
def with_mesh_plan(run: Run, seconds: float) -> Run:
    """The run with its quickest plan, of answer or input, on the mesh; itself where there is none.

    EqsatError: E231 if no axis divides anything, E233 if the rules permit no plan, E410 if nothing
    fits the memory of a device.
    """
    if run.target.mesh is None or run.schedule is None:
        return run
    begin, plans_or_status = time.monotonic(), list[MeshPlan | str]()
    planners = list(planners_of(run))
    _refuse_undivided(run, planners)
    for left, planner in zip(range(len(planners), 0, -1), planners, strict=True):
        share = (seconds - (time.monotonic() - begin)) / left
        limit = run.target.mesh.memory_bytes
        plans_or_status.append(planner.quickest(share, run.search["seed"], limit))
    plans = [p for p in plans_or_status if isinstance(p, MeshPlan)]
    if not plans:
        raise _nothing_fits(run, planners, plans_or_status)
    best = min(plans, key=lambda p: (p.time_ps, p.peak_bytes, p.of))
    best.verify()
    return replace(run, mesh_plan=best)


def planners_of(run: Run) -> Iterator[MeshPlanner]:
    """Planners of the answer, and of the input where that is another program."""
    from eqsat.extract.mesh.plan import mesh_planner

    assert run.schedule is not None
    yield mesh_planner(run.schedule, run.target, ANSWER, run.rules)
    if run.baseline_schedule is not None and not run.is_input:
        yield mesh_planner(run.baseline_schedule, run.target, INPUT, run.rules)


def _refuse_undivided(run: Run, planners: list[MeshPlanner]) -> None:
    mesh = run.target.mesh
    assert mesh is not None
    spreads = [s for p in planners for choices in p.spreads.possible.values() for s in choices]
    for i, axis in enumerate(mesh.axes):
        if axis.devices > 1 and not any(s.cuts[i] not in ("", "parts") for s in spreads):
            message = f"axis `{axis.name}` of {axis.devices} devices divides no dim of the program"
            help = "choose an axis whose size divides a dim, with `--mesh`"
            raise fail("E231", message, help=help)


def _nothing_fits(
    run: Run, planners: list[MeshPlanner], statuses: list[MeshPlan | str]
) -> Exception:
    from eqsat.extract.mesh.options import HELP

    mesh = run.target.mesh
    assert mesh is not None
    limit = bytes_text(mesh.memory_bytes or 0)
    if any(status != "infeasible" for status in statuses):
        message = f"no plan for the mesh {mesh.to_text()} was found in time"
        return fail("E410", message, help="give it more time: `--time-limit`", exit_code=3)
    least = [p.leanest(10.0, run.search["seed"]) for p in planners]
    if all(status == "infeasible" for status in least):
        message = "the rules of spreads permit no plan: ops and values that meet do not fit"
        return fail("E233", message, help=HELP)
    needed = min((p.peak_bytes for p in least if isinstance(p, MeshPlan)), default=None)
    message = f"nothing admissible: no plan holds {limit} or less on a device"
    hint = "" if needed is None else f"the smallest plan found holds {bytes_text(needed)}"
    return fail("E410", message, help=hint or "use more devices: `--mesh`", exit_code=3)
