"""Program → Program: one spelling of what can be spelled in many ways, before the search.

Copies and ops that do nothing go, moves of moves become one move, operands stand in one order, and
equal values are one value. All of it is exact to the bit, and none of it decides anything: which
op carries a transpose, which value is kept and in which layout stays for the rules. So packs,
encodings, and transposes that are read by an op stay as they were written, unless they are undone.

Every node is written once, by what stands in front of it already, so it costs its length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from eqsat.model.affine import Map, affine, dim
from eqsat.model.attr import Attr, Shape
from eqsat.model.expr import arg
from eqsat.model.generic import Generic, Yield
from eqsat.model.layout import Layout
from eqsat.model.movement import Move, Reshape, Transpose
from eqsat.model.precision import NONE
from eqsat.model.program import Builder, Program, prune
from eqsat.ops.algebra.constants import constant_fill
from eqsat.ops.algebra.simplify import permuted_copy, simplified
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.generics.canonical import Operand, compose_maps, generic_node
from eqsat.ops.movement.lists import inverse
from eqsat.ops.movement.moves import (
    concat_of,
    moves_nothing,
    respell_slice,
    slice_of,
    slice_operands,
)
from eqsat.ops.movement.view import compose_moves
from eqsat.ops.spelling.operandorder import ordered_operands
from eqsat.ops.spelling.splits import put_together

Writer = Callable[[Builder, str, tuple[int, ...], Attr], int]


def normal(program: Program) -> Program:
    """The same program in its one spelling."""
    # splits are seen as long as their parts are slices of one value
    first = _written(program, {"concat": _concat})
    return _written(first, _WRITERS)


def _written(program: Program, writers: dict[str, Writer]) -> Program:
    if not any(n.op in writers for n in program.nodes):
        return program
    b = Builder(program.name)
    new: dict[int, int] = {}
    for i, n in b.following(program, new):
        operands = tuple([new[o] for o in n.operands])
        write = writers.get(n.op)
        new[i] = b.move(n, operands) if write is None else write(b, n.op, operands, n.attr)
    return prune(b.build([new[r] for r in program.results], program.symbols))


# ---- generics ------------------------------------------------------------------------------------
def _generic(b: Builder, op: str, operands: tuple[int, ...], g: Attr) -> int:
    assert isinstance(g, Generic)
    if g.tile:
        return b.add(op, operands, g)
    bodies = [simplified(y.body, g.dtypes) for y in g.yields]
    if len(g.yields) != 1:
        yields = tuple(replace(y, body=body) for y, body in zip(g.yields, bodies, strict=True))
        return b.add(op, operands, replace(g, yields=yields))
    y = replace(g.yields[0], body=bodies[0])
    if (fill := constant_fill(replace(g, yields=(y,)))) is not None:
        return b.add("fill", (), fill)
    reads = _through_copies(b, list(zip(operands, g.maps, strict=True)), g)
    reads, body = ordered_operands(b, reads, y.body)
    y = replace(y, body=body)
    node = generic_node(b, g.sizes, range(g.rank), reads, [y], precision=g.precision)
    return _as_a_move(b, node)


def _through_copies(b: Builder, reads: list[Operand], g: Generic) -> list[Operand]:
    """What is read, with values that only spread out others read where these are.

    A contraction reads what was written, as reading a broadcast operand might make it none.
    """
    if contraction_roles(g) is not None:
        return reads
    found: list[Operand] = []
    for node, m in reads:
        copy = _copy_map(b, node)
        found.append(
            (node, m) if copy is None else (b.nodes[node].operands[0], compose_maps(copy, m))
        )
    return found


def _copy_map(b: Builder, node: int) -> Map | None:
    """How a value that is nothing but another one, spread out or turned round, reads that."""
    g = b.nodes[node].attr
    if not isinstance(g, Generic) or len(g.yields) != 1 or len(g.maps) != 1 or g.tile:
        return None
    y = g.yields[0]
    is_copy = g.rank == len(g.sizes) and y.body == arg(0) and y.dtype == g.dtypes[0]
    return g.maps[0] if is_copy else None


def _as_a_move(b: Builder, node: int) -> int:
    """A generic that moves its operand is the transpose or the slice that does so."""
    m = _copy_map(b, node)
    g = b.nodes[node].attr
    if m is None or not isinstance(g, Generic):
        return node
    (x,) = b.nodes[node].operands
    perm = permuted_copy(g)
    if perm is not None:
        return _transpose(b, "transpose", (x,), Transpose(g.shapes[0], perm))
    # what every dim of the operand is read by: a loop and its stride, or nothing
    loops = [e.terms[0] if len(e.terms) == 1 else (-1, 1) for e in m]
    used = [d for d, _ in loops if d >= 0]
    rest = [s for d, s in enumerate(g.sizes) if d not in used]
    is_slice = all(len(e.terms) <= 1 for e in m) and len(set(used)) == len(used)
    if not is_slice or 0 in g.sizes or any(s > 1 for s in rest) or any(s < 1 for _, s in loops):
        return node
    return _cut_out(b, x, g, loops, [e.constant for e in m])


def _cut_out(
    b: Builder, x: int, g: Generic, loops: list[tuple[int, int]], start: list[int]
) -> int:  # fmt: skip
    """The slice of x that begins at `start` and takes each dim by its loop of g, by its stride."""
    lengths = [1 if d < 0 else g.sizes[d] for d, _ in loops]
    strides = [s for _, s in loops]
    limit = [a + (n - 1) * s + 1 for a, n, s in zip(start, lengths, strides, strict=True)]
    y = _slice(b, "slice", (x,), slice_of(g.shapes[0], start, limit, strides))
    used = [d for d, _ in loops if d >= 0]
    y = _reshaped(b, y, tuple(g.sizes[d] for d in used))
    perm = tuple(sorted(range(len(used)), key=used.__getitem__))
    y = _transpose(b, "transpose", (y,), Transpose(b.type(y).shape, perm))
    return _reshaped(b, y, g.result_shape)


def _reshaped(b: Builder, x: int, shape: Shape) -> int:
    return _reshape(b, "reshape", (x,), Reshape(b.type(x).shape, shape))


def _read_by(b: Builder, copy: int, shape: Shape, m: Map) -> int | None:
    """What a move of a value that only spreads out another one reads of that: by this map."""
    inner = _copy_map(b, copy)
    if inner is None:
        return None
    (x,) = b.nodes[copy].operands
    y = Yield(arg(0), b.type(x).dtype)
    reads = [(x, compose_maps(inner, m))]
    return _as_a_move(b, generic_node(b, shape, range(len(shape)), reads, [y], precision=NONE))


# ---- movement ------------------------------------------------------------------------------------
def _transpose(b: Builder, op: str, operands: tuple[int, ...], t: Attr) -> int:
    assert isinstance(t, Transpose)
    (x,) = operands
    below = b.nodes[x].attr
    if isinstance(below, Transpose):
        (x,) = b.nodes[x].operands
        t = Transpose(below.source, tuple(below.perm[p] for p in t.perm))
    if list(t.perm) == sorted(t.perm):
        return x
    found = _read_by(b, x, t.result_shape, tuple(map(dim, inverse(t.perm))))
    return b.add(op, (x,), t) if found is None else found


def _reshape(b: Builder, op: str, operands: tuple[int, ...], r: Attr) -> int:
    assert isinstance(r, Reshape)
    (x,) = operands
    below = b.nodes[x].attr
    if isinstance(below, Reshape):
        (x,) = b.nodes[x].operands
        r = Reshape(below.source, r.shape)
    return x if r.source == r.shape else b.add(op, (x,), r)


def _pad(b: Builder, op: str, operands: tuple[int, ...], m: Attr) -> int:
    assert isinstance(m, Move)
    (x,) = operands
    below = b.nodes[x].attr
    if isinstance(below, Move) and below.op == "pad":
        both = compose_moves(below, m)
        if both is not None:
            (x,) = b.nodes[x].operands
            m = both.pad or m
    return x if moves_nothing(m) else b.add(op, (x,), m)


def _slice(b: Builder, op: str, operands: tuple[int, ...], m: Attr) -> int:
    """A slice of the first value that holds all of it as it is."""
    assert isinstance(m, Move)
    (x,) = operands
    if moves_nothing(m):
        return x
    node = b.nodes[x]
    below = node.attr
    found: int | None = None
    if 0 not in m.shape and isinstance(below, Generic):
        start, _, stride = m.args
        cut = tuple(affine([(d, s)], a) for d, (a, s) in enumerate(zip(start, stride, strict=True)))
        found = _read_by(b, x, m.shape, cut)
    elif 0 not in m.shape and isinstance(below, Move):
        found = _slice_below(b, node.operands, below, m)
    return b.add(op, (x,), respell_slice(m) or m) if found is None else found


def _slice_below(b: Builder, operands: tuple[int, ...], below: Move, m: Move) -> int | None:
    """The slice of a slice, of a pad, or of a concat of which one operand holds all of it."""
    if below.op == "slice":
        both = compose_moves(below, m)
        return both and _slice(b, "slice", operands, both.slice or m)
    if below.op == "pad":
        found = compose_moves(below, m)
        if found is None or (found.slice is not None and found.pad is not None):
            return None  # windows of one padded image would be as many padded slices
        (x,) = operands if found.slice is None else (_slice(b, "slice", operands, found.slice),)
        return x if found.pad is None else _pad(b, "pad", (x,), found.pad)
    if below.op == "concat":
        for k, o in enumerate(operands):
            one = slice_operands(below, k, len(operands) - k - 1, m)
            if one is not None:
                return o if one.slice is None else _slice(b, "slice", (o,), one.slice)
    return None


def _concat(b: Builder, op: str, operands: tuple[int, ...], m: Attr) -> int:
    assert isinstance(m, Move)
    parts, whole = put_together(b, operands, m.args[0])
    if whole is not None:
        y = _transpose(b, "transpose", (_reshaped(b, parts[0], whole.split),), whole.transpose)
        return _reshaped(b, y, whole.shape)
    if len(parts) == 1:
        return parts[0]
    return b.add(op, parts, concat_of([b.type(p).shape for p in parts], m.args[0]))


def _unpack(b: Builder, op: str, operands: tuple[int, ...], layout: Attr) -> int:
    below = b.nodes[operands[0]]
    is_undone = below.op == "pack" and below.attr == layout
    return below.operands[0] if is_undone else b.add(op, operands, layout)


def _pack(b: Builder, op: str, operands: tuple[int, ...], layout: Attr) -> int:
    assert isinstance(layout, Layout)
    below = b.nodes[operands[0]]
    is_undone = below.op == "unpack" and below.attr == layout and not layout.is_padded
    return below.operands[0] if is_undone else b.add(op, operands, layout)


_WRITERS: dict[str, Writer] = {
    "pack": _pack,
    "unpack": _unpack,
    "generic": _generic,
    "transpose": _transpose,
    "reshape": _reshape,
    "pad": _pad,
    "slice": _slice,
    "concat": _concat,
}
