"""Text of XLA's compiler → kernels, cycles, scratch, copies; PTX → launches and registers.

Read are the module as XLA has optimised it, what it writes beside a program for NVIDIA's GPUs, and
ptxas of its PTX.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from eqsat.model.compiled import Figures

# what launches nothing: names, views, and transfers that run beside kernels
FREE = frozenset({
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id",
    "replica-id", "opt-barrier", "domain", "add-dependency", "copy-start", "copy-done",
    "slice-start", "slice-done", "async-start", "async-update", "async-done",
})  # fmt: skip
# custom calls that only name memory
FREE_CALLS = frozenset({"AllocateBuffer", "ConcatBitcast", "AssumeGatherIndicesInBound"})
_COMPUTATION = re.compile(r"(?:ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
_INSTRUCTION = re.compile(r"\s*(?:ROOT )?%?([\w.\-]+) = (.*)$")
_OPCODE = re.compile(r"(?:^|[\s)}\]])([a-z][a-z0-9\-]*)\(")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_SCOPED = re.compile(r'"used_scoped_memory_configs":\[([^\]]*)\]')
_SIZE = re.compile(r'"memory_space":"1","offset":"\d+","size":"(\d+)"')
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
_OPERANDS = re.compile(r"%([\w.\-]+)")
_SPACE = re.compile(r"S\(\d+\)")
_CALLED = re.compile(r"(body|condition|to_apply|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_LAYOUT = re.compile(r"\{[^}]*\}")


@dataclass(frozen=True)
class Instruction:
    """One line of a computation. shape: with its layout; called: role and name of computations."""

    name: str
    shape: str
    opcode: str
    operands: tuple[str, ...]
    target: str  # of a custom call
    cycles: int | None
    scratch_bytes: int
    called: tuple[tuple[str, str], ...]

    @property
    def is_free(self) -> bool:
        return self.opcode in FREE or (self.opcode == "custom-call" and self.target in FREE_CALLS)

    @property
    def label(self) -> str:
        """Label in a list of kernels without cycles: names differ between programs."""
        return f"{self.target or self.opcode} {_LAYOUT.sub('', self.shape)}"


Computations = Mapping[str, Sequence[Instruction]]


def module_figures(text: str, peak_bytes: int | None, *, counts_cycles: bool) -> Figures:
    """Of a module; counts_cycles: whether the compiler estimates the cycles of kernels.

    ValueError if there is no entry computation in the text.
    """
    by_name, entry = computations(text)
    launched = list(_launched(by_name, entry))
    kernels = [i for _, i in launched]
    scratch = [i.scratch_bytes for i in kernels]
    cycles = [i.cycles for i in kernels if i.cycles is not None]
    uncounted = sorted(i.label for i in kernels if i.cycles is None)
    copies = sum(_is_relayout(by_name[c], i) for c, i in launched)
    loops = sorted(f"while {_LAYOUT.sub('', i.shape)}" for i in _loops(by_name, entry))
    return Figures(
        kernels=len(kernels),
        peak_bytes=peak_bytes,
        scratch_bytes=max(scratch, default=0) if counts_cycles else None,
        cycles=sum(cycles) if counts_cycles else None,
        uncounted=(*uncounted, *loops) if counts_cycles else (),
        relayout_copies=copies,
    )


def computations(text: str) -> tuple[Computations, str]:
    """Computations by name, and the name of the entry one; ValueError if there is none."""
    by_name: dict[str, list[Instruction]] = {}
    entry, now = "", None
    for line in text.splitlines():
        if line.startswith("}"):
            now = None
        elif now is None:
            head = _COMPUTATION.match(line)
            if head is not None:
                now = by_name.setdefault(head[1], [])
                entry = head[1] if line.startswith("ENTRY ") else entry
        elif (one := _instruction(line)) is not None:
            now.append(one)
    if not entry:
        raise ValueError("the module has no entry computation")
    return by_name, entry


def _instruction(line: str) -> Instruction | None:
    parts = _INSTRUCTION.match(line)
    opcode = None if parts is None else _OPCODE.search(parts[2])
    if parts is None or opcode is None:
        return None
    shape, rest = parts[2][: opcode.start(1)].strip(), parts[2][opcode.end() :]
    cycles, target = _CYCLES.search(rest), _TARGET.search(rest)
    scoped = _SCOPED.search(rest)
    called = tuple((m[1], m[2]) for m in _CALLED.finditer(rest))
    branches = _BRANCHES.search(rest)
    if branches is not None:
        called += tuple(("branch", name) for name in _OPERANDS.findall(branches[1]))
    return Instruction(
        parts[1], shape, opcode[1], tuple(_OPERANDS.findall(rest[: _closing(rest)])),
        "" if target is None else target[1], None if cycles is None else int(cycles[1]),
        sum(map(int, _SIZE.findall(scoped[1]))) if scoped else 0, called,
    )  # fmt: skip


def _closing(text: str) -> int:
    """Where the parenthesis closes that is open at the beginning."""
    depth = 1
    for at, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return at
    return len(text)


def _inner(one: Instruction) -> list[str]:
    """Computations that it runs as programs, rather than once per element."""
    if one.opcode in ("while", "conditional", "call"):
        return [name for _, name in one.called]
    return []


def _launched(by_name: Computations, name: str) -> Iterator[tuple[str, Instruction]]:
    """The kernels of a computation and of those it runs, each with where it stands.

    Those of the condition of a loop count too: a device computes it.
    """
    for one in by_name.get(name, ()):
        inner = _inner(one)
        for computation in inner:
            yield from _launched(by_name, computation)
        if not inner and not one.is_free:
            yield name, one


def _loops(by_name: Computations, name: str) -> Iterator[Instruction]:
    """Loops run their kernels more than once: the count of a program with one is a lower bound."""
    for one in by_name.get(name, ()):
        if one.opcode == "while":
            yield one
        for computation in _inner(one):
            yield from _loops(by_name, computation)


def _is_relayout(beside: Sequence[Instruction], one: Instruction) -> bool:
    """A copy whose result lies otherwise than what it reads, in whichever memory."""
    if one.opcode == "transpose":
        return True
    if one.opcode != "copy" or not one.operands:
        return False
    source = next((i for i in beside if i.name == one.operands[0]), None)
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
