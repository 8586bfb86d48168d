"""A schedule's dispatches → kernels that XLA can call, each made once per process.

Dispatches of one structure on one machine are one kernel: a model of equal layers has few.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from eqsat.execute.executable import refuse_no_nest
from eqsat.execute.kernels import compiler, jit, kernel, linked
from eqsat.execute.kernels.compiler import CannotCompile
from eqsat.model.dispatch import Machine, Plan
from eqsat.model.nest import Nest, NoNest, as_data, refused_by_check
from eqsat.model.schedule import Schedule
from eqsat.plan.plancheck import plan_faults
from eqsat.plan.planner import plan
from eqsat.plan.updates import nest_in_place

WORKER_PS = 3_000_000  # that a thread should have to do: to hand it over and join takes one
ALL_WORKERS = 64  # as many as a job has at most


@dataclass(frozen=True)
class PlannedDispatch:
    """A dispatch as a nest of nodes 0, 1 …, and its plan; nodes: what they are in the schedule."""

    nest: Nest
    plan: Plan
    nodes: tuple[int, ...]
    workers: int  # threads that are worth it at most


@dataclass(frozen=True)
class KernelCall:
    """A call of a kernel: its FFI target, and the nodes whose buffers it takes and gives.

    functions: of a call of all kernels what it calls, its handler the last.
    """

    target: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    aliases: tuple[tuple[int, int], ...] = ()  # places in both of what is written in place
    functions: tuple[str, ...] = ()


def planned(schedule: Schedule, number: int, machine: Machine) -> PlannedDispatch:
    """The nest of a dispatch, and its plan: what the schedule says, else what the planner does.

    Raises NoNest with the reason where it is no kernel.
    """
    refuse_no_nest(schedule, number)
    d = schedule.dispatches[number]
    nest = nest_in_place(schedule, d)
    chosen = d.plan or plan(nest, machine)
    if fault := next(plan_faults(nest, chosen), ""):
        raise NoNest(refused_by_check(f"{chosen.kind} plan", fault, nest))
    workers = max(1, d.time_ps // WORKER_PS) if d.time_ps else ALL_WORKERS
    numbered, names = _numbered(nest)
    return PlannedDispatch(numbered, chosen, names, workers)


def _numbered(nest: Nest) -> tuple[Nest, tuple[int, ...]]:
    """The nest with its nodes numbered as they come, and what they were called."""
    named = [*nest.reads, *nest.writes, *(s.node for s in nest.stages)]
    names = tuple(dict.fromkeys(named))
    numbers = [0] * (max(names) + 1)
    for i, n in enumerate(names):
        numbers[n] = i
    return nest.renumbered(numbers), names


def calls(schedule: Schedule, machine: Machine) -> tuple[dict[int, KernelCall], dict[int, str]]:
    """Number of a dispatch → the call of its kernel, and number → why it has none.

    The caller has seen that `jit.why_not(machine)` is empty.
    """
    plans: dict[int, PlannedDispatch] = {}
    refused: dict[int, str] = {}
    for i in range(len(schedule.dispatches)):
        try:
            plans[i] = planned(schedule, i, machine)
        except NoNest as why:
            refused[i] = str(why)
    names = {i: kernel_name(p, machine) for i, p in plans.items()}
    reasons = _register({names[i]: p for i, p in plans.items()}, machine)
    refused |= {i: reasons[names[i]] for i in plans if reasons[names[i]]}
    kernels = {
        i: KernelCall(
            names[i],
            tuple(p.nodes[b] for b in p.nest.reads),
            tuple(p.nodes[b] for b in p.nest.writes),
            _aliases(p.nest),
        )
        for i, p in plans.items()
        if i not in refused
    }
    return kernels, refused


def _aliases(nest: Nest) -> tuple[tuple[int, int], ...]:
    pairs = [(s.in_place, s.access.buffer) for s in nest.stores if s.in_place >= 0]
    return tuple((nest.reads.index(a), nest.writes.index(r)) for a, r in pairs)


def kernel_name(p: PlannedDispatch, machine: Machine) -> str:
    """Name of a kernel, by everything that it is made from."""
    parts = json.dumps([as_data(p.nest), p.plan.to_json(), as_data(machine), p.workers])
    return f"eqsat_{p.plan.kind}_{hashlib.sha256(parts.encode()).hexdigest()[:24]}"


def _register(kernels: Mapping[str, PlannedDispatch], machine: Machine) -> dict[str, str]:
    """Make these kernels known to XLA by their names; name → why that failed, or nothing."""
    with linked.lock:
        new = {name: p for name, p in kernels.items() if name not in linked.registered}
        modules = {f"{name}_ffi": _module(name, p, machine) for name, p in new.items()}
        loaded: Mapping[str, int | CannotCompile]
        try:
            jit.start_runtime()
            loaded = jit.load_modules(modules, machine)
        except CannotCompile as error:
            loaded = dict.fromkeys(modules, error)
        return {name: linked.register(name, loaded.get(f"{name}_ffi", 0)) for name in kernels}


def _module(name: str, p: PlannedDispatch, machine: Machine) -> jit.Module:
    """The IR of a kernel and its handler; the name says what the kernel follows from."""

    def write() -> str:
        from eqsat.execute.kernels.kernel import generate

        k = generate(p.nest, p.plan, machine, name)
        reads, writes = len(k.reads), len(k.writes)
        return k.ir + kernel.handler(name, reads, writes, k.items, k.scratch_bytes, p.workers)

    return jit.Module(f"{name} {compiler.own_code()}", write)


def made_callable(name: str, p: PlannedDispatch, machine: Machine) -> str:
    """Make one kernel known to XLA by this name; why that failed, or nothing."""
    return _register({name: p}, machine)[name]
