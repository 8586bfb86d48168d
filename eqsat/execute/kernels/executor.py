"""The executor `kernels`: each dispatch is one call of a generated kernel inside one `jax.jit`.

What is no kernel, each with its reason, runs as XLA ops of that dispatch alone. A kernel whose nest
the check cannot decide is held against its dispatch's ops on random numbers; such nests are rare:
bounds that tie loops in two ways over more points than are enumerated.

XLA keeps the values between dispatches, so its temporaries are the schedule's, and asks for their
memory in every call. The system gives what is large anew each time, and its first touch, page by
page, takes longer than many a kernel. In one call of all kernels they are scratch, which stays
allocated, in huge pages.

Arguments and results may lie in memory in other orders of dims. Such an array has the shape its
caller knows; its bytes are those of the transposed one that the schedule has. XLA hands a custom
call the bytes as they lie if it is told the layout of the operand, so nothing is transposed or
copied. What is no kernel gets the transposed array.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import jax
import numpy as np

from eqsat.execute.compare import distance, misshapen, size
from eqsat.execute.dispatchwise import local_program
from eqsat.execute.draw import random_inputs
from eqsat.execute.elements import open_elements
from eqsat.execute.executable import CustomCallExecutable, JaxExecutable, batched
from eqsat.execute.formats import (
    ByBorder,
    as_called,
    as_scheduled,
    lying_inputs,
    lying_results,
    run_in_orders,
)
from eqsat.execute.kernels import jit, linked
from eqsat.execute.kernels.loopcode import ONCE, Loop
from eqsat.execute.kernels.loops import (
    KernelBody,
    LoopCall,
    called_by,
    loop_call,
    stacked,
    temporaries,
    why_not_loaded,
)
from eqsat.execute.kernels.runtime import KernelCall, calls, planned
from eqsat.execute.lowering import Evaluate, TracedBodies, lower, unused
from eqsat.execute.rounding import error_limit
from eqsat.model.control import Control
from eqsat.model.diag import Diagnostic, EqsatWarning
from eqsat.model.dispatch import Machine
from eqsat.model.executor import BUILT_IN, Executor
from eqsat.model.nest import NoNest
from eqsat.model.schedule import Schedule
from eqsat.model.target import Target
from eqsat.model.tensor import is_float
from eqsat.ops.meaning.programs import element_dtype
from eqsat.ops.movement.lists import inverse
from eqsat.ops.nests.nest import undecided

# ---- one call of all kernels ---------------------------------------------------------------------
LEAST_BYTES = 2**18  # of temporaries; malloc gives from 128 KiB on back to the system
MOST_BYTES = 256 * 2**20  # that a process keeps


def whole_call(schedule: Schedule, machine: Machine) -> KernelCall:
    """The call of a whole schedule; NoNest with the reason if it has none that is worth it."""
    if not LEAST_BYTES <= schedule.arena_bound <= MOST_BYTES:
        raise NoNest("its temporaries are not of a size that is worth one call")
    call = _planned(schedule, machine)
    if why := why_not_loaded(call, machine):
        raise NoNest(why)
    functions = (*linked.ENTRIES, *called_by(call), f"{call.name}_ffi")
    return KernelCall(call.name, call.reads, call.writes, functions=functions)


def _planned(schedule: Schedule, machine: Machine) -> LoopCall:
    """The call and what it calls; NoNest if a dispatch is no kernel."""
    body = KernelBody(schedule, machine, schedule.kept)
    if body.changed:
        raise NoNest("it writes over an argument")
    nodes, results = schedule.program.nodes, schedule.program.results
    if any(0 in nodes[i].types[0].shape for i in (*body.inputs, *results)):
        raise NoNest("one of its buffers is empty")
    loop = _laid_out(body)
    text = f"{loop!r} {sorted(body.kernels)}"
    name = f"eqsat_whole_{hashlib.sha256(text.encode()).hexdigest()[:24]}"
    return LoopCall(name, loop, body.inputs, results, body.kernels, tuple(body.loops))


def _laid_out(body: KernelBody) -> Loop:
    """Where everything is: constants, temporaries, then the kernels' own scratch."""
    starts, end = stacked([body.nbytes(f) for f in body.fills], 0)
    inner = {w for w in body.written if w not in body.results}
    offsets, top = temporaries(body, inner, end)
    placed = body.body(offsets, dict(zip(body.fills, starts, strict=True)))
    scratch = top + body.scratch()
    return Loop(ONCE, len(body.inputs), 0, 1, False, (), (placed,), (), top, scratch)


# ---- kernels held against their ops --------------------------------------------------------------
Sides = tuple[Callable[..., Any], Callable[..., Any]]


def disagreement(schedule: Schedule, number: int, sides: Sides) -> str:
    """How a kernel (the first side) differs from its dispatch's ops, "" if as rounding does."""
    import jax

    d = schedule.dispatches[number]
    local, lanes = local_program(schedule, d), open_elements(schedule.program)
    reads, limit = random_inputs(local, np.random.default_rng(0)), 2 * error_limit(local)
    with jax.ensure_compile_time_eval():
        results = [[np.asarray(x) for x in jax.jit(f)(*reads)] for f in sides]
    for w, got, want in zip(d.writes, *results, strict=True):
        if why := misshapen(got, want) if got.shape != want.shape else "":
            return f"%{w}{why}"
        away = np.where(lanes[w], 0.0, distance(got, want)) if w in lanes else distance(got, want)
        allowed = limit * size(want) if is_float(schedule.program.nodes[w].type.dtype) else 0.0
        if (worst := float(away.max(initial=0.0))) > allowed:
            return f"%{w} differs by {worst:.2g} from what its ops give"
    return ""


# ---- arguments and results in other orders of dims -----------------------------------------------
Order = tuple[int, ...]


@dataclass(frozen=True)
class _Lying:
    """An array of the caller's shape, and its order; `None` of one as the schedule has it."""

    array: Any
    order: Order | None = None


def ordered_kernels(
    schedule: Schedule,
    calls: Mapping[int, KernelCall],
    dispatch: Callable[[int], Callable[..., tuple[Any, ...]]],
    orders: ByBorder,
    packed: Mapping[int, Any],
    inputs: Sequence[Any],
) -> tuple[Any, ...]:
    """The results, of the shapes the caller knows, dispatch by dispatch; to be traced.

    calls: number of a dispatch → its kernel; dispatch: of another one, its function.
    """
    came, goes = lying_inputs(orders), lying_results(orders)
    program = schedule.program
    held = {i: _Lying(x) for i, x in packed.items()}
    for number, (i, x) in enumerate(zip(program.inputs, inputs, strict=True)):
        held[i] = _Lying(x, came.get(number))
    made_in = {schedule.buffer_of(program.results[r]): order for r, order in goes.items()}
    for i, d in enumerate(schedule.dispatches):
        call = calls.get(i)
        if call is None:
            outputs = dispatch(i)(*(_scheduled(schedule, held, r) for r in d.reads))
            held.update(zip(d.writes, map(_Lying, outputs), strict=True))
        else:
            held.update(_called(schedule, call, held, made_in))
    return tuple(
        _as_result(schedule, held, r, goes.get(number)) for number, r in enumerate(program.results)
    )


def _find(schedule: Schedule, held: Mapping[int, _Lying], node: int) -> _Lying:
    """The array that holds the bytes of a node."""
    if node in held:
        return held[node]
    base = schedule.buffer_of(node)
    return next(x for i, x in held.items() if schedule.buffer_of(i) == base)


def _scheduled(schedule: Schedule, held: Mapping[int, _Lying], node: int) -> Any:
    """The value of a node as the schedule has it."""
    lying = _find(schedule, held, node)
    x = lying.array if lying.order is None else as_scheduled(lying.array, lying.order)
    return x.reshape(schedule.program.nodes[node].type.shape)


def _as_result(
    schedule: Schedule, held: Mapping[int, _Lying], node: int, order: Order | None
) -> Any:
    lying = _find(schedule, held, node)
    if order is not None and lying.order == order:
        return lying.array
    x = _scheduled(schedule, held, node)
    return x if order is None else as_called(x, order)


def _called(
    schedule: Schedule,
    call: KernelCall,
    held: Mapping[int, _Lying],
    made_in: Mapping[int, Order],
) -> dict[int, _Lying]:
    """Results of a kernel call, from operands in the orders in which they lie."""
    takes = [_find(schedule, held, r) for r in call.reads]
    orders = [made_in.get(schedule.buffer_of(w)) for w in call.writes]
    for at, to in call.aliases:
        if takes[at].order != orders[to]:  # written in place, so both lie alike
            takes[at] = _Lying(_scheduled(schedule, held, call.reads[at]))
            orders[to] = None
    given = [
        x.array if x.order is not None else _scheduled(schedule, held, r)
        for x, r in zip(takes, call.reads, strict=True)
    ]
    avals = [_aval(schedule, w, order) for w, order in zip(call.writes, orders, strict=True)]
    outputs = jax.ffi.ffi_call(
        call.target,
        avals,
        input_layouts=[x.order for x in takes],
        output_layouts=orders,
        input_output_aliases=dict(call.aliases),
    )(*given)
    values = map(_Lying, outputs, orders)
    return dict(zip(call.writes, values, strict=True))


def _aval(schedule: Schedule, node: int, order: Order | None) -> jax.ShapeDtypeStruct:
    """The shape of what a kernel gives: that of the result where it lies in an order."""
    program = schedule.program
    of = program.nodes[node].type
    shape = of.shape
    if order is not None:
        base = schedule.buffer_of(node)
        (result, *_) = [r for r in program.results if schedule.buffer_of(r) == base]
        lying = program.nodes[result].type.shape
        shape = tuple(lying[i] for i in inverse(order))
    return jax.ShapeDtypeStruct(shape, element_dtype(of.dtype))


class KernelsExecutable(CustomCallExecutable):
    """A schedule whose dispatches are kernels. They are made on first use."""

    @cached_property
    def calls(self) -> dict[int, KernelCall]:
        """Number of a dispatch → its kernel."""
        return self._kernels[0]

    @cached_property
    def refused(self) -> dict[int, str]:
        """Number of a dispatch → why it is no kernel and runs as XLA ops."""
        return self._kernels[1]

    @cached_property
    def _kernels(self) -> tuple[dict[int, KernelCall], dict[int, str]]:
        assert self.target is not None
        machine = self.target.machine
        if why := jit.why_not(machine) or _other_platform():
            _warn(why)
            return {}, dict.fromkeys(range(len(self.schedule.dispatches)), why)
        kernels, refused = calls(self.schedule, machine)
        for i in list(kernels):
            if why := self._why_not(i, kernels[i]):
                refused[i] = why
                del kernels[i]
        for i, control in _loops(self.schedule):
            try:
                kernels[i], refused[i] = loop_call(self.schedule, i, machine), ""
            except NoNest:  # XLA runs the loop, and calls what of its bodies is a kernel
                refused[i] = _of_bodies(
                    control, [self._inner[id(s)].refused for s in control.schedules]
                )
        return kernels, {i: why for i, why in refused.items() if why}

    @cached_property
    def _inner(self) -> dict[int, KernelsExecutable]:
        """Per schedule of a body, by its `id`: it as kernels."""
        inside = (s for _, control in _loops(self.schedule) for s in control.schedules)
        return {id(s): KernelsExecutable(s, self.opaque, {}, self.target) for s in inside}

    @property
    def bodies(self) -> TracedBodies:
        """Bodies of what XLA loops over, dispatch by dispatch."""

        def bodies(control: Control) -> Evaluate:
            inner = {id(s.program): self._inner[id(s)] for s in control.schedules}
            return lambda program, inputs: list(JaxExecutable.run(inner[id(program)], {}, *inputs))

        return bodies

    def _why_not(self, number: int, kernel: KernelCall) -> str:
        """Of a nest that its check cannot decide: whether the kernel differs from its ops."""
        open_ = undecided(self.schedule, self.schedule.dispatches[number])
        sides = self._kernel(number, kernel), super().dispatch(number)
        why = disagreement(self.schedule, number, sides) if open_ else ""
        return f"the check of its nest cannot decide ({open_[0]}), and {why}" if why else ""

    def run_in_orders(
        self, orders: ByBorder, packed: Mapping[int, Any], *inputs: Any
    ) -> tuple[Any, ...]:
        """Run with arguments and results of the shapes that a caller knows, which lie so.

        A kernel takes them where they are, with the order as the layout of an operand.
        """

        def kernels(packed: dict[int, Any], inputs: list[Any]) -> tuple[Any, ...]:
            return ordered_kernels(self.schedule, self.calls, self.dispatch, orders, packed, inputs)

        def as_ops(packed: dict[int, Any], inputs: list[Any]) -> tuple[Any, ...]:
            return run_in_orders(lambda p, *i: self.as_ops(p, list(i)), orders, packed, inputs)

        return batched(kernels, as_ops)(dict(packed), list(inputs))

    def as_kernels(self, packed: dict[int, Any], inputs: list[Any]) -> tuple[Any, ...]:
        """The results, by one call where temporaries are large."""
        if self.whole is None:
            return super().as_kernels(packed, inputs)
        program = self.schedule.program
        held = packed | dict(zip(program.inputs, inputs, strict=True))
        reads = (self.buffer(held, r) for r in self.whole.reads)
        return tuple(self._ffi(self.whole)(*reads))

    @cached_property
    def whole(self) -> KernelCall | None:
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
        kernel = self.calls.get(number)
        if kernel is None:
            return super().dispatch(number)
        return self._kernel(number, kernel)

    def _kernel(self, number: int, kernel: KernelCall) -> Callable[..., tuple[Any, ...]]:
        d, nodes = self.schedule.dispatches[number], self.schedule.program.nodes
        call = self._ffi(kernel)

        def dispatch(*reads: Any) -> tuple[Any, ...]:
            held = dict(zip(d.reads, reads, strict=True))
            fills = (r for r in kernel.reads if r not in held)  # that a loop starts from
            held |= {r: lower("fill", nodes[r].attr, (), {})[0] for r in fills}
            given = call(*(held[r] for r in kernel.reads))
            by_node = dict(zip(kernel.writes, given, strict=True))
            # what stands for the memory of a loop's temporaries is never read
            return tuple(by_node[w] if w in by_node else unused(nodes[w].type) for w in d.writes)

        dispatch.__name__ = f"dispatch{number}"
        return dispatch

    def _ffi(self, kernel: KernelCall) -> Callable[..., Any]:
        """A call as a function of what it reads that gives what it writes."""
        import jax

        from eqsat.ops.meaning.programs import element_dtype

        types = [self.schedule.program.nodes[w].types[0] for w in kernel.writes]
        avals = [jax.ShapeDtypeStruct(t.shape, element_dtype(t.dtype)) for t in types]
        return jax.ffi.ffi_call(kernel.target, avals, input_output_aliases=dict(kernel.aliases))


def declined(schedule: Schedule, target: Target) -> dict[int, str]:
    """Number of a dispatch → why it is no kernel, as far as that is known before it is compiled."""
    machine = target.machine
    if why := jit.why_not(machine):
        return dict.fromkeys(range(len(schedule.dispatches)), why)
    reasons: dict[int, str] = {}
    for i in range(len(schedule.dispatches)):
        try:
            planned(schedule, i, machine)
        except NoNest as why:
            reasons[i] = str(why)
    for i, control in _loops(schedule):
        reasons[i] = _of_bodies(control, [declined(s, target) for s in control.schedules])
    return {i: why for i, why in reasons.items() if why}


def _loops(schedule: Schedule) -> list[tuple[int, Control]]:
    """Dispatches that are loops and branches whose bodies are scheduled."""
    controls = ((i, schedule.control(d)) for i, d in enumerate(schedule.dispatches))
    return [(i, control) for i, control in controls if control is not None and control.schedules]


def _of_bodies(control: Control, refused: Sequence[Mapping[int, str]]) -> str:
    """Dispatches of the bodies of a loop or branch that are no kernels; empty if all are."""
    lines = [
        f"{label}, dispatch {i}: {why}"
        for label, reasons in zip(control.labels, refused, strict=True)
        for i, why in sorted(reasons.items())
    ]
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    return f"XLA runs {lines[0]}{more}" if lines else ""


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
