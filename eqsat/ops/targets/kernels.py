"""Tables of a target asked about an op: its kernel, the order in which it walks, its precision.

A library call works in certain orders of dims; what lies otherwise is transposed for it first. A
contraction without windows is a matmul: its dims have to come as groups, batch first. Other ops
read and write in the order in which tensors lie, or walk across them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from eqsat.model.affine import Map, map_loops
from eqsat.model.attr import Attr, Shape
from eqsat.model.control import Control
from eqsat.model.diag import fail
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.movement import Transpose
from eqsat.model.program import Program
from eqsat.model.target import Target, UntiledKernel
from eqsat.model.tensor import NONE
from eqsat.ops.contractions.convolution import (
    OrderedConvolution,
    lies_in,
    order_convolution,
    orders,
    spatial_contraction,
)
from eqsat.ops.contractions.roles import Roles, innermost, lies_in_order
from eqsat.ops.programs.binding import bind_attr
from eqsat.ops.programs.placement import node_devices
from eqsat.ops.targets.tiles import Facts, is_met

# ---- kernels of contractions ---------------------------------------------------------------------
RESULT = 2  # the result among operands 0 and 1


@dataclass(frozen=True)
class KernelChoice:
    """A kernel for a contraction; misplaced: operands (RESULT: the result) it transposes."""

    rate: float
    misplaced: tuple[int, ...]


def kernel_choices(target: Target, g: Generic) -> tuple[KernelChoice, ...]:
    """Kernels of an unpacked contraction; one call at `untiled_rate` if no kernel applies."""
    kind = kernel_kind(g)
    return _calls(target.untiled_kernels(kind), target.untiled_rate, kind, g)


def target_orders(target: Target, sizes: Mapping[str, int], g: Generic) -> list[OrderedConvolution]:
    """The convolution in every order that the target has a kernel for, whose `when` holds.

    sizes: of symbols, at which that is judged.
    """
    conv = spatial_contraction(g)
    if conv is None:
        return []
    kind = f"conv{len(conv.spatial)}d"
    bound = bind_attr(g, sizes) if sizes else g
    assert isinstance(bound, Generic)
    answers = facts(bound, kind)
    pairs = dict.fromkeys(
        (k.image, k.filters)
        for k in target.untiled_kernels(kind)
        if k.image and k.filters and all(is_met(c, answers) for c in k.when)
    )
    ordered = [order_convolution(g, *pair) for pair in pairs]
    return [o for o in ordered if o is not None]


@lru_cache(maxsize=10_000)
def _calls(
    kernels: tuple[UntiledKernel, ...], default: float, kind: str, g: Generic
) -> tuple[KernelChoice, ...]:
    answers = facts(g, kind)
    choices: dict[tuple[str, ...], KernelChoice] = {}
    for k in kernels:
        order = (k.image, k.filters, k.lhs, k.rhs)
        if order not in choices and all(is_met(c, answers) for c in k.when):
            lost = _unstreamed(g, k) if kind == "matmul" else _misplaced(g, k)
            choices[order] = KernelChoice(k.rate, tuple(lost))
    if not choices:
        return (KernelChoice(default, tuple(_ungrouped(g)) if kind == "matmul" else ()),)
    return tuple(choices.values())


def kernel_kind(g: Generic) -> str:
    """The op kind of a target's `untiled:`: a convolution has a window of more than one place."""
    conv = spatial_contraction(g)
    walked = any(sum(g.sizes[d] > 1 for d, _ in e.terms) > 1 for m in g.maps for e in m)
    return f"conv{len(conv.spatial)}d" if conv is not None and walked else "matmul"


def facts(g: Generic, kind: str) -> Facts:
    """Facts for the `when` of a kernel: extents of all loops of a role together, and types."""
    roles, conv = loop_roles(g), spatial_contraction(g)
    if kind == "matmul" or conv is None:
        answers: Facts = {r: _extent(g, getattr(roles, r)) for r in ("m", "n", "k", "batch")}
        image = 0
    else:
        answers = {"c": _extent(g, conv.channels), "k": _extent(g, conv.filters)}
        answers |= {"batch": _extent(g, conv.groups), "window": _extent(g, conv.windows)}
        answers["places"] = _extent(g, (*conv.images, *conv.spatial))
        image = conv.image
    answers |= {"lhs": g.dtypes[image], "rhs": g.dtypes[1 - image], "acc": g.yields[0].dtype}
    return answers


def loop_roles(g: Generic) -> Roles:
    """Every loop by who reads it: a stride leaves a loop its role, as a kernel reads a view."""
    lhs, rhs = (map_loops(m) for m in g.maps)
    parallel, reduced = set(range(g.rank)), set(g.reductions)
    by_role = [lhs & rhs & parallel, (lhs - rhs) & parallel, (rhs - lhs) & parallel, reduced]
    batch, m, n, k = (tuple(sorted(loops)) for loops in by_role)
    return Roles(batch, m, n, k, ())


def _extent(g: Generic, loops: Sequence[int]) -> int:
    return math.prod(g.sizes[d] for d in loops)


# ---- what lies otherwise ---------------------------------------------------------------------
def _misplaced(g: Generic, kernel: UntiledKernel) -> Iterator[int]:
    conv, now = spatial_contraction(g), orders(g)
    if conv is None or now is None:
        return
    image, filters = conv.image, 1 - conv.image
    asked = [
        (image, now.image, g.shapes[image], kernel.image),
        (filters, now.filters, g.shapes[filters], kernel.filters),
        (RESULT, now.result, g.result_shape, kernel.image),
    ]
    yield from (i for i, at, shape, order in asked if order and not lies_in(at, shape, order))


def _unstreamed(g: Generic, kernel: UntiledKernel) -> list[int]:
    """Operands not grouped, and those whose innermost roles are others than the kernel's."""
    lost = set(_ungrouped(g))
    for i, order in enumerate((kernel.lhs, kernel.rhs)):
        if order and not lies_in_order(g, i, innermost(order)):
            lost.add(i)
    return sorted(lost)


def _ungrouped(g: Generic) -> Iterator[int]:
    """Operands and result whose dims are not batch, then two groups in the order of the loops.

    What is read backwards is written forwards first, as well.
    """
    roles = loop_roles(g)
    for i, (m, shape) in enumerate(zip(g.maps, g.shapes, strict=True)):
        is_forward = all(s > 0 for e in m for _, s in e.terms)
        if not is_forward or not _is_grouped(list(_large(g, m, shape)), roles):
            yield i
    if not _is_grouped([d for d in range(g.rank) if g.sizes[d] > 1], roles):
        yield RESULT


def _large(g: Generic, m: Map, shape: Sequence[int]) -> Iterator[int]:
    """The loops of an operand's dims above extent 1, the outermost first."""
    for e, size in zip(m, shape, strict=True):
        if size > 1:
            yield from (d for d, _ in e.terms if g.sizes[d] > 1)


def _is_grouped(loops: Sequence[int], roles: Roles) -> bool:
    runs: list[list[int]] = []
    names: list[str] = []
    for d in loops:
        name = next((r for r in ("batch", "m", "n", "k") if d in getattr(roles, r)), "other")
        if not names or names[-1] != name:
            runs.append([])
            names.append(name)
        runs[-1].append(d)
    in_order = all(run == sorted(run) for run in runs)
    return in_order and len(set(names)) == len(names) and "batch" not in names[1:]


# ---- order of the walk ---------------------------------------------------------------------------
def moves_innermost(op: str, attr: Attr | None) -> bool:
    """Whether a conversion gives another dim the place of the innermost one above extent 1."""
    match attr:
        case Transpose():
            return _moved(attr.source, attr.perm)
        case Layout() if not attr.is_in_place(op):
            last = _last(attr.source)
            return last is not None and bool(attr.pos) and attr.pos[-1] != last
    return False


def _moved(shape: Shape, perm: Sequence[int]) -> bool:
    """Whether the innermost dim above extent 1 is another one behind a transpose."""
    placed = [d for d in perm if shape[d] > 1]
    return bool(placed) and placed[-1] != _last(shape)


def _last(shape: Shape) -> int | None:
    return next((d for d in reversed(range(len(shape))) if shape[d] > 1), None)


def miswrites(g: Generic) -> bool:
    """Whether the innermost parallel loop is not that of the result's innermost dim."""
    return _inner(g) != _last(g.result_shape)


def _inner(g: Generic) -> int | None:
    """The innermost parallel loop of more than one iteration."""
    return next((d for d in reversed(g.executed) if d < g.rank and g.sizes[d] > 1), None)


def misread(g: Generic) -> Iterator[int]:
    """Operands of a generic whose innermost dim is not the one the loops walk along.

    A reduction may walk along a reduced dim instead, and what an operand repeats costs nothing.
    """
    inner = _inner(g)
    if inner is None:
        return
    for i, (m, shape) in enumerate(zip(g.maps, g.shapes, strict=True)):
        last = _last(shape)
        loops = set() if last is None else {d for d, _ in m[last].terms if g.sizes[d] > 1}
        walked = {d for e in m for d, _ in e.terms}
        if loops and inner in walked and inner not in loops and max(loops) < g.rank:
            yield i


# ---- precision -----------------------------------------------------------------------------------
def check_precisions(program: Program, target: Target) -> None:
    """EqsatError E215 if a contraction asks for a precision that its device does not know.

    program: placed on the devices of the target, if it has several.
    """
    for i, g, machine in _contractions(program, target):
        if machine.precisions and g.precision not in machine.precisions:
            shapes = f"{list(g.shapes[0])} and {list(g.shapes[1])}"
            asked = f"{program.value_name(i)}, a contraction of {shapes},"
            raise fail(
                "E215",
                f"{asked} asks for the precision `{g.precision}`, "
                f"which target `{machine.name}` does not know",
                help=f"it knows {', '.join(machine.precisions)} ({machine.place('precisions')})",
            )


def _contractions(program: Program, target: Target) -> Iterator[tuple[int, Generic, Target]]:
    """Contractions with their nodes and devices; those of bodies with the node of the loop."""
    machines = dict(target.devices)
    devices = node_devices(program, dict(target.placed), target.default_device)
    for i, (n, device) in enumerate(zip(program.nodes, devices, strict=True)):
        machine = machines.get(device or target.default_device, target)
        if isinstance(n.attr, Control):
            for body in n.attr.bodies:
                yield from ((i, g, m) for _, g, m in _contractions(body, machine))
        if isinstance(n.attr, Generic) and n.attr.precision != NONE:
            yield i, n.attr, machine
