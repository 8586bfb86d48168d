"""Kernels at the edges of their sizes, between guard pages, against the meaning of their programs.

A program of one dispatch becomes a nest, a plan and a kernel, as the product makes them. What the
kernel writes is held to the float64 meaning of the program: movement and integers exactly, the rest
within what its roundings explain. LLVM verifies each kernel's IR. Caches of the machines are small,
and work items too, so that what runs in blocks does so at these sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import numpy as np

from eqsat.execute.compare import distance, element, size
from eqsat.execute.draw import index_extents, random_inputs
from eqsat.execute.kernels import jit
from eqsat.execute.kernels.compiler import CannotCompile
from eqsat.execute.kernels.kernel import generate
from eqsat.execute.reference import WorkBudget, reference
from eqsat.execute.rounding import error_limit, moves
from eqsat.lang.programs import parse_program
from eqsat.model.dispatch import Machine, Plan
from eqsat.model.nest import Nest, NoNest
from eqsat.model.program import Program
from eqsat.model.tensor import TensorType
from eqsat.ops.meaning.programs import element_dtype
from eqsat.ops.nests.nest import Member, nest_of
from eqsat.plan import blocks, rowblocks, rows, strips
from eqsat.plan.plancheck import plan_faults
from eqsat.plan.planner import plan
from fuzz import guarded
from fuzz.edgeprograms import KINDS, programs

Array = np.ndarray[Any, Any]
Row = dict[str, Any]
CACHES = (4 << 10, 16 << 10, 1 << 20)
_AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "fma")
MACHINES = {
    "16 bytes": Machine(16, 16, CACHES, 1, ("avx2", "fma")),
    "32 bytes": Machine(32, 16, CACHES, 1, ("avx2", "fma")),
    "64 bytes": Machine(64, 32, CACHES, 2, _AVX512),
    "64 bytes, vnni": Machine(64, 32, CACHES, 1, (*_AVX512, "avx512vnni")),
}
FEW = 2  # numbers of each form and machine that `faults` takes
NOISE = 4  # pairs of noisy evaluations of an element beyond the limit
# figures of the planner by which sizes like these would be one work item
ITEMS: tuple[tuple[Any, str, int], ...] = (
    (rows, "ITEM_COST", 60),
    (rowblocks, "LEAST_ROWS", 4),
    *((module, "LEAST_ITEM", 256) for module in (blocks, rowblocks, strips, blocks)),
)


@dataclass(frozen=True)
class Edge:
    """A program on a machine. kind: of `edgeprograms`."""

    kind: str
    name: str
    machine: str
    text: str

    def __str__(self) -> str:
        return f"{self.name} on {self.machine}"


def machines() -> dict[str, Machine]:
    """Those whose kernels run here."""
    return {name: m for name, m in MACHINES.items() if not jit.why_not(m)}


def cases(kinds: Sequence[str] = KINDS, numbers: range = range(FEW)) -> Iterator[Edge]:
    """Every form of these kinds on every machine, number by number."""
    for number in numbers:
        for kind in kinds:
            for at, (machine, m) in enumerate(machines().items()):
                own = number * len(MACHINES) + at  # other sizes on every machine
                for name, text in programs(kind, m.lanes(4), own):
                    yield Edge(kind, name, machine, text)


def faults(
    limit: int | None = None, kinds: Sequence[str] = KINDS, numbers: range = range(FEW)
) -> list[str]:
    """What is wrong with the kernels of the planner and generator as they are, `limit` at most.

    Kernels are kept by their IR, so what is generated otherwise is compiled anew. An access outside
    of a buffer ends the process by SIGSEGV (see `guarded.tell_strays`).
    """
    found: list[str] = []
    for edge in cases(kinds, numbers):
        wrong = fault(edge)
        if wrong:
            found.append(f"{edge}: {wrong}")
        if limit is not None and len(found) >= limit:
            break
    return found


def fault(edge: Edge) -> str:
    """What is wrong with the kernel of a case; "" if nothing, or if it is no kernel."""
    return str(checked(edge).get("wrong", ""))


def checked(edge: Edge) -> Row:
    """The plan of a case in words, and what is `wrong` or why it is `refused`, if it is.

    alarm: what the checks of nests and plans say, who should say nothing of those that are right.
    """
    row: Row = {"case": str(edge), "kind": edge.kind}
    machine, program = MACHINES[edge.machine], parse_program(edge.text)
    try:
        with small_items(), np.errstate(all="ignore"):
            nest = whole_nest(program)
            chosen = plan(nest, machine)
            row |= {"plan": chosen.kind, "traits": traits(chosen), "items": chosen.items}
            alarms = "; ".join(plan_faults(nest, chosen))
            row |= {"alarm": alarms} if alarms else {}
            return row | _wrong(program, nest, chosen, machine)
    except NoNest as why:
        alarm = {"alarm": str(why)} if is_alarm(why) else {}
        return row | {"refused": str(why)} | alarm
    except CannotCompile as why:
        return row | {"wrong": f"LLVM refuses it: {why}"}
    except Exception as error:  # whatever a valid program makes fail is a finding
        return row | {"wrong": f"{type(error).__name__}: {error}"}


def is_alarm(why: NoNest) -> bool:
    """Whether it was a check that found a fault in what is built."""
    return str(why).startswith("the check refuses")


@contextmanager
def small_items() -> Iterator[None]:
    """Planned so that these sizes are several work items."""
    with ExitStack() as stack:
        for figure in ITEMS:
            stack.enter_context(mock.patch.object(*figure))
        yield


def whole_nest(program: Program) -> Nest:
    """A whole program as one nest."""
    members = [Member(i, n.op, n.attr, n.operands, n.types) for i, n in enumerate(program.nodes)]
    return nest_of(members, [*program.inputs, *program.weights], program.results)


TRAITS: dict[str, Callable[[Any], bool]] = {
    "copied rows": lambda p: p.copied[0],
    "copied panels": lambda p: p.copied[1],
    "windows": lambda p: p.windows,
    "strips": lambda p: p.strips,
    "sums along the reduction": lambda p: p.dot > 0,
    "in order": lambda p: p.in_order,
    "fused": lambda p: p.fused > 1,
    "wide": lambda p: p.wide > 1,
    "blocks of the reduction": lambda p: p.k_blocks > 1,
    "finished in memory": lambda p: not p.in_registers,
    "squares": lambda p: any(q.square >= 0 for q in p.parts),
    "kept": lambda p: any(q.cached for q in p.parts),
    "lanes are rows": lambda p: any(q.vector >= 0 for q in p.parts),
    "keys in place": lambda p: p.dots > 0,
    "columns copied": lambda p: p.columns_copied,
    "columns in order": lambda p: p.streamed > 0,
    "several items": lambda p: p.items > 1,
}


def traits(chosen: Plan) -> list[str]:
    """In which of the ways a plan can run it does."""

    def has(test: Callable[[Any], bool]) -> bool:
        try:
            return test(chosen)
        except AttributeError:  # of another kind of plan
            return False

    return [name for name, test in TRAITS.items() if has(test)]


# ---- one case ------------------------------------------------------------------------------------
def _wrong(program: Program, nest: Nest, chosen: Plan, machine: Machine) -> Row:
    inputs = drawn(program)
    given = dict(zip(program.inputs, inputs, strict=True))
    types = {r: program.nodes[r].type for r in program.results}
    for found in kernel_runs(nest, chosen, machine, given, types):
        if wrong := differs(program, inputs, {program.results.index(w): x for w, x in found}):
            return {"wrong": wrong}
    return {}


def drawn(program: Program) -> list[Array]:
    """As `random_inputs` draws, but bytes are any number of their type; odd floats are any, too."""
    rng = np.random.default_rng(0)
    found, indices = random_inputs(program, rng), index_extents(program)
    for at, i in enumerate(program.inputs):
        x = found[at]
        if program.leaf(i).name.startswith("odd"):
            found[at] = rng.choice(
                np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1.5], x.dtype), x.shape
            )
        if x.dtype.kind in "iu" and x.dtype.itemsize == 1 and i not in indices:
            held = np.iinfo(x.dtype)
            found[at] = rng.integers(held.min, held.max, x.shape, x.dtype, endpoint=True)
    return found


def kernel_runs(
    nest: Nest,
    chosen: Plan,
    machine: Machine,
    given: Mapping[int, Array],
    types: Mapping[int, TensorType],
) -> Iterator[list[tuple[int, Array]]]:
    """What both runs of a kernel write: (buffer, values), bools as the bytes that lie there."""
    kernel = generate(nest, chosen, machine, "edge")
    held = [np.uint8 if types[w].dtype == "bool" else element_dtype(types[w].dtype)
            for w in kernel.writes]  # fmt: skip
    shapes = [(types[w].shape, dtype) for w, dtype in zip(kernel.writes, held, strict=True)]
    for found in guarded.runs(kernel, machine, [given[r] for r in kernel.reads], shapes):
        yield list(zip(kernel.writes, found, strict=True))


def differs(program: Program, inputs: list[Array], found: Mapping[int, Array]) -> str:
    """The worst element that neither the limit nor noise explains; "" if there is none.

    found: by the number of the program's result.
    """
    evaluate = partial(_meaning, program, inputs, list(found))
    wanted = evaluate()
    pairs = list(zip(found.values(), wanted, strict=True))
    away = [np.where(_is_open(w), 0.0, distance(x, w)) for x, w in pairs]
    allowed = [_allowed(w, error_limit(program)) for w in wanted]
    for pair in range(NOISE):
        if not any((d > a).any() for d, a in zip(away, allowed, strict=True)):
            return ""
        moved = moves(program, evaluate, wanted, [0, pair])
        allowed = [np.maximum(a, m) for a, m in zip(allowed, moved, strict=True)]
    for (at, x), w, d, a in zip(found.items(), wanted, away, allowed, strict=True):
        if (d > a).any():
            worst = element(x, w, int(np.argmax(np.where(d > a, d, -1.0))))
            return f"result {at}{worst}, {int((d > a).sum())} of {d.size} elements differ"
    return ""


def _is_open(wanted: Array) -> Array:
    """Lanes that may hold anything, which are NaN in the reference."""
    return np.isnan(wanted) if wanted.dtype.kind == "f" else np.zeros(wanted.shape, bool)


def _allowed(wanted: Array, limit: float) -> Array:
    is_exact = wanted.dtype.kind != "f"
    return np.zeros(wanted.shape) if is_exact else np.full(wanted.shape, limit * size(wanted))


def _meaning(program: Program, inputs: list[Array], order: list[int], *noise: Any) -> list[Array]:
    made = reference(program, inputs, {}, {}, WorkBudget(1e12), *noise)
    return [np.asarray(made[i]) for i in order]
