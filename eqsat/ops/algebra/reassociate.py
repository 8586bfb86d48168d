"""Attribute functions that join products of three in another order: (a · b) · c = a · (b · c).

Any einsums of two operands: chains of matrices, batched, outer products, scales of rows or columns
in between. In a chain the multiply-adds may rise by half, as the best order may lie behind a poorer
one; at most there are n³ / 6 products of n matrices. Elsewhere a tenth of the multiply-adds has to
be saved, or of two sums the value in between be an eighth. Scales that are no work beside a product
are `scales_apart`'s.
Sources: matrix chain ordering; opt_einsum (Smith and Gray, JOSS 2018); decision 143.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from eqsat.model.generic import Generic
from eqsat.ops.algebra.einsum import (
    UNIT,
    Einsum,
    Factor,
    Loops,
    Nested,
    einsum_of,
    generic_of,
    is_tenth_less,
    is_times_less,
    nested,
    work_of,
)
from eqsat.ops.declare import attr_functions

MUCH_SMALLER = 8  # a value in between that has so many times fewer elements is a gain of its own


@dataclass(frozen=True)
class Reassociated:
    """The product that is computed first now, and the one that reads it."""

    inner: Generic
    outer: Generic


def reassociate(h: Generic, i: int, g: Generic, j: int) -> Reassociated | None:
    """Operand i of h is g(a, b), the other one c: c times operand j of g first, then the rest.

    The order of operands follows from that of a, b and c: a · (b · c) for i = 0 and j = 1,
    (a · c) · b for j = 0; (c · a) · b and (c · b) · a for i = 1.
    """
    e, f = einsum_of(h), einsum_of(g)
    if e is None or f is None or len(e.factors) != 2 or len(f.factors) != 2:
        return None
    at = e.factors[i].loops
    pair = nested(e, i, f)
    if pair is None or len(set(at)) < len(at) or _repeats(*pair.outer, *pair.inner):
        return None
    (c,), near, far = pair.outer, pair.inner[j], pair.inner[1 - j]
    if not near.used & c.used or set(e.result) - (near.used | c.used | far.used):
        return None  # an outer product first; a result that no operand varies along
    first = [near, c] if i == 0 else [c, near]
    loops = _kept(pair, first, far, frozenset(e.result))
    value = Factor(loops, pair.dtype)
    before, now = e.work + f.work, work_of(pair.sizes, near, c) + work_of(pair.sizes, value, far)
    if _is_chain(e, f, near, far, c):
        if 2 * now > 3 * before or not _differs(pair, near, far, c):
            return None
    elif not is_tenth_less(now, before):
        made, makes = math.prod(f.sizes[: f.rank]), math.prod(pair.sizes[d] for d in value.used)
        both = e.reductions and f.reductions
        if not both or now > before or not is_times_less(makes, made, MUCH_SMALLER):
            return None
    inner = generic_of(pair.sizes, loops, first, pair.dtype, pair.precision)
    is_last = i == 0 and j == 1
    second = [far, value] if is_last else [value, far]
    outer = generic_of(pair.sizes, e.result, second, pair.dtype, pair.precision)
    return Reassociated(inner, outer)


def _repeats(*factors: Factor) -> bool:
    """Whether an operand is read along a diagonal, or has dims that no loop walks."""
    return any(len(set(f.loops)) < len(f.loops) or UNIT in f.loops for f in factors)


def _kept(pair: Nested, first: list[Factor], far: Factor, result: frozenset[int]) -> Loops:
    """The loops of the product that is computed first, in the order its operands have them."""
    both = dict.fromkeys([*first[0].loops, *first[1].loops])
    return tuple(d for d in both if d in result or d in far.used)


def _is_chain(e: Einsum, f: Einsum, near: Factor, far: Factor, c: Factor) -> bool:
    """Two contractions, each over what neighbours share: near stands between far and c."""
    if not e.reductions or not f.reductions:
        return False
    # what far and c have in common is a batch: near has it, too, and the result
    ends = far.used & c.used
    sums = {d for d in near.used | far.used | c.used if d not in e.result}
    return ends <= near.used and ends <= set(e.result) and sums <= near.used


def _differs(pair: Nested, near: Factor, far: Factor, c: Factor) -> bool:
    """Whether one order of a chain may cost less than the other: not where all sizes are one.

    A vector at an end has one column.
    """
    batch = near.used & far.used & c.used
    sizes = {pair.sizes[d] for d in (near.used | far.used | c.used) - batch}
    is_vector = any(not end.used - near.used for end in (far, c))
    return len(sizes | ({1} if is_vector else set())) > 1


FUNCTIONS = attr_functions(reassociate)
