"""Normal form of a program: one spelling of what can be spelled in many ways, before the search.

Copies and ops that do nothing go, moves of moves become one move, operands stand in one order, and
equal values are one value. All of it is exact to the bit, and none of it decides anything: which
op carries a transpose, which value is kept and in which layout stays for the rules. So packs,
encodings, and transposes that are read by an op stay as they were written, unless they are undone.
Every node is written once, by what stands in front of it already, so it costs its length.

Operands are numbered as the body first uses them, where the arguments of a commutative function
stand by what they are: first by the loops that they read, then by their form, and only where two
are alike by the age of the values. So two ops of one form are one record, on other values too, and
equal layers of a model are spelled alike, as their values are in one order of age.

A concat of all slices of one value is that value: `stack(split(x, 4, axis=1))` of f32[64, 128] is
`transpose(reshape(x, [64, 4, 32]), [1, 0, 2])`, and heads put side by side again are its inverse.
A concat of equal parts is a broadcast; of two along a dim they have it stays, as rules fold it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from eqsat.model.affine import Map, affine, dim, map_loops
from eqsat.model.attr import Attr, Shape
from eqsat.model.expr import BottomUp, Expr, arg, literal
from eqsat.model.generic import Generic, Yield
from eqsat.model.layout import Layout
from eqsat.model.limits import MOST_OPERANDS
from eqsat.model.movement import Move, Reshape, Transpose
from eqsat.model.program import Builder, Node, Program, rewritten
from eqsat.model.tensor import NONE
from eqsat.ops.algebra.simplify import constant_fill, permuted_copy, simplified
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.generics.canonical import Operand, compose_maps, generic_node
from eqsat.ops.meaning.scalar import FUNCTIONS
from eqsat.ops.movement.lists import inverse
from eqsat.ops.movement.moves import (
    concat_of,
    join_slices,
    moves_nothing,
    respell_slice,
    slice_of,
    slice_operands,
)
from eqsat.ops.movement.view import compose_moves

# ---- the order of operands -----------------------------------------------------------------------
# no operands, loops, form, values in the order of their use, form with the values
Key = tuple[bool, tuple[int, ...], str, tuple[int, ...], str]


def ordered_operands(
    b: Builder, reads: Sequence[Operand], body: Expr
) -> tuple[list[Operand], Expr]:
    """Operands, each once and in order, and the body over them."""
    if len(body.operands()) < 2 and len(reads) < 2:
        return list(reads), body
    numbers = _in_order(b, reads, body)
    first: dict[Operand, int] = {}
    for o in numbers:
        first.setdefault(reads[o], len(first))
    new = {o: arg(first[reads[o]]) for o in numbers}
    return list(first), body.substitute(new)


def _in_order(b: Builder, reads: Sequence[Operand], body: Expr) -> list[int]:
    """The numbers of the operands that a body uses, as it first uses them."""
    keys = _keys(b, reads)

    def step(e: Expr, args: Sequence[tuple[Key, tuple[int, ...]]]) -> tuple[Key, tuple[int, ...]]:
        if e.fn == "arg":
            return keys(e), (e.value,)
        function = FUNCTIONS.get(e.fn)
        if function is not None and function.commutative:
            args = sorted(args)
        used = tuple(dict.fromkeys(o for _, os in args for o in os))
        return _whole(e, [k for k, _ in args], tuple(reads[o][0] for o in used)), used

    return list(BottomUp(step)(body)[1])


def _keys(b: Builder, reads: Sequence[Operand]) -> Callable[[Expr], Key]:
    def key(e: Expr) -> Key:
        node, m = reads[e.value]
        form = f"{b.type(node).dtype} {_text(m)}"
        return False, tuple(sorted(map_loops(m))), form, (node,), f"{form} {node:09}"

    return key


def _text(m: Map) -> str:
    return ", ".join(map(str, m))


def _whole(e: Expr, parts: Sequence[Key], values: tuple[int, ...]) -> Key:
    value = literal(e.value) if e.fn == "const" else str(e.value)
    loops = min((p[1] for p in parts if not p[0]), default=())
    form, whole = (_digest(e.fn, value, [p[at] for p in parts]) for at in (2, 4))
    return all(p[0] for p in parts), loops, form, values, whole


def _digest(fn: str, value: str, parts: Sequence[object]) -> str:
    return blake2b("|".join((fn, value, *map(str, parts))).encode(), digest_size=12).hexdigest()


# ---- a concat of all slices ----------------------------------------------------------------------
@dataclass(frozen=True)
class Whole:
    """A value with its parts in another place: reshaped, transposed, reshaped."""

    split: Shape  # the dim that was cut in two, no dims of extent 1
    transpose: Transpose
    shape: Shape


def put_together(
    b: Builder, operands: Sequence[int], axis: int
) -> tuple[tuple[int, ...], Whole | None]:
    """Operands of a concat, where parts of one value that lie side by side are one.

    If all of it is one value with its parts in another place, that value, and where they go.
    """
    parts = _joined(b, _flat(b, operands, axis), axis)
    whole = _concat_of_slices(b, parts, axis) if len(parts) > 1 else None
    return (tuple(parts), None) if whole is None else ((whole[0],), whole[1])


def _flat(b: Builder, operands: Sequence[int], axis: int) -> list[int]:
    """The operands, and those of concats among them: as many as rules are made for, at most."""
    flat: list[int] = []
    for k, o in enumerate(operands):
        below = b.nodes[o].attr
        is_same = isinstance(below, Move) and below.op == "concat" and below.args == (axis,)
        inner = list(b.nodes[o].operands) if is_same else [o]
        rest = len(operands) - k - 1
        flat += inner if len(flat) + len(inner) + rest <= MOST_OPERANDS else [o]
    return flat


def _joined(b: Builder, operands: Sequence[int], axis: int) -> list[int]:
    """The operands without what is empty; slices of one value that lie side by side are one."""
    nonempty = [o for o in operands if b.type(o).shape[axis]] or list(operands[:1])
    joined: list[int] = []
    for o in nonempty:
        both = _side_by_side(b, joined[-1], o, axis) if joined else None
        joined = [*joined, o] if both is None else [*joined[:-1], both]
    return joined


def _side_by_side(b: Builder, left: int, right: int, axis: int) -> int | None:
    one, two = b.nodes[left], b.nodes[right]
    if one.op != "slice" or two.op != "slice" or one.operands != two.operands:
        return None
    assert isinstance(one.attr, Move) and isinstance(two.attr, Move)
    concat = concat_of([one.type.shape, two.type.shape], axis)
    joined = join_slices(concat, one.attr, two.attr)
    if joined is None:
        return None
    return one.operands[0] if joined.slice is None else b.add("slice", one.operands, joined.slice)


def _concat_of_slices(b: Builder, operands: Sequence[int], axis: int) -> tuple[int, Whole] | None:
    """The value that the operands are slices of, in order, of one width, and all of it.

    Dims of extent 1 aside, which operands may have gained or lost.
    """
    slices = [_slice_of(b, o) for o in operands]
    parts = [s for s in slices if s is not None]
    if len(parts) < len(slices) or len({x for x, _ in parts}) != 1 or len(parts) < 2:
        return None
    x, first = parts[0]
    cut = _cut_dim([m for _, m in parts])
    shapes = [b.type(o).shape for o in operands]
    if cut is None or len(set(shapes)) != 1:
        return None
    source, shape = b.type(x).shape, shapes[0]
    before = _place(first.shape, shape, axis)
    if before is None:
        return None
    count, width = len(operands), first.shape[cut]
    split = (*source[:cut], count, width, *source[cut + 1 :])
    dims = [d + (d >= cut) for d in range(len(source))]  # of the source, in `split`
    dims.insert(before, cut)
    result = (*shape[:axis], shape[axis] * count, *shape[axis + 1 :])
    large = [d for d, s in enumerate(split) if s != 1]
    perm = tuple(large.index(d) for d in dims if d in large)
    shape = tuple(split[d] for d in large)
    return x, Whole(shape, Transpose(shape, perm), result)


def _slice_of(b: Builder, node: int) -> tuple[int, Move] | None:
    """The value of which this is a slice, dims of extent 1 aside, and the slice."""
    n = b.nodes[node]
    if n.op == "reshape":
        (below,) = n.operands
        if _large(b.type(below).shape) != _large(n.type.shape):
            return None
        n = b.nodes[below]
    return (n.operands[0], n.attr) if n.op == "slice" and isinstance(n.attr, Move) else None


def _large(shape: Shape) -> list[int]:
    return [s for s in shape if s != 1]


def _cut_dim(moves: Sequence[Move]) -> int | None:
    """The one dim that the slices cut, into all its parts of one width, in order."""
    source = moves[0].sources[0]
    dims = [d for d, s in enumerate(source) if moves[0].shape[d] != s]
    if len(dims) != 1:
        return None
    (cut,) = dims
    width = source[cut] // len(moves)
    for i, m in enumerate(moves):
        start = tuple(i * width if d == cut else 0 for d in range(len(source)))
        shape = tuple(width if d == cut else s for d, s in enumerate(source))
        if m.args[0] != start or m.shape != shape or set(m.args[2]) - {1}:
            return None
    return cut if width * len(moves) == source[cut] else None


def _place(cut: Shape, shape: Shape, axis: int) -> int | None:
    """The dim of a slice before which the parts are counted, if they are put together at `axis`.

    shape: that of the slice with other dims of extent 1.
    """
    before = sum(s != 1 for s in shape[:axis])
    large = [d for d, s in enumerate(cut) if s != 1]
    return large[before] if before < len(large) else len(cut)


# ---- the normal form -----------------------------------------------------------------------------
Writer = Callable[[Builder, str, tuple[int, ...], Attr], int]


def normal(program: Program) -> Program:
    """The program in its canonical form."""
    # splits are seen as long as their parts are slices of one value
    first = _written(program, {"concat": _concat})
    return _written(_written(first, _WRITERS), {"concat": _spread_out})


def _written(program: Program, writers: dict[str, Writer]) -> Program:
    if not any(n.op in writers for n in program.nodes):
        return program

    def write(b: Builder, _: int, n: Node, operands: tuple[int, ...]) -> int | None:
        return writers[n.op](b, n.op, operands, n.attr) if n.op in writers else None

    return rewritten(program, write)


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
    """Operands, with values that only spread out others read where these are.

    A contraction reads what was written, as reading a broadcast operand might make it none.
    """
    if contraction_roles(g) is not None:
        return reads
    sources: list[Operand] = []
    for node, m in reads:
        copy = _copy_map(b, node)
        sources.append(
            (node, m) if copy is None else (b.nodes[node].operands[0], compose_maps(copy, m))
        )
    return sources


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
    """Copy that reads by this map what a value only spreads out."""
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
    read = _read_by(b, x, t.result_shape, tuple(map(dim, inverse(t.perm))))
    return b.add(op, (x,), t) if read is None else read


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
    read: int | None = None
    if 0 not in m.shape and isinstance(below, Generic):
        start, _, stride = m.args
        cut = tuple(affine([(d, s)], a) for d, (a, s) in enumerate(zip(start, stride, strict=True)))
        read = _read_by(b, x, m.shape, cut)
    elif 0 not in m.shape and isinstance(below, Move):
        read = _slice_below(b, node.operands, below, m)
    return b.add(op, (x,), respell_slice(m) or m) if read is None else read


def _slice_below(b: Builder, operands: tuple[int, ...], below: Move, m: Move) -> int | None:
    """The slice of a slice, of a pad, or of a concat of which one operand holds all of it."""
    if below.op == "slice":
        both = compose_moves(below, m)
        return None if both is None else _slice(b, "slice", operands, both.slice or m)
    if below.op == "pad":
        padded = compose_moves(below, m)
        if padded is None or (padded.slice is not None and padded.pad is not None):
            return None  # windows of one padded image would be as many padded slices
        (x,) = operands if padded.slice is None else (_slice(b, "slice", operands, padded.slice),)
        return x if padded.pad is None else _pad(b, "pad", (x,), padded.pad)
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


def _spread_out(b: Builder, op: str, operands: tuple[int, ...], concat: Attr) -> int:
    """A value many times side by side, or twice along a new dim, is spread along a loop."""
    assert isinstance(concat, Move)
    (axis,), x, shape = concat.args, operands[0], concat.sources[0]
    if len(set(operands)) > 1 or (len(operands) == 2 and shape[axis] != 1):
        return b.add(op, operands, concat)
    inside = shape[axis:] if shape[axis] != 1 else shape[axis + 1 :]
    loops = (*shape[:axis], len(operands), *inside)
    x = _reshaped(b, x, (*shape[:axis], *inside))
    reads = [(x, tuple(dim(d) for d in range(len(loops)) if d != axis))]
    y = Yield(arg(0), b.type(x).dtype)
    copy = generic_node(b, loops, range(len(loops)), reads, [y], precision=NONE)
    return _reshaped(b, copy, concat.shape)


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
