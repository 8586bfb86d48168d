"""How many tiles share a copy of a factor's windows."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

from eqsat.model.nest import Nest
from eqsat.model.plan import Machine
from eqsat.plan.contraction import Blocking, Tiling
from eqsat.plan.cores import LEAST_ITEM
from eqsat.plan.roles import ProductRoles


def window_blocks(nest: Nest, roles: ProductRoles, one: Tiling, machine: Machine) -> Tiling:
    """Blocks of tiles whose windows fit the cache that they are read from, for several cores."""
    room = machine.caches[:2][-1] // 2
    each = one.row_tiles if one.outer_rows else 1  # tiles of a point of the loop that is cut
    most = nest.points(one.outer_rows) if one.outer_rows else one.row_tiles
    stage = nest.stages[roles.root]
    worth = nest.points((*stage.loops, *stage.reduced)) // one.lanes // LEAST_ITEM
    cells = nest.points(one.batch) * (one.panels if one.vector_rows else 1)
    wanted = min(max(machine.cores, 2), max(worth, 1), cells * most)
    blocks = -(-wanted // cells)
    panel_block = 1 if one.vector_rows else one.panels

    def of(points: int) -> Tiling:
        return replace(one, tile_block=points * each, panel_block=panel_block)

    def is_large(points: int) -> bool:
        return 4 * Blocking(nest, of(points), roles).window.elements > room

    fitting = bisect_left(range(1, -(-most // blocks) + 1), True, key=is_large)
    return of(-(-most // -(-most // max(fitting, 1))))
