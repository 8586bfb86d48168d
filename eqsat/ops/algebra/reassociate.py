"""Attribute functions that join products of three in another order: (a · b) · c = a · (b · c).

Commuting needs no rule, as bodies and operands have one order. Source: matrix chain ordering.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.model.affine import Map, dim, map_loops
from eqsat.model.attr import Shape
from eqsat.model.expr import arg, call
from eqsat.model.generic import Generic, Yield
from eqsat.model.tensor import DTYPES
from eqsat.ops.algebra.linear import REALS
from eqsat.ops.algebra.scales import renamed, whole_dims
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_body, canonical_generic

_PRODUCT = call("mul", arg(0), arg(1))


@dataclass(frozen=True)
class Reassociated:
    """The product that is computed first now, and the one that reads it."""

    inner: Generic
    outer: Generic


def reassociate(h: Generic, i: int, g: Generic) -> Reassociated | None:
    """h multiplies g(a, b) with c: the same product with c joined to a neighbour first.

    i is the operand of h that g is. i = 0: (a @ b) @ c = a @ (b @ c), inner reads (b, c), outer
    (a, inner). i = 1: c @ (a @ b) = (c @ a) @ b, inner reads (c, a), outer (inner, b).
    """
    if not _is_product(h) or not _is_product(g) or {*h.dtypes, *g.dtypes} != {h.dtypes[0]}:
        return None
    if h.precision != g.precision:
        return None  # the products that are computed now are those of both
    near, far = (1, 0) if i == 0 else (0, 1)
    # loops of g in front, then those of h that are no loops of g's result
    dims = {e.dim: q for q, e in enumerate(h.maps[i]) if e.dim is not None}
    extra = [d for d in range(len(h.sizes)) if d not in dims]
    new = {d: dims[d] if d in dims else len(g.sizes) + extra.index(d) for d in range(len(h.sizes))}
    sizes = (*g.sizes, *(h.sizes[d] for d in extra))
    summed = {new[d] for d in h.reductions}
    a, b, c = g.maps[far], g.maps[near], renamed(h.maps[1 - i], new)
    if (
        summed & map_loops(a)
        or not summed <= map_loops(b) & map_loops(c)
        or set(extra) & set(h.reductions)
    ):
        return None
    if map_loops(c) & map_loops(a) - map_loops(b):
        return None  # c has a dim of a: the inner product would grow by it
    kept = sorted((map_loops(b) | map_loops(c)) - summed)
    pair = [(b, g.shapes[near], 0), (c, h.shapes[1 - i], 1)]
    first = _product(sizes, kept, [p[:2] for p in (pair if i == 0 else pair[::-1])], h)
    inner_map = tuple(dim(d) for d in kept)
    both = [(a, g.shapes[far]), (inner_map, tuple(sizes[d] for d in kept))]
    result = [new[d] for d in range(h.rank)]
    outer = _product(sizes, result, both if i == 0 else both[::-1], h)
    return Reassociated(first, outer)


def _is_product(g: Generic) -> bool:
    """Σ x · y over bare dims, one type throughout, every reduction in both operands."""
    if contraction_roles(g) is None or g.tile or {*g.dtypes, g.yields[0].dtype} != {g.dtypes[0]}:
        return False
    if g.dtypes[0] not in REALS and DTYPES[g.dtypes[0]][1] not in "iu":
        return False
    whole = [len(whole_dims(g, j)) == len(g.maps[j]) for j in (0, 1)]
    reduced = set(g.reductions)
    both = reduced <= map_loops(g.maps[0]) & map_loops(g.maps[1])
    seen = map_loops(g.maps[0]) | map_loops(g.maps[1]) == set(range(len(g.sizes)))
    return all(whole) and both and seen and g.body in (_PRODUCT, canonical_body(_PRODUCT))


def _product(
    sizes: Sequence[int],
    result: Sequence[int],
    operands: Sequence[tuple[Map, Shape]],
    like: Generic,
) -> Generic:
    """Σ x · y over the loops the operands have and the result has not."""
    used = [*result, *sorted(set().union(*(map_loops(m) for m, _ in operands)) - set(result))]
    new = {d: n for n, d in enumerate(used)}
    y = like.yields[0]
    return canonical_generic(
        [sizes[d] for d in used],
        range(len(result)),
        [renamed(m, new) for m, _ in operands],
        [s for _, s in operands],
        [Yield(_PRODUCT, y.dtype, "add")],
        (),
        like.dtypes,
        precision=like.precision,
    )


FUNCTIONS = attr_functions(reassociate)
