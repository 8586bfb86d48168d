"""Sums of products as MatMul and Conv."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.export.onnxmodel.expressions import Body
from eqsat.export.onnxmodel.graph import Graph, Value, extent
from eqsat.export.onnxmodel.loops import to_loops
from eqsat.export.typed import Annotator, convert
from eqsat.model.expr import BottomUp, Expr, call
from eqsat.model.generic import Generic
from eqsat.model.tensor import is_float
from eqsat.ops.generics.windows import ConvolutionRoles, bare_loops, convolution_roles


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
def _factors(g: Generic) -> tuple[Expr, Expr] | None:
    """The body as a product of one expression of each operand, else None."""
    if len(g.maps) != 2 or len(g.yields) != 1 or g.combine != "add":
        return None
    floating = is_float(g.yields[0].dtype)
    multiplied = BottomUp[Expr, "Sides | None"](_sides, lambda e: _multiplied(e, floating))
    a, b = multiplied(g.body) or (None, None)
    return (a, b) if a and b and a.operands() and b.operands() else None


Sides = tuple["Expr | None", "Expr | None"]  # what a product takes of operand 0, and of operand 1


def _multiplied(e: Expr, floating: bool) -> tuple[Expr, ...]:
    """What is multiplied; casts between floats around a product do not matter."""
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
    found = [body.emit(convert(types.annotate(f, dtype), dtype)) for f in factors]
    return [graph.expand(v, x.shape) for v, x in zip(found, operands, strict=True)]


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


def _summed(graph: Graph, x: Value, loops: list[int], own: set[int]) -> tuple[Value, list[int]]:
    """Summed over reductions that the other factor does not see."""
    axes = [axis for axis, d in enumerate(loops) if d in own]
    return graph.reduce("ReduceSum", x, axes), [d for d in loops if d not in own]


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
