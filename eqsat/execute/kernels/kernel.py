"""From a nest and its plan to a kernel: LLVM IR and what a runtime has to know to call it.

A kernel is `define void @NAME(i64 lo, i64 hi, ptr read0 …, ptr write0 …, ptr scratch)`: it does the
work items lo … hi - 1. Items may run on different cores in any order. `scratch` is 64-byte aligned,
`scratch_bytes` long and each running task's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from eqsat.execute.kernels.ir import Code, new_module
from eqsat.execute.kernels.kinds import I64, POINTER, Value
from eqsat.model.nest import Nest
from eqsat.model.plan import Machine, Plan

# kind of plan → module whose `emit(head, nest, plan, machine)` writes the body of the kernel
EMITTERS: dict[str, str] = {
    "contraction": "eqsat.execute.kernels.contraction",
    "row_blocks": "eqsat.execute.kernels.rowblocks",
    "rows": "eqsat.execute.kernels.rows",
    "several": "eqsat.execute.kernels.several",
}


@dataclass(frozen=True)
class Kernel:
    """ir: text of one LLVM module. reads, writes: buffers, in the order of the arguments."""

    name: str
    ir: str
    items: int
    scratch_bytes: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True)
class Head:
    """The kernel's function, begun: its work items, its buffers by node, its scratch.

    A buffer that the nest reads and writes is two pointers: reads and writes are apart.
    """

    code: Code
    lo: Value
    hi: Value
    reads: dict[int, Value]
    writes: dict[int, Value]
    scratch: Value


def generate(nest: Nest, plan: Plan, machine: Machine, name: str) -> Kernel:
    """The kernel of a plan; `nest` is the one it was made from."""
    head = _begin(nest, name)
    emit: Any = import_module(EMITTERS[plan.kind]).emit
    emit(head, nest, plan, machine)
    head.code.end()
    ir = str(head.code.module)
    return Kernel(name, ir, plan.items, plan.scratch_bytes, nest.reads, nest.writes)


def _begin(nest: Nest, name: str) -> Head:
    pointers = len(nest.reads) + len(nest.writes) + 1
    code, (lo, hi, *buffers) = Code.begin(new_module(name), name, [I64, I64, *[POINTER] * pointers])
    at = len(nest.reads)
    reads = dict(zip(nest.reads, buffers[:at], strict=True))
    writes = dict(zip(nest.writes, buffers[at:-1], strict=True))
    return Head(code, lo, hi, reads, writes, buffers[-1])
