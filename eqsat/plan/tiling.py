"""The plan of a contraction: every way to tile it that is worth a look, and the cheapest.

Vector loop, operand order, register tile, blocks and copies follow from the strides, the registers
and the caches. Candidates are few, so all are estimated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from eqsat.model.nest import Nest, NoNest
from eqsat.model.plan import Machine
from eqsat.plan import estimate, expressions
from eqsat.plan.contraction import UNROLL, Blocking, Tiling, row_stride
from eqsat.plan.cores import CHAIN, CHAINS, ITEMS_PER_CORE, LEAST_ITEM, LINE
from eqsat.plan.fused import products_at_once
from eqsat.plan.roles import (
    ProductFactor,
    ProductRoles,
    fetched_bytes,
    product_roles_of,
    source_access,
)
from eqsat.plan.stages import access_loops, accesses_read, additions
from eqsat.plan.windowblocks import window_blocks
from eqsat.plan.windows import Coordinates

SPARE = 5  # registers beside sums and columns where short vectors take their rows from lanes
STREAM_RUN = 1024  # columns of a row that are read in order at least
LEAST_APART = 1024  # bytes between rows of B that are worth streaming: not those of a panel
MOST_DOT_ROWS = 12  # rows of sums along the reduction: 16 registers hold them and what they read
MANY_ROWS = 16  # of a block: they fill the registers under panels of two or three vectors
STREAMED = 16  # rows of B that are read side by side, each in order
STREAMED_SUMS = 4  # vectors of them that hide the latency of memory and of multiply-adds


def plan(nest: Nest, machine: Machine) -> Tiling:
    """The cheapest plan by `estimate`; raises NoNest for what is no contraction and epilogue."""
    roles = product_roles_of(nest)
    expressions.check_bodies(nest)
    if any(nest.stages[i].bounds for i in roles.epilogue):
        raise NoNest("a stage behind the contraction pads what it reads")
    found = [_finished(nest, roles, c, machine) for c in _candidates(nest, roles, machine)]
    if not found:
        raise NoNest("no loop of the contraction's result can be its vector loop")
    return min(found, key=lambda c: estimate.cycles(c.work, machine))


def _finished(nest: Nest, roles: ProductRoles, c: Tiling, machine: Machine) -> Tiling:
    sizes = Blocking(nest, c, roles)
    items = nest.points(c.batch) * sizes.row_blocks * sizes.groups
    work = estimate.tiled_work(sizes, machine, items)
    return replace(c, items=items, scratch_bytes=sizes.scratch[-1], work=work)


def _candidates(nest: Nest, roles: ProductRoles, machine: Machine) -> Iterator[Tiling]:
    for swapped in (False, True):
        a, b = roles.factors[::-1] if swapped else roles.factors
        rows, columns = roles.only[::-1] if swapped else roles.only
        base = Tiling(swapped=swapped, batch=roles.batch, extra=roles.extra, lanes=machine.lanes(4))
        for v in _vector_loops(nest, a, b, columns, roles.batch):
            own = replace(
                base,
                vector_loop=v,
                vector_rows=v in roles.batch,
                batch=tuple(i for i in roles.batch if i != v),
                outer_columns=tuple(i for i in columns if i != v),
            )
            yield from _tiled(nest, roles, own, rows, machine)
            yield from _fused(nest, roles, own, rows, machine)
            yield from _windowed(nest, roles, own, rows, machine)
            yield from _dots(nest, roles, own, rows, machine)


def _vector_loops(
    nest: Nest, a: ProductFactor, b: ProductFactor, columns: tuple[int, ...], batch: tuple[int, ...]
) -> list[int]:
    """Loops along which vectors of B lie, or the result's do; of both factors if there are such."""
    unit = [i for i in columns if b.direct and b.direct.strides[i] == 1]
    written = [i for i in columns if any(s.access.strides[i] == 1 for s in nest.stores)]
    of_b = [i for i in columns if any(x.strides[i] == 1 for x in b.accesses)]
    found = list(dict.fromkeys([*unit, *written, *of_b]))
    both = [
        i
        for i in batch
        if b.direct and b.direct.strides[i] == 1 and any(x.strides[i] == 1 for x in a.accesses)
    ]
    return [*found, *both] or list(columns[-1:])


def _tiled(
    nest: Nest, roles: ProductRoles, own: Tiling, rows: tuple[int, ...], machine: Machine
) -> Iterator[Tiling]:
    a, b = roles.factors[::-1] if own.swapped else roles.factors
    must_a = _must_copy(nest, a, own, rows)
    must_b = not _may_compute(nest, own, b) and _must_copy(nest, b, own, ())
    source = source_access(b)
    strided = source is None or source.strides[own.vector_loop] != 1
    if own.vector_rows and (must_a or must_b or b.inline):
        return
    reduced = _reduction_order(nest, roles, a, b)
    for copy_a in (False, True):
        for copy_b in (False, True):
            if (must_a and not copy_a) or ((must_b or strided) and not copy_b):
                continue
            if copy_a and not must_a and (own.vector_rows or not _may_copy(nest, a, rows)):
                continue
            row_loops, outer = _rows(nest, a, rows, copy_a)
            one = replace(
                own,
                row_loops=row_loops,
                outer_rows=outer,
                reduced=reduced,
                copied=(copy_a, copy_b),
            )
            if _may_stream(nest, one, b):
                narrow = replace(one, vectors=_streamed_vectors(nest, one, b))
                yield _blocked(nest, roles, narrow, machine, streamed=True)
                continue
            sized = [replace(one, vectors=n, wide=w) for n, w in _panels(nest, one, b, machine)]
            yield from (_blocked(nest, roles, x, machine) for x in sized)


def _fused(
    nest: Nest, roles: ProductRoles, own: Tiling, rows: tuple[int, ...], machine: Machine
) -> Iterator[Tiling]:
    """Integers whose products are multiplied and added in groups, both factors copied in these."""
    a, b = roles.factors[::-1] if own.swapped else roles.factors
    reduced = _reduction_order(nest, roles, a, b)
    together = products_at_once(nest, a, b, reduced, machine)
    if roles.dtype != "i32" or own.vector_rows or together == 1:
        return
    row_loops, outer = _rows(nest, a, rows, copied=True)
    one = replace(
        own,
        row_loops=row_loops,
        outer_rows=outer,
        reduced=reduced,
        copied=(True, True),
        fused=together,
    )
    for n, w in _panels(nest, one, b, machine):
        yield _blocked(nest, roles, replace(one, vectors=n, wide=w), machine)


def _windowed(
    nest: Nest, roles: ProductRoles, own: Tiling, rows: tuple[int, ...], machine: Machine
) -> Iterator[Tiling]:
    """A is copied by windows; rows of tiles are along one loop, blocks along it or the next."""
    a, b = roles.factors[::-1] if own.swapped else roles.factors
    found = roles.coordinates[own.swapped] if roles.dtype == "f32" else None
    if found is None or (own.vector_rows and not _lie_along(found, own.vector_loop)):
        return
    must_b = _must_copy(nest, b, own, ()) or (b.direct and b.direct.strides[own.vector_loop] != 1)
    if own.vector_rows and must_b:
        return
    row_loops, outer = _rows(nest, a, rows, copied=False)
    one = replace(
        own,
        row_loops=row_loops,
        outer_rows=outer[-1:],
        batch=(*own.batch, *outer[:-1]),
        windows=True,
    )
    orders = dict.fromkeys(_reduction_order(nest, roles, *x) for x in ((a, b), (b, a)))
    for n, w in _panels(nest, one, b, machine):
        for copy_b in (True,) if must_b else (False, True):
            if w == 1 and (not own.vector_rows or not copy_b):
                sized = replace(one, vectors=n, wide=w, copied=(False, copy_b))
                yield from (
                    _blocked(nest, roles, replace(sized, reduced=order), machine)
                    for order in orders
                )


def _lie_along(found: Coordinates, loop: int) -> bool:
    """Whether the innermost coordinate is this loop alone."""
    return [i for i, s in enumerate(found.strides[-1]) if s] == [loop]


def _dots(
    nest: Nest, roles: ProductRoles, own: Tiling, rows: tuple[int, ...], machine: Machine
) -> Iterator[Tiling]:
    """Few rows of factors that are both contiguous along the reduction: vectors along it."""
    a, b = roles.factors[::-1] if own.swapped else roles.factors
    if _must_copy(nest, a, own, rows) or _must_copy(nest, b, own, ()) or own.vector_rows:
        return
    x, y = a.direct, b.direct
    both = [i for i in roles.reduced if x and y and x.strides[i] == y.strides[i] == 1]
    count = nest.points(rows)
    if (
        roles.dtype != "f32"
        or not both
        or len(rows) > 1
        or count > MOST_DOT_ROWS
        or own.outer_columns
    ):
        return
    order = _reduction_order(nest, roles, a, b)
    reduced = (*(i for i in order if i != both[0]), both[0])
    fitting = (n for n in (8, 4, 2, 1) if count * n + n + 2 <= machine.registers)
    one = replace(
        own,
        dot=next(fitting, 1),
        row_loops=rows,
        reduced=reduced,
        rows=count,
        k_block=nest.sizes[reduced[0]],
        chain=(0, nest.sizes[reduced[0]]),
        in_registers=False,
    )
    one = replace(one, panels=_panel_count(nest, one))
    yield _split(nest, roles, one, machine)


def _widths(rows: int, along: int, machine: Machine) -> list[int]:
    """Vectors of a panel: two or three where rows fill the registers, more where they do not."""
    if rows >= MANY_ROWS:
        return sorted({min(n, along) for n in (2, 3)})
    fitting = [n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24) if n <= along]
    fitting = [n for n in fitting if (rows + 1) * n < machine.registers] or fitting[:1]
    return [n for n in fitting if rows * n >= CHAINS] or fitting[-1:]


def _must_copy(nest: Nest, factor: ProductFactor, own: Tiling, rows: tuple[int, ...]) -> bool:
    """Whether a factor is more than an access, or some of its points do not exist."""
    if factor.direct is None:
        return True
    return any(access_loops(b) & (factor.loops | set(rows)) for b in nest.bounds)


def _may_compute(nest: Nest, own: Tiling, b: ProductFactor) -> bool:
    """Whether tiles may compute B from what lies in memory: vectors, and what they share."""
    if b.inline is None or own.outer_columns:
        return False
    along = (a.strides[own.vector_loop] for a in b.inline.leaves)
    return all(x in (0, 1) for x in along) and not any(
        access_loops(x) & b.loops for x in nest.bounds
    )


def _may_copy(nest: Nest, a: ProductFactor, rows: tuple[int, ...]) -> bool:
    """Whether copying rows could pay: several loops of rows, rows that share cache sets, or
    elements that every panel would convert again."""
    assert a.direct is not None
    if len(rows) > 1 or estimate.widening(a):
        return True
    return any(estimate.aliased(estimate.row_bytes(a.direct, i), nest.sizes[i]) for i in rows)


def _reduction_order(
    nest: Nest, roles: ProductRoles, a: ProductFactor, b: ProductFactor
) -> tuple[int, ...]:
    """Reduction loops, those of longest strides outermost; the second factor's count first."""

    def key(i: int) -> tuple[int, int]:
        return (
            -max((abs(x.strides[i]) for x in b.accesses), default=0),
            -max((abs(x.strides[i]) for x in a.accesses), default=0),
        )

    contiguous = [i for i in roles.reduced if any(x.strides[i] == 1 for x in a.accesses)]
    last = contiguous[:1] if a.direct is None else []
    return (*sorted((i for i in roles.reduced if i not in last), key=key), *last)


def _rows(
    nest: Nest, a: ProductFactor, rows: tuple[int, ...], copied: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Loops that number the rows of tiles, and those around them."""
    if copied or len(rows) < 2:
        return rows, ()
    inner = max(rows, key=lambda i: (min(nest.sizes[i], 14), -abs(a.accesses[0].strides[i])))
    return (inner,), tuple(i for i in rows if i != inner)


def _panels(
    nest: Nest, own: Tiling, b: ProductFactor, machine: Machine
) -> Iterator[tuple[int, int]]:
    """Vectors of a panel, and over how many points of another loop they go."""
    along = -(-nest.sizes[own.vector_loop] // own.lanes)
    rows = nest.points(own.row_loops)
    yield from ((n, 1) for n in _widths(rows, along, machine))
    whole = nest.sizes[own.vector_loop] % own.lanes == 0
    if whole and own.outer_columns and along < 4:
        u = own.outer_columns[-1]
        yield from ((along * q, q) for q in (2, 3) if nest.sizes[u] % q == 0 and along * q <= 4)


def _may_stream(nest: Nest, own: Tiling, b: ProductFactor) -> bool:
    """Whether B is read once, and along its own rows it would be read in order."""
    source = source_access(b)
    if source is None or own.copied[1] or not own.reduced:
        return False
    rows = nest.points(own.row_loops) * nest.points(own.outer_rows)
    apart = estimate.row_bytes(source, own.reduced[0]) >= LEAST_APART
    return apart and rows < MANY_ROWS


def _streamed_vectors(nest: Nest, own: Tiling, b: ProductFactor) -> int:
    """Vectors of a panel that is streamed: few are steady, but a line, and enough for the sums."""
    along = -(-nest.sizes[own.vector_loop] // own.lanes)
    line = int(4 * LINE // (own.lanes * fetched_bytes(b)))
    return min(along, max(-(-STREAMED_SUMS // nest.points(own.row_loops)), line))


def _blocked(
    nest: Nest, roles: ProductRoles, own: Tiling, machine: Machine, streamed: bool = False
) -> Tiling:
    """Rows of a tile from the registers, then blocks from the caches."""
    count = nest.points(own.row_loops)
    per_row = own.vectors * (2 if own.vector_rows else 1)
    free = machine.registers - own.vectors - (1 if own.lanes > 4 else SPARE)
    free -= own.vectors if own.fused > 1 else 0  # sums of columns
    most = max(1, free // per_row) if count > 1 else 1
    row_tiles = -(-count // most)
    panels = _panel_count(nest, own)
    one = replace(own, rows=-(-count // row_tiles), row_tiles=row_tiles, panels=panels)
    one = _reduction_blocks(nest, roles, one, machine, streamed)
    one = replace(one, in_registers=_light(nest, roles, one))
    sizes = Blocking(nest, one, roles)
    if one.windows:
        return window_blocks(nest, roles, one, machine)
    l2 = machine.caches[:2][-1]
    # to copy panels again for another block of rows costs more than rows that leave the cache
    share = l2 if one.copied == (False, True) else l2 / 2
    element = sizes.copied_bytes if one.copied[0] else 4
    room = max(1.0, share / (element * one.rows * max(sizes.block_k, 1)))
    tile_block = -(-sizes.tiles // max(1, round(sizes.tiles / room)))
    panel_block = one.panels if one.copied[0] or streamed else 1
    one = replace(one, tile_block=tile_block, panel_block=panel_block)
    return _prefetching(nest, roles, _split(nest, roles, one, machine))


def _panel_count(nest: Nest, one: Tiling) -> int:
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
    nest: Nest, roles: ProductRoles, one: Tiling, machine: Machine, streamed: bool
) -> Tiling:
    """Blocks of the reduction for the caches, and the part of a block that registers sum."""
    if not one.reduced:
        return replace(one, k_block=1, k_blocks=1, chain=(0, 1))
    first = nest.sizes[one.reduced[0]]
    inner = nest.points(one.reduced[1:])
    l2 = machine.caches[:2][-1]
    element = Blocking(nest, one, roles).copied_bytes
    room = l2 // 4 // (element * one.vectors * one.lanes * inner)
    room = min(room, max(1, _side_by_side(roles, one) // inner)) if streamed else room
    k_block = first
    if room < first:
        blocks = -(-first // max(room, 1))
        k_block = _multiple(-(-first // blocks), UNROLL if inner == 1 else 1)
    if roles.dtype != "f32":  # exact however long
        return replace(one, k_block=k_block, k_blocks=-(-first // k_block), chain=(0, k_block))
    level = len(one.reduced) - 1
    points = nest.sizes[one.reduced[level]] if level else k_block
    while level and points * nest.sizes[one.reduced[level - 1]] <= CHAIN:
        points *= nest.sizes[one.reduced[level - 1]]
        level -= 1
    own = k_block if level == 0 else nest.sizes[one.reduced[level]]
    inside = math.prod(nest.sizes[i] for i in one.reduced[level + 1 :])
    parts = max(1, -(-own * inside // CHAIN))
    length = _multiple(-(-own // parts), UNROLL if level == len(one.reduced) - 1 else 1)
    return replace(
        one, k_block=k_block, k_blocks=-(-first // k_block), chain=(level, min(length, own))
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


def _split(nest: Nest, roles: ProductRoles, one: Tiling, machine: Machine) -> Tiling:
    """Blocks cut smaller until every core has several items."""
    sizes = Blocking(nest, one, roles)
    stage = nest.stages[roles.root]
    worth = nest.points((*stage.loops, *stage.reduced)) // one.lanes // LEAST_ITEM
    per_core = 1 if one.copied[0] else ITEMS_PER_CORE  # every item copies its rows again
    wanted = min(per_core * max(machine.cores, 2), max(worth, 1))
    cells = nest.points(one.batch)
    if cells * sizes.row_blocks * sizes.groups >= wanted:
        return one
    if one.panel_block > 1:
        groups = min(one.panels, -(-wanted // (cells * sizes.row_blocks)))
        if one.k_block <= STREAMED < one.k_block * one.k_blocks:  # in order, so not in short runs
            groups = min(groups, max(1, one.panels * sizes.panel_row // STREAM_RUN))
        one = replace(one, panel_block=-(-one.panels // groups))
        sizes = Blocking(nest, one, roles)
    missing = -(-wanted // (cells * sizes.row_blocks * sizes.groups))
    if missing > 1 and not one.copied[1]:
        one = replace(one, tile_block=max(1, -(-one.tile_block // missing)))
    return one


def _prefetching(nest: Nest, roles: ProductRoles, one: Tiling) -> Tiling:
    """How much of the next panel the turns of the innermost loop ask for."""
    factor = roles.factors[0] if one.swapped else roles.factors[1]
    b = factor.direct if one.copied[1] else source_access(factor)
    if b is None or len(one.reduced) != 1 or one.panels == 1 or one.fused > 1:
        return one
    if one.k_blocks > 1 and one.k_block > STREAMED:
        return one
    if nest.points(one.reduced) < 4 * UNROLL:
        return one
    short = one.lanes <= 4  # they leave no register for the number of a turn
    if b.strides[one.vector_loop] == 1:
        turns = 1 if short else 1 << max(one.tile_block // UNROLL, 1).bit_length() - 1
        return replace(one, prefetch=-(-UNROLL // one.tile_block), prefetch_turns=turns)
    if one.copied[1] and b.strides[one.reduced[0]] == 1 and one.wide == 1 and not short:
        turns = Blocking(nest, one, roles).line // UNROLL
        columns = -(-one.vectors * one.lanes // (turns * one.tile_block))
        return replace(one, prefetch=columns, prefetch_turns=turns)
    return one
