"""`generic` as ONNX: MatMul, Conv and pooling where it is one, else elementwise ops and Reduce.

Operands are tensors over the loops of the generic; sums of products are MatMul and Conv; reductions
over windows are pooling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product as every

import numpy as np

from eqsat.export.onnxmodel.expressions import Body
from eqsat.export.onnxmodel.graph import Graph, Value, extent
from eqsat.export.plan import Inexpressible
from eqsat.export.walk import Annotator, Typed, convert, typed_yields
from eqsat.model.affine import Map, map_loops
from eqsat.model.expr import BottomUp, Expr, call
from eqsat.model.generic import Generic, Yield
from eqsat.model.tensor import is_float
from eqsat.ops.generics.windows import (
    ConvolutionRoles,
    Window,
    bare_loops,
    convolution_roles,
    fixed_at,
    indices,
    read_part,
    window_loops,
    windows,
)
from eqsat.ops.meaning.scalar import neutral

# ---- operands over loops -------------------------------------------------------------------------
GATHER_LIMIT = 2**22  # elements of a constant table of indices


def project_all(graph: Graph, g: Generic, operands: Sequence[Value]) -> tuple[Generic, list[Value]]:
    """Normalised generic: maps hold bare dims and window sums only; and its operands."""
    projected = [project(graph, x, m, g.sizes) for x, m in zip(operands, g.maps, strict=True)]
    values = [v for v, _ in projected]
    maps = tuple(m for _, m in projected)
    return replace(g, maps=maps, shapes=tuple(v.shape for v in values)), values


def project(graph: Graph, x: Value, m: Map, sizes: Sequence[int]) -> tuple[Value, Map]:
    """Slice x to what its map reaches; dims that are read at one place go."""
    part = read_part(m, sizes)
    ranges = [r if r[2] > 0 else (r[1] - 1, r[0] - 1, r[2]) for r in part.ranges]
    starts, stops, steps = ([r[i] for r in ranges] for i in range(3))
    x = graph.slice(x, starts, stops, steps)
    return graph.reshape(x, [x.shape[axis] for axis in part.axes]), part.map


def over_loops(graph: Graph, x: Value, m: Map, sizes: Sequence[int]) -> Value:
    """x with one dim per loop, extent 1 where it does not use the loop; leading ones are left out.

    Inexpressible if that needs too large a table of indices.
    """
    loops = bare_loops(m)
    if loops is None:
        x, loops = _gathered(graph, x, m, sizes)
    x = graph.transpose(x, sorted(range(len(loops)), key=lambda axis: loops[axis]))
    shape = [sizes[d] if d in loops else 1 for d in range(len(sizes))]
    first = min(loops, default=len(sizes))
    return graph.reshape(x, shape[first:])


def to_loops(graph: Graph, x: Value, loops: Sequence[int], shape: Sequence[int]) -> Value:
    """A value whose dims are these loops → all loops of `shape`, missing ones repeated."""
    x = graph.transpose(x, sorted(range(len(loops)), key=lambda axis: loops[axis]))
    wide = [shape[d] if d in loops else 1 for d in range(len(shape))]
    return graph.expand(graph.reshape(x, wide), shape)


def _gathered(graph: Graph, x: Value, m: Map, sizes: Sequence[int]) -> tuple[Value, list[int]]:
    """Diagonals and windows without a product: read through a constant table of indices."""
    shape = [sizes[d] for d in sorted(map_loops(m))]
    if extent(shape) > GATHER_LIMIT:
        raise Inexpressible(f"its windows read {extent(shape)} elements one by one")
    used, at = indices(m, sizes)
    flat = np.ravel_multi_index(at, x.shape) if at else np.zeros((), np.int64)
    line = graph.reshape(x, [extent(x.shape)])
    return graph.gather(line, graph.constant(flat, "i64"), 0), used


# ---- products ------------------------------------------------------------------------------------
def product(graph: Graph, g: Generic, operands: Sequence[Value]) -> Value | None:
    """The result if this is a sum of products that MatMul or Conv computes, else None."""
    factors = _factors(g)
    if factors is None:
        return None
    if all(bare_loops(m) is not None for m in g.maps):
        return _matmul(graph, g, _evaluated(graph, g, factors, operands))
    roles = convolution_roles(g)
    if roles is None or not is_float(g.yields[0].dtype) or len(roles.windows) > 3:
        return None
    return _convolve(graph, g, roles, _evaluated(graph, g, factors, operands))


# ---- factors -----------------------------------------------------------------------------------
Sides = tuple[Expr | None, Expr | None]  # what a product takes of operand 0, and of operand 1


def _factors(g: Generic) -> tuple[Expr, Expr] | None:
    """The body as a product of one expression of each operand, else None."""
    if len(g.maps) != 2 or len(g.yields) != 1 or g.combine != "add":
        return None
    floating = is_float(g.yields[0].dtype)
    multiplied = BottomUp[Expr, Sides | None](_sides, lambda e: _multiplied(e, floating))
    a, b = multiplied(g.body) or (None, None)
    return (a, b) if a and b and a.operands() and b.operands() else None


def _multiplied(e: Expr, floating: bool) -> tuple[Expr, ...]:
    """Factors of a product; casts between floats around it do not matter."""
    is_cast = e.fn == "cast" and floating and is_float(e.value) and e.args[0].fn == "mul"
    return e.args if len(e.operands()) > 1 and (is_cast or e.fn == "mul") else ()


def _sides(e: Expr, inner: Sequence[Sides | None]) -> Sides | None:
    """None if something that is no product reads both operands."""
    if not inner:
        read = e.operands()
        return None if len(read) > 1 else (e, None) if read != (1,) else (None, e)
    if None in inner:
        return None
    (a, b), *rest = (s for s in inner if s is not None)
    for c, d in rest:
        a, b = _times(a, c), _times(b, d)
    return a, b


def _times(a: Expr | None, b: Expr | None) -> Expr | None:
    return a if b is None else b if a is None else call("mul", a, b)


def _evaluated(
    graph: Graph, g: Generic, factors: tuple[Expr, Expr], operands: Sequence[Value]
) -> list[Value]:
    """Each factor over the dims of its operand, in the type the sum is computed in."""
    dtype = g.yields[0].dtype
    types, body = Annotator(g.dtypes), Body(graph, operands)
    values = [body.emit(convert(types.annotate(f, dtype), dtype)) for f in factors]
    return [graph.expand(v, x.shape) for v, x in zip(values, operands, strict=True)]


# ---- MatMul ------------------------------------------------------------------------------------
def _matmul(graph: Graph, g: Generic, factors: Sequence[Value]) -> Value | None:
    lhs_loops, rhs_loops = (bare_loops(m) or [] for m in g.maps)
    reduced = set(g.reductions)
    if reduced - {*lhs_loops, *rhs_loops}:
        return None
    lhs, lhs_loops = _summed(graph, factors[0], lhs_loops, reduced - set(rhs_loops))
    rhs, rhs_loops = _summed(graph, factors[1], rhs_loops, reduced - set(lhs_loops))
    batch = sorted(set(lhs_loops) & set(rhs_loops) - reduced)
    k = sorted(set(lhs_loops) & reduced)
    m, n = ([d for d in ls if d not in (*batch, *k)] for ls in (lhs_loops, rhs_loops))
    size = {d: g.sizes[d] for d in range(len(g.sizes))}
    b, ms, ns = ([size[d] for d in loops] for loops in (batch, m, n))
    one_k = extent([size[d] for d in k])
    rows = ms if not batch else [extent(ms)]
    lhs = graph.reshape(_ordered(graph, lhs, lhs_loops, [*batch, *m, *k]), [*b, *rows, one_k])
    rhs = graph.reshape(_ordered(graph, rhs, rhs_loops, [*batch, *k, *n]), [*b, one_k, extent(ns)])
    if not lhs.shape[:-1]:
        lhs = graph.reshape(lhs, [1, one_k])
    total = graph.add("MatMul", [lhs, rhs], lhs.dtype, (*lhs.shape[:-1], extent(ns)))
    total = graph.reshape(total, [*b, *ms, *ns])
    return to_loops(graph, total, [*batch, *m, *n], g.result_shape)


def _summed(graph: Graph, x: Value, loops: list[int], reduced: set[int]) -> tuple[Value, list[int]]:
    """Summed over reductions that the other factor does not see."""
    axes = [axis for axis, d in enumerate(loops) if d in reduced]
    return graph.reduce("ReduceSum", x, axes), [d for d in loops if d not in reduced]


def _ordered(graph: Graph, x: Value, loops: Sequence[int], order: Sequence[int]) -> Value:
    return graph.transpose(x, [list(loops).index(d) for d in order])


# ---- Conv --------------------------------------------------------------------------------------
def _convolve(graph: Graph, g: Generic, r: ConvolutionRoles, factors: Sequence[Value]) -> Value:
    """Images as [N, groups · C, …], filters as [groups · K, C, …]."""
    size = g.sizes
    dtype = factors[0].dtype
    images, filters = (graph.cast(factors[i], "f32") for i in (r.image, r.kernel))
    at = [e.dim for e in g.maps[r.image]]
    axes = [at.index(d) for d in (*r.batch, *r.groups, *r.inputs)]
    images = graph.transpose(images, [*axes, *(w.axis for w in r.windows)])
    spatial = images.shape[len(axes) :]
    n, groups, c, k = (
        extent([size[d] for d in ls]) for ls in (r.batch, r.groups, r.inputs, r.outputs)
    )
    images = graph.reshape(images, [n, groups * c, *spatial])
    offsets = [w.offset for w in r.windows]
    order = [*r.groups, *r.outputs, *r.inputs, *offsets]
    filters = _ordered(graph, filters, bare_loops(g.maps[r.kernel]) or [], order)
    filters = graph.reshape(filters, [groups * k, c, *(size[d] for d in offsets)])
    positions = [w.position for w in r.windows]
    shape = (n, groups * k, *(size[d] for d in positions))
    attrs = {
        "strides": tuple(w.stride for w in r.windows),
        "dilations": tuple(w.dilation for w in r.windows),
        "kernel_shape": tuple(size[d] for d in offsets),
        "group": groups,
    }
    total = graph.cast(graph.add("Conv", [images, filters], "f32", shape, **attrs), dtype)
    order = [*r.batch, *r.groups, *r.outputs, *positions]
    return to_loops(graph, graph.reshape(total, [size[d] for d in order]), order, g.result_shape)


# ---- windows -------------------------------------------------------------------------------------
def pool(graph: Graph, g: Generic, operands: Sequence[Value]) -> Value | None:
    """A maximum or a sum of f32 over windows as MaxPool or AveragePool, else None."""
    if len(g.maps) != 1 or len(g.yields) != 1 or g.body.fn != "arg" or len(g.sizes) == g.rank:
        return None
    window_dims = windows(g, g.maps[0])
    is_f32 = g.dtypes == ("f32",) and g.yields[0].dtype == "f32"
    if not window_dims or not is_f32 or g.combine not in ("max", "add") or len(window_dims) > 3:
        return None
    offsets, positions = [w.offset for w in window_dims], [w.position for w in window_dims]
    bare = [e.dim for e in g.maps[0] if e.dim is not None]
    if sorted(offsets) != list(g.reductions) or max(bare, default=0) >= g.rank:
        return None
    at = [e.dim for e in g.maps[0]]
    x = graph.transpose(operands[0], [*(at.index(d) for d in bare), *(w.axis for w in window_dims)])
    x = graph.reshape(x, [1, extent([g.sizes[d] for d in bare]), *x.shape[len(bare) :]])
    total = _pooled(graph, g, x, window_dims)
    order = [*bare, *positions]
    return to_loops(graph, graph.reshape(total, [g.sizes[d] for d in order]), order, g.result_shape)


def _pooled(graph: Graph, g: Generic, x: Value, window_dims: Sequence[Window]) -> Value:
    kernel = tuple(g.sizes[w.offset] for w in window_dims)
    attrs = {
        "kernel_shape": kernel,
        "strides": tuple(w.stride for w in window_dims),
        "dilations": tuple(w.dilation for w in window_dims),
    }
    shape = (*x.shape[:2], *(g.sizes[w.position] for w in window_dims))
    if g.combine == "max":
        return graph.add("MaxPool", [x], x.dtype, shape, **attrs)
    mean = graph.add("AveragePool", [x], x.dtype, shape, **attrs)
    return graph.broadcast("Mul", mean, graph.scalar(float(extent(kernel)), x.dtype))


# ---- generics ------------------------------------------------------------------------------------
UNROLLED = 128  # window positions that are written out one by one
DOMAIN_LIMIT = 2**28  # elements of an iteration domain that a reduction writes down whole
_REDUCE = {"add": "ReduceSum", "mul": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin"}
_OF_BOOLS = {"add": "max", "or": "max", "max": "max", "mul": "min", "and": "min", "min": "min"}


def write_generic(graph: Graph, g: Generic, operands: Sequence[Value]) -> list[Value]:
    """One value per result, in its element type; Inexpressible if ONNX has no such ops."""
    if extent(g.sizes) == 0:
        return [_empty(graph, g, y) for y in g.yields]
    return [
        graph.cast(v, y.dtype) for v, y in zip(_wide(graph, g, operands), g.yields, strict=True)
    ]


def _empty(graph: Graph, g: Generic, y: Yield) -> Value:
    start = neutral(y.combine, y.dtype) if y.combine else 0
    return graph.expand(graph.scalar(start, y.dtype), g.result_shape)


def _wide(graph: Graph, g: Generic, operands: Sequence[Value]) -> list[Value]:
    """Results in the types they are computed in."""
    g, values = project_all(graph, g, operands)
    for attempt in (product, pool):
        result = attempt(graph, g, values)
        if result is not None:
            return [result]
    loops = window_loops(g)
    if loops and extent([g.sizes[d] for d in loops]) <= UNROLLED:
        return _unrolled(graph, g, values, loops)
    return _broadcast(graph, g, values)


# ---- windows -----------------------------------------------------------------------------------
def _unrolled(graph: Graph, g: Generic, operands: Sequence[Value], loops: list[int]) -> list[Value]:
    """The window loops at each of their places, combined: every step is plain slices."""
    total: list[Value] = []
    for at in every(*(range(g.sizes[d]) for d in loops)):
        step = _wide(graph, fixed_at(g, dict(zip(loops, at, strict=True))), operands)
        pairs = zip(g.yields, total or step, step, strict=True)
        total = [_combined(graph, *t) for t in pairs] if total else step
    return total


def _combined(graph: Graph, y: Yield, a: Value, b: Value) -> Value:
    args = tuple(Typed("arg", (), y.dtype, i) for i in (0, 1))
    return Body(graph, [a, b]).emit(Typed(y.combine, args, y.dtype))


# ---- everything else ---------------------------------------------------------------------------
def _broadcast(graph: Graph, g: Generic, operands: Sequence[Value]) -> list[Value]:
    """The body over all loops, then reduced."""
    if len(g.reductions) and extent(g.sizes) > DOMAIN_LIMIT:
        raise Inexpressible(f"a reduction over {extent(g.sizes)} places that is no product")
    views = [over_loops(graph, x, m, g.sizes) for x, m in zip(operands, g.maps, strict=True)]
    body = Body(graph, views)
    return [
        _result(graph, g, y, body.emit(t)) for y, t in zip(g.yields, typed_yields(g), strict=True)
    ]


def _result(graph: Graph, g: Generic, y: Yield, value: Value) -> Value:
    full = graph.expand(value, g.sizes)
    if not y.combine:
        return full
    axes = tuple(g.reductions)
    if y.dtype == "bool":
        counted = graph.cast(full, "i32")
        return graph.cast(_reduced(graph, _OF_BOOLS[y.combine], counted, axes), "bool")
    if y.combine not in _REDUCE:
        raise Inexpressible(f"ONNX reduces by no `{y.combine}` of {y.dtype}")
    return Body(graph, []).wrap(_reduced(graph, y.combine, full, axes), y.dtype)


def _reduced(graph: Graph, combine: str, value: Value, axes: Sequence[int]) -> Value:
    return graph.reduce(_REDUCE[combine], value, axes)
