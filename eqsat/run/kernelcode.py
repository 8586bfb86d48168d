"""The machine code of a run's dispatches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.model.diag import fail

if TYPE_CHECKING:
    from eqsat.model.dispatch import Dispatch
    from eqsat.plan.innerloop import MachineCode
    from eqsat.run.run import Run


def dispatch_of(run: Run, number: int, name: str) -> Dispatch:
    """A dispatch by its number; EqsatError E427 if the run has none of it. name: of the run."""
    dispatches = run.need_schedule().dispatches
    if not 0 <= number < len(dispatches):
        has = "1 dispatch" if len(dispatches) == 1 else f"{len(dispatches)} dispatches"
        raise fail(
            "E427", f"`{name}` has no dispatch {number}: it has {has}",
            help=f"`eqsat show {name}` numbers them from 0 on",
        )  # fmt: skip
    return dispatches[number]


def machine_code_of(run: Run, number: int, name: str) -> MachineCode:
    """The code of a dispatch's kernel; EqsatError E427 as `dispatch_of`, E428 if it is none."""
    from eqsat.execute.kernels.machinecode import kernel_code

    d, target = dispatch_of(run, number, name), dict(run.target.devices)
    of = target.get(d.device, run.target)
    if d.plan is None or not of.is_planned:
        why = d.no_plan or f"{of.name} plans no kernels, or it is a loop"
        raise fail("E428", f"dispatch {number} of `{name}` has no plan: {why}")
    return kernel_code(run.need_schedule(), number, of.machine)


def machine_codes(run: Run) -> list[MachineCode]:
    """Of all dispatches that have a plan."""
    dispatches = run.need_schedule().dispatches
    name = run.program.name
    return [machine_code_of(run, i, name) for i, d in enumerate(dispatches) if d.plan is not None]
