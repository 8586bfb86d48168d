"""What a module has beside a kernel or a loop, so that the runtime, `c/runtime.c`, can call it.

A kernel does the work items lo … hi - 1:

    void @kernel(i64 lo, i64 hi, ptr read0 …, ptr write0 …, ptr scratch)

C cannot call a function of any number of pointers, so each has a function that takes them from an
array; and a constant that the runtime reads, `Kernel` or `Loop`.
"""

from __future__ import annotations

import sys
from pathlib import Path

ENTRIES = ("eqsat_handle", "eqsat_step", "eqsat_handle_loop")  # of the runtime


def runtime_path(architecture: str) -> Path:
    """Where the runtime's IR for this system is; no such file where kernels do not run."""
    return Path(__file__).parent / "c" / f"runtime.{architecture}-{sys.platform}.ll"


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
