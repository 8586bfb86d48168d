"""Whether the operands of a contraction lie as a kernel streams them."""

from __future__ import annotations

from collections.abc import Iterator

from eqsat.model.generic import Generic
from eqsat.model.innermost import Order, innermost
from eqsat.model.target import Tile
from eqsat.ops.contractions.roles import contraction_roles, inner_loops


def is_streamed(g: Generic, tile: Tile, extents: dict[str, int]) -> bool:
    """Whether a packed contraction lies as the kernel of its tile streams it.

    extents: per role what the tile cuts; of a convolution whose image is the right operand, m and
    n are exchanged. A panel has the dim it cuts innermost, behind the one that is summed over.
    """
    asked = dict(enumerate(o for o in (tile.lhs, tile.rhs)))
    orders = {i: innermost(o) for i, o in asked.items() if o}
    if tile.panel:
        for i, role in enumerate(("m", "n")):
            if extents[role] > 1:
                orders.setdefault(i, (("k", extents["k"] if extents["k"] > 1 else 0),
                                      (role, extents[role])))  # fmt: skip
    return all(lies_in_order(g, i, order) for i, order in orders.items())


def lies_in_order(g: Generic, operand: int, order: Order) -> bool:
    """Whether the innermost dims of an operand have these roles; those it has none of left out."""
    found = list(_from_inside(g, operand))
    there = {role for role, _ in found}
    wanted = [w for w in reversed(order) if w[0] in there]
    return found[: len(wanted)] == wanted


def _from_inside(g: Generic, operand: int) -> Iterator[tuple[str, int]]:
    """Role and tile extent (0: none) of the dims, innermost first, neighbours of a role as one."""
    roles = contraction_roles(g)
    assert roles is not None, "only contractions are streamed"
    named = {d: r for r in ("batch", "m", "n", "k") for d in getattr(roles, r)}
    inside, last = inner_loops(g), ("", 0)
    for e, size in zip(reversed(g.maps[operand]), reversed(g.shapes[operand]), strict=True):
        if size == 1:
            continue
        # a window's loops are summed over, or walk the places of an image: these are no role's
        role = named.get(e.dim, "k") if e.dim is not None else "window"
        one = (role, g.sizes[e.dim] if e.dim is not None and e.dim in inside else 0)
        if one != last or one[1]:
            yield one
        last = one
