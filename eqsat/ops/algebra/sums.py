"""Attribute functions that move sums behind scales, shifts and broadcasts, and part sums of two.

All of it does fewer multiply-adds, never more, so nothing has to pay for itself. Sums are taken in
another order, so rules built on this are tagged `inexact`; of integers they are exact. These are no
laws of brackets, as bodies decide: what is added, and what scales.
Sources: the algebraic simplifier of XLA (a reduce of a dot); NumPy's einsum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from eqsat.model.affine import dim, map_loops
from eqsat.model.expr import Expr, arg, call, const
from eqsat.model.extents import is_symbolic
from eqsat.model.generic import Generic, Yield
from eqsat.model.precision import NONE
from eqsat.ops.algebra.einsum import Factor, einsum_of, generic_of
from eqsat.ops.algebra.linear import ONE, REALS, affine_in, times
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_body, canonical_generic, identity


@dataclass(frozen=True)
class ComputedOnce:
    """What is computed once, and what spreads it out."""

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
    """What no operand varies along is computed once and spread out behind.

    Of an op that computes: a copy is nothing but spread out.
    """
    is_copy = g.rank == len(g.sizes) and g.body.fn == "arg"
    if len(g.yields) != 1 or g.tile or is_copy or 0 in g.sizes or not g.maps:
        return None
    seen = set().union(*(map_loops(m) for m in g.maps))
    kept = [d for d in range(g.rank) if d in seen or g.sizes[d] == 1]
    if len(kept) == g.rank or not set(g.reductions) <= seen:
        return None
    new = {d: q for q, d in enumerate([*kept, *g.reductions])}
    inner = canonical_generic(
        [g.sizes[d] for d in new], range(len(kept)),
        [tuple(e.rename(new) for e in m) for m in g.maps], g.shapes, g.yields, (), g.dtypes,
        precision=g.precision,
    )  # fmt: skip
    t = g.yields[0].dtype
    outer = canonical_generic(
        g.result_shape, range(g.rank), [tuple(dim(d) for d in kept)], [inner.result_shape],
        [Yield(arg(0), t)], (), (t,), precision=NONE,
    )  # fmt: skip
    return ComputedOnce(inner, outer)


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
    own = canonical_body(body.substitute({i: arg(0), j: arg(1)}))
    y = g.yields[0]
    found = canonical_generic(
        g.sizes, range(g.rank), [g.maps[i], g.maps[j]], [g.shapes[i], g.shapes[j]],
        [Yield(own, y.dtype, y.combine)], (), (g.dtypes[i], g.dtypes[j]), precision=g.precision,
    )  # fmt: skip
    e = einsum_of(found)
    if e is None or len(frozenset[int]().union(*(f.used for f in e.factors))) < len(g.sizes):
        return None
    return found


def _is_matrices(g: Generic) -> bool:
    """Whether rows, columns and the sum are a loop each: packed forms follow from the plain one."""
    roles = contraction_roles(g)
    return roles is not None and all(
        len(loops) == 1 and g.sizes[loops[0]] > 1 for loops in (roles.m, roles.n, roles.k)
    )


FUNCTIONS = attr_functions(sum_behind, without_idle_loops, two_sums)
