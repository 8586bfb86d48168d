"""A run as an artefact folder; `saved.py` reads it back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.execute.weights import packed_arrays
from eqsat.model.compiled import Checked, Measured
from eqsat.model.egraph import EGraph
from eqsat.model.family import Family
from eqsat.model.mesh import MeshPlan
from eqsat.model.orders import MemoryOrders
from eqsat.model.program import Program
from eqsat.model.progress import Curve
from eqsat.model.rules import RuleSet
from eqsat.model.schedule import Schedule
from eqsat.model.selection import Selection
from eqsat.model.target import Target
from eqsat.plan import planner  # noqa: F401 - plans are read by their kinds, which it imports
from eqsat.run.artefact import PACKED, WEIGHTS, manifest, write_folder

if TYPE_CHECKING:
    from eqsat.run.run import Run


# stage of a run, also the name of its file -> how it is read
READERS: dict[str, Callable[[Any], Any]] = {
    "program": Program.from_json,
    "canonical": Program.from_json,
    "family": Family.from_json,
    "target": Target.from_json,
    "rules": RuleSet.from_json,
    "egraph": EGraph.from_json,
    "selection": Selection.from_json,
    "baseline": Selection.from_json,
    "schedule": Schedule.from_json,
    "baseline_schedule": Schedule.from_json,
    "mesh_plan": MeshPlan.from_json,
    "measured": Measured.from_json,
    "checked": Checked.from_json,
    "curve": Curve.from_json,
    "orders": MemoryOrders.from_json,
}


def stages_to_json(run: Run, names: Iterable[str]) -> dict[str, Any]:
    """Those of these stages that exist, as JSON."""
    there = {k: getattr(run, k) for k in names}
    return {k: v.to_json() for k, v in there.items() if v is not None}


def saved(run: Run, folder: Path, packed: bool, weights: bool = True) -> Path:
    """Write the artefact folder under another name, then rename it, so it is never partial.

    packed: also keep the weights as the schedule reads them, if it was executed. weights: as they
    came.
    """
    exported = {k: call.export() for k, call in run.source.opaque.items()}
    arrays: dict[str, Mapping[str, Any]] = {WEIGHTS: run.weights if weights else {}}
    ran = "executable" in vars(run)  # so its weights are packed, if there are any
    if packed and ran and run.mesh_plan is None and _has_weights(run):
        arrays[PACKED] = packed_arrays(run.need_schedule(), run.executable.packed)
    return write_folder(folder, _values(run), _texts(run), arrays, exported)


def _has_weights(run: Run) -> bool:
    """Whether every weight has an array; of some only the shape may be known."""
    program, known = run.program, run.weights
    return all(program.leaf(i).key in known for i in program.weights)


def _values(run: Run) -> dict[str, Any]:
    """What becomes JSON, by the name of its file."""
    values = stages_to_json(run, READERS)
    if run.bodies:
        values["bodies"] = _bodies_to_json(run.bodies)
    convention = run.convention
    if convention is not None:
        values["convention"] = convention.to_json()
    if run.compiled is not None:
        values["compiled"] = run.compiled.to_json()
    values["summary"] = run.summary()
    options = {
        "goals": [vars(g) for g in run.goals],
        "verification": None if run.verification is None else vars(run.verification),
        "rule_check": None if run.rule_check is None else run.rule_check.to_json(),
        "seconds": run.seconds,
        "limits": run.limits.to_json(),
        "sizes": dict(run.source.fixed),
        "judged": run.judged,
    } | run.search
    return values | {"manifest": manifest(options)}


def _texts(run: Run) -> dict[str, str]:
    """What is there to be read by people, by the name of its file."""
    texts = {"1-program.eqs": run.program.to_text()}
    if run.schedule is not None:
        texts["4-schedule.txt"] = run.schedule.to_text()
    if run.mesh_plan is not None:
        from eqsat.report.mesh import plan_text
        from eqsat.report.proven import by_figures

        by = by_figures(run.target, run.goals)
        texts["4-mesh.txt"] = plan_text(run.mesh_plan, run.cut_schedule.program, by)
    return texts


def _bodies_to_json(bodies: Mapping[str, Run]) -> list[dict[str, Any]]:
    """The searches of bodies, equal ones once; targets and rules are those of the whole run."""
    paths: dict[int, list[str]] = {}
    for path, run in bodies.items():
        paths.setdefault(id(run), []).append(path)
    found = []
    own = [k for k in READERS if k not in ("target", "rules")]
    for listed in paths.values():
        run = bodies[listed[0]]
        found.append(
            {
                "paths": listed,
                "goals": [vars(g) for g in run.goals],
                "search": run.search,
                "seconds": run.seconds,
                "stages": stages_to_json(run, own),
                "bodies": _bodies_to_json(run.bodies),
            }
        )
    return found
