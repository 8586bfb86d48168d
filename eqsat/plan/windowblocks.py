"""How many tiles share a copy of a factor's windows."""

from __future__ import annotations

from bisect import bisect_left

from eqsat.model.nest import Nest
from eqsat.model.plan import Machine
from eqsat.plan.contraction import Blocking, Tiling
from eqsat.plan.cores import LEAST_CORES, LEAST_ITEM, even_blocks
from eqsat.plan.roles import ProductRoles


def window_blocks(nest: Nest, roles: ProductRoles, one: Tiling, machine: Machine) -> Tiling:
    """Blocks of tiles whose windows fit the cache that they are read from, for several cores.

    Cores share out what is larger, the panels or the window; of the other each has all.
    """
    room = machine.caches[:2][-1] // 2
    each = one.row_tiles if one.outer_rows else 1  # tiles of a point of the loop that is cut
    most = nest.points(one.outer_rows) if one.outer_rows else one.row_tiles

    def of(points: int) -> Tiling:
        panel_block = 1 if one.vector_rows else one.panels
        return one.changed(tile_block=points * each, panel_block=panel_block)

    def nbytes(points: int) -> int:
        sizes = Blocking(nest, of(points), roles)
        return sizes.copied_bytes * sizes.window.elements

    fitting = bisect_left(range(1, most + 1), True, key=lambda n: nbytes(n) > room)
    blocks = -(-most // max(fitting, 1))
    stage = nest.stages[roles.root]
    worth = nest.points((*stage.loops, *stage.reduced)) // one.lanes // LEAST_ITEM
    cells = nest.points(one.batch) * (one.panels if one.vector_rows else 1)
    missing = -(-min(max(machine.cores, LEAST_CORES), max(worth, 1)) // (cells * blocks))
    panels = nest.points(one.reduced) * one.panels * one.vectors * one.lanes
    panels *= Blocking(nest, one, roles).copied_bytes
    if not one.vector_rows and one.panels >= missing and panels > nbytes(-(-most // blocks)):
        panel_block = even_blocks(one.panels, -(-one.panels // missing), cells * blocks)
        return of(-(-most // blocks)).changed(panel_block=panel_block)
    return of(even_blocks(most, -(-most // min(most, blocks * missing)), cells))
