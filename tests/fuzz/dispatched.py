"""The dispatches of a schedule as kernels, each beside its ops: from its own operands, in float64.

Kernels are those of the schedule's plans and, at small caches, of plans for the machines of
`fuzz.edges`, so that answers of every target are run by kernels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.execute.draw import random_inputs
from eqsat.execute.executable import kernel_nest
from eqsat.execute.kernels import jit
from eqsat.execute.kernels.compiler import CannotCompile
from eqsat.model.dispatch import Machine, Plan
from eqsat.model.leaves import Leaf
from eqsat.model.nest import Nest, NoNest
from eqsat.model.program import Builder, Program
from eqsat.model.schedule import Dispatch, Schedule
from eqsat.model.tensor import TensorType
from eqsat.ops.meaning import programs as meaning
from eqsat.ops.meaning.programs import element_dtype
from eqsat.plan.plancheck import plan_faults
from eqsat.plan.planner import plan
from fuzz.edges import differs, is_alarm, kernel_runs, machines, small_items

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Beside:
    """dispatches: of the schedule. kernels: those that were run as such, and `plans` of them.

    refused: why the others were not. wrong: what a kernel computed otherwise than its ops, and what
    the checks of nests and plans refuse.
    """

    dispatches: int
    kernels: int
    plans: int
    refused: tuple[str, ...]
    wrong: tuple[str, ...]


def beside_ops(
    schedule: Schedule,
    weights: Mapping[str, Any],
    opaque: Mapping[str, Any],
    own: Machine | None,
    seed: int,
) -> Beside:
    """Every dispatch as a kernel and as its ops. own: the machine of the schedule's plans."""
    values = _values(schedule, weights, opaque, seed)
    kernels = plans = 0
    refused: list[str] = []
    wrong: list[str] = []
    for number, d in enumerate(schedule.dispatches):
        try:
            nest = kernel_nest(schedule, number)
            chosen = list(_plans(d, nest, own, seed + number))
        except NoNest as why:
            refused.append(re.sub(r"%\d+ ", "", str(why)))
            wrong += [f"dispatch {number} ({d.ops}): {why}"] if is_alarm(why) else []
            continue
        kernels += 1
        plans += len(chosen)
        program = dispatch_program(schedule, d)
        for one, machine in chosen:
            text = _run(schedule, d, program, nest, (one, machine), values)
            text = text or "; ".join(f"the check refuses it: {f}" for f in plan_faults(nest, one))
            if text:
                wrong.append(f"dispatch {number} ({d.ops}) as {one.kind}: {text}\n{nest}{one}")
    return Beside(len(schedule.dispatches), kernels, plans, tuple(refused), tuple(wrong))


def _plans(
    d: Dispatch, nest: Nest, own: Machine | None, turn: int
) -> Iterator[tuple[Plan, Machine]]:
    """The schedule's, if it runs here, and that of one of the small machines."""
    if d.plan is not None and own is not None and not jit.why_not(own):
        yield d.plan, own
    small = list(machines().values())
    if small:
        machine = small[turn % len(small)]
        with small_items():
            yield plan(nest, machine), machine


def _run(
    schedule: Schedule,
    d: Dispatch,
    program: Program,
    nest: Nest,
    chosen: tuple[Plan, Machine],
    values: Mapping[int, Array],
) -> str:
    """What a kernel of a dispatch computes otherwise than its ops; "" if nothing."""
    types = {i: schedule.program.nodes[i].types[0] for i in (*d.reads, *d.writes)}
    given = {i: _held(values[i], types[i]) for i in d.reads}
    try:
        for found in kernel_runs(nest, *chosen, given, types):
            by_result = {d.writes.index(w): x for w, x in found}
            if text := differs(program, [given[i] for i in d.reads], by_result):
                return text
    except CannotCompile as why:
        return f"LLVM refuses it: {why}"
    except NoNest as why:
        return f"its kernel is not written: {why}"
    return ""


def dispatch_program(schedule: Schedule, d: Dispatch) -> Program:
    """A dispatch's ops, as a program of the buffers it reads, giving those it writes."""
    nodes, b = schedule.program.nodes, Builder("dispatch")
    known: dict[int, int] = {}
    for at, i in enumerate(d.reads):
        known[i] = b.add("input", (), Leaf(f"x{i}", nodes[i].types[0], at))
    for i in sorted(set(d.members) - set(known)):
        n = nodes[i]
        known[i] = b.add(n.op, tuple(known[o] for o in n.operands), n.attr)
    return b.build([known[w] for w in d.writes])


def _values(
    schedule: Schedule, weights: Mapping[str, Any], opaque: Mapping[str, Any], seed: int
) -> dict[int, Array]:
    """Every buffer that a dispatch reads or writes."""
    wanted = {i for d in schedule.dispatches for i in (*d.reads, *d.writes)}
    inputs = random_inputs(schedule.program, np.random.default_rng(seed))
    with np.errstate(all="ignore"):
        walk = meaning.walk(schedule.program, inputs, weights, opaque)
        return {i: np.asarray(results[0]) for i, results in walk if i in wanted}


def _held(value: Array, t: TensorType) -> Array:
    """As it lies in memory."""
    with np.errstate(all="ignore"):
        return np.asarray(value.reshape(t.shape), element_dtype(t.dtype), order="C")
