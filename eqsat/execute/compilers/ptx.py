"""What XLA writes beside a program for NVIDIA's GPUs, and ptxas of its PTX: launches, registers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_USED = re.compile(r"Used (\d+) registers")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_THUNK = re.compile(r"^\s*\d+: (k\w+)(?:.*shared_memory: (\d+) bytes)?")
# steps of a program that launch no kernel of their own
_HOLDING = frozenset({"kSequential", "kWhile", "kConditional", "kCommandBuffer", "kAsyncStart",
                      "kAsyncDone"})  # fmt: skip


@dataclass(frozen=True)
class PtxKernel:
    """One kernel, by ptxas."""

    registers: int  # of a thread
    spill_bytes: int  # stored and loaded


def assembled(told: str) -> tuple[PtxKernel, ...]:
    """The kernels of what `ptxas -v` wrote."""
    found: list[PtxKernel] = []
    spilled = 0
    for line in told.splitlines():
        if spills := _SPILLS.search(line):
            spilled = int(spills[1]) + int(spills[2])
        if used := _USED.search(line):
            found.append(PtxKernel(int(used[1]), spilled))
            spilled = 0
    return tuple(found)


def launches(sequence: str) -> tuple[int, int | None]:
    """(kernels, the most shared memory of one) of XLA's list of steps; None: no kernel says.

    Shared memory is that of the launch, stages of Triton's pipelines included.
    """
    steps = [m for line in sequence.splitlines() if (m := _THUNK.match(line))]
    shared = [int(m[2]) for m in steps if m[2] is not None]
    return sum(m[1] not in _HOLDING for m in steps), max(shared, default=None)


def most(found: Sequence[PtxKernel]) -> tuple[int | None, int | None]:
    """(registers of the kernel with the most, spilled bytes of all); None where there is none."""
    if not found:
        return None, None
    return max(k.registers for k in found), sum(k.spill_bytes for k in found)
