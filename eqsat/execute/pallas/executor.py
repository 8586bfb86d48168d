"""The executor `pallas`: each dispatch is one Pallas kernel, for TPUs and for NVIDIA's GPUs.

On a CPU the same kernels run in Pallas's interpreter, which is for checking them. Which kernel a
dispatch is follows from its nest and its plan; what is no kernel, each with its reason, runs as XLA
ops of that dispatch alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from eqsat.execute.executable import CustomCallExecutable, kernel_nest
from eqsat.execute.pallas.blocked import block_call
from eqsat.execute.pallas.flat import flat_call
from eqsat.model.diag import Diagnostic, EqsatWarning
from eqsat.model.executor import BUILT_IN, Executor
from eqsat.model.generic import Generic
from eqsat.model.nest import Nest, NoNest, refused_by_check
from eqsat.model.schedule import Schedule
from eqsat.model.target import Target
from eqsat.model.tensor import TensorType
from eqsat.ops.meaning.programs import element_dtype
from eqsat.plan.gridded.blocks import BlockPlan, plan_blocks
from eqsat.plan.gridded.flat import (
    BLOCKS,
    FLAT,
    FlatPlan,
    block_limits,
    grid_faults,
    kernel_form,
    plan_flat,
    program_scratch,
)


@dataclass(frozen=True)
class DispatchKernel:
    """A planned dispatch. types: of every buffer; precisions: stage → that of its contraction."""

    plan: BlockPlan | FlatPlan
    types: Mapping[int, TensorType]
    precisions: Mapping[int, str]

    @property
    def reads(self) -> tuple[int, ...]:
        """The nodes whose buffers it takes, in their order."""
        return self.plan.nest.reads

    @property
    def writes(self) -> tuple[int, ...]:
        """The nodes whose buffers it gives."""
        return self.plan.nest.writes

    def call(self, interpret: bool) -> Callable[..., tuple[Any, ...]]:
        """The function of its buffers; to be traced."""
        if isinstance(self.plan, FlatPlan):
            return flat_call(self.plan, self.types, self.precisions, interpret)
        return block_call(self.plan, self.types, self.precisions, interpret)


def backend() -> str:
    """The platform JAX runs on here: cpu, tpu, or gpu."""
    import jax

    return jax.default_backend()


def form_of(target: Target, device: str) -> str:
    """The form of kernels for a device; on a CPU, which interprets them, that of the target."""
    return {"tpu": BLOCKS, "gpu": FLAT, "cuda": FLAT}.get(device) or kernel_form(target)


def kernel_of(schedule: Schedule, number: int, target: Target, form: str) -> DispatchKernel:
    """The kernel of a dispatch; NoNest with the reason if it is none."""
    nodes, nest = schedule.program.nodes, kernel_nest(schedule, number)
    types = {i: nodes[i].types[0] for i in (*nest.reads, *nest.writes)}
    shapes = {i: t.shape for i, t in types.items()}
    plan: BlockPlan | FlatPlan
    if form == FLAT:
        plan = plan_flat(nest, program_scratch(target))
    else:
        plan = plan_blocks(nest, shapes, block_limits(target))
    if fault := next(grid_faults(plan), ""):
        raise NoNest(refused_by_check(f"{form} plan", fault, nest))
    return DispatchKernel(plan, types, _precisions(schedule, nest))


def _precisions(schedule: Schedule, nest: Nest) -> dict[int, str]:
    precisions = {}
    for i, s in enumerate(nest.stages):
        attr = schedule.program.nodes[s.node].attr
        if isinstance(attr, Generic) and s.combine:
            precisions[i] = attr.precision
    return precisions


def why_not_compiled(kernel: DispatchKernel) -> str:
    """Why the compiler of this device refuses a kernel; empty if it does not."""
    import jax

    avals = [
        jax.ShapeDtypeStruct(kernel.types[r].shape, element_dtype(kernel.types[r].dtype))
        for r in kernel.reads
    ]
    try:
        jax.jit(kernel.call(interpret=False)).lower(*avals).compile()
    except Exception as error:
        return f"the compiler refuses its kernel: {str(error).splitlines()[0]}"
    return ""


class PallasExecutable(CustomCallExecutable):
    """A schedule whose dispatches are Pallas kernels. They are made on first use."""

    @cached_property
    def kernels(self) -> dict[int, DispatchKernel]:
        """Number of a dispatch → its kernel."""
        return self._kernels[0]

    @cached_property
    def refused(self) -> dict[int, str]:
        """Number of a dispatch → why it is no kernel and runs as XLA ops."""
        return self._kernels[1]

    @cached_property
    def _kernels(self) -> tuple[dict[int, DispatchKernel], dict[int, str]]:
        assert self.target is not None
        kernels: dict[int, DispatchKernel] = {}
        refused: dict[int, str] = {}
        device = backend()
        for i in range(len(self.schedule.dispatches)):
            try:
                kernel = kernel_of(self.schedule, i, self.target, form_of(self.target, device))
            except NoNest as why:
                refused[i] = str(why)
                continue
            if device != "cpu" and (reason := why_not_compiled(kernel)):
                refused[i] = reason
            else:
                kernels[i] = kernel
        if device != "cpu" and refused:
            _warn(len(refused), len(self.schedule.dispatches), next(iter(refused.values())))
        return kernels, refused

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
            by_node = dict(zip(kernel.writes, given, strict=True))
            return tuple(by_node[w] for w in d.writes)

        dispatch.__name__ = f"dispatch{number}"
        return dispatch


def without_kernels(schedule: Schedule, target: Target) -> dict[int, str]:
    """Number of a dispatch → why it is no kernel, as far as that is known before it is compiled."""
    reasons: dict[int, str] = {}
    form = form_of(target, backend())
    for i in range(len(schedule.dispatches)):
        try:
            kernel_of(schedule, i, target, form)
        except NoNest as why:
            reasons[i] = str(why)
    return reasons


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
