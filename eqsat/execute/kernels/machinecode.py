"""Machine code of a dispatch's kernel as text, with counts of its inner loops beside the price's.

A loop is what lies between a label and the last jump back to it; an inner one holds no other. Where
this machine cannot run the code of a target, LLVM writes it all the same, for a plain CPU with the
target's features.
"""

from __future__ import annotations

import re

from eqsat.execute.kernels import jit
from eqsat.execute.kernels.compiler import CannotCompile, assembly
from eqsat.execute.kernels.kernel import generate
from eqsat.execute.kernels.runtime import planned
from eqsat.model.diag import fail
from eqsat.model.dispatch import Machine
from eqsat.model.nest import NoNest
from eqsat.model.schedule import Schedule
from eqsat.plan.innerloop import CodeLoop, MachineCode, priced_loops

ARM, X86 = "aarch64", "x86_64"

_LABEL = re.compile(r"^(\.?L[\w.$]+):")
_OP = re.compile(r"^\s+([a-z][\w.]*)(?:\s+([^#;]*))?")
_JUMP = re.compile(r"^(?:j\w+|b(?:\.\w+)?|cbn?z|tbn?z)$")
# products that are summed: of floats, of pairs and fours of integers
_MULTIPLY_ADD = re.compile(
    r"vf(?:m|nm)(?:add|sub)\w*p[sd]|vp(?:dp\w+|madd\w+)|vdpbf16ps|f?ml[as]l?\w*|[us]+dot|[us]*mmla"
    r"|bfml\w+|bfmmla"
)
_ARM_VECTOR = re.compile(r"^\{?\s*[bhsdqvz]\d")


def kernel_code(schedule: Schedule, number: int, machine: Machine) -> MachineCode:
    """The code of one dispatch; EqsatError E428 if it is no kernel, or LLVM makes none of it."""
    d = schedule.dispatches[number]
    try:
        p = planned(schedule, number, machine)
        ir = generate(p.nest, p.plan, machine, "kernel").ir
        cpu, features, triple = _made_for(machine)
        text = assembly(ir, cpu, features, triple)
    except (NoNest, CannotCompile) as why:
        raise fail("E428", f"dispatch {number} has no machine code: {why}") from why
    here = "this machine" if not jit.why_not(machine) else f"not run here, {jit.why_not(machine)}"
    loops = innermost_loops(text, ARM if triple.startswith(ARM) else X86)
    priced = tuple(priced_loops(p.nest, p.plan))
    return MachineCode(number, d.name, p.plan.to_text(), f"{cpu} ({here})", text, loops, priced)


def _made_for(machine: Machine) -> tuple[str, str, str]:
    """CPU, features and triple: this machine's where it can run the code."""
    cpu, _, architecture = jit.host()
    if not jit.why_not(machine):
        return cpu, jit.allowed_features(machine), f"{architecture}-unknown-linux-gnu"
    features = ",".join(f"+{f}" for f in machine.features)
    if set(machine.features) & set(jit.NEEDED[ARM]):
        return "generic", features, f"{ARM}-unknown-linux-gnu"
    return "x86-64", features, f"{X86}-unknown-linux-gnu"


def innermost_loops(text: str, architecture: str) -> tuple[CodeLoop, ...]:
    """Loops of assembly that hold no other, those of most multiply-adds first."""
    lines, at = text.splitlines(), dict[str, int]()
    ends: dict[str, int] = {}
    for i, line in enumerate(lines):
        if m := _LABEL.match(line):
            at[m[1]] = i
        elif (m := _OP.match(line)) and _JUMP.match(m[1]):
            to = (m[2] or "").strip().rpartition(" ")[2].rpartition("\t")[2]
            if to in at:
                ends[to] = i
    spans = [(at[label], end) for label, end in ends.items()]
    inner = [s for s in spans if not any(s != t and s[0] <= t[0] and t[1] <= s[1] for t in spans)]
    loops = [_counted(lines[a : b + 1], architecture) for a, b in inner]
    return tuple(sorted(loops, key=lambda x: -x.multiply_adds))


def _counted(lines: list[str], architecture: str) -> CodeLoop:
    ops = [(m[1], (m[2] or "").strip()) for line in lines[1:] if (m := _OP.match(line))]
    access = _accesses_arm if architecture == ARM else _accesses_x86
    accesses = [access(op, operands) for op, operands in ops]
    memory = [n for (_, operands), n in zip(ops, accesses, strict=True) if _is_stack(operands)]
    return CodeLoop(
        lines[0].rstrip(":").split(":")[0],
        len(ops),
        sum(bool(_MULTIPLY_ADD.fullmatch(op)) for op, _ in ops),
        sum(a for a, _ in accesses),
        sum(b for _, b in accesses),
        sum(a + b for a, b in memory),
        "\n".join(lines),
    )


def _is_stack(operands: str) -> bool:
    return bool(re.search(r"\(%r[sb]p[,)]|\[(?:sp|x29)\b", operands))


def _accesses_x86(op: str, operands: str) -> tuple[int, int]:
    """Vectors loaded and stored by an instruction as AT&T writes it, where it goes the last."""
    *sources, last = re.split(r",(?![^(]*\))", operands)
    if not op.startswith("v"):
        return 0, 0
    return sum("(" in s for s in sources), int("(" in last)


def _accesses_arm(op: str, operands: str) -> tuple[int, int]:
    if not _ARM_VECTOR.match(operands):
        return 0, 0
    count = 2 if op[2:3] == "p" else 1
    return count * op.startswith("ld"), count * op.startswith("st")
