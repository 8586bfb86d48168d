"""Text of XLA's compiler → kernels, cycles, scratch, copies; PTX → launches and registers.

Read are the module as XLA has optimised it, what it writes beside a program for NVIDIA's GPUs, and
ptxas of its PTX.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from eqsat.lang.hlotext import Computation, Instruction, parse_hlo
from eqsat.model.compiled import Figures

# what launches nothing: names, views, and transfers that run beside kernels
FREE = frozenset({
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id",
    "replica-id", "opt-barrier", "domain", "add-dependency", "copy-start", "copy-done",
    "slice-start", "slice-done", "async-start", "async-update", "async-done",
})  # fmt: skip
# custom calls that only name memory
FREE_CALLS = frozenset({"AllocateBuffer", "ConcatBitcast", "AssumeGatherIndicesInBound"})
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_SCOPED = re.compile(r'"used_scoped_memory_configs":\[([^\]]*)\]')
_SIZE = re.compile(r'"memory_space":"1","offset":"\d+","size":"(\d+)"')
_NAMES = re.compile(r"%([\w.\-]+)")
_SPACE = re.compile(r"S\(\d+\)")
# attributes that name what an instruction runs as programs, rather than once per element
_ROLES = frozenset({"body", "condition", "to_apply", "true_computation", "false_computation"})
_LAYOUT = re.compile(r"\{[^}]*\}")

Computations = Mapping[str, Computation]


def module_figures(text: str, peak_bytes: int | None, *, counts_cycles: bool) -> Figures:
    """Of a module; counts_cycles: whether the compiler estimates the cycles of kernels.

    EqsatError E345 if this is not the text of a module.
    """
    module = parse_hlo(text, "the compiled module")
    by_name = module.computations
    launched = list(_launched(by_name, module.entry))
    kernels = [i for _, i in launched]
    scratch = [_scratch_bytes(i) for i in kernels]
    estimates = [(i, _cycles(i)) for i in kernels]
    cycles = [n for _, n in estimates if n is not None]
    uncounted = sorted(_label(i) for i, n in estimates if n is None)
    copies = sum(_is_relayout(by_name[c], i) for c, i in launched)
    loops = sorted(f"while {_LAYOUT.sub('', i.shape)}" for i in _loops(by_name, module.entry))
    return Figures(
        kernels=len(kernels),
        peak_bytes=peak_bytes,
        scratch_bytes=max(scratch, default=0) if counts_cycles else None,
        cycles=sum(cycles) if counts_cycles else None,
        uncounted=(*uncounted, *loops) if counts_cycles else (),
        relayout_copies=copies,
    )


def _target(one: Instruction) -> str:
    """Of a custom call."""
    return one.attributes.get("custom_call_target", "").strip('"')


def _cycles(one: Instruction) -> int | None:
    """As the compiler estimates them."""
    cycles = _CYCLES.search(one.attributes.get("backend_config", ""))
    return None if cycles is None else int(cycles[1])


def _scratch_bytes(one: Instruction) -> int:
    scoped = _SCOPED.search(one.attributes.get("backend_config", ""))
    return sum(map(int, _SIZE.findall(scoped[1]))) if scoped else 0


def _is_free(one: Instruction) -> bool:
    return one.opcode in FREE or (one.opcode == "custom-call" and _target(one) in FREE_CALLS)


def _label(one: Instruction) -> str:
    """An op and its shape, for a list of kernels without cycles: names differ between programs."""
    return f"{_target(one) or one.opcode} {_LAYOUT.sub('', one.shape)}"


def _inner(one: Instruction) -> list[str]:
    """Computations that it runs as programs, rather than once per element."""
    if one.opcode not in ("while", "conditional", "call"):
        return []
    called = [name.lstrip("%") for role, name in one.attributes.items() if role in _ROLES]
    return [*called, *_NAMES.findall(one.attributes.get("branch_computations", ""))]


def _launched(by_name: Computations, name: str) -> Iterator[tuple[str, Instruction]]:
    """The kernels of a computation and of those it runs, each with where it stands.

    Those of the condition of a loop count too: a device computes it.
    """
    for one in by_name[name].instructions if name in by_name else ():
        inner = _inner(one)
        for computation in inner:
            yield from _launched(by_name, computation)
        if not inner and not _is_free(one):
            yield name, one


def _loops(by_name: Computations, name: str) -> Iterator[Instruction]:
    """Loops run their kernels more than once: the count of a program with one is a lower bound."""
    for one in by_name[name].instructions if name in by_name else ():
        if one.opcode == "while":
            yield one
        for computation in _inner(one):
            yield from _loops(by_name, computation)


def _is_relayout(beside: Computation, one: Instruction) -> bool:
    """A copy whose result lies otherwise than what it reads, in whichever memory."""
    if one.opcode == "transpose":
        return True
    if one.opcode != "copy" or not one.operands:
        return False
    source = next((i for i in beside.instructions if i.name == one.operands[0]), None)
    return source is not None and _placed(source.shape) != _placed(one.shape)


def _placed(shape: str) -> str:
    return _SPACE.sub("", shape)


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


def assembled(log: str) -> tuple[PtxKernel, ...]:
    """The kernels of what `ptxas -v` wrote."""
    kernels: list[PtxKernel] = []
    spilled = 0
    for line in log.splitlines():
        if spills := _SPILLS.search(line):
            spilled = int(spills[1]) + int(spills[2])
        if used := _USED.search(line):
            kernels.append(PtxKernel(int(used[1]), spilled))
            spilled = 0
    return tuple(kernels)


def launches(sequence: str) -> tuple[int, int | None]:
    """(kernels, the most shared memory of one) of XLA's list of steps; None: no kernel says.

    Shared memory is that of the launch, stages of Triton's pipelines included.
    """
    steps = [m for line in sequence.splitlines() if (m := _THUNK.match(line))]
    shared = [int(m[2]) for m in steps if m[2] is not None]
    return sum(m[1] not in _HOLDING for m in steps), max(shared, default=None)


def most(kernels: Sequence[PtxKernel]) -> tuple[int | None, int | None]:
    """(registers of the kernel with the most, spilled bytes of all); None where there is none."""
    if not kernels:
        return None, None
    return max(k.registers for k in kernels), sum(k.spill_bytes for k in kernels)
