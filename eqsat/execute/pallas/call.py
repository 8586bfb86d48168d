"""Which kernel a dispatch is: its nest, its plan, and the function that calls it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from eqsat.execute.customcalls import kernel_nest
from eqsat.execute.pallas.blocked import block_call
from eqsat.execute.pallas.flat import flat_call
from eqsat.model.generic import Generic
from eqsat.model.nest import Nest, NoNest, refused_by_check
from eqsat.model.schedule import Schedule
from eqsat.model.target import Target
from eqsat.model.tensor import TensorType
from eqsat.plan.gridded.blocks import BlockPlan, plan_blocks
from eqsat.plan.gridded.flat import FlatPlan, plan_flat
from eqsat.plan.gridded.gridcheck import grid_faults
from eqsat.plan.gridded.limits import BLOCKS, FLAT, block_limits, kernel_form, program_scratch


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
    """What JAX runs on here: cpu, tpu, or gpu."""
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
    found = {}
    for i, s in enumerate(nest.stages):
        attr = schedule.program.nodes[s.node].attr
        if isinstance(attr, Generic) and s.combine:
            found[i] = attr.precision
    return found


def why_not_compiled(kernel: DispatchKernel, device: str) -> str:
    """Why the compiler of this device refuses a kernel; empty if it does not."""
    import jax

    from eqsat.ops.meaning.programs import element_dtype

    avals = [
        jax.ShapeDtypeStruct(kernel.types[r].shape, element_dtype(kernel.types[r].dtype))
        for r in kernel.reads
    ]
    try:
        jax.jit(kernel.call(interpret=False)).lower(*avals).compile()
    except Exception as error:
        return f"the compiler refuses its kernel: {str(error).splitlines()[0]}"
    return ""
