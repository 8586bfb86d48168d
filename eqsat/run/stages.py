"""The stages of a run: each is plain data, written to a file of its own and read back from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from eqsat.model.compiled import Checked
from eqsat.model.egraph import EGraph
from eqsat.model.family import Family
from eqsat.model.measured import Measured
from eqsat.model.meshplan import MeshPlan
from eqsat.model.orders import MemoryOrders
from eqsat.model.program import Program
from eqsat.model.progress import Curve
from eqsat.model.rules import RuleSet
from eqsat.model.schedule import Schedule
from eqsat.model.selection import Selection
from eqsat.model.target import Target
from eqsat.plan import planner  # noqa: F401 - plans are read by their kinds, which it imports

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
