"""The mesh of a run's target: its schedules cut over it, and the better plan kept."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from eqsat.extract.mesh.options import HELP
from eqsat.extract.mesh.plan import MeshPlanner, mesh_planner
from eqsat.model.diag import fail
from eqsat.model.meshplan import ANSWER, INPUT, MeshPlan
from eqsat.model.target import Target
from eqsat.report.units import bytes_text
from eqsat.request.source import Source
from eqsat.run import Run


def with_mesh_plan(run: Run, seconds: float) -> Run:
    """With the quickest plan of its answer or its input on the mesh; itself where there is none.

    EqsatError: E231 if no axis divides anything, E233 if the rules permit no plan, E410 if nothing
    fits the memory of a device.
    """
    if run.target.mesh is None or run.schedule is None:
        return run
    begin, found = time.monotonic(), list[MeshPlan | str]()
    planners = list(planners_of(run))
    _refuse_undivided(run, planners)
    for left, planner in zip(range(len(planners), 0, -1), planners, strict=True):
        share = (seconds - (time.monotonic() - begin)) / left
        limit = run.target.mesh.memory_bytes
        found.append(planner.quickest(share, run.search["seed"], limit))
    plans = [p for p in found if isinstance(p, MeshPlan)]
    if not plans:
        raise _nothing_fits(run, planners, found)
    best = min(plans, key=lambda p: (p.time_ps, p.peak_bytes, p.of))
    best.verify()
    return replace(run, mesh_plan=best)


def refuse_on_mesh(
    target: Target, source: Source, measure: bool, check_compile: bool, orders: bool
) -> None:
    """EqsatError E232 on a mesh for requests that are of one device, and for open sizes."""
    if target.mesh is None:
        return
    words = {"measure": measure, "check-compile": check_compile, "layouts": orders}
    one = [word for word, asked in words.items() if asked]
    if one:
        help = "leave it out, or search for one device: `--set mesh={}`"
        raise fail(
            "E232", f"`--{one[0]}` looks at programs of one device, not of a mesh", help=help
        )
    if source.program.symbols:
        message = "a program with unknown sizes is not cut over a mesh"
        raise fail("E232", message, help="give its arguments fixed shapes")


def planners_of(run: Run) -> Iterator[MeshPlanner]:
    """One of the answer, and one of the input where that is another program."""
    assert run.schedule is not None
    yield mesh_planner(run.schedule, run.target, ANSWER, run.rules)
    if run.baseline_schedule is not None and not run.is_input:
        yield mesh_planner(run.baseline_schedule, run.target, INPUT, run.rules)


def _refuse_undivided(run: Run, planners: list[MeshPlanner]) -> None:
    mesh = run.target.mesh
    assert mesh is not None
    known = [s for p in planners for found in p.spreads.possible.values() for s in found]
    for i, axis in enumerate(mesh.axes):
        if axis.devices > 1 and not any(s.cuts[i] not in ("", "parts") for s in known):
            message = f"axis `{axis.name}` of {axis.devices} devices divides no dim of the program"
            help = "choose an axis whose size divides a dim, with `--mesh`"
            raise fail("E231", message, help=help)


def _nothing_fits(run: Run, planners: list[MeshPlanner], found: list[MeshPlan | str]) -> Exception:
    mesh = run.target.mesh
    assert mesh is not None
    limit = bytes_text(mesh.memory_bytes or 0)
    if any(status != "infeasible" for status in found):
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
