"""Strips: tiles of two factors that are vectors, one below the other: depthwise convolutions.

A tile reads most of what the tile above it has read, so a strip of few columns and panels stays in
the nearest cache where whole rows of an image do not. Pads are left out, not copied: a tile knows
which of its rows are beside them.
"""

from __future__ import annotations

from dataclasses import replace

from eqsat.model.nest import Access, Nest
from eqsat.model.plan import Machine
from eqsat.plan.contraction import Blocking, Tiling
from eqsat.plan.cores import LEAST_ITEM
from eqsat.plan.roles import ProductRoles
from eqsat.plan.stages import access_loops
from eqsat.plan.windows import Coordinates, holder_of

MOST_TAPS = 16  # of the innermost reduction loop, which is written out


def pads_order(
    roles: ProductRoles, found: Coordinates, rows: tuple[int, ...], outer: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Reduction loops, outermost that which has pads with the outer rows, innermost that with the
    rows; None if A is more than an access with pads, or these depend on other loops."""
    holder = holder_of(found.inside, found.factor)
    if not isinstance(holder, Access) or not is_walked(roles, holder):
        return None
    own: dict[int, int] = {}  # loop of rows -> of the reduction
    for b in found.pads:
        loops = access_loops(b)
        row = next((i for i in (*rows, *outer) if i in loops), -1)
        inner = [i for i in roles.reduced if i in loops]
        if row < 0 or row in own or len(inner) != 1 or len(loops) != 2:
            return None
        (own[row],) = inner
        if b.strides[row] <= 0 or b.strides[inner[0]] <= 0:
            return None
    first, last = (tuple(own[i] for i in x if i in own) for x in (outer, rows))
    return (*first, *(i for i in roles.reduced if i not in own.values()), *last)


def is_walked(roles: ProductRoles, a: Access | None) -> bool:
    """Whether tiles of a strip read these elements where they lie: f32, or what i32 widens."""
    return a is not None and (a.dtype == "f32" or roles.dtype == "i32")


def strip_blocks(nest: Nest, roles: ProductRoles, one: Tiling, machine: Machine) -> Tiling:
    """As many panels as leave what tiles read again in the nearest cache, then strips cut shorter
    until every core has work."""
    sizes = Blocking(nest, one, roles)
    fitting = max(1, int(0.75 * machine.caches[0] // sizes.strip_bytes))
    panel_block = -(-one.panels // -(-one.panels // fitting))
    stage = nest.stages[roles.root]
    worth = nest.points((*stage.loops, *stage.reduced)) // one.lanes // LEAST_ITEM
    cells = nest.points(one.batch) * one.row_tiles * -(-one.panels // panel_block)
    missing = -(-min(max(machine.cores, 2), max(worth, 1)) // cells)
    down = nest.points(one.outer_rows)
    return replace(one, tile_block=-(-down // min(missing, down)), panel_block=panel_block)
