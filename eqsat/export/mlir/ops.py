"""Ops in MLIR: a table, one line per op; generics as `linalg.generic`, and ops that move elements.

Maps are the same; bodies are in arith and math, with accumulators. Packs, transposes, reshapes,
pads, slices, concatenations and gathers move.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eqsat.export.mlir import rows, syntax
from eqsat.export.mlir.expressions import Body
from eqsat.export.mlir.syntax import Value, Writer
from eqsat.export.walk import Typed, typed_yields
from eqsat.model.affine import Map, dim
from eqsat.model.attr import Attr, Shape
from eqsat.model.expr import read_literal
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.leaves import Fill
from eqsat.model.movement import Move, Reshape, Transpose
from eqsat.model.tensor import TensorType
from eqsat.ops.generics.interchange import executed_map, turning
from eqsat.ops.meaning.scalar import neutral


# ---- generics ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Operand:
    """A value that a generic reads, and how."""

    name: str
    type: TensorType
    map: Map


def write_generic(
    w: Writer, g: Generic, xs: Sequence[Value], t: TensorType, name: str
) -> list[str]:
    """The names of its results; Inexpressible if its body is.

    The loops are written in the order in which they are executed.
    """
    ins = [_whole_dims(w, g, _in_rows(w, g, x, m)) for x, m in zip(xs, g.maps, strict=True)]
    ins += _domain(w, g)
    outs = _accumulators(w, g)
    loops = len(g.sizes)
    identity = tuple(dim(d) for d in range(g.rank))
    every = [o.map for o in (*ins, *[Operand(*o, identity) for o in outs])]
    maps = [syntax.affine_map(executed_map(g, m), loops) for m in every]
    kinds = ["parallel" if d < g.rank else "reduction" for d in g.executed]
    w.structured(name, maps, kinds, [(o.name, o.type) for o in ins], outs, g.precision)
    _block(w, g, ins, outs)
    w.line(f"}} -> {syntax.listed([t for _, t in outs])}")
    return [f"{name}#{i}" for i in range(len(outs))] if len(outs) > 1 else [name]


def _in_rows(w: Writer, g: Generic, x: Value, m: Map) -> Operand:
    """The operand; of one that is encoded the plain tensor."""
    layout = w.rows.get(x.name)
    plain = None if layout is None else rows.plain_map(layout, m, g)
    if plain is None:
        return Operand(x.name, x.type, m)
    x = rows.write_plain(w, x)
    return Operand(x.name, x.type, plain)


def _whole_dims(w: Writer, g: Generic, o: Operand) -> Operand:
    """The operand cut where a loop runs over a part of a dim only: linalg takes the whole dim."""
    cut = [
        s if e.dim is None else min(s, g.sizes[e.dim])
        for s, e in zip(o.type.shape, o.map, strict=True)
    ]
    if tuple(cut) == o.type.shape:
        return o
    t = o.type.with_shape(tuple(cut))
    zeros, ones = [0] * len(cut), [1] * len(cut)
    return Operand(write_slice(w, o.name, o.type, zeros, ones, t), t, o.map)


def write_slice(
    w: Writer,
    x: str,
    source: TensorType,
    start: Sequence[int],
    stride: Sequence[int],
    t: TensorType,
    name: str = "",
) -> str:
    """The elements of x from `start` in steps of `stride`."""
    where = f"{syntax.ints(start)} {syntax.ints(t.shape)} {syntax.ints(stride)}"
    types = f"{syntax.tensor(source)} to {syntax.tensor(t)}"
    return w.op(f"tensor.extract_slice {x}{where} : {types}", name)


def _domain(w: Writer, g: Generic) -> list[Operand]:
    """A tensor that is not read, for the extents of loops that no operand and no result has."""
    told = {e.dim for m in g.maps for e in m} | set(range(g.rank))
    loops = [d for d in range(len(g.sizes)) if d not in told]
    if not loops:
        return []
    t = TensorType(g.yields[0].dtype, tuple(g.sizes[d] for d in loops))
    return [Operand(w.empty(t), t, tuple(dim(d) for d in loops))]


def _accumulators(w: Writer, g: Generic) -> list[tuple[str, TensorType]]:
    accumulators = []
    for y in g.yields:
        t = TensorType(y.dtype, g.result_shape)
        start = w.filled(neutral(y.combine, y.dtype), t) if y.combine else w.empty(t)
        accumulators.append((start, t))
    return accumulators


def _block(
    w: Writer, g: Generic, ins: Sequence[Operand], outs: Sequence[tuple[str, TensorType]]
) -> None:
    given = [(w.fresh(), syntax.element(o.type.dtype)) for o in ins]
    held = [(w.fresh(), syntax.element(t.dtype)) for _, t in outs]
    w.line(f"^bb0({', '.join(f'{v}: {t}' for v, t in (*given, *held))}):", 3)
    body = Body(w, [*(v for v, _ in given), *(v for v, _ in held)])
    names = []
    for i, (y, value) in enumerate(zip(g.yields, typed_yields(g), strict=True)):
        total = Typed("arg", (), y.dtype, len(ins) + i)
        names.append(body.emit(Typed(y.combine, (total, value), y.dtype) if y.combine else value))
    w.line(f"linalg.yield {', '.join(names)} : {', '.join(t for _, t in held)}", 4)


# ---- movement ------------------------------------------------------------------------------------
Values = Sequence[Value]


# ---- pack and its family; lanes that may hold anything hold zeros --------------------------------
def write_pack(w: Writer, layout: Layout, xs: Values, t: TensorType, name: str) -> str:
    """`linalg.pack`."""
    return _pack(w, layout, xs[0], name)


def write_unpack(w: Writer, layout: Layout, xs: Values, t: TensorType, name: str) -> str:
    """`linalg.unpack`, or the plain tensor of an encoded one."""
    if xs[0].name in w.rows:
        return rows.write_plain(w, xs[0], name).name
    return _unpack(w, layout, xs[0], name)


def write_retype(w: Writer, layout: Layout, xs: Values, t: TensorType, name: str) -> str:
    """An unpack, then a pack."""
    plain = _unpack(w, layout, xs[0], w.fresh())
    return _pack(w, layout, Value(plain, t.with_shape(layout.source)), name)


def _pack(w: Writer, layout: Layout, x: Value, name: str) -> str:
    values = _paddings(layout)
    if len(values) > 1 or (values and x.type.dtype == "bool"):  # IREE compiles no padding of i1
        return _pack_padded_first(w, layout, x, name)
    padding = ""
    if values:
        value = w.constant(read_literal(values[0]), x.type.dtype)
        padding = f" padding_value({value} : {syntax.element(x.type.dtype)})"
    t = x.type.with_shape(layout.packed_shape)
    if not layout.pos:
        return _transpose(w, x, layout.outer, name)
    types = f"{syntax.tensor(x.type)} -> {syntax.tensor(t)}"
    into = w.empty(t)
    return w.op(f"linalg.pack {x.name}{padding}{_tiling(layout)} into {into} : {types}", name)


def _paddings(layout: Layout) -> list[str]:
    """The different values that padding must have; zeros where it may be anything."""
    paddings = sorted({p for p in layout.pads if p not in ("-", "?")})
    return paddings or (["0"] if "?" in layout.pads else [])


def _pack_padded_first(w: Writer, layout: Layout, x: Value, name: str) -> str:
    """`linalg.pack` has one padding value: the others are written by pads of their own."""
    for d, tile, text in layout.padded_dims:
        high = [0] * len(x.type.shape)
        high[d] = -layout.source[d] % tile
        t = x.type.with_shape(tuple(s + h for s, h in zip(x.type.shape, high, strict=True)))
        value = "0" if text in ("-", "?") else text
        x = Value(_pad(w, x, [0] * len(high), high, value, t, w.fresh()), t)
    even = Layout(x.type.shape, layout.pos, layout.tiles, layout.outer, ("-",) * len(layout.pos))
    return _pack(w, even, x, name)


def _unpack(w: Writer, layout: Layout, x: Value, name: str) -> str:
    t = x.type.with_shape(layout.source)
    if not layout.pos:
        back = tuple(layout.outer.index(d) for d in range(len(layout.outer)))
        return _transpose(w, x, back, name)
    types = f"{syntax.tensor(x.type)} -> {syntax.tensor(t)}"
    into = w.empty(t)
    return w.op(f"linalg.unpack {x.name}{_tiling(layout)} into {into} : {types}", name)


def _tiling(layout: Layout) -> str:
    return (
        f" outer_dims_perm = {syntax.ints(layout.outer)}"
        f" inner_dims_pos = {syntax.ints(layout.pos)} inner_tiles = {syntax.ints(layout.tiles)}"
    )


def write_transpose(
    w: Writer, attr: Transpose, xs: Values, t: TensorType, name: str
) -> str | list[str]:
    """`linalg.transpose`; a generic where another loop order is asked for."""
    if attr.order:
        return write_generic(w, turning(attr, t.dtype), xs, t, name)
    return _transpose(w, xs[0], attr.perm, name)


def _transpose(w: Writer, x: Value, perm: Sequence[int], name: str) -> str:
    if list(perm) == sorted(perm):
        return x.name
    t = x.type.with_shape(tuple(x.type.shape[p] for p in perm))
    into, order = w.empty(t), syntax.ints(perm)
    return w.op(
        f"linalg.transpose ins({x.name} : {syntax.tensor(x.type)})"
        f" outs({into} : {syntax.tensor(t)}) permutation = {order}",
        name,
    )


def write_reshape(w: Writer, attr: Reshape, xs: Values, t: TensorType, name: str) -> str:
    """A collapse to what both shapes refine, and an expansion; `tensor.reshape` of no elements."""
    (x,) = xs
    if attr.source == attr.shape:
        return x.name
    if math.prod(attr.shape) == 0:
        return _reshape_by_shape(w, x, t, name)
    groups = common_groups(attr.source, attr.shape)
    middle = x.type.with_shape(tuple(math.prod(attr.source[d] for d in g) for g, _ in groups))
    expands = middle.shape != attr.shape
    if middle.shape != attr.source:
        collapsed = w.fresh() if expands else name
        text = f"tensor.collapse_shape {x.name} {_groups([g for g, _ in groups])}"
        x = Value(
            w.op(f"{text} : {syntax.tensor(x.type)} into {syntax.tensor(middle)}", collapsed),
            middle,
        )
    if not expands:
        return x.name
    text = f"tensor.expand_shape {x.name} {_groups([g for _, g in groups])}"
    shape = f"output_shape {syntax.ints(attr.shape)}"
    return w.op(f"{text} {shape} : {syntax.tensor(x.type)} into {syntax.tensor(t)}", name)


def _groups(groups: Sequence[Sequence[int]]) -> str:
    return f"[{', '.join(syntax.ints(g) for g in groups)}]"


def _reshape_by_shape(w: Writer, x: Value, t: TensorType, name: str) -> str:
    extents = w.op(f"arith.constant dense<{syntax.ints(t.shape)}> : tensor<{t.rank}xi64>")
    types = f"({syntax.tensor(x.type)}, tensor<{t.rank}xi64>) -> {syntax.tensor(t)}"
    return w.op(f"tensor.reshape {x.name}({extents}) : {types}", name)


def common_groups(a: Shape, b: Shape) -> list[tuple[list[int], list[int]]]:
    """Neighbouring dims of a and of b with equal products, as fine as can be; none is empty.

    To a shape of no dims, or from one, there are no groups. Extents are not 0.
    """
    if not a or not b:
        return []
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        left, right, x, y = [i], [j], a[i], b[j]
        i, j = i + 1, j + 1
        while x != y:
            if x < y:
                left, x, i = [*left, i], x * a[i], i + 1
            else:
                right, y, j = [*right, j], y * b[j], j + 1
        groups.append((left, right))
    groups[-1][0].extend(range(i, len(a)))  # what is left are extents of 1
    groups[-1][1].extend(range(j, len(b)))
    return groups


# ---- pad, slice, concat, gather ----------------------------------------------------------------
def write_pad(w: Writer, move: Move, xs: Values, t: TensorType, name: str) -> str:
    """`tensor.pad`."""
    low, high, text = move.args
    return _pad(w, xs[0], low, high, str(text), t, name)


def write_strided(w: Writer, move: Move, xs: Values, t: TensorType, name: str) -> str:
    """`tensor.extract_slice`."""
    start, _, stride = move.args
    return write_slice(w, xs[0].name, xs[0].type, start, stride, t, name)


def write_concat(w: Writer, move: Move, xs: Values, t: TensorType, name: str) -> str:
    """`tensor.concat`."""
    names = ", ".join(x.name for x in xs)
    types = ", ".join(syntax.tensor(x.type) for x in xs)
    head = f"tensor.concat dim({move.args[0]}) {names}"
    return w.op(f"{head} : ({types}) -> {syntax.tensor(t)}", name)


def _pad(
    w: Writer,
    x: Value,
    low: Sequence[int],
    high: Sequence[int],
    text: str,
    t: TensorType,
    name: str,
) -> str:
    if x.type == t:
        return x.name
    value = w.constant(read_literal(text), t.dtype)
    w.line(f"{name} = tensor.pad {x.name} low{syntax.ints(low)} high{syntax.ints(high)} {{")
    indices = ", ".join(f"{w.fresh()}: index" for _ in low)
    w.line(f"^bb0({indices}):", 3)
    w.line(f"tensor.yield {value} : {syntax.element(t.dtype)}", 4)
    w.line(f"}} : {syntax.tensor(x.type)} to {syntax.tensor(t)}")
    return name


def write_gather(w: Writer, move: Move, xs: Values, t: TensorType, name: str) -> str:
    """Every element of the result reads x at its index, which is clipped into range."""
    (x, indices), (axis,) = xs, move.args
    loops, rank = t.rank, indices.type.rank
    identity = tuple(dim(d) for d in range(loops))
    maps = [syntax.affine_map(m, loops) for m in (identity[axis : axis + rank], identity)]
    out = Value(w.empty(t), t)
    ins = [(indices.name, indices.type)]
    w.structured(name, maps, ["parallel"] * loops, ins, [(out.name, t)])
    index, old = w.fresh(), w.fresh()
    element = syntax.element(t.dtype)
    w.line(f"^bb0({index}: {syntax.element(indices.type.dtype)}, {old}: {element}):", 3)
    index_dims = range(axis, axis + rank)
    places = [_line(w, f"linalg.index {d} : index") for d in range(loops) if d not in index_dims]
    at = _clipped(w, index, indices.type.dtype, x.type.shape[axis])
    read = ", ".join([*places[:axis], at, *places[axis:]])
    element_name = _line(w, f"tensor.extract {x.name}[{read}] : {syntax.tensor(x.type)}")
    w.line(f"linalg.yield {element_name} : {element}", 4)
    w.line(f"}} -> {syntax.tensor(t)}")
    return name


def _clipped(w: Writer, index: str, dtype: str, size: int) -> str:
    cast = "arith.index_castui" if dtype.startswith("u") else "arith.index_cast"
    wide = _line(w, f"{cast} {index} : {syntax.element(dtype)} to index")
    low, high = (_line(w, f"arith.constant {v} : index") for v in (0, max(0, size - 1)))
    above = _line(w, f"arith.maxsi {wide}, {low} : index")
    return _line(w, f"arith.minsi {above}, {high} : index")


def _line(w: Writer, text: str) -> str:
    name = w.fresh()
    w.line(f"{name} = {text}", 4)
    return name


# ---- the table -----------------------------------------------------------------------------------
def _fill(w: Writer, fill: Fill, xs: Sequence[Value], t: TensorType, name: str) -> str:
    return w.op(f"arith.constant {syntax.splat(fill.value, t)}", name)


def _same(w: Writer, attr: Attr, xs: Sequence[Value], t: TensorType, name: str) -> str:
    """A requested layout, a copy to another device, or padding that is forgotten."""
    return xs[0].name


# op -> (writer, attribute, operands, type of the first result, name wanted) -> the names of the
# results, or the name of the only one; an op that is not here cannot be written
WRITERS: dict[str, Callable[..., str | list[str]]] = {
    "generic": write_generic,
    "fill": _fill,
    "transpose": write_transpose,
    "reshape": write_reshape,
    "pack": write_pack,
    "unpack": write_unpack,
    "retype": write_retype,
    "relax": _same,
    "pad": write_pad,
    "slice": write_strided,
    "concat": write_concat,
    "gather": write_gather,
    "set_encoding": _same,
    "unset_encoding": _same,
    "transfer": _same,
}
