"""Attribute functions for operands with a structure that a reshape hides, or that is read in part.

Kronecker products and heads that share keys are products and copies over more loops than their
readers have; a diagonal is a slice of all rows in one line. The reader gets these loops, which
computes the same elements, so what follows (other orders, no copies) is left to other rules.
Sources: NumPy's `kron`; grouped queries (Ainslie et al., EMNLP 2023); `jnp.diagonal`.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.model.affine import Affine, affine
from eqsat.model.attr import Shape
from eqsat.model.expr import arg
from eqsat.model.generic import Generic
from eqsat.model.movement import Move, Reshape
from eqsat.ops.algebra.einsum import einsum_of
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_generic, compose_maps
from eqsat.ops.movement.collapse import RegroupedOperand, before_reshape
from eqsat.ops.movement.layout import reassociation


# ---- products and copies under a reshape ---------------------------------------------------------
def loops_apart(g: Generic, i: int, groups: Reshape, e: Generic) -> RegroupedOperand | None:
    """A contraction whose operand i is reshape(e), over the loops of e.

    Where e is a copy or a product without a sum, and the reshape joins loops that none of its
    operands has together: the rows of a Kronecker product, or copies of a row.
    """
    if contraction_roles(g) is None or not (_is_spread(e) or _is_outer(e)):
        return None
    return before_reshape(g, i, groups) if _joins_apart(e, groups) else None


def _is_spread(e: Generic) -> bool:
    is_copy = len(e.maps) == len(e.yields) == 1 and e.body == arg(0) and not e.tile
    return is_copy and not e.reductions and all(x.dim is not None for x in e.maps[0])


def _is_outer(e: Generic) -> bool:
    product = einsum_of(e)
    return product is not None and len(product.factors) > 1 and not product.reductions


def _joins_apart(e: Generic, groups: Reshape) -> bool:
    """Whether some dim of the reshaped value is walked by no operand of e as a whole."""
    parts = reassociation(groups.source, groups.shape)
    for dims, _ in parts or ():
        large = {d for d in dims if e.sizes[d] > 1}
        walked = [{x.dim for x in m} & large for m in e.maps]
        if len(large) > 1 and any(walked) and large not in walked:
            return True
    return False


# ---- diagonals -----------------------------------------------------------------------------------
def read_diagonal(g: Generic, groups: Reshape, cut: Move) -> Generic | None:
    """slice(reshape(g)) that steps through several dims of g at once: only that is computed.

    As in the diagonal of a matrix: every (n + 1)-th element of its n · n.
    """
    if len(g.yields) != 1 or g.tile or 0 in g.sizes or 0 in cut.shape:
        return None
    at = _walked(groups, cut)
    if at is None:
        return None
    rank = len(cut.shape)
    loops = [*at, *(affine([(rank + n, 1)]) for n in range(len(g.reductions)))]
    return canonical_generic(
        [*cut.shape, *g.sizes[g.rank :]], range(rank), [compose_maps(m, loops) for m in g.maps],
        g.shapes, g.yields, (), g.dtypes, precision=g.precision,
    )  # fmt: skip


def _walked(groups: Reshape, cut: Move) -> list[Affine] | None:
    """How the slice walks every dim in front of the reshape; None if it steps through no two."""
    parts = reassociation(groups.source, groups.shape)
    if parts is None:
        return None
    found: dict[int, Affine] = {}
    steps_through = False
    for dims, (*outer, q) in parts:
        if any(groups.shape[d] != 1 for d in outer):
            return None
        shape = [groups.source[d] for d in dims]
        start, step = (_digits(cut.args[k][q], shape) for k in (0, 2))
        last = [a + b * (cut.shape[q] - 1) for a, b in zip(start, step, strict=True)]
        if any(a >= n for a, n in zip(last, shape, strict=True)):
            return None  # it crosses the end of a row
        found |= {
            d: affine([(q, b)] if b else [], a) for d, a, b in zip(dims, start, step, strict=True)
        }
        steps_through |= sum(b > 0 for b in step) > 1 and cut.shape[q] > 1
    return [found[d] for d in range(len(groups.source))] if steps_through else None


def _digits(value: int, shape: Sequence[int]) -> Shape:
    """The index of the element that lies this far from the first one."""
    digits: list[int] = []
    for n in reversed(shape):
        digits.append(value % n)
        value //= n
    return tuple(reversed(digits))


FUNCTIONS = attr_functions(loops_apart, read_diagonal)
