"""The base of executors whose dispatches are kernels that JAX cannot look into."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from eqsat.execute.executable import JaxExecutable, differentiate_as
from eqsat.execute.lowering import evaluate
from eqsat.execute.weights import run_time_nodes
from eqsat.model.nest import Nest, NoNest
from eqsat.model.schedule import Schedule

LARGEST_CONSTANTS = 4 * 2**20  # bytes of weights that XLA gets as constants


class CustomCallExecutable(JaxExecutable):
    """A schedule whose dispatches are kernels.

    Derivatives are those of the ops as XLA has them, and `jax.vmap` runs these ops: a kernel is
    made for the shapes of its dispatch.
    """

    @property
    def weights_are_arguments(self) -> bool:
        """XLA takes longer to compile the larger its constants are, and gains nothing by them."""
        return self.schedule.resident_bytes > LARGEST_CONSTANTS

    def run(self, packed: Mapping[int, Any], *inputs: Any) -> tuple[Any, ...]:
        """The results for flat inputs, dispatch by dispatch; to be traced.

        EqsatError E503 if an input does not fit.
        """
        return self._called(dict(packed), self.typed(inputs))

    @cached_property
    def _called(self) -> Callable[..., tuple[Any, ...]]:
        """The function of packed weights and inputs, with its derivatives and batches."""

        def kernels(packed: dict[int, Any], inputs: list[Any]) -> tuple[Any, ...]:
            return self.as_kernels(packed, inputs)

        return batched(kernels, self.as_ops)

    def as_kernels(self, packed: dict[int, Any], inputs: list[Any]) -> tuple[Any, ...]:
        """The results, dispatch by dispatch."""
        return super().run(packed, *inputs)

    def as_ops(self, packed: dict[int, Any], inputs: list[Any]) -> tuple[Any, ...]:
        """The results as XLA ops, as the executor `xla` has them."""
        program = self.schedule.program
        known = packed | dict(zip(program.inputs, inputs, strict=True))
        values = evaluate(program, run_time_nodes(self.schedule), known, self.opaque)
        return tuple(values[r][0] for r in program.results)


def kernel_nest(schedule: Schedule, number: int) -> Nest:
    """The nest of a dispatch that may be a kernel; NoNest with the reason if none is made."""
    from eqsat.ops.nests.nest import nest_of_dispatch

    refuse_no_nest(schedule, number)
    return nest_of_dispatch(schedule, schedule.dispatches[number])


def refuse_no_nest(schedule: Schedule, number: int) -> None:
    """NoNest with the reason if a dispatch is no kernel whatever its ops are."""
    d = schedule.dispatches[number]
    if schedule.control(d) is not None:
        raise NoNest("XLA runs loops and branches")
    nodes = schedule.program.nodes
    if any(0 in nodes[i].types[0].shape for i in (*d.reads, *d.writes)):
        raise NoNest("one of its buffers is empty")


def batched(
    kernels: Callable[..., tuple[Any, ...]], as_ops: Callable[..., tuple[Any, ...]]
) -> Callable[..., tuple[Any, ...]]:
    """Kernels of packed weights and inputs, whose derivatives and batches are those of ops."""
    import jax
    from jax.custom_batching import custom_vmap

    called = custom_vmap(kernels)

    @called.def_vmap
    def _(size: int, batches: Any, *args: Any) -> tuple[Any, Any]:
        axes = tuple(jax.tree.map(lambda b: 0 if b else None, part) for part in batches)
        out = jax.vmap(as_ops, in_axes=axes, axis_size=size)(*args)
        return out, jax.tree.map(lambda _: True, out)

    return differentiate_as(called, as_ops)
