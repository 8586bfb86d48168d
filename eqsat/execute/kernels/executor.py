"""The executor `kernels`: each dispatch is one call of a generated kernel inside one `jax.jit`.

What is no kernel, each with its reason, runs as XLA ops of that dispatch alone. XLA keeps the
values between dispatches, so its temporaries are the schedule's; large ones are best kept from call
to call, by one call of all kernels.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from typing import Any

from eqsat.execute.control import Evaluate
from eqsat.execute.customcalls import CustomCallExecutable, batched
from eqsat.execute.executable import JaxExecutable
from eqsat.execute.kernels import jit
from eqsat.execute.kernels.loops import loop_call
from eqsat.execute.kernels.lying import ordered_kernels
from eqsat.execute.kernels.runtime import KernelCall, calls, planned
from eqsat.execute.kernels.tried import disagreement
from eqsat.execute.kernels.whole import whole_call
from eqsat.execute.lowering import TracedBodies, lower, unused
from eqsat.execute.ordered import ByBorder, run_in_orders
from eqsat.model.control import Control
from eqsat.model.diag import Diagnostic, EqsatWarning
from eqsat.model.executor import BUILT_IN, Executor
from eqsat.model.nest import NoNest
from eqsat.model.schedule import Schedule
from eqsat.model.target import Target
from eqsat.ops.nests.nest import undecided


class KernelsExecutable(CustomCallExecutable):
    """A schedule whose dispatches are kernels. They are made on first use."""

    @cached_property
    def calls(self) -> dict[int, KernelCall]:
        """Number of a dispatch → its kernel."""
        return self._made[0]

    @cached_property
    def refused(self) -> dict[int, str]:
        """Number of a dispatch → why it is no kernel and runs as XLA ops."""
        return self._made[1]

    @cached_property
    def _made(self) -> tuple[dict[int, KernelCall], dict[int, str]]:
        assert self.target is not None
        machine = self.target.machine
        if why := jit.why_not(machine) or _other_platform():
            _warn(why)
            return {}, dict.fromkeys(range(len(self.schedule.dispatches)), why)
        made, refused = calls(self.schedule, machine)
        for i in list(made):
            if why := self._why_not(i, made[i]):
                refused[i] = why
                del made[i]
        for i, held in _loops(self.schedule):
            try:
                made[i], refused[i] = loop_call(self.schedule, i, machine), ""
            except NoNest:  # XLA runs the loop, and calls what of its bodies is a kernel
                refused[i] = _of_bodies(held, [self._inner[id(s)].refused for s in held.schedules])
        return made, {i: why for i, why in refused.items() if why}

    @cached_property
    def _inner(self) -> dict[int, KernelsExecutable]:
        """Per schedule of a body, by its `id`: it as kernels."""
        inside = (s for _, held in _loops(self.schedule) for s in held.schedules)
        return {id(s): KernelsExecutable(s, self.opaque, {}, self.target) for s in inside}

    @property
    def bodies(self) -> TracedBodies:
        """Bodies of what XLA loops over, dispatch by dispatch."""

        def bodies(held: Control) -> Evaluate:
            inner = {id(s.program): self._inner[id(s)] for s in held.schedules}
            return lambda program, inputs: list(JaxExecutable.run(inner[id(program)], {}, *inputs))

        return bodies

    def _why_not(self, number: int, found: KernelCall) -> str:
        """Of a nest that its check cannot decide: whether the kernel differs from its ops."""
        open_ = undecided(self.schedule, self.schedule.dispatches[number])
        sides = self._kernel(number, found), super().dispatch(number)
        why = disagreement(self.schedule, number, sides) if open_ else ""
        return f"the check of its nest cannot decide ({open_[0]}), and {why}" if why else ""

    def run_in_orders(
        self, orders: ByBorder, packed: Mapping[int, Any], *inputs: Any
    ) -> tuple[Any, ...]:
        """As `run`, with arguments and results of the shapes that a caller knows, which lie so.

        A kernel takes them where they are, with the order as the layout of an operand.
        """

        def kernels(packed: dict[int, Any], inputs: list[Any]) -> tuple[Any, ...]:
            return ordered_kernels(self.schedule, self.calls, self.dispatch, orders, packed, inputs)

        def as_ops(packed: dict[int, Any], inputs: list[Any]) -> tuple[Any, ...]:
            return run_in_orders(lambda p, *i: self.as_ops(p, list(i)), orders, packed, inputs)

        return batched(kernels, as_ops)(dict(packed), list(inputs))

    def as_kernels(self, packed: dict[int, Any], inputs: list[Any]) -> tuple[Any, ...]:
        """The results, by one call where temporaries are large."""
        if self._whole is None:
            return super().as_kernels(packed, inputs)
        program = self.schedule.program
        held = packed | dict(zip(program.inputs, inputs, strict=True))
        reads = (self.buffer(held, r) for r in self._whole.reads)
        return tuple(self._ffi(self._whole)(*reads))

    @cached_property
    def _whole(self) -> KernelCall | None:
        """The schedule as one call."""
        assert self.target is not None
        if jit.why_not(self.target.machine) or _other_platform():
            return None
        try:
            return whole_call(self.schedule, self.target.machine)
        except NoNest:
            return None

    def dispatch(self, number: int) -> Callable[..., tuple[Any, ...]]:
        """One dispatch as a function of the buffers it reads, in their order, giving those it
        writes; to be traced."""
        found = self.calls.get(number)
        if found is None:
            return super().dispatch(number)
        return self._kernel(number, found)

    def _kernel(self, number: int, found: KernelCall) -> Callable[..., tuple[Any, ...]]:
        d, nodes = self.schedule.dispatches[number], self.schedule.program.nodes
        call = self._ffi(found)

        def dispatch(*reads: Any) -> tuple[Any, ...]:
            held = dict(zip(d.reads, reads, strict=True))
            fills = (r for r in found.reads if r not in held)  # that a loop starts from
            held |= {r: lower("fill", nodes[r].attr, (), {})[0] for r in fills}
            given = call(*(held[r] for r in found.reads))
            made = dict(zip(found.writes, given, strict=True))
            # what stands for the memory of a loop's temporaries is never read
            return tuple(made[w] if w in made else unused(nodes[w].type) for w in d.writes)

        dispatch.__name__ = f"dispatch{number}"
        return dispatch

    def _ffi(self, found: KernelCall) -> Callable[..., Any]:
        """A call as a function of what it reads that gives what it writes."""
        import jax

        from eqsat.ops.meaning.programs import element_dtype

        types = [self.schedule.program.nodes[w].types[0] for w in found.writes]
        avals = [jax.ShapeDtypeStruct(t.shape, element_dtype(t.dtype)) for t in types]
        return jax.ffi.ffi_call(found.target, avals, input_output_aliases=dict(found.aliases))


def declined(schedule: Schedule, target: Target) -> dict[int, str]:
    """Number of a dispatch → why it is no kernel, as far as that is known before it is compiled."""
    machine = target.machine
    if why := jit.why_not(machine):
        return dict.fromkeys(range(len(schedule.dispatches)), why)
    found: dict[int, str] = {}
    for i in range(len(schedule.dispatches)):
        try:
            planned(schedule, i, machine)
        except NoNest as why:
            found[i] = str(why)
    for i, held in _loops(schedule):
        found[i] = _of_bodies(held, [declined(s, target) for s in held.schedules])
    return {i: why for i, why in found.items() if why}


def _loops(schedule: Schedule) -> list[tuple[int, Control]]:
    """Dispatches that are loops and branches whose bodies are scheduled."""
    found = ((i, schedule.control(d)) for i, d in enumerate(schedule.dispatches))
    return [(i, held) for i, held in found if held is not None and held.schedules]


def _of_bodies(held: Control, refused: Sequence[Mapping[int, str]]) -> str:
    """What of the bodies of a loop or branch is no kernel; empty if all is."""
    found = [
        f"{label}, dispatch {i}: {why}"
        for label, reasons in zip(held.labels, refused, strict=True)
        for i, why in sorted(reasons.items())
    ]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"XLA runs {found[0]}{more}" if found else ""


def _other_platform() -> str:
    """Why JAX would not call a kernel; empty if it would."""
    import jax

    backend = jax.default_backend()
    return "" if backend == "cpu" else f"JAX runs on a {backend} here, kernels on a CPU"


@cache
def _warn(why: str) -> None:
    """Once per reason: the program runs, but not as it was planned."""
    message = f"no kernels run here: {why}; every dispatch runs as XLA ops"
    d = Diagnostic("E510", message, severity="warning")
    warnings.warn(EqsatWarning(d), stacklevel=2)


KERNELS = Executor(
    "kernels",
    BUILT_IN["kernels"],
    "each dispatch is one kernel that runs as it is planned",
    KernelsExecutable,
    declined,
)
