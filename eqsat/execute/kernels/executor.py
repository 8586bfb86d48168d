"""The executor `kernels`: dispatch by dispatch as the schedule says, each as its plan says."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat.execute.executable import Executable
from eqsat.model.executor import BUILT_IN, Executor
from eqsat.model.schedule import Schedule
from eqsat.model.target import Target


class KernelsExecutable(Executable):
    """Dispatches without a kernel are the XLA ops of their members, in the same jitted function."""


def declined(schedule: Schedule, target: Target) -> Mapping[int, str]:
    """Number of a dispatch → why it runs as XLA ops."""
    return dict.fromkeys(range(len(schedule.dispatches)), "there is no generated kernel of it")


KERNELS = Executor(
    "kernels",
    BUILT_IN["kernels"],
    "dispatches run one by one, as they are planned",
    KernelsExecutable,
    declined,
)
