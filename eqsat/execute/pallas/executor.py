"""The executor `pallas`: each dispatch is one Pallas kernel, for TPUs and for NVIDIA's GPUs.

On a CPU the same kernels run in Pallas's interpreter, which is for checking them. What is no
kernel, each with its reason, runs as XLA ops of that dispatch alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any

from eqsat.execute.customcalls import CustomCallExecutable
from eqsat.execute.pallas.call import DispatchKernel, backend, form_of, kernel_of, why_not_compiled
from eqsat.model.diag import Diagnostic, EqsatWarning
from eqsat.model.executor import BUILT_IN, Executor
from eqsat.model.nest import NoNest
from eqsat.model.schedule import Schedule
from eqsat.model.target import Target


class PallasExecutable(CustomCallExecutable):
    """A schedule whose dispatches are Pallas kernels. They are made on first use."""

    @cached_property
    def kernels(self) -> dict[int, DispatchKernel]:
        """Number of a dispatch → its kernel."""
        return self._made[0]

    @cached_property
    def refused(self) -> dict[int, str]:
        """Number of a dispatch → why it is no kernel and runs as XLA ops."""
        return self._made[1]

    @cached_property
    def _made(self) -> tuple[dict[int, DispatchKernel], dict[int, str]]:
        assert self.target is not None
        found: dict[int, DispatchKernel] = {}
        refused: dict[int, str] = {}
        device = backend()
        for i in range(len(self.schedule.dispatches)):
            try:
                kernel = kernel_of(self.schedule, i, self.target, form_of(self.target, device))
            except NoNest as why:
                refused[i] = str(why)
                continue
            if device != "cpu" and (said := why_not_compiled(kernel, device)):
                refused[i] = said
            else:
                found[i] = kernel
        if device != "cpu" and refused:
            _warn(len(refused), len(self.schedule.dispatches), next(iter(refused.values())))
        return found, refused

    def dispatch(self, number: int) -> Callable[..., tuple[Any, ...]]:
        """One dispatch as a function of the buffers it reads, in their order, giving those it
        writes; to be traced."""
        kernel = self.kernels.get(number)
        if kernel is None:
            return super().dispatch(number)
        d, call = self.schedule.dispatches[number], kernel.call(interpret=backend() == "cpu")

        def dispatch(*reads: Any) -> tuple[Any, ...]:
            held = dict(zip(d.reads, reads, strict=True))
            given = call(*(held[r] for r in kernel.reads))
            made = dict(zip(kernel.writes, given, strict=True))
            return tuple(made[w] for w in d.writes)

        dispatch.__name__ = f"dispatch{number}"
        return dispatch


def without_kernels(schedule: Schedule, target: Target) -> dict[int, str]:
    """Number of a dispatch → why it is no kernel, as far as that is known before it is compiled."""
    found: dict[int, str] = {}
    form = form_of(target, backend())
    for i in range(len(schedule.dispatches)):
        try:
            kernel_of(schedule, i, target, form)
        except NoNest as why:
            found[i] = str(why)
    return found


@cache
def _warn(refused: int, dispatches: int, why: str) -> None:
    """Once per reason: the program runs, but not as it was planned."""
    message = (
        f"{refused} of {dispatches} dispatches are no Pallas kernels and run as XLA ops: {why}"
    )
    d = Diagnostic("E510", message, severity="warning")
    warnings.warn(EqsatWarning(d), stacklevel=2)


PALLAS = Executor(
    "pallas",
    BUILT_IN["pallas"],
    "each dispatch is one Pallas kernel, which a CPU interprets",
    PallasExecutable,
    without_kernels,
)
