"""Reductions in two steps as one, and of what was repeated, padded or put together, without that.

Maxima, minima, conjunctions, disjunctions, and sums and products of integers, which wrap, may be
taken in any order. Sums and products of floats may not: for these there are functions of their own
and rules that are marked `inexact`.
Source: XLA's AlgebraicSimplifier (reduce of broadcast, of pad, of concatenate), Enzyme-JAX.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from eqsat.model.affine import Affine, dim, map_loops
from eqsat.model.expr import Expr, arg, call, const
from eqsat.model.generic import Generic, Yield
from eqsat.model.movement import Move
from eqsat.model.program import Builder, Node, Program, rewritten
from eqsat.model.tensor import NONE, is_float
from eqsat.ops.algebra.linear import MARK, affine_in, replaced
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_generic, compose_maps, identity, without_operand
from eqsat.ops.generics.propagate import neutral_padding
from eqsat.ops.generics.windows import LoopRange, restricted
from eqsat.ops.meaning.scalar import integer_range, result_dtype
from eqsat.ops.movement.moves import pad_value

# ---- two steps as one ----------------------------------------------------------------------------
ORDERLESS = ("max", "min", "and", "or")  # of any element type


def without_nested_reductions(program: Program) -> Program:
    """The program with exact reductions of reductions as one, if nothing else reads the first."""

    def write(b: Builder, _: int, n: Node, operands: tuple[int, ...]) -> int | None:
        if len(operands) != 1 or program.uses[n.operands[0]] != 1:
            return None
        joined = _joined(b, n, operands)
        return None if joined is None else b.add("generic", *joined)

    return rewritten(program, write)


def _joined(
    b: Builder, n: Node, operands: tuple[int, ...]
) -> tuple[tuple[int, ...], Generic] | None:
    inner = b.nodes[operands[0]]
    if not isinstance(n.attr, Generic) or not isinstance(inner.attr, Generic):
        return None
    joined = join_reductions(n.attr, inner.attr)
    return None if joined is None else (inner.operands, joined)


def join_reductions(g: Generic, e: Generic) -> Generic | None:
    """g reduces what e has reduced in the same way: both loops in one, if that is exact."""
    joined = join_sums(g, e)
    is_exact = g.combine in ORDERLESS or not is_float(g.yields[0].dtype)
    return joined if joined is not None and is_exact else None


def join_sums(g: Generic, e: Generic) -> Generic | None:
    """Both loops in one, up to the order of the steps."""
    if any(len(x.yields) != 1 or x.tile or x.rank == len(x.sizes) for x in (g, e)):
        return None
    outer, inner = g.yields[0], e.yields[0]
    loops = [a.dim for a in g.maps[0]] if len(g.maps) == 1 else [None]
    is_whole = None not in loops and len(set(loops)) == len(loops) and g.shapes[0] == tuple(
        g.sizes[d] for d in loops if d is not None
    )  # fmt: skip
    same = outer.body == arg(0) and (outer.combine, outer.dtype) == (inner.combine, inner.dtype)
    if not is_whole or not same or contraction_roles(e) is not None:
        return None
    sizes = (*g.sizes, *(e.sizes[d] for d in e.reductions))
    at = [*g.maps[0], *(dim(len(g.sizes) + k) for k in range(len(e.reductions)))]
    maps = [compose_maps(m, at) for m in e.maps]
    return canonical_generic(
        sizes, range(g.rank), maps, e.shapes, [replace(inner)], (), e.dtypes, precision=NONE
    )


# ---- what was repeated, padded or put together ---------------------------------------------------
_SCALED = ("f64", "f32", "f16", "bf16")  # floats that hold a count
_DIFFERENCE = call("sub", arg(0), arg(1))
_MOST_COUNT = 256  # up to which the narrowest of them holds every whole number


@dataclass(frozen=True)
class FoldedParts:
    """The reductions of two operands, and what makes of both the reduction of all."""

    left: Generic
    right: Generic
    total: Generic


@dataclass(frozen=True)
class Unshifted:
    """An elementwise op without one of its terms."""

    rest: Generic


def _is_fold(g: Generic) -> bool:
    """A reduction to one result that no kernel has been packed for."""
    return len(g.yields) == 1 and bool(g.reductions) and not g.tile and 0 not in g.sizes


def _is_orderless(g: Generic) -> bool:
    return g.combine in ORDERLESS or not is_float(g.yields[0].dtype)


# ---- what is repeated ----------------------------------------------------------------------------
def fold_of_equals(g: Generic) -> Generic | None:
    """A maximum of equal values is one of them, a sum of equal integers a multiple."""
    return _without_repeats(g) if _is_fold(g) and _is_orderless(g) else None


def sum_of_equals(g: Generic) -> Generic | None:
    """A sum of equal floats is a multiple of one of them, up to rounding."""
    return None if not _is_fold(g) or _is_orderless(g) else _without_repeats(g)


def _without_repeats(g: Generic) -> Generic | None:
    """The reduction without those of its loops that no operand has."""
    seen = set().union(*map(map_loops, g.maps))
    idle = [d for d in g.reductions if d not in seen and g.sizes[d] > 1]
    y = g.yields[0]
    if not idle or not g.maps or result_dtype(y.body, g.dtypes) != y.dtype:
        return None
    body = y.body
    if g.combine not in ORDERLESS:
        count = _count(math.prod(g.sizes[d] for d in idle), y.dtype)
        if g.combine != "add" or count is None:
            return None
        body = call("mul", body, count)
    sizes = [1 if d in idle else s for d, s in enumerate(g.sizes)]
    yields = [replace(y, body=body)]
    return canonical_generic(
        sizes, range(g.rank), g.maps, g.shapes, yields, (), g.dtypes, precision=g.precision
    )


def _count(n: int, dtype: str) -> Expr | None:
    """How many, as a constant of this element type; None if it does not hold it."""
    if is_float(dtype):
        fits = dtype in _SCALED and (dtype in ("f64", "f32") or n <= _MOST_COUNT)
        return const(float(n)) if fits else None
    return const(n) if dtype != "bool" and n <= integer_range(dtype)[1] else None


# ---- what is one element -------------------------------------------------------------------------
def fold_of_one(g: Generic) -> Generic | None:
    """A reduction over one element yields it: of any function, but for sums of floats."""
    return _of_one(g) if g.combine != "add" or _is_orderless(g) else None


def sum_of_one(g: Generic) -> Generic | None:
    """A sum of one float is that float, up to the sign of zero: 0.0 + -0.0 is 0.0."""
    return None if g.combine != "add" or _is_orderless(g) else _of_one(g)


def _of_one(g: Generic) -> Generic | None:
    """The generic without its reductions, if these all have extent 1."""
    y = g.yields[0]
    if not _is_fold(g) or any(g.sizes[d] != 1 for d in g.reductions):
        return None
    if result_dtype(y.body, g.dtypes) != y.dtype:
        return None
    maps = [tuple(Affine(()) if e.dim in g.reductions else e for e in m) for m in g.maps]
    return canonical_generic(
        g.sizes[: g.rank], range(g.rank), maps, g.shapes, [y], (), g.dtypes, precision=NONE
    )


# ---- what is padded ------------------------------------------------------------------------------
def fold_without_pad(g: Generic, pad: Move) -> Generic | None:
    """A reduction of padded values is one of the values where the padding changes nothing."""
    if not _is_fold(g) or len(g.maps) != 1:
        return None
    text = pad_value(pad.args[2])
    cuts: dict[int, LoopRange] = {}
    for q, (low, high) in enumerate(zip(*pad.args[:2], strict=True)):
        d, inside = g.maps[0][q].dim, pad.sources[0][q]
        if not low and not high:
            continue
        if d is None or d not in g.reductions or not inside or not _walks_alone(g, d, q):
            return None
        if neutral_padding(g, d, text) != text:
            return None
        cuts[d] = LoopRange(low, 1, inside)
    return restricted(g, cuts).sig if cuts else None


def _walks_alone(g: Generic, loop: int, q: int) -> bool:
    """Whether a loop walks all of dim q of the only operand, and no other dim."""
    walked = sum(d == loop for e in g.maps[0] for d, _ in e.terms)
    return walked == 1 and g.sizes[loop] == g.shapes[0][q]


# ---- what is put together ------------------------------------------------------------------------
def fold_parts(g: Generic, concat: Move) -> FoldedParts | None:
    """A reduction of two tensors put together, in any order, is made of those of both."""
    return _parts(g, concat) if _is_fold(g) and _is_orderless(g) else None


def sum_parts(g: Generic, concat: Move) -> FoldedParts | None:
    """A sum or product of floats of two tensors put together is made of those of both."""
    return None if not _is_fold(g) or _is_orderless(g) else _parts(g, concat)


def _parts(g: Generic, concat: Move) -> FoldedParts | None:
    """Where the results are a small part of what would be put together."""
    (axis,) = concat.args
    d, y = g.maps[0][axis].dim, g.yields[0]
    is_large = 2 * math.prod(g.result_shape) < math.prod(concat.shape)
    if len(g.maps) != 1 or d is None or d not in g.reductions or not is_large:
        return None
    first = concat.sources[0][axis]
    rest = g.sizes[d] - first
    if not _walks_alone(g, d, axis) or len(concat.sources) != 2 or not first or not rest:
        return None
    same = identity(g.rank)
    total = canonical_generic(
        g.result_shape, range(g.rank), [same] * 2, [g.result_shape] * 2,
        [Yield(call(g.combine, arg(0), arg(1)), y.dtype)], (), (y.dtype,) * 2, precision=NONE,
    )  # fmt: skip
    left, right = (
        restricted(g, {d: c}).sig for c in (LoopRange(0, 1, first), LoopRange(first, 1, rest))
    )
    return FoldedParts(left, right, total)


# ---- what is shifted -----------------------------------------------------------------------------
def unshifted(e: Generic, h: Generic, i: int, m: Generic) -> Unshifted | None:
    """(x + c) - max(x + c) = x - max x for a c that is the same wherever the maximum looks.

    e reads h(…) and its maximum or minimum m by their difference only; c is operand i of h.
    """
    t = h.yields[0].dtype
    if len(h.yields) != 1 or h.tile or h.rank != len(h.sizes) or {*h.dtypes, t} - set(_SCALED):
        return None
    if set(h.dtypes) != {t} or e.dtypes != (t, t) or e.tile or 0 in h.sizes:
        return None
    seen = _kept_dims(m)
    if seen is None or m.yields[0].dtype != t or m.shapes[0] != h.result_shape:
        return None
    if e.maps[1] != tuple(e.maps[0][q] for q in seen):
        return None
    if any({0, 1} & set(replaced(y.body, _DIFFERENCE, MARK).operands()) for y in e.yields):
        return None
    form = affine_in(h.body, i)
    if form is None or form.scale is None or form.shift is None or not form.shift.operands():
        return None
    if any(not map_loops(h.maps[j]) <= set(seen) for j in (i, *form.scale.operands())):
        return None
    return Unshifted(without_operand(h, i, [form.shift], NONE))


def _kept_dims(m: Generic) -> list[int] | None:
    """The dim of the operand that each dim of a maximum or minimum is."""
    if not _is_fold(m) or m.combine not in ("max", "min") or m.body != arg(0) or len(m.maps) != 1:
        return None
    loops = [x.dim for x in m.maps[0]]
    is_whole = None not in loops and len(set(loops)) == len(loops) == len(m.sizes)
    if not is_whole or tuple(m.sizes[d] for d in loops if d is not None) != m.shapes[0]:
        return None
    return [loops.index(d) for d in range(m.rank)]


FUNCTIONS = attr_functions(
    join_sums,
    fold_of_equals,
    sum_of_equals,
    fold_of_one,
    sum_of_one,
    fold_without_pad,
    fold_parts,
    sum_parts,
    unshifted,
)
