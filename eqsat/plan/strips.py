"""Strips: tiles that read rows where they lie and leave pads out, not copied: a tile knows which of
its rows are beside them.

Of two factors that are vectors, depthwise convolutions, tiles follow one below the other: each
reads most of what the one above it has read, so a strip of few columns and panels stays in the
nearest cache where whole rows of an image do not.
"""

from __future__ import annotations

from eqsat.model.dispatch import Machine
from eqsat.model.nest import Access, Nest
from eqsat.plan.contraction import Blocking, Tiling
from eqsat.plan.roles import ProductRoles
from eqsat.plan.stages import CHAINS, LEAST_ITEM, access_loops
from eqsat.plan.windows import Coordinates, holder_of, touched

MOST_TAPS = 16  # of the innermost reduction loop, which is written out
LEAST_PRODUCTS = 16  # of a tap, that are worth a loop of their own
MOST_KINDS = 8  # of tiles, by the rows that are pads
WORTH_APART = 0.88  # of the rows at all taps, which are no pads: more are copied with their pads


def padded_loops(
    roles: ProductRoles, coordinates: Coordinates, rows: tuple[int, ...], outer: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Reduction loops that have pads with the outer rows, and those with the rows; None if A is
    more than an access with pads, or these depend on other loops."""
    holder = holder_of(coordinates.inside, coordinates.factor)
    if not isinstance(holder, Access) or not is_walked(roles, holder):
        return None
    reduction_of: dict[int, int] = {}  # loop of rows -> of the reduction
    for b in coordinates.pads:
        loops = access_loops(b)
        row = next((i for i in (*rows, *outer) if i in loops), -1)
        inner = [i for i in roles.reduced if i in loops]
        if row < 0 or row in reduction_of or len(inner) != 1 or len(loops) != 2:
            return None
        (reduction_of[row],) = inner
        if b.strides[row] <= 0 or b.strides[inner[0]] <= 0:
            return None
    first, last = (tuple(reduction_of[i] for i in x if i in reduction_of) for x in (outer, rows))
    return first, last


def leaves_much_out(sizes: Blocking) -> bool:
    """Whether pads beside rows are so many that every tap of a tile is worth code of its own."""
    if len(sizes.tile_kinds) > MOST_KINDS:
        return False
    taken = _rows_of_taps(sizes)
    taps = len(taken) // max(sizes.plan.row_tiles, 1)
    return bool(taken) and sum(taken) <= WORTH_APART * taps * sizes.row_count


def waiting(sizes: Blocking, across: int) -> float:
    """How many times longer sums of few rows take, as they wait for each other: of so many vectors
    a row, of tiles that leave pads out."""
    if not sizes.plan.strips or sizes.plan.vector_rows:
        return 1.0
    sums = [across * n for n in _rows_of_taps(sizes)]
    return sum(max(n, CHAINS) for n in sums if n) / max(sum(sums), 1)


def _rows_of_taps(sizes: Blocking) -> list[int]:
    """How many rows are no pads, of every tile at each point of the loop that has these."""
    levels = range(1, len(sizes.plan.reduced))
    level = next((i for i in levels if sizes.beside_pads(i)), 0)
    tiles = range(sizes.plan.row_tiles if level else 0)
    return [end - first for t in tiles for first, end in sizes.beside_pads(level, t)]


def is_walked(roles: ProductRoles, a: Access | None) -> bool:
    """Whether tiles of a strip read these elements where they lie: f32, or what i32 widens."""
    return a is not None and (a.dtype == "f32" or roles.dtype == "i32")


def strip_blocks(nest: Nest, roles: ProductRoles, one: Tiling, machine: Machine) -> Tiling:
    """As many panels as leave what tiles read again in the nearest cache, then strips cut shorter
    until every core has work."""
    sizes = Blocking(nest, one, roles)
    fitting = max(1, int(0.75 * machine.caches[0] // _strip_bytes(sizes)))
    panel_block = -(-one.panels // -(-one.panels // fitting))
    stage = nest.stages[roles.root]
    worth = nest.points((*stage.loops, *stage.reduced)) // one.lanes // LEAST_ITEM
    cells = nest.points(one.batch) * one.row_tiles * -(-one.panels // panel_block)
    missing = -(-min(max(machine.cores, 2), max(worth, 1)) // cells)
    down = nest.points(one.outer_rows)
    return one.changed(tile_block=-(-down // min(missing, down)), panel_block=panel_block)


def _strip_bytes(sizes: Blocking) -> float:
    """Of a panel, what a tile of a strip and the one below it read and write."""
    p, a, down = sizes.plan, sizes.a_access, 0
    if a is not None and p.outer_rows and len(p.reduced) > 1:
        steps = a.strides[p.outer_rows[-1]], a.strides[p.reduced[0]]
        down = touched(steps, (2, sizes.nest.sizes[p.reduced[0]]))
    read = sizes.columns_read[0] * max(down, 1)
    return 4.0 * p.vectors * p.lanes * (read + 2 * p.rows)
