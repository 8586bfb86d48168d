"""Attribute functions for products inside of what another product, or a sum, reads.

A matrix of low rank is never built where its factors do: not to be added to a weight (LoRA), not to
scale one (BatchEnsemble), not for its norm. What is computed instead is judged here, in
multiply-adds, and has to be a tenth less.
Sources: LoRA (Hu et al., ICLR 2022); BatchEnsemble (Wen et al., ICLR 2020); DoRA (Liu et al. 2024).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from eqsat.model.expr import Expr, arg
from eqsat.model.generic import Generic, Yield
from eqsat.model.precision import NONE
from eqsat.ops.algebra.brackets import matched, read_brackets, rebracketed
from eqsat.ops.algebra.einsum import (
    UNIT,
    einsum_of,
    is_tenth_less,
    is_times_less,
)
from eqsat.ops.algebra.linear import ONE, REALS, affine_in, factors, plus, times
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_body, canonical_generic, compose_maps, identity

_TERM_FIRST, _TERM_BEHIND = read_brackets("(a b) c"), read_brackets("c (a b)")
_A_FIRST = _TERM_FIRST, read_brackets("(a c) b")
_B_FIRST = _TERM_FIRST, read_brackets("(b c) a")
_FEW = 4  # operands are few if they have so many times fewer elements than their product


@dataclass(frozen=True)
class TermApart:
    """What is added to a product, and the sum of two contractions."""

    rest: Generic
    total: Generic


# ---- x (w + a b) ---------------------------------------------------------------------------------
def term_apart(g: Generic, side: int, s: Generic, i: int, k: Generic) -> TermApart | None:
    """x (w + α a b) = x w + α (x (a b)), where x times a times b is less work than a b.

    Operand `side` of g is s, an elementwise op that adds its operand i, the product k(a, b).
    """
    e, f = einsum_of(g), einsum_of(k)
    t = g.yields[0].dtype
    if e is None or f is None or len(e.factors) != 2 or len(f.factors) != 2 or t not in REALS:
        return None
    if len(s.yields) != 1 or s.tile or s.rank != len(s.sizes) or {*s.dtypes} != {t}:
        return None
    form = affine_in(s.body, i)
    if s.maps[i] != identity(s.rank) or s.yields[0].dtype != t or form is None:
        return None
    if form.scale is None or form.scale.operands() or not form.shift or not form.shift.operands():
        return None
    pair = matched(_TERM_BEHIND if side else _TERM_FIRST, [k, g])
    if pair is None or any(UNIT in x.loops for _, x in pair.leaves):
        return None
    a, b, c = (dict(pair.leaves)[name] for name in "abc")
    firsts = [rebracketed(*sides, pair) for n, sides in ((a, _A_FIRST), (b, _B_FIRST))
              if n.used & c.used]  # fmt: skip
    works = [r.work for r in firsts if r is not None]
    if not works or not is_tenth_less(min(works), f.work + math.prod(s.sizes)):
        return None
    total = plus(arg(0), times(form.scale, arg(1)))
    assert total is not None
    return TermApart(_without(s, i, form.shift), _elementwise(g, total))


def _without(s: Generic, i: int, body: Expr) -> Generic:
    """An elementwise op with another body that does not read operand i, without that operand."""
    kept = [j for j in range(len(s.maps)) if j != i]
    y = Yield(canonical_body(body.substitute({j: arg(n) for n, j in enumerate(kept)})),
              s.yields[0].dtype)  # fmt: skip
    return canonical_generic(
        s.sizes, range(s.rank), [s.maps[j] for j in kept], [s.shapes[j] for j in kept], [y], (),
        [s.dtypes[j] for j in kept], precision=NONE,
    )  # fmt: skip


def _elementwise(g: Generic, body: Expr) -> Generic:
    """A body over two values of g's result."""
    t = g.yields[0].dtype
    return canonical_generic(
        g.result_shape, range(g.rank), [identity(g.rank)] * 2, [g.result_shape] * 2,
        [Yield(canonical_body(body), t)], (), (t, t), precision=NONE,
    )  # fmt: skip


# ---- w ∘ (r sᵀ) ----------------------------------------------------------------------------------
def factors_inside(e: Generic, i: int, o: Generic) -> Generic | None:
    """An elementwise op that multiplies by its operand i, an outer product, reads its factors.

    Each of these may then be moved on its own; both have far fewer elements than their product.
    """
    outer = einsum_of(o)
    if outer is None or outer.reductions or len(outer.factors) != 2 or outer.dtype not in REALS:
        return None
    if len(e.yields) != 1 or e.tile or e.rank != len(e.sizes) or set(e.dtypes) != {outer.dtype}:
        return None
    if set(o.dtypes) != {outer.dtype} or e.yields[0].dtype != outer.dtype or 0 in e.sizes:
        return None
    own, rest = factors(e.body, {i}.__contains__)
    if own == ONE or not rest.operands() or i in rest.operands():
        return None
    if not is_times_less(sum(map(math.prod, o.shapes)), math.prod(o.sizes), _FEW):
        return None
    maps = [m for m in e.maps]
    maps[i : i + 1] = [compose_maps(m, e.maps[i]) for m in o.maps]
    shapes, dtypes = list(e.shapes), list(e.dtypes)
    shapes[i : i + 1], dtypes[i : i + 1] = o.shapes, o.dtypes
    new = {j: arg(j + (j > i)) for j in range(len(e.maps))}
    new[i] = o.body.substitute({0: arg(i), 1: arg(i + 1)})
    body = canonical_body(e.body.substitute(new))
    return canonical_generic(
        e.sizes, range(e.rank), maps, shapes, [replace(e.yields[0], body=body)], (), dtypes,
        precision=NONE,
    )  # fmt: skip


FUNCTIONS = attr_functions(term_apart, factors_inside)
