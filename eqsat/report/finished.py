"""What a report needs of a finished run; `run.Run` has this shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from eqsat.model.compiled import Checked, Compiled
from eqsat.model.diag import fail
from eqsat.model.egraph import EGraph
from eqsat.model.executor import Execution
from eqsat.model.family import Family
from eqsat.model.limits import Limits
from eqsat.model.measured import Measured
from eqsat.model.meshplan import MeshPlan
from eqsat.model.orders import MemoryOrders
from eqsat.model.program import Program
from eqsat.model.progress import Curve
from eqsat.model.rulecheck import RuleCheck
from eqsat.model.rules import RuleSet
from eqsat.model.schedule import Schedule
from eqsat.model.selection import GoalRequest, Selection
from eqsat.model.target import Target


class Finished(Protocol):
    """A run with everything it made; stages that did not run are None."""

    @property
    def program(self) -> Program: ...
    @property
    def canonical(self) -> Program: ...
    @property
    def family(self) -> Family | None: ...
    @property
    def target(self) -> Target: ...
    @property
    def rules(self) -> RuleSet: ...
    @property
    def rule_check(self) -> RuleCheck | None: ...
    @property
    def goals(self) -> tuple[GoalRequest, ...]: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def seconds(self) -> dict[str, float | None]: ...
    @property
    def egraph(self) -> EGraph | None: ...
    @property
    def selection(self) -> Selection | None: ...
    @property
    def schedule(self) -> Schedule | None: ...
    @property
    def baseline(self) -> Selection | None: ...
    @property
    def baseline_schedule(self) -> Schedule | None: ...
    @property
    def execution(self) -> Execution: ...
    @property
    def bodies(self) -> Mapping[str, Finished]: ...
    @property
    def orders(self) -> MemoryOrders | None: ...
    @property
    def mesh_plan(self) -> MeshPlan | None: ...
    @property
    def cut_schedule(self) -> Schedule: ...
    @property
    def measured(self) -> Measured | None: ...
    @property
    def checked(self) -> Checked | None: ...
    @property
    def compiled(self) -> Compiled | None: ...
    @property
    def curve(self) -> Curve | None: ...
    @property
    def verification(self) -> Any: ...
    def summary(self) -> dict[str, Any]: ...


def finished_stages(run: Finished) -> tuple[EGraph, Selection, Schedule]:
    """The stages of a run that went to the end; EqsatError (E405) if it stopped before."""
    if run.egraph is None or run.selection is None or run.schedule is None:
        raise fail("E405", "this run stopped before a schedule was made")
    return run.egraph, run.selection, run.schedule
