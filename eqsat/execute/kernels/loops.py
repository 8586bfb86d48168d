"""A dispatch that is a loop or branch → one call of XLA's that runs all steps of its bodies.

Every dispatch of every body has to be a kernel, or a loop of such; else XLA runs the loop, and
calls those that are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from eqsat.execute.kernels import compiler, jit, linked
from eqsat.execute.kernels.compiler import CannotCompile
from eqsat.execute.kernels.kernel import loop_handler, loop_step
from eqsat.execute.kernels.loopcode import Loop, LoopBody, StepCall, loop_ir
from eqsat.execute.kernels.runtime import (
    KernelCall,
    PlannedDispatch,
    kernel_name,
    planned,
)
from eqsat.model.control import COND, WHILE, Control
from eqsat.model.dispatch import Dispatch, Machine
from eqsat.model.leaves import Fill
from eqsat.model.nest import NoNest
from eqsat.model.ops import VIEWS
from eqsat.model.schedule import Schedule
from eqsat.model.tensor import DTYPES
from eqsat.ops.meaning.programs import element_dtype
from eqsat.ops.nests.nest import undecided

LINE = 64  # bytes of a line of cache


@dataclass(frozen=True)
class LoopCall:
    """A loop as a function, and what it calls: kernels and loops by the names of their functions.

    reads, writes: nodes of operands and of results.
    """

    name: str
    loop: Loop
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    kernels: Mapping[str, PlannedDispatch]
    loops: tuple[LoopCall, ...]


def loop_call(schedule: Schedule, number: int, machine: Machine) -> KernelCall:
    """The call of a dispatch that is a loop or branch; NoNest with the reason if it has none."""
    call = planned_loop(schedule, number, machine)
    if why := why_not_loaded(call, machine):
        raise NoNest(why)
    aliases = tuple(_aliases(call, schedule))
    return KernelCall(call.name, call.reads, call.writes, aliases)


def _aliases(call: LoopCall, schedule: Schedule) -> Iterator[tuple[int, int]]:
    """Places of states that are written in place, among operands and among results."""
    loop, nodes = call.loop, schedule.program.nodes
    for k, result in enumerate(loop.bodies[-1].results[: loop.carries]):
        old, new = call.reads[loop.consts + k], call.writes[k]
        is_alone = call.reads.count(old) == 1 and nodes[old].op != "fill"
        is_same = nodes[old].types[0] == nodes[new].types[0]
        if result in loop.bodies[-1].changed and is_alone and is_same:
            yield loop.consts + k, k


# ---- from schedules ------------------------------------------------------------------------------
def planned_loop(schedule: Schedule, number: int, machine: Machine) -> LoopCall:
    """A dispatch that is a loop or branch, with plans for what it calls; NoNest if one has none."""
    d, nodes = schedule.dispatches[number], schedule.program.nodes
    (node,) = (m for m in d.members if isinstance(nodes[m].attr, Control))
    attr = nodes[node].attr
    assert isinstance(attr, Control)
    inner = {i for i in schedule.inside(d) if i not in d.reads}
    if any(nodes[i].op not in (*VIEWS, "fill", "result", attr.op) for i in inner):
        raise NoNest("it computes something beside a loop")
    reads = tuple(schedule.buffer_of(o) for o in nodes[node].operands)
    writes = _results(schedule, d, node, attr)
    if any(0 in nodes[i].types[0].shape for i in (*reads, *writes)):
        raise NoNest("one of its buffers is empty")
    callees = [KernelBody(s, machine) for s in attr.schedules]
    loop = _laid_out(attr, callees)
    kernels = {k: p for b in callees for k, p in b.kernels.items()}
    text = f"{loop!r} {sorted(kernels)}"
    name = f"eqsat_loop_{hashlib.sha256(text.encode()).hexdigest()[:24]}"
    return LoopCall(name, loop, reads, writes, kernels, tuple(x for b in callees for x in b.loops))


def _results(schedule: Schedule, d: Dispatch, node: int, attr: Control) -> tuple[int, ...]:
    """The nodes of the results, in order."""
    nodes = schedule.program.nodes
    if len(nodes[node].types) == 1:
        return (node,)
    by_index = {nodes[w].attr.index: w for w in d.writes if nodes[w].op == "result"}  # type: ignore[attr-defined]
    count = len(attr.result_types)
    if not by_index.keys() >= set(range(count)):
        raise NoNest("nobody reads one of its results")
    return tuple(by_index[i] for i in range(count))


class KernelBody:
    """One body: its calls, and what they call. weights: what it is given beside its inputs."""

    def __init__(self, schedule: Schedule, machine: Machine, weights: tuple[int, ...] = ()):
        self.schedule = schedule
        self.kernels: dict[str, PlannedDispatch] = {}
        self.loops: list[LoopCall] = []
        self.roots: dict[int, int] = {}
        for new, old in sorted(schedule.in_place, key=lambda pair: self._written_at(pair[0])):
            self.roots[new] = self.place(old)
        self.calls = tuple(self._call(i, machine) for i in range(len(schedule.dispatches)))
        program = schedule.program
        self.inputs = (*program.inputs, *weights)
        self.results = tuple(map(self.place, program.results))
        places = (self.place(w) for d in schedule.dispatches for w in d.writes)
        self.written = tuple(p for p in dict.fromkeys(places) if p not in self.inputs)
        self.changed = tuple(dict.fromkeys(r for r in self.roots.values() if r in self.inputs))
        self.fills = tuple(dict.fromkeys(self._constants()))
        self._check()

    def _written_at(self, buffer: int) -> int:
        return next(i for i, d in enumerate(self.schedule.dispatches) if buffer in d.writes)

    def place(self, node: int) -> int:
        """The buffer in whose place a value is: its own, or what it is written over."""
        base = self.schedule.buffer_of(node)
        return self.roots.get(base, base)

    def _call(self, number: int, machine: Machine) -> StepCall:
        schedule, d = self.schedule, self.schedule.dispatches[number]
        if schedule.control(d) is not None:
            inner = planned_loop(schedule, number, machine)
            self.loops.append(inner)
            return StepCall(inner.name, tuple(map(self.place, (*inner.reads, *inner.writes))))
        kernel = planned(schedule, number, machine)
        if open_ := undecided(schedule, d):
            raise NoNest(f"the check of a nest cannot decide: {open_[0]}")
        name = f"{kernel_name(kernel, machine)}_at"
        self.kernels[name] = kernel
        sides = (*kernel.nest.reads, *kernel.nest.writes)
        return StepCall(name, tuple(self.place(kernel.nodes[b]) for b in sides))

    def _constants(self) -> Iterator[int]:
        nodes = self.schedule.program.nodes
        for b in (*(b for c in self.calls for b in c.buffers), *self.results):
            if nodes[b].op == "fill":
                yield b

    def _check(self) -> None:
        """NoNest if something is read that is nowhere."""
        held = {*self.inputs, *self.written, *self.fills}
        if not held.issuperset({*self.results, *(b for c in self.calls for b in c.buffers)}):
            raise NoNest("a buffer of a body is computed nowhere")
        nodes = self.schedule.program.nodes
        if any(DTYPES[nodes[b].types[0].dtype][0] % 8 for b in held):
            raise NoNest("elements of a state are no whole bytes")

    def nbytes(self, buffer: int) -> int:
        return self.schedule.program.nodes[buffer].types[0].nbytes

    def scratch(self) -> int:
        """Bytes of scratch of its kernels, at most."""
        plans = [p.plan.scratch_bytes for p in self.kernels.values()]
        return max([0, *plans, *(x.loop.scratch_bytes for x in self.loops)])

    def body(self, offsets: Mapping[int, int], fills: Mapping[int, int]) -> LoopBody:
        nodes = self.schedule.program.nodes
        return LoopBody(
            self.inputs,
            self.results,
            tuple(map(self.nbytes, self.results)),
            self.calls,
            self.written,
            tuple(offsets.items()),
            tuple((b, at, *_pattern(nodes[b].attr)) for b, at in fills.items()),
            self.changed,
        )


def _refuse_foreign_writes(attr: Control, callees: Sequence[KernelBody]) -> None:
    """NoNest if something is written over an input that is no earlier value of it."""
    for b in callees:
        inputs, results = b.inputs[attr.consts :], b.results[: attr.carries]
        for c in b.changed:
            states = [k for k, r in enumerate(results) if r == c]
            if b is not callees[-1] or len(states) != 1 or c != inputs[states[0]]:
                raise NoNest("a value is written over what is no earlier state of it")


def _pattern(attr: object) -> tuple[bytes, int]:
    """The bytes of an element of a constant, and how many there are."""
    import numpy as np

    assert isinstance(attr, Fill)
    one = np.full((), attr.value, element_dtype(attr.type.dtype))
    return one.tobytes(), attr.type.size


def _laid_out(attr: Control, callees: Sequence[KernelBody]) -> Loop:
    """Where everything is: second places of states, constants, temporaries, then the callees' own
    scratch. Temporaries of two bodies are never there at once."""
    _refuse_foreign_writes(attr, callees)
    is_cond = attr.op == COND
    states = [] if is_cond else callees[-1].results[: attr.carries]
    changed = callees[-1].changed
    homes, end = stacked([0 if s in changed else callees[-1].nbytes(s) for s in states], 0)
    fills = []
    for b in callees:
        at, end = stacked([b.nbytes(f) for f in b.fills], end)
        fills.append(dict(zip(b.fills, at, strict=True)))
    offsets, top = [], end
    for i, b in enumerate(callees):
        placed_elsewhere = attr.op != WHILE or i > 0  # the results of a condition are temporaries
        buffers = {w for w in b.written if not (placed_elsewhere and w in b.results)}
        places, last = temporaries(b, buffers, end)
        offsets.append(places)
        top = max(top, last)
    bodies = tuple(b.body(o, f) for b, o, f in zip(callees, offsets, fills, strict=True))
    behind = attr.consts + attr.carries
    slices = () if is_cond else tuple(callees[0].nbytes(i) for i in callees[0].inputs[behind:])
    scratch = top + max(b.scratch() for b in callees)
    return Loop(
        attr.op, attr.consts, attr.carries, attr.length, attr.reverse, slices, bodies,
        tuple(homes), top, scratch,
    )  # fmt: skip


def stacked(sizes: Sequence[int], start: int) -> tuple[list[int], int]:
    """Offsets one behind the other, and where they end; whole lines of cache."""
    offsets = []
    for n in sizes:
        offsets.append(start)
        start += _lines(n)
    return offsets, start


def _lines(nbytes: int) -> int:
    return -(-nbytes // LINE) * LINE


def temporaries(body: KernelBody, buffers: set[int], start: int) -> tuple[dict[int, int], int]:
    """Offsets of these buffers; two that are there at once share no byte. The largest first, each
    as low as it can be."""
    schedule, last = body.schedule, dict[int, int]()
    first: dict[int, int] = {}
    for i, d in enumerate(schedule.dispatches):
        for b in map(body.place, (*d.reads, *d.writes)):
            first.setdefault(b, i)
            last[b] = i
    last |= dict.fromkeys(body.results, len(schedule.dispatches))
    offsets: dict[int, int] = {}
    for b in sorted(buffers, key=lambda b: (-body.nbytes(b), b)):
        others = sorted(
            (at, at + _lines(body.nbytes(o)))
            for o, at in offsets.items()
            if first[o] <= last[b] and first[b] <= last[o]
        )
        at = start
        for low, high in others:
            if at + _lines(body.nbytes(b)) <= low:
                break
            at = max(at, high)
        offsets[b] = at
    return offsets, max((at + _lines(body.nbytes(b)) for b, at in offsets.items()), default=start)


def called_by(call: LoopCall) -> Iterator[str]:
    """Names of the functions that a loop calls, those within first."""
    for inner in call.loops:
        yield from called_by(inner)
        yield inner.name
    yield from call.kernels


# ---- into the process ----------------------------------------------------------------------------
def why_not_loaded(call: LoopCall, machine: Machine) -> str:
    """Make a loop known to XLA by its name; why that failed, or nothing."""
    try:
        jit.start_runtime()
        _define(call, machine)
        ir, loop = loop_ir(call.name, call.loop), call.loop
        text = ir + loop_handler(call.name, loop.operands, loop.results, loop.scratch_bytes)
        name = f"{call.name}_ffi"
        address = jit.load_kernels({name: text}, machine)[name]
    except CannotCompile as error:
        return str(error)
    return linked.register(call.name, address)


def _define(call: LoopCall, machine: Machine) -> None:
    """The functions that a loop calls, as symbols; CannotCompile if one has none."""
    for inner in call.loops:
        _define(inner, machine)
    jit.define({name: _step(name, p, machine) for name, p in call.kernels.items()}, machine)
    inner = {x.name: loop_ir(x.name, x.loop) for x in call.loops}
    texts = {name: jit.Module(text, partial(str, text)) for name, text in inner.items()}
    jit.define(texts, machine)


def _step(name: str, p: PlannedDispatch, machine: Machine) -> jit.Module:
    """The IR of a kernel as a function that loops call."""

    def write() -> str:
        from eqsat.execute.kernels.kernel import generate

        kernel = name.removesuffix("_at")
        k = generate(p.nest, p.plan, machine, kernel)
        reads, writes = len(k.reads), len(k.writes)
        return k.ir + loop_step(kernel, reads, writes, k.items, k.scratch_bytes, p.workers)

    return jit.Module(f"{name} {compiler.own_code()}", write)
