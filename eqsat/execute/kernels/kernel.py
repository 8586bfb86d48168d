"""Kernels: a nest and its plan become LLVM IR, and what the runtime has to know to call it.

A kernel does the work items lo … hi - 1, which may run on different cores in any order:

    void @kernel(i64 lo, i64 hi, ptr read0 …, ptr write0 …, ptr scratch)

`scratch` is 64-byte aligned, `scratch_bytes` long and each running task's own. A kernel of several
parts does the items of the call that are each part's own. C cannot call a function of any number of
pointers, so each has a function that takes them from an array, for `c/runtime.c`; and a constant
that the runtime reads, `Kernel` or `Loop`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from eqsat.execute.kernels.ir import Code, new_module
from eqsat.execute.kernels.kinds import I64, POINTER, Value
from eqsat.model.dispatch import Machine, Plan
from eqsat.model.nest import Nest
from eqsat.plan.passes import Several, parts_of

# kind of plan → module whose `emit(head, nest, plan, machine)` writes the body of the kernel
EMITTERS: dict[str, str] = {
    "contraction": "eqsat.execute.kernels.contraction",
    "row_blocks": "eqsat.execute.kernels.rowblocks",
    "rows": "eqsat.execute.kernels.rows",
    "several": "eqsat.execute.kernels.kernel",
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


def emit(head: Head, nest: Nest, plan: Several, machine: Machine) -> None:
    """Write the parts one after another."""
    code, before = head.code, 0
    for part, part_plan in zip(parts_of(nest), plan.parts, strict=True):
        lo = code.max(code.sub(head.lo, before), 0)
        hi = code.min(code.sub(head.hi, before), part_plan.items)
        emit_part: Any = import_module(EMITTERS[part_plan.kind]).emit
        emit_part(replace(head, lo=lo, hi=hi), part, part_plan, machine)
        before += part_plan.items


def handler(
    kernel: str, reads: int, writes: int, items: int, scratch_bytes: int, workers: int
) -> str:
    """IR of `@<kernel>_ffi`, beside the definition of `@<kernel>` in a module.

    workers: threads that are worth it at most, the caller among them.
    """
    return f"""{_kernel(kernel, reads, writes, items, scratch_bytes, workers)}
declare ptr @eqsat_handle(ptr, ptr)
define ptr @{kernel}_ffi(ptr %frame) {{
  %error = call ptr @eqsat_handle(ptr %frame, ptr @{kernel}_numbers)
  ret ptr %error
}}
"""


def loop_step(
    kernel: str, reads: int, writes: int, items: int, scratch_bytes: int, workers: int
) -> str:
    """IR of `ptr @<kernel>_at(frame, pointers, scratch)`, beside the definition of `@<kernel>`.

    It ends when all items are done. Gives an error of XLA's or null.
    """
    return f"""{_kernel(kernel, reads, writes, items, scratch_bytes, workers)}
declare ptr @eqsat_step(ptr, ptr, ptr, ptr)
define ptr @{kernel}_at(ptr %frame, ptr %p, ptr %scratch) {{
  %error = call ptr @eqsat_step(ptr %frame, ptr @{kernel}_numbers, ptr %p, ptr %scratch)
  ret ptr %error
}}
"""


def loop_handler(loop: str, reads: int, writes: int, scratch_bytes: int) -> str:
    """IR of `@<loop>_ffi`, beside `ptr @<loop>(frame, pointers, scratch)`, which gives an error."""
    return f"""
{_numbers(loop, loop, reads, writes, scratch_bytes)}
declare ptr @eqsat_handle_loop(ptr, ptr)
define ptr @{loop}_ffi(ptr %frame) {{
  %error = call ptr @eqsat_handle_loop(ptr %frame, ptr @{loop}_numbers)
  ret ptr %error
}}
"""


def _kernel(
    kernel: str, reads: int, writes: int, items: int, scratch_bytes: int, workers: int
) -> str:
    """IR of `@<kernel>_invoke(lo, hi, pointers, scratch)`, and of the kernel's `Kernel`."""
    count = reads + writes
    pointers = "".join(f", ptr %q{i}" for i in range(count))
    loads = "\n".join(
        f"  %a{i} = getelementptr ptr, ptr %p, i64 {i}\n  %q{i} = load ptr, ptr %a{i}, align 8"
        for i in range(count)
    )
    return f"""
define internal void @{kernel}_invoke(i64 %lo, i64 %hi, ptr %p, ptr %scratch) {{
{loads}
  call void @{kernel}(i64 %lo, i64 %hi{pointers}, ptr %scratch)
  ret void
}}
{_numbers(kernel, f"{kernel}_invoke", reads, writes, scratch_bytes, items, workers)}"""


def _numbers(name: str, function: str, *numbers: int) -> str:
    """IR of `@<name>_numbers`, a function and 64-bit numbers."""
    kinds = ", ".join(["ptr", *["i64"] * len(numbers)])
    values = ", ".join([f"ptr @{function}", *(f"i64 {n}" for n in numbers)])
    return f"@{name}_numbers = internal constant {{ {kinds} }} {{ {values} }}, align 8"
