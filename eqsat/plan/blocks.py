"""Block sizes of a contraction's plan: rows of a tile from the registers, blocks from the caches.

What is tiled how is chosen by `plan.tiling`; here a choice gets its numbers, and copies of a
factor's windows are shared by as many tiles as pay.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator

from eqsat.model.dispatch import Machine
from eqsat.model.nest import Access, Nest
from eqsat.plan import estimate
from eqsat.plan.contraction import UNROLL, Blocking, Tiling
from eqsat.plan.curves import HILBERT, MORTON
from eqsat.plan.roles import ProductRoles, source_access
from eqsat.plan.stages import (
    CHAIN,
    ITEMS_PER_CORE,
    LEAST_CORES,
    LEAST_ITEM,
    access_loops,
    accesses_read,
    additions,
    even_blocks,
    row_stride,
)
from eqsat.plan.strips import strip_blocks


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


MOST_SHIFTS = 64  # points of the innermost reduction loop, which are written out
SHIFTED_ROWS = 2  # more of them multiply a vector oftener than it takes to read it
SPARE = 5  # registers beside sums and columns where short vectors take their rows from lanes
STREAM_RUN = 1024  # columns of a row that are read in order at least
IN_ORDER = ("f32", "bf16")  # elements of rows that are read whole
PANEL, WINDOWED = 1 / 4, 3 / 4  # of the second cache, that a panel may take; beside a window
MOST_VISITS = 2048  # of blocks along a curve, whose numbers are a table in the code
LEAST_LINES = 4  # rows and columns of blocks, in which a curve turns
STREAMED = 16  # rows of B that are read side by side, each in order


def blocked(
    nest: Nest, roles: ProductRoles, tiling: Tiling, machine: Machine, streamed: bool = False
) -> Tiling:
    """Rows of a tile from the registers, then blocks from the caches."""
    count = nest.points(tiling.row_loops)
    per_row = tiling.vectors * (2 if tiling.vector_rows else 1)
    free = machine.registers - tiling.vectors - (1 if tiling.lanes > 4 else SPARE)
    sizes = Blocking(nest, tiling, roles)
    free -= tiling.vectors if sizes.is_biased and not sizes.sums_columns else 0
    most = max(1, free // per_row) if count > 1 else 1
    row_tiles = -(-count // most)
    panels = panel_count(nest, tiling)
    one = tiling.changed(rows=-(-count // row_tiles), row_tiles=row_tiles, panels=panels)
    if one.windows:
        return _prefetching(nest, roles, _beside_window(nest, roles, one, machine))
    one = _reduction_blocks(nest, roles, one, machine, streamed)
    one = one.changed(in_registers=_light(nest, roles, one))
    sizes = Blocking(nest, one, roles)
    if one.goes_down:
        return strip_blocks(nest, roles, one, machine)
    l2 = machine.caches[:2][-1]
    # to copy panels again for another block of rows costs more than rows that leave the cache
    share = l2 if one.copied == (False, True) else l2 / 2
    element = sizes.copied_bytes if one.copied[0] else 4
    room = max(1.0, share / (element * one.rows * max(sizes.block_k, 1)))
    tile_block = -(-sizes.tiles // max(1, round(sizes.tiles / room)))
    panel_block = one.panels if one.copied[0] or streamed else 1
    one = one.changed(tile_block=tile_block, panel_block=panel_block)
    one = split(nest, roles, one, machine)
    if streamed and _is_in_order(nest, roles, one):
        return one.changed(in_order=True)
    if _may_shift(nest, roles, one, machine):
        return one.changed(shifted=True)
    return _prefetching(nest, roles, one)


def _beside_window(nest: Nest, roles: ProductRoles, one: Tiling, machine: Machine) -> Tiling:
    """Panels over as much of the reduction as fits the second cache beside a window: every block
    more is a pass over the sums of all tiles."""
    l2 = machine.caches[:2][-1]
    for share in (WINDOWED, PANEL):
        cut = _reduction_blocks(nest, roles, one, machine, share=share)
        windowed = cut.changed(in_registers=_light(nest, roles, cut))
        windowed = window_blocks(nest, roles, windowed, machine)
        sizes = Blocking(nest, windowed, roles)
        panel = sizes.block_k * sizes.panel_row
        if sizes.copied_bytes * (panel + sizes.window.elements) <= l2:
            break
    return windowed


def _is_in_order(nest: Nest, roles: ProductRoles, one: Tiling) -> bool:
    """Whether B's rows, of which one row of A takes a few at a time, can be read whole."""
    a, b = (f.direct for f in (roles.factors[::-1] if one.swapped else roles.factors))
    if a is None or b is None or a.dtype != "f32" or b.dtype not in IN_ORDER:
        return False
    is_one = one.k_blocks > 1 and nest.points(one.row_loops) * nest.points(one.outer_rows) == 1
    plain = not (any(one.copied) or one.windows or one.outer_columns or one.batch or one.extra)
    return is_one and plain and len(one.reduced) == 1 and b.strides[one.vector_loop] == 1


def _may_shift(nest: Nest, roles: ProductRoles, one: Tiling, machine: Machine) -> bool:
    """Whether columns overlap from point to point of the innermost reduction loop: vectors that
    are read anew at each cross cache lines, and few rows share what that takes."""
    b = (roles.factors[0] if one.swapped else roles.factors[1]).direct
    if b is None or b.dtype != "f32" or one.copied[1] or one.vector_rows or not one.reduced:
        return False
    step, taps = b.strides[one.reduced[-1]], nest.sizes[one.reduced[-1]]
    last = len(one.reduced) - 1
    whole = (last or one.k_blocks == 1) and (one.chain[0] < last or one.chain[1] >= taps)
    overlap = b.strides[one.vector_loop] == 1 and 0 < step < one.lanes and 1 < taps <= MOST_SHIFTS
    has_room = one.wide == 1 and 2 * one.vectors + 3 < machine.registers
    is_able = "avx512f" in machine.features and 4 * one.lanes == machine.vector_bytes == 64
    return bool(overlap and has_room and is_able and whole) and one.rows <= SHIFTED_ROWS


def panel_count(nest: Nest, one: Tiling) -> int:
    along = -(-nest.sizes[one.vector_loop] // (one.vectors // one.wide * one.lanes))
    return along * nest.points(one.outer_columns) // one.wide


def _side_by_side(roles: ProductRoles, one: Tiling) -> int:
    """Rows of B that are read side by side: fewer where they share cache sets."""
    return STREAMED // 2 if _shares_sets(roles, one) else STREAMED


def _shares_sets(roles: ProductRoles, one: Tiling) -> bool:
    factor = roles.factors[0] if one.swapped else roles.factors[1]
    b = factor.direct if one.copied[1] else source_access(factor)
    if b is None or not one.reduced:
        return False
    return estimate.aliased(estimate.row_bytes(b, one.reduced[-1]), STREAMED)


def _reduction_blocks(
    nest: Nest, roles: ProductRoles, one: Tiling, machine: Machine, streamed: bool = False,
    share: float = PANEL,
) -> Tiling:  # fmt: skip
    """Blocks of the reduction for the caches, and the part of a block that registers sum."""
    if not one.reduced:
        return one.changed(k_block=1, k_blocks=1, chain=(0, 1))
    first = nest.sizes[one.reduced[0]]
    inner = nest.points(one.reduced[1:])
    l2 = machine.caches[:2][-1]
    element = Blocking(nest, one, roles).copied_bytes
    room = int(share * l2) // (element * one.vectors * one.lanes * inner)
    room = min(room, max(1, _side_by_side(roles, one) // inner)) if streamed else room
    k_block = first
    if room < first:
        blocks = -(-first // max(room, 1))
        k_block = _multiple(-(-first // blocks), UNROLL if inner == 1 else 1)
    if roles.dtype != "f32":  # exact however long
        return one.changed(k_block=k_block, k_blocks=-(-first // k_block), chain=(0, k_block))
    groups = roles.batch and not one.vector_rows
    if one.windows and groups and first * inner <= CHAIN:  # XLA's sums are short there, too
        return one.changed(k_block=k_block, k_blocks=-(-first // k_block), chain=(0, 1))
    level = len(one.reduced) - 1
    points = nest.sizes[one.reduced[level]] if level else k_block
    while level and points * nest.sizes[one.reduced[level - 1]] <= CHAIN:
        points *= nest.sizes[one.reduced[level - 1]]
        level -= 1
    if level and 4 * points <= CHAIN:  # parts of so few points are several of the loop around them
        level -= 1
    extent = k_block if level == 0 else nest.sizes[one.reduced[level]]
    inside = math.prod(nest.sizes[i] for i in one.reduced[level + 1 :])
    parts = max(1, -(-extent * inside // CHAIN))
    length = _multiple(-(-extent // parts), UNROLL if level == len(one.reduced) - 1 else 1)
    return one.changed(
        k_block=k_block, k_blocks=-(-first // k_block), chain=(level, min(length, extent))
    )


def _multiple(n: int, of: int) -> int:
    return -(-n // of) * of


def _light(nest: Nest, roles: ProductRoles, one: Tiling) -> bool:
    """Whether the epilogue is a few additions on accesses that step evenly from row to row."""
    plain = [a for i in roles.epilogue for a in accesses_read(nest.stages[i].arguments)]
    plain += [s.access for s in nest.stores]
    cost = additions(nest, roles.epilogue)
    dtypes = {a.dtype for a in plain} | {nest.stages[i].dtype for i in roles.epilogue}
    return (
        one.k_blocks == 1
        and not one.extra
        and not nest.bounds
        and dtypes == {"f32"}
        and cost <= 4
        and all(not a.bounds and not a.lookups for a in plain)
        and not any(s.bounds for s in nest.stores)
        and all(
            access_loops(s.access) >= {one.vector_loop} and s.access.strides[one.vector_loop] == 1
            for s in nest.stores
        )
        and all(row_stride(nest, one.row_loops, a) is not None for a in plain)
    )


def split(nest: Nest, roles: ProductRoles, one: Tiling, machine: Machine) -> Tiling:
    """Blocks cut smaller until every core has several items, and two cores equally many."""
    return _evenly(nest, roles, _several_items(nest, roles, one, machine))


def _several_items(nest: Nest, roles: ProductRoles, one: Tiling, machine: Machine) -> Tiling:
    sizes = Blocking(nest, one, roles)
    stage = nest.stages[roles.root]
    worth = nest.points((*stage.loops, *stage.reduced)) // one.lanes // LEAST_ITEM
    per_core = 1 if one.copied[0] else ITEMS_PER_CORE  # every item copies its rows again
    wanted = min(per_core * max(machine.cores, LEAST_CORES), max(worth, 1))
    cells = nest.points(one.batch)
    if cells * sizes.row_blocks * sizes.groups >= wanted:
        return one
    if one.panel_block > 1:
        groups = min(one.panels, -(-wanted // (cells * sizes.row_blocks)))
        if one.k_block <= STREAMED < one.k_block * one.k_blocks:  # in order, so not in short runs
            groups = min(groups, max(1, one.panels * sizes.panel_row // STREAM_RUN))
        one = one.changed(panel_block=-(-one.panels // groups))
        sizes = Blocking(nest, one, roles)
    missing = -(-wanted // (cells * sizes.row_blocks * sizes.groups))
    if missing > 1 and not one.copied[1]:
        one = one.changed(tile_block=max(1, -(-one.tile_block // missing)))
    return one


def _evenly(nest: Nest, roles: ProductRoles, one: Tiling) -> Tiling:
    """As many items for one of two cores as for the other, if that copies nothing twice."""
    sizes, cells = Blocking(nest, one, roles), nest.points(one.batch)
    if not one.copied[1]:
        each = cells * sizes.groups
        return one.changed(tile_block=even_blocks(sizes.tiles, one.tile_block, each))
    if not one.copied[0]:
        each = cells * sizes.row_blocks
        return one.changed(panel_block=even_blocks(one.panels, one.panel_block, each))
    return one


def _prefetching(nest: Nest, roles: ProductRoles, one: Tiling) -> Tiling:
    """How much of the next panel the turns of the innermost loop ask for."""
    factor = roles.factors[0] if one.swapped else roles.factors[1]
    b = factor.direct if one.copied[1] else source_access(factor)
    if b is None or one.panels == 1:
        return one
    if one.fused > 1:
        return one.changed(prefetch=1) if _follows_itself(nest, one, b) else one
    if one.windows:
        return one
    level = _asking_level(one, b)
    if level is None:
        return one
    one = one.changed(asking=level)
    if one.k_blocks > 1 and one.k_block > STREAMED:
        return one
    if nest.points(one.reduced) < 4 * UNROLL:
        return one
    if level < len(one.reduced) - 1:  # a row a turn
        return one.changed(prefetch=1) if one.tile_block == 1 else one
    short = one.lanes <= 4  # they leave no register for the number of a turn
    if b.strides[one.vector_loop] == 1:
        turns = 1 if short else 1 << max(one.tile_block // UNROLL, 1).bit_length() - 1
        return one.changed(prefetch=-(-UNROLL // one.tile_block), prefetch_turns=turns)
    if one.copied[1] and b.strides[one.reduced[-1]] == 1 and one.wide == 1 and not short:
        turns = Blocking(nest, one, roles).line // UNROLL
        columns = -(-one.vectors * one.lanes // (turns * one.tile_block))
        return one.changed(prefetch=columns, prefetch_turns=turns)
    return one


def _follows_itself(nest: Nest, one: Tiling, b: Access) -> bool:
    """Whether a panel of B is one run in memory, which turns ask for piece by piece."""
    if one.k_blocks > 1 or one.wide > 1 or b.strides[one.vector_loop] != 1:
        return False
    run = one.vectors * one.lanes
    for loop in sorted(one.reduced, key=lambda i: b.strides[i]):
        if nest.sizes[loop] > 1 and b.strides[loop] != run:
            return False
        run *= nest.sizes[loop]
    return True


def _asking_level(one: Tiling, b: Access) -> int | None:
    """The loop of `reduced` whose turns ask for rows of B: of a block, the only one with rows.

    Where blocks are those of scales, each is all of the inner loops; of several numbers in a byte
    the innermost loop reads one row.
    """
    if len(one.reduced) == 1:
        return 0
    rows = [i for i, loop in enumerate(one.reduced) if i and b.strides[loop]]
    is_block = one.k_block == 1 < one.k_blocks and len(rows) == 1
    return rows[0] if is_block and rows[0] >= len(one.reduced) - 2 else None


def may_curve(one: Tiling) -> bool:
    """Whether its items read both factors where they lie, and nothing else orders them."""
    others = one.dot, one.windows, one.strips, one.in_order, one.vector_rows
    return not any((*others, *one.copied))


def along_curves(
    nest: Nest, roles: ProductRoles, one: Tiling, machine: Machine
) -> Iterator[Tiling]:
    """The same blocks along curves, where both factors together leave the last cache.

    Not of rows that share the sets of caches, which are better copied.
    """
    sizes = Blocking(nest, one, roles)
    each, a = zip(sizes.factors, sizes.fetched_bytes, strict=True), sizes.factors[0].direct
    if sum(nest.points(f.loops) * n for f, n in each) <= machine.caches[-1]:
        return
    if (
        a
        and one.row_loops
        and estimate.shares_sets(
            estimate.row_bytes(a, one.row_loops[-1]), one.rows * one.tile_block
        )
    ):
        return
    groups = min(sizes.groups, MOST_VISITS // sizes.row_blocks)
    if min(sizes.row_blocks, groups) < LEAST_LINES:
        return
    fewer = one.changed(panel_block=-(-one.panels // groups))
    yield from (fewer.changed(order=order) for order in (MORTON, HILBERT))


def other_blocks(nest: Nest, roles: ProductRoles, one: Tiling) -> Iterator[Tiling]:
    """Fewer rows of a tile, blocks half and twice as large; none where these follow from others."""
    if one.dot or one.windows or one.strips or one.in_order or one.shifted:
        return
    count, first = nest.points(one.row_loops), nest.sizes[one.reduced[0]] if one.reduced else 1
    for fewer in {one.rows - 1, one.rows - 2, one.rows // 2} - {one.rows}:
        if fewer > 0:
            tiles = -(-count // fewer)
            yield _asking_anew(nest, roles, one.changed(rows=-(-count // tiles), row_tiles=tiles))
    tiles = Blocking(nest, one, roles).tiles
    for size, most, field in (
        (one.tile_block, tiles, "tile_block"),
        (one.panel_block, one.panels, "panel_block"),
    ):
        for n in {max(1, size // 2), min(2 * size, most)} - {size}:
            yield _asking_anew(nest, roles, one.changed(**{field: n}))
    half = _multiple(-(-one.k_block // 2), UNROLL)
    if half < one.k_block:
        level, length = one.chain
        chain = (level, length if level else min(length, half))
        cut = one.changed(k_block=half, k_blocks=-(-first // half), chain=chain)
        yield _asking_anew(nest, roles, cut.changed(in_registers=_light(nest, roles, cut)))


def _asking_anew(nest: Nest, roles: ProductRoles, one: Tiling) -> Tiling:
    return _prefetching(nest, roles, one.changed(prefetch=0, prefetch_turns=1, asking=0))
