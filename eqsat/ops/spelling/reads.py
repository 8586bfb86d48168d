"""Reads that are written in a roundabout way: shared parts, neighbours, and updates read back.

A part of a body that is a value of the program is read, not computed once more: `exp(x0)` inside of
an op that reads x, beside a value `exp(x)`. Which of the two ways it was written decides nothing,
as a value may be computed again wherever that is cheaper.

A stencil is written as slices of a padded value that are added up. As maps of one op they are no
values that could be left in memory, and no op of which the search would compute slices in turn:
ten steps over an image would be slices of slices of each.

A dynamic_update_slice arrives as a choice by position between the update and what was there, a
dynamic_slice as a gather of the rows from a clamped start on. Of one start and one width, a read of
a write is the update, and a write of a read is the value itself. Exact, as the start is clamped.
Source: XLA's AlgebraicSimplifier (dynamic-slice of dynamic-update-slice, and the reverse). All of
it is exact to the bit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import combinations

from eqsat.model.affine import Affine, Map, dim
from eqsat.model.attr import Shape
from eqsat.model.expr import BottomUp, Expr, arg, call, const, literal
from eqsat.model.generic import Generic, Yield
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Move
from eqsat.model.program import Builder, Node, Program, rewritten
from eqsat.ops.algebra.linear import replaced
from eqsat.ops.generics.canonical import (
    Operand,
    canonical_body,
    compose_maps,
    generic_node,
    identity,
)
from eqsat.ops.meaning.programs import is_iota
from eqsat.ops.meaning.scalar import FUNCTIONS, result_dtype
from eqsat.ops.movement.moves import slice_of
from eqsat.ops.spelling.storedbytes import is_byte_function

# ---- shared parts --------------------------------------------------------------------------------
Known = dict[tuple[str, str], tuple[int, Shape]]  # form and type -> the value, its shape


def shared(program: Program) -> Program:
    """The program whose bodies read the values that they would compute once more."""
    values: Known = {}

    def write(b: Builder, _: int, n: Node, operands: tuple[int, ...]) -> int | None:
        g = n.attr
        if not isinstance(g, Generic) or len(g.yields) != 1 or g.tile or g.has_precision:
            return None
        written = _written(b, n, operands, g, values)
        if g.rank == len(g.sizes) and g.body.args and not is_byte_function(g):
            key = _former(g, operands)(g.body), g.yields[0].dtype
            values.setdefault(key, (written, g.result_shape))
        return written

    return rewritten(program, write)


def _written(b: Builder, n: Node, operands: tuple[int, ...], g: Generic, values: Known) -> int:
    largest = _largest(g, operands, values)
    if largest is None:
        return b.move(n, operands)
    part, value, shape = largest
    y: Yield = replace(g.yields[0], body=replaced(g.body, part, arg(len(operands))))
    reads: list[Operand] = list(zip(operands, g.maps, strict=True))
    reads.append((value, identity(len(shape))))
    return generic_node(b, g.sizes, range(g.rank), reads, [y], precision=g.precision)


def _largest(
    g: Generic, operands: tuple[int, ...], values: Known
) -> tuple[Expr, int, Shape] | None:
    """The outermost part of a body that is known as a value over the first loops of the op."""
    if not values:
        return None
    form = _former(g, operands)
    for part in g.body.walk():
        if not part.args or (part is g.body and g.rank == len(g.sizes)):
            continue
        dtype = result_dtype(part, g.dtypes)
        value = values.get((form(part), dtype or ""))
        if value is not None and value[1] == g.sizes[: len(value[1])]:
            return part, *value
    return None


def _former(g: Generic, operands: tuple[int, ...]) -> BottomUp[Expr, str]:
    """Text of a part of a body over its values, whatever its operands are numbered."""
    leaves = [f"{o} {', '.join(map(str, m))}" for o, m in zip(operands, g.maps, strict=True)]

    def step(e: Expr, args: Sequence[str]) -> str:
        if e.fn == "arg":
            return leaves[e.value]
        function = FUNCTIONS.get(e.fn)
        if function is not None and function.commutative:
            args = sorted(args)
        value = literal(e.value) if e.fn == "const" else str(e.value)
        return blake2b("|".join((e.fn, value, *args)).encode(), digest_size=16).hexdigest()

    return BottomUp(step)


# ---- stencils ------------------------------------------------------------------------------------
Box = tuple[range, ...]  # the indices of every dim that a slice takes; no range is empty


def as_stencils(program: Program) -> Program:
    """The program in which pointwise ops read neighbours, where they read overlapping slices."""
    if program.symbols or not any(n.op == "slice" for n in program.nodes):
        return program
    return rewritten(program, lambda b, _, n, operands: _stencil(b, n, operands))


def _stencil(b: Builder, n: Node, operands: tuple[int, ...]) -> int | None:
    g = n.attr
    if not isinstance(g, Generic) or not g.is_elementwise or len(g.yields) != 1 or g.order:
        return None
    windows = _windows(b, operands)
    if not windows:
        return None
    reads: list[Operand] = []
    for o, m in zip(operands, g.maps, strict=True):
        at = windows.get(o)
        reads.append((o, m) if at is None else (at[0], compose_maps(at[1], m)))
    return generic_node(b, g.sizes, range(g.rank), reads, g.yields, precision=g.precision)


def _windows(b: Builder, operands: Sequence[int]) -> dict[int, Operand]:
    """Operands that are slices of what others are overlapping slices of: that, and where."""
    slices: dict[int, dict[int, Box]] = defaultdict(dict)
    for o in operands:
        n = b.nodes[o]
        if isinstance(n.attr, Move) and n.op == "slice" and 0 not in n.type.shape:
            slices[n.operands[0]][o] = tuple(map(range, *n.attr.args))
    windows: dict[int, Operand] = {}
    for x, boxes in slices.items():
        if any(_overlap(p, q) for p, q in combinations(boxes.values(), 2)):
            hull = [range(min(r[0] for r in d), max(r[-1] for r in d) + 1)
                    for d in zip(*boxes.values(), strict=True)]  # fmt: skip
            below = _part(b, x, hull)
            windows |= {o: (below, _map(box, hull)) for o, box in boxes.items()}
    return windows


def _overlap(a: Box, b: Box) -> bool:
    """Whether two slices share elements."""
    return all(_shared(p, q) for p, q in zip(a, b, strict=True))


def _shared(p: range, q: range) -> bool:
    few, many = sorted((p, q), key=len)
    return any(i in many for i in few)


def _part(b: Builder, x: int, hull: Sequence[range]) -> int:
    shape = b.type(x).shape
    if [len(r) for r in hull] == list(shape):
        return x
    start, limit = tuple(r.start for r in hull), tuple(r.stop for r in hull)
    return b.add("slice", (x,), slice_of(shape, start, limit, (1,) * len(hull)))


def _map(box: Box, hull: Sequence[range]) -> Map:
    """The indices within the hull of an element of a slice."""
    return tuple(
        Affine(((d, r.step),) if len(r) > 1 else (), r.start - h.start)
        for d, (r, h) in enumerate(zip(box, hull, strict=True))
    )


# ---- updates -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Block:
    """So many rows along a dim, from a clamped start on."""

    start: int  # the node that computes it
    axis: int
    width: int


def without_read_backs(program: Program) -> Program:
    """The program in which nothing is read that was just written, or written that was just read."""
    if not any(n.op == "gather" for n in program.nodes):
        return program

    def write(b: Builder, _: int, n: Node, operands: tuple[int, ...]) -> int:
        at = b.move(n, operands)
        read = _read_back(b, at)
        return at if read is None else read

    return rewritten(program, write)


def _read_back(b: Builder, i: int) -> int | None:
    """Value of a node that reads what was written, or writes what was read."""
    read = _read(b, i)
    if read is not None:
        value, block = read
        written = _write(b, value)
        return written[1] if written is not None and written[2] == block else None
    written = _write(b, i)
    if written is None:
        return None
    value, update, block = written
    return value if _read(b, update) == (value, block) else None


def _read(b: Builder, i: int) -> tuple[int, _Block] | None:
    """The value and the block of it that a gather reads from a clamped start on."""
    n = b.nodes[i]
    if n.op != "gather" or not isinstance(n.attr, Move):
        return None
    (axis,) = n.attr.args
    value, k = n.operands
    g = b.nodes[k].attr
    if not isinstance(g, Generic) or len(g.sizes) != 1 or len(g.maps) != 2:
        return None
    (width,) = g.sizes
    at = _line_and_start(b, k, 0)
    if at is None or g.body not in (call("add", arg(0), arg(1)), call("add", arg(1), arg(0))):
        return None
    start = b.nodes[k].operands[at[1]]
    extent = n.attr.sources[0][axis]
    return (value, _Block(start, axis, width)) if _room(b, start) == extent - width else None


def _write(b: Builder, i: int) -> tuple[int, int, _Block] | None:
    """The value, the update and where it goes of a choice by position."""
    n = b.nodes[i]
    g = n.attr
    if not isinstance(g, Generic) or len(g.yields) != 1 or g.rank != len(g.sizes) or g.tile:
        return None
    if g.body.fn != "select" or len(g.maps) != 4 or any(a.fn != "arg" for a in g.body.args[1:]):
        return None
    there, here = (a.value for a in g.body.args[1:])
    gather = b.nodes[n.operands[there]]
    if gather.op != "gather" or not isinstance(gather.attr, Move):
        return None
    (axis,) = gather.attr.args
    update, k = gather.operands
    width = gather.attr.sources[0][axis]
    at = _line_and_start(b, i, axis)
    same = identity(g.rank)
    if at is None or {there, here, *at} != {0, 1, 2, 3} or {g.maps[there], g.maps[here]} != {same}:
        return None
    start = n.operands[at[1]]
    inside = _inside(arg(at[0]), arg(at[1]), width)
    body = canonical_body(call("select", inside, arg(there), arg(here)))
    is_there = canonical_body(g.body) == body and _is_offset(b, k, start, width)
    if not is_there or _room(b, start) != g.sizes[axis] - width:
        return None
    return n.operands[here], update, _Block(start, axis, width)


def _inside(at: Expr, start: Expr, width: int) -> Expr:
    return call("and", call("ge", at, start), call("lt", at, call("add", start, const(width))))


def _line_and_start(b: Builder, i: int, axis: int) -> tuple[int, int] | None:
    """The operands of a generic that count its loop `axis`, and that are a start."""
    n = b.nodes[i]
    g = n.attr
    assert isinstance(g, Generic)
    lines = [j for j, o in enumerate(n.operands) if _is_line(b, o) and g.maps[j] == (dim(axis),)]
    starts = [j for j, m in enumerate(g.maps) if m == ()]
    is_whole = len(lines) == len(starts) == 1 and g.shapes[lines[0]] == (g.sizes[axis],)
    return (lines[0], starts[0]) if is_whole else None


def _is_line(b: Builder, i: int) -> bool:
    leaf = b.nodes[i].attr
    return b.nodes[i].op == "weight" and isinstance(leaf, Leaf) and is_iota(leaf)


def _is_offset(b: Builder, i: int, start: int, width: int) -> bool:
    """Whether a node is 0, 1, … less the start, within the update."""
    n = b.nodes[i]
    if not isinstance(n.attr, Generic) or len(n.attr.sizes) != 1 or len(n.operands) != 2:
        return False
    at = _line_and_start(b, i, 0)
    if at is None or n.operands[at[1]] != start:
        return False
    body = call("clamp", const(0), call("sub", arg(at[0]), arg(at[1])), const(width - 1))
    return n.attr.body == canonical_body(body)


def _room(b: Builder, i: int) -> int | None:
    """The largest value of a number that is clamped from 0 on; None if it is not."""
    g = b.nodes[i].attr
    if not isinstance(g, Generic) or g.sizes or len(g.yields) != 1:
        return None
    e = g.body.args[0] if g.body.fn == "cast" else g.body
    if e.fn != "clamp" or e.args[0] != const(0) or e.args[2].fn != "const":
        return None
    room = e.args[2].value
    return room if isinstance(room, int) and g.yields[0].dtype == "i32" else None
