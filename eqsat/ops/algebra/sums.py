"""Attribute functions that move sums: into operands, ahead of products, behind broadcasts.

All of it does fewer multiply-adds, never more, so nothing has to pay for itself. Sums are taken in
another order, so rules built on this are tagged `inexact`; of integers they are exact.
Sources: the algebraic simplifier of XLA (a reduce of a dot); opt_einsum; NumPy's einsum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eqsat.model.affine import dim, map_loops
from eqsat.model.expr import Expr, arg, call, const
from eqsat.model.extents import is_symbolic
from eqsat.model.generic import Generic, Yield
from eqsat.model.precision import NONE
from eqsat.ops.algebra.einsum import (
    UNIT,
    Factor,
    einsum_of,
    generic_of,
    is_tenth_less,
    nested,
    work_of,
)
from eqsat.ops.algebra.linear import ONE, REALS, affine_in, times
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_body, canonical_generic, identity


@dataclass(frozen=True)
class SumFirst:
    """The sum of one operand, and the product that reads it."""

    inner: Generic
    outer: Generic


@dataclass(frozen=True)
class SumBehind:
    """The sum of what is scaled and shifted, and the scale and shift of the sum."""

    sum: Generic
    rest: Generic


# ---- sums of products ----------------------------------------------------------------------------
def sum_ahead(h: Generic, i: int) -> SumFirst | None:
    """A product of two whose operand i alone has some of the summed loops: it is summed first."""
    e = einsum_of(h)
    if e is None or len(e.factors) != 2:
        return None
    return _summed_first(dict(enumerate(e.sizes)), e.result, e.factors, i, e.dtype, e.precision)


def sum_of_product(g: Generic, h: Generic) -> Generic | None:
    """g sums the product h, or reads its diagonal: one product of the same operands.

    Loops that only one operand has are left to `sum_into`, which does less.
    """
    found = _joined(g, h)
    if found is None:
        return None
    sizes, result, (x, y), dtype, precision = found
    if _own(result, x, y) or _own(result, y, x):
        return None
    return generic_of(sizes, result, [x, y], dtype, precision)


def sum_into(g: Generic, h: Generic, i: int) -> SumFirst | None:
    """g sums the product h over loops that operand i of h alone has: that operand is summed."""
    found = _joined(g, h)
    if found is None:
        return None
    sizes, result, factors, dtype, precision = found
    return _summed_first(sizes, result, factors, i, dtype, precision)


_Joined = tuple[dict[int, int], range, tuple[Factor, Factor], str, str]


def _joined(g: Generic, h: Generic) -> _Joined | None:
    """Sizes, result loops, operands and types of g(h(x, y)), where g computes less than h gives."""
    e, f = einsum_of(g), einsum_of(h)
    if e is None or f is None or len(e.factors) != 1 or len(f.factors) != 2:
        return None
    at = e.factors[0].loops
    both = nested(e, 0, f)
    is_less = len(e.reductions) > 0 or len(set(at)) < len(at)
    if both is None or not is_less or set(at) != set(range(len(e.sizes))):
        return None
    x, y = both.inner
    if set(e.result) - (x.used | y.used):
        return None
    return both.sizes, e.result, (x, y), both.dtype, f.precision


def _own(result: Sequence[int], x: Factor, y: Factor) -> set[int]:
    """Summed loops that x has and y has not."""
    return set(x.used - y.used) - set(result)


def _summed_first(
    sizes: Mapping[int, int],
    result: range,
    factors: Sequence[Factor],
    i: int,
    dtype: str,
    precision: str,
) -> SumFirst | None:
    x, y = factors[i], factors[1 - i]
    own = _own(result, x, y)
    if not own or UNIT in x.loops:
        return None
    kept = tuple(dict.fromkeys(d for d in x.loops if d not in own))
    inner = generic_of(sizes, kept, [x], dtype)
    pair = [Factor(kept, dtype), y]
    outer = generic_of(sizes, result, pair if i == 0 else pair[::-1], dtype, precision)
    return SumFirst(inner, outer)


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
def without_idle_loops(g: Generic) -> SumFirst | None:
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
    return SumFirst(inner, outer)


# ---- products of three in one op -----------------------------------------------------------------
def pair_first(g: Generic, i: int, j: int) -> SumFirst | None:
    """Of a sum of products of three, operands i and j are multiplied first, if that is cheapest.

    The product of the two stands before the third. The multiply-adds have to fall by a tenth.
    """
    e = einsum_of(g)
    if e is None or len(e.factors) != 3 or not e.reductions:
        return None
    if any(len(set(f.loops)) < len(f.loops) or UNIT in f.loops for f in e.factors):
        return None
    sizes, result = dict(enumerate(e.sizes)), set(e.result)

    def plan(i: int, j: int) -> tuple[int, Factor]:
        x, y, z = e.factors[i], e.factors[j], e.factors[3 - i - j]
        loops = dict.fromkeys([*x.loops, *y.loops])
        value = Factor(tuple(d for d in loops if d in result or d in z.used), e.dtype)
        return work_of(sizes, x, y) + work_of(sizes, value, z), value

    works = {p: plan(*p)[0] for p in ((0, 1), (0, 2), (1, 2))}
    work, value = plan(i, j)
    if min(works, key=works.__getitem__) != (i, j) or not is_tenth_less(work, e.work):
        return None
    inner = generic_of(sizes, value.loops, [e.factors[i], e.factors[j]], e.dtype, e.precision)
    outer = generic_of(sizes, e.result, [value, e.factors[3 - i - j]], e.dtype, e.precision)
    return SumFirst(inner, outer)


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


FUNCTIONS = attr_functions(
    sum_ahead, sum_of_product, sum_into, sum_behind, without_idle_loops, pair_first, two_sums
)
