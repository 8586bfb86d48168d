"""Distributivity: sums behind scales, shifts and broadcasts, and common factors out of sums.

All of it does fewer multiply-adds, never more, so nothing has to pay for itself. Sums are taken in
another order, so rules built on this are tagged `inexact`; of integers they are exact. These are no
laws of brackets, as bodies decide: what is added, and what scales. In x a + x b = x (a + b) the sum
is an elementwise op that may do more: scales, further terms, a nonlinearity around it.
Sources: the algebraic simplifier of XLA (a reduce of a dot); NumPy's einsum; TASO (Jia et al., SOSP
2019).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from eqsat.model.affine import dim, map_loops
from eqsat.model.expr import Expr, arg, call, const
from eqsat.model.extents import is_symbolic
from eqsat.model.generic import Generic, Yield
from eqsat.model.movement import Move
from eqsat.model.tensor import NONE
from eqsat.ops.algebra.einsum import UNIT, Einsum, Factor, einsum_of, generic_of
from eqsat.ops.algebra.linear import ONE, REALS, affine_in, as_dtype, factors, plus, replaced, times
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import (
    anywhere,
    canonical_body,
    canonical_generic,
    identity,
    without_operand,
)
from eqsat.ops.meaning.scalar import typing
from eqsat.ops.movement.moves import slice_along


# ---- sums ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ComputedOnce:
    """The op computed once, and the copy that spreads it out."""

    inner: Generic
    outer: Generic


@dataclass(frozen=True)
class SumBehind:
    """The sum of what is scaled and shifted, and the scale and shift of the sum."""

    sum: Generic
    rest: Generic


# ---- sums of what is scaled and shifted ----------------------------------------------------------
def sum_behind(g: Generic, i: int) -> SumBehind | None:
    """Σ (s · x + b) = s · Σ x + n · b for s and b that vary along no summed loop; x is operand i.

    So a sum of a product with a bias, or a scale, is seen to be a sum of a product.
    """
    if len(g.yields) != 1 or g.tile or g.combine != "add" or set(g.dtypes) != {g.yields[0].dtype}:
        return None
    y = g.yields[0]
    here = [e.dim for e in g.maps[i]]
    if y.dtype not in REALS or None in here or set(here) != set(range(len(g.sizes))):
        return None
    if 0 in g.sizes or tuple(g.sizes[d] for d in here if d is not None) != g.shapes[i]:
        return None
    others = [j for j in range(len(g.maps)) if j != i]
    count = math.prod(g.sizes[g.rank :])
    if is_symbolic(count) or any(map_loops(g.maps[j]) - set(range(g.rank)) for j in others):
        return None
    form = affine_in(y.body, i)
    if form is None or form.scale is None or y.body == arg(i):
        return None
    total = generic_of(dict(enumerate(g.sizes)), range(g.rank), [_factor(g, i)], y.dtype)
    maps = [identity(g.rank) if j == i else m for j, m in enumerate(g.maps)]
    shapes = [g.result_shape if j == i else s for j, s in enumerate(g.shapes)]
    body = _body(form.scale, form.shift, i, count)
    rest = canonical_generic(
        g.result_shape, range(g.rank), maps, shapes, [Yield(body, y.dtype)], (), g.dtypes,
        precision=NONE,
    )  # fmt: skip
    return SumBehind(total, rest)


def _factor(g: Generic, i: int) -> Factor:
    return Factor(tuple(e.terms[0][0] for e in g.maps[i]), g.dtypes[i])


def _body(scale: Expr, shift: Expr | None, i: int, count: int) -> Expr:
    """scale · x_i + count · shift."""
    e = arg(i) if scale == ONE else times(scale, arg(i))
    return canonical_body(e if shift is None else call("add", e, times(shift, const(float(count)))))


# ---- loops that no operand has -------------------------------------------------------------------
def without_idle_loops(g: Generic) -> ComputedOnce | None:
    """Loops that no operand varies along are left out of the op, and spread out behind.

    Of an op that computes: a copy is nothing but spread out.
    """
    is_copy = g.rank == len(g.sizes) and g.body.fn == "arg"
    if len(g.yields) != 1 or g.tile or is_copy or 0 in g.sizes or not g.maps:
        return None
    seen = set().union(*(map_loops(m) for m in g.maps))
    walked = [d for d in range(g.rank) if d in seen or g.sizes[d] == 1]
    if len(walked) == g.rank or not set(g.reductions) <= seen:
        return None
    new = {d: q for q, d in enumerate([*walked, *g.reductions])}
    inner = canonical_generic(
        [g.sizes[d] for d in new], range(len(walked)),
        [tuple(e.rename(new) for e in m) for m in g.maps], g.shapes, g.yields, (), g.dtypes,
        precision=g.precision,
    )  # fmt: skip
    t = g.yields[0].dtype
    outer = canonical_generic(
        g.result_shape, range(g.rank), [tuple(dim(d) for d in walked)], [inner.result_shape],
        [Yield(arg(0), t)], (), (t,), precision=NONE,
    )  # fmt: skip
    return ComputedOnce(inner, outer)


# ---- factors that no sum runs over ---------------------------------------------------------------
@dataclass(frozen=True)
class FactorsApart:
    """The sum of what varies along it, and its product with what does not."""

    sum: Generic
    product: Generic


def factors_apart(g: Generic) -> FactorsApart | None:
    """Σ a · x = a · Σ x for all factors a of the body that vary along no summed loop.

    Both list all operands, read or not. The sum has those loops of the result that x varies along.
    """
    y = g.yields[0]
    if len(g.yields) != 1 or g.tile or g.combine != "add" or y.dtype not in REALS or 0 in g.sizes:
        return None
    summed = set(g.reductions)
    factor, rest = factors(y.body, lambda j: summed.isdisjoint(map_loops(g.maps[j])))
    types = typing(g.dtypes)
    if factor == ONE or types(rest) != y.dtype or types(factor) not in (None, y.dtype):
        return None
    seen = set[int]().union(*(map_loops(g.maps[j]) for j in rest.operands()))
    walked = [d for d in range(g.rank) if d in seen]
    new = {d: q for q, d in enumerate([*walked, *g.reductions])}
    maps = [
        tuple(e.rename(new) for e in m) if j in rest.operands() else anywhere(m)
        for j, m in enumerate(g.maps)
    ]
    total = canonical_generic(
        [g.sizes[d] for d in new], range(len(walked)), maps, g.shapes,
        [Yield(rest, y.dtype, "add")], (), g.dtypes, precision=g.precision,
    )  # fmt: skip
    maps = [m if j in factor.operands() else anywhere(m) for j, m in enumerate(g.maps)]
    product = canonical_generic(
        g.result_shape, range(g.rank), [*maps, tuple(map(dim, walked))],
        [*g.shapes, total.result_shape], [Yield(times(arg(len(g.maps)), factor), y.dtype)], (),
        [*g.dtypes, y.dtype], precision=NONE,
    )  # fmt: skip
    return FactorsApart(total, product)


# ---- sums of two products in one op --------------------------------------------------------------
@dataclass(frozen=True)
class TwoSums:
    """Both products summed each by itself, and what adds the two."""

    first: Generic
    second: Generic
    add: Generic


def two_sums(g: Generic) -> TwoSums | None:
    """Σ (x y + z w) as Σ x y + Σ z w, if one of the two sums is a product of matrices.

    As one op that product is computed element by element. Both have to vary along all loops.
    """
    y = g.yields[0]
    if len(g.yields) != 1 or len(g.maps) != 4 or g.tile or g.combine != "add":
        return None
    if y.body.fn != "add" or [b.operands() for b in y.body.args] != [(0, 1), (2, 3)]:
        return None
    parts = [_term(g, b) for b in y.body.args]
    if any(p is None for p in parts) or not any(p is not None and _is_matrices(p) for p in parts):
        return None
    first, second = (p for p in parts if p is not None)
    shape, t = g.result_shape, y.dtype
    both = Yield(call("add", arg(0), arg(1)), t)
    add = canonical_generic(
        shape, range(g.rank), [identity(g.rank)] * 2, [shape] * 2, [both], (), (t, t),
        precision=NONE,
    )  # fmt: skip
    return TwoSums(first, second, add)


def _term(g: Generic, body: Expr) -> Generic | None:
    """The sum of one term alone, an einsum over all loops of g."""
    i, j = body.operands()
    product = canonical_body(body.substitute({i: arg(0), j: arg(1)}))
    y = g.yields[0]
    term = canonical_generic(
        g.sizes, range(g.rank), [g.maps[i], g.maps[j]], [g.shapes[i], g.shapes[j]],
        [Yield(product, y.dtype, y.combine)], (), (g.dtypes[i], g.dtypes[j]), precision=g.precision,
    )  # fmt: skip
    e = einsum_of(term)
    if e is None or len(frozenset[int]().union(*(f.used for f in e.factors))) < len(g.sizes):
        return None
    return term


def _is_matrices(g: Generic) -> bool:
    """Whether rows, columns and the sum are a loop each: packed forms follow from the plain one."""
    roles = contraction_roles(g)
    return roles is not None and all(
        len(loops) == 1 and g.sizes[loops[0]] > 1 for loops in (roles.m, roles.n, roles.k)
    )


# ---- common factors ------------------------------------------------------------------------------
@dataclass(frozen=True)
class CommonFactor:
    """The sum of what is not common, its product with the common factor, and what reads that."""

    sum: Generic
    product: Generic
    rest: Generic


@dataclass(frozen=True)
class RepeatedFactor:
    """The two parts of the other operand, their sum, and the product with it."""

    first: Move
    second: Move
    sum: Generic
    product: Generic


# ---- x a + x b -----------------------------------------------------------------------------------
def common_factor(
    e: Generic, i: int, between: int, g: Generic, p: int, h: Generic, q: int
) -> CommonFactor | None:
    """Of e's operands i and i + 1 + between, products g and h share their operands p and q.

    Of both products one is left: operand i, and the second one is read no more. The common factor
    stands where it stands in g.
    """
    j = i + 1 + between
    first, second = einsum_of(g), einsum_of(h)
    if first is None or second is None or len(first.factors) != 2 or len(second.factors) != 2:
        return None
    t = first.dtype
    if second.dtype != t or first.precision != second.precision or t not in REALS:
        return None
    if len(e.yields) != 1 or e.tile or e.rank != len(e.sizes) or {e.dtypes[i], e.dtypes[j]} != {t}:
        return None
    if e.maps[i] != e.maps[j] or g.result_shape != h.result_shape:
        return None
    other = _aligned(first, p, second, q)
    form = summed_terms(e, i, j, t)
    if other is None or form is None:
        return None
    addend = first.factors[1 - p]
    if addend.used != other.used:
        return None
    total = _sum(first, addend, form[0], other, form[1])
    sizes = dict(enumerate(first.sizes))
    summed = Factor(addend.loops, t)
    pair = [first.factors[0], summed] if p == 0 else [summed, first.factors[1]]
    product = generic_of(sizes, first.result, pair, t, first.precision)
    return CommonFactor(total, product, without_operand(e, j, [form[2]], NONE))


def _aligned(g: Einsum, p: int, h: Einsum, q: int) -> Factor | None:
    """Other factor of h beside the common one, over the loops of g, where both read it alike."""
    x, y = g.factors[p], h.factors[q]
    if len(x.loops) != len(y.loops) or x.dtype != y.dtype or g.rank != h.rank:
        return None
    new = {d: d for d in h.result}
    for a, b in zip(x.loops, y.loops, strict=True):
        if (a == UNIT) != (b == UNIT) or (a != UNIT and new.setdefault(b, a) != a):
            return None
    other = h.factors[1 - q]
    is_known = set(h.reductions) <= new.keys() and len(set(new.values())) == len(new)
    if not is_known or UNIT in other.loops or UNIT in g.factors[1 - p].loops:
        return None
    return other.renamed(new) if set(new.values()) == set(range(len(g.sizes))) else None


def summed_terms(e: Generic, i: int, j: int, t: str) -> tuple[Expr, Expr, Expr] | None:
    """(a, b, body): the body reads a · x_i + b · x_j as its operand i, for constants a and b."""
    types = typing(e.dtypes)
    for part in _parts(e.body, i, j):
        outer = affine_in(part, i)
        if types(part) != t or outer is None or outer.shift is None:
            continue
        inner = affine_in(outer.shift, j)
        if outer.scale is None or inner is None or inner.scale is None:
            continue
        if outer.scale.operands() or inner.scale.operands():
            continue
        new = plus(arg(i), inner.shift)
        assert new is not None
        return outer.scale, inner.scale, replaced(e.body, part, new)
    return None


def _parts(e: Expr, i: int, j: int) -> Iterator[Expr]:
    """The parts of a body outside of which neither operand is read, the largest first."""
    while True:
        yield e
        inside = [a for a in e.args if {i, j} & set(a.operands())]
        if not inside or any(a != inside[0] for a in inside):
            return
        e = inside[0]


def _sum(g: Einsum, x: Factor, a: Expr, y: Factor, b: Expr) -> Generic:
    """a · x + b · y, in the order of x's dims."""
    t = g.dtype
    at = {d: k for k, d in enumerate(x.loops)}
    shape = tuple(g.sizes[d] for d in x.loops)
    maps = [identity(len(shape)), tuple(dim(at[d]) for d in y.loops)]
    shapes = [shape, tuple(g.sizes[d] for d in y.loops)]
    body = canonical_body(
        call("add", scaled_value(a, 0, x.dtype, t), scaled_value(b, 1, y.dtype, t))
    )
    return canonical_generic(
        shape, range(len(shape)), maps, shapes, [Yield(body, t)], (), (x.dtype, y.dtype),
        precision=NONE,
    )  # fmt: skip


def scaled_value(scale: Expr, operand: int, source: str, t: str) -> Expr:
    """An operand of element type `source` times a constant, in type t."""
    value = as_dtype(arg(operand), source, t)
    return value if scale == ONE else times(scale, value)


# ---- concat(x, x) w ------------------------------------------------------------------------------
def repeated_factor(g: Generic, i: int, concat: Move) -> RepeatedFactor | None:
    """Operand i of a product is a value beside itself along a summed dim: half suffices."""
    e = einsum_of(g)
    if e is None or len(e.factors) != 2 or contraction_roles(g) is None or e.dtype not in REALS:
        return None
    (axis,) = concat.args
    x, y = e.factors[i], e.factors[1 - i]
    d = x.loops[axis]
    if d < e.rank or x.loops.count(d) != 1 or y.loops.count(d) != 1 or UNIT in y.loops:
        return None
    half = concat.sources[0][axis]
    if concat.sources != (concat.sources[0],) * 2 or len(set(y.loops)) < len(y.loops):
        return None
    whole = tuple(e.sizes[k] for k in y.loops)
    at = y.loops.index(d)
    cuts = [slice_along(whole, at, low, low + half) for low in (0, half)]
    sizes = dict(enumerate(e.sizes)) | {d: half}
    part = Einsum(tuple(sizes.values()), e.rank, e.factors, e.dtype, e.precision)
    total = _sum(part, y, ONE, y, ONE)
    summed = Factor(y.loops, e.dtype)
    pair = [x, summed] if i == 0 else [summed, x]
    product = generic_of(sizes, e.result, pair, e.dtype, e.precision)
    return RepeatedFactor(cuts[0], cuts[1], total, product)


FUNCTIONS = attr_functions(
    sum_behind, without_idle_loops, factors_apart, two_sums, common_factor, repeated_factor
)
