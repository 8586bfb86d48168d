"""A small program as one kernel that Python calls directly: to time it without XLA around it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.execute.kernels import cache, jit
from eqsat.execute.kernels.compiler import CannotCompile
from eqsat.execute.kernels.kernel import generate
from eqsat.model.nest import Nest, as_data
from eqsat.model.plan import Machine, Plan
from eqsat.model.program import Program
from eqsat.ops.meaning.programs import element_dtype
from eqsat.ops.nests.nest import Member, nest_of
from eqsat.plan.planner import plan

ALIGNMENT = 64  # bytes, as XLA's buffers
Runs = Callable[[int], None]  # calls a kernel so often
Fill = Callable[[np.ndarray[Any, Any]], None]


@dataclass(frozen=True)
class Alone:
    """A program as one nest, with its plan."""

    name: str
    program: Program
    nest: Nest
    plan: Plan


def ones(array: np.ndarray[Any, Any]) -> None:
    """Ones in all of an array."""
    array[...] = 1


def alone(name: str, program: Program, machine: Machine) -> Alone:
    """NoNest if the program is no single kernel on this machine."""
    members = [Member(i, n.op, n.attr, n.operands, n.types) for i, n in enumerate(program.nodes)]
    nest = nest_of(members, program.inputs, program.results)
    return Alone(name, program, nest, plan(nest, machine))


def addresses(kernels: Sequence[Alone], machine: Machine) -> dict[str, int]:
    """Name → address of the function, compiled or from the cache. CannotCompile if one has none."""
    modules = {f"eqsat_alone_{k.name}": _module(k, machine) for k in kernels}
    loaded = jit.load_modules(modules, machine)
    found: dict[str, int] = {}
    for k, address in zip(kernels, loaded.values(), strict=True):
        if isinstance(address, CannotCompile):
            raise address
        found[k.name] = address
    return found


def _module(k: Alone, machine: Machine) -> jit.Module:
    name = f"eqsat_alone_{k.name}"

    def write() -> str:
        return generate(k.nest, k.plan, machine, name).ir

    return jit.Module(f"{name} {as_data(k.nest)} {k.plan.to_json()} {cache.own_code()}", write)


def runs(k: Alone, address: int, fill: Fill = ones) -> tuple[Runs, Runs]:
    """Calls that do all items of the kernel, and calls that do none.

    fill: writes what the buffers hold.
    """
    sides = (*k.nest.reads, *k.nest.writes)
    types = {b: k.program.nodes[b].types[0] for b in sides}
    buffers = {b: _filled(t.shape, element_dtype(t.dtype), fill) for b, t in types.items()}
    in_place = {s.access.buffer: s.in_place for s in k.nest.stores if s.in_place >= 0}
    scratch = _filled((k.plan.scratch_bytes,), np.dtype(np.uint8), ones)
    given = [*(buffers[in_place.get(b, b)] for b in sides), scratch]
    pointers = [ctypes.c_void_p(b.ctypes.data) for b in given]
    kernel = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 2, *[ctypes.c_void_p] * len(pointers))(
        address
    )
    lo, whole = ctypes.c_int64(0), ctypes.c_int64(k.plan.items)

    def calls(hi: ctypes.c_int64) -> Runs:
        def run(count: int, held: object = given) -> None:
            for _ in range(count):
                kernel(lo, hi, *pointers)

        return run

    return calls(whole), calls(lo)


def _filled(shape: tuple[int, ...], dtype: np.dtype[Any], fill: Fill) -> np.ndarray[Any, Any]:
    """An array at an aligned address, its pages touched."""
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    found = raw[start : start + size].view(dtype).reshape(shape)
    fill(found)
    return found
