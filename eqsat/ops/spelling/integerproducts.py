"""Program → Program: products of dequantised numbers as products of integers, before the search.

As the rules `multiply-integers` and `multiply-shifted-integers` do it, which meet what other rules
make. What stands behind a product then merges with its scales, so there is nothing between them
to be cut: the search of a quantised network is that of the one in floats.
"""

from __future__ import annotations

from eqsat.model.generic import Generic
from eqsat.model.program import Builder, Program, prune
from eqsat.ops.algebra.quantised import (
    difference_product,
    integer_product,
    shifted_integer_product,
)
from eqsat.ops.contractions.roles import contraction_roles


def integer_products(program: Program, *, differences: bool = False) -> Program:
    """The program with every product of dequantised numbers as one of integers, and its scales.

    differences: also of what integers are less their zero points, which kernels multiply as bytes.
    """
    b = Builder(program.name)
    new: dict[int, int] = {}
    for i, n in b.following(program, new):
        operands = tuple([new[o] for o in n.operands])
        found = None
        if isinstance(n.attr, Generic) and len(operands) == 2 and contraction_roles(n.attr):
            found = _of_integers(b, n.attr, operands, differences)
        new[i] = b.move(n, operands) if found is None else found
    return prune(b.build([new[r] for r in program.results], program.symbols))


def _of_integers(
    b: Builder, h: Generic, operands: tuple[int, ...], differences: bool
) -> int | None:
    for side in (0, 1):
        given, other = b.nodes[operands[side]], b.nodes[operands[1 - side]]
        e, d = given.attr, other.attr
        if not isinstance(e, Generic) or not isinstance(d, Generic):
            return None
        for i in range(len(d.maps)):
            pair = (e, *given.operands), (d, *other.operands)
            found = _scaled(b, h, side, *pair, i, differences)
            if found is not None:
                return found
    return None


def _scaled(
    b: Builder, h: Generic, side: int, one: tuple[Generic, *tuple[int, ...]],
    two: tuple[Generic, *tuple[int, ...]], i: int, differences: bool,
) -> int | None:  # fmt: skip
    """The product of what `one` dequantises and of operand i of `two`, times both scales."""
    (e, *xs), (d, *ws) = one, two
    rest = [*ws[:i], *ws[i + 1 :]]
    plain = integer_product(h, side, e, d, i)
    if plain is None and differences:
        plain = difference_product(h, side, e, d, i)
    if plain is not None:
        pair = (xs[0], ws[i]) if side == 0 else (ws[i], xs[0])
        total = b.add("generic", pair, plain.product)
        return b.add("generic", (total, *rest), plain.scaled)
    shifted = shifted_integer_product(h, side, e, d, i)
    if shifted is None:
        return None
    pair = (xs[0], ws[i]) if side == 0 else (ws[i], xs[0])
    total = b.add("generic", pair, shifted.product)
    sums = b.add("generic", (ws[i],), shifted.sums)
    return b.add("generic", (total, sums, *rest), shifted.scaled)
