"""Counts of the work of a contraction plan, and a rough time by which plans are compared.

The counts are what prices are made of. The rough time only ranks the plans of one nest: its
constants are those of recent cores, so that a plan does not change with a target's calibration.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from eqsat.model.dispatch import Machine, Work
from eqsat.model.nest import Access, Nest
from eqsat.model.tensor import DTYPES
from eqsat.plan.curves import ROWS, reuses
from eqsat.plan.roles import ProductFactor, source_access
from eqsat.plan.stages import (
    CHAINS,
    LINE,
    PAGE_BYTES,
    accesses_read,
    additions,
    additions_of,
    needed,
    stages_read,
)
from eqsat.plan.strips import waiting

if TYPE_CHECKING:
    from eqsat.plan.contraction import Blocking

PREFETCHED = 16  # streams that the core's prefetchers follow
# picoseconds of a unit of work, see `model.plan.Constants`; of a copy, per byte
FMA, LOAD, SCALAR, STRIDED, PAGE, TILE, COPY = 125, 125, 100, 1000, 5000, 15000, 25
FAR = 4  # elements that are read one by one in the time of one from the next cache
WAYS = 8  # lines of a set of the nearest cache
CROWDED = 16.0  # bytes fetched again per element of rows through whose sets a panel goes, too
SHIFTED = 0.3  # additions per vector that is shifted beside a multiply-add
TURNED = 5  # shuffles per vector of a square that is transposed in registers
# additions per vector of f32: to spread the elements, then to convert or shift them
WIDENING = {"f32": 0, "i32": 0, "bf16": 1, "f16": 1, "i8": 1, "u8": 1, "i16": 1, "u16": 1}
LEVELS = (4, 10, 25, 50)  # picoseconds per byte, innermost first: some 250 to 20 GB/s


def cycles(work: Work, machine: Machine) -> float:
    """Rough picoseconds of this work on one core."""
    compute = max(work.fma * FMA, work.loads * LOAD) + work.scalar * SCALAR
    compute += work.strided * STRIDED + work.pages * PAGE + work.tiles * TILE
    traffic = sum(nbytes * _per_byte(between, machine) for between, nbytes in work.streams)
    copies = work.copied * COPY
    return max(compute, traffic) + 0.4 * min(compute, traffic) + copies


def _per_byte(between: float, machine: Machine) -> float:
    levels = (i for i, size in enumerate(machine.caches) if between <= size)
    return LEVELS[min(next(levels, len(machine.caches)), len(LEVELS) - 1)]


def row_bytes(access: Access, loop: int) -> int:
    """Bytes from one point of a loop to the next."""
    return abs(access.strides[loop]) * DTYPES[access.dtype][0] // 8


def aliased(nbytes: int, rows: int) -> bool:
    """Whether lines of so many rows, `nbytes` apart, do not stay in the nearest cache.

    Lines a page apart share one set, of eight ways usually.
    """
    apart = math.gcd(nbytes, PAGE_BYTES)
    return rows > WAYS * (PAGE_BYTES // max(apart, 64))


def shares_sets(nbytes: int, rows: int) -> bool:
    """Whether lines of so many rows, `nbytes` apart, lie in one or two sets of every cache.

    A line then leaves them before the next row comes to it. 1,024 results in columns of 4,096 bytes
    took 7.4 ns each, in columns of 4,000 bytes 0.9.
    """
    return aliased(nbytes, rows) and math.gcd(nbytes, PAGE_BYTES) >= PAGE_BYTES // 2


def tiled_work(sizes: Blocking, machine: Machine, items: int) -> Work:
    """Counts of all work items; see `Work`."""
    p, nest = sizes.plan, sizes.nest
    if p.dot:
        return _dots(sizes, items)
    k = -(-sizes.run_points(p.reduced) // p.fused)
    points = nest.points(p.batch) * nest.points(p.outer_rows)
    columns = nest.points(p.outer_columns) // p.wide
    fma = loads = tiles = vectors = converted = 0.0
    of_a, of_b = (
        0 if on else widening(f, p.reduced[1:] or p.reduced)
        for f, on in zip(sizes.factors, sizes.in_scratch, strict=True)
    )
    for count, rows in ((sizes.full_tiles, p.rows), (p.row_tiles - sizes.full_tiles, p.rows - 1)):
        for panels, width in _panels(sizes):
            across = -(-width // p.lanes) * p.wide
            times = points * columns * count * panels
            products = times * k * sizes.multiplied
            from_a = rows * (across if p.vector_rows else 1)
            conversions = across * of_b + from_a * of_a
            issued, loaded = at_one_point(sizes, rows, across)
            # what makes the factors fills the wait for a sum, too
            fma += products * max(issued, CHAINS - conversions) * waiting(sizes, across)
            loads += products * loaded
            converted += SHIFTED * products * across * p.shifted
            converted += times * k * conversions
            # where a core begins the next tile while it sums this one
            if not (p.vector_rows or p.shifted):
                tiles += times * (1 if _is_streamed(sizes) else p.k_blocks)
            vectors += times * rows * across
    epilogue, strided, far = _epilogue(sizes, vectors)
    copied, prologue, more, farther = _copies(sizes)
    return Work(
        fma=fma,
        loads=loads,
        scalar=epilogue + prologue + _partials(sizes, vectors) + converted,
        strided=strided + more,
        pages=_pages(sizes, machine) + _pages_of_copies(sizes, vectors) + far + farther,
        tiles=tiles,
        items=items,
        copied=copied,
        streams=tuple(_streams(sizes, machine)),
    )


def at_one_point(sizes: Blocking, rows: int, across: int) -> tuple[float, float]:
    """Multiply-adds and loads of a tile of so many rows and vectors at one point of the reduction,
    waits not counted."""
    p = sizes.plan
    more = int(sizes.is_biased and not sizes.sums_columns)  # columns are added up, too
    from_a = rows * (across if p.vector_rows else 1)
    loads = _loads_of_columns(sizes, across) + _loads_of_rows(sizes, rows) * from_a
    return (rows + more) * across, loads


def _loads_of_columns(sizes: Blocking, across: int) -> float:
    """Loads of B per point of the reduction: what lies across two cache lines is loaded as two."""
    p, b = sizes.plan, source_access(sizes.factors[1])
    if b is None or p.copied[1] or not p.reduced or b.strides[p.vector_loop] != 1:
        return across
    step = abs(b.strides[p.reduced[-1]])
    if p.shifted:
        return (across + 1) / min(p.lanes // step, sizes.nest.sizes[p.reduced[-1]])
    crossed = 0 < step < p.lanes and p.lanes * DTYPES[b.dtype][0] // 8 * 2 > 4 * LINE
    return across * (2 if crossed else 1)


def _loads_of_rows(sizes: Blocking, rows: int) -> float:
    """Loads per element of A that is multiplied: neighbouring rows' windows share vectors, which
    stay in registers where points of the innermost loop are written out."""
    p = sizes.plan
    if not (p.vector_rows and p.reduced and rows):
        return 1.0
    return sizes.columns_read[rows < p.rows] / (rows * sizes.written_out)


def widening(factor: ProductFactor, inner: tuple[int, ...]) -> float:
    """Additions per vector that is loaded, to make of it what is multiplied.

    inner: loops of the reduction in which other parts change, if they have to be loaded again:
    scales of a block stay in registers.
    """
    if factor.inline:
        body, (_, *others) = factor.inline.body, factor.inline.leaves
        return additions_of(body) + sum(any(a.strides[i] for i in inner) for a in others)
    return 0 if factor.direct is None else WIDENING[factor.direct.dtype]


def _dots(sizes: Blocking, items: int) -> Work:
    """Sums that are vectors along the reduction, each added up in the end."""
    p, nest = sizes.plan, sizes.nest
    columns = nest.points(p.batch) * nest.sizes[p.vector_loop]
    turns = nest.points(p.reduced[:-1]) * -(-nest.sizes[p.reduced[-1]] // p.lanes)
    sums = columns * p.rows
    rows, others = (widening(f, p.reduced) for f in sizes.factors)
    epilogue, strided, far = _epilogue(sizes, sums / p.lanes)
    return Work(
        fma=columns / p.dot * turns * max(p.rows * p.dot, CHAINS),
        loads=columns / p.dot * turns * (p.rows + p.dot),
        scalar=epilogue + 12.0 * sums + columns / p.dot * turns * (p.rows * rows + p.dot * others),
        strided=strided + sums,
        pages=far,
        tiles=columns / p.dot,
        items=items,
    )


def _panels(sizes: Blocking) -> tuple[tuple[int, int], tuple[int, int]]:
    """(panels, elements of each) along the vector loop: the whole ones, the last."""
    return (sizes.panels_along - 1, sizes.width), (1, sizes.last_width)


def _epilogue(sizes: Blocking, vectors: float) -> tuple[float, float, float]:
    """Additions of vectors, elements that are read or written one by one, and pages of these."""
    nest, p = sizes.nest, sizes.plan
    times = vectors * nest.points(p.extra)
    stages = [nest.stages[i] for i in sizes.roles.epilogue]
    cost = additions(nest, sizes.roles.epilogue)
    ends = [a for s in stages for a in accesses_read(s.arguments)]
    ends += [s.access for s in nest.stores]
    width = min(sizes.width, nest.sizes[p.vector_loop])
    each = [one_by_one(a, p.vector_loop, width) for a in ends]
    strided, far = (times * p.lanes * sum(x) for x in zip(*each, strict=True))
    return times * (cost + len(ends)), strided, far


def one_by_one(access: Access, loop: int, count: int) -> tuple[int, int]:
    """Elements, and pages, that an element of vectors along a loop costs; none of these where they
    are read whole.

    One whose line leaves the nearest cache before its neighbour is read takes as long as `FAR`, or
    a page where it leaves the next one, too.
    """
    if access.strides[loop] in (0, 1):
        return 0, 0
    nbytes = row_bytes(access, loop)
    if shares_sets(nbytes, count):
        return 1, 1
    return (FAR if aliased(nbytes, count) else 1), 0


def _partials(sizes: Blocking, vectors: float) -> float:
    """Loads, additions and stores of partial sums, in additions."""
    p, nest = sizes.plan, sizes.nest
    if sizes.adds_parts:
        return vectors * (-(-p.k_block // p.chain[1]) - 1)
    if not sizes.has_partials:
        return 0
    level, length = p.chain
    parts = nest.points(p.reduced[:level]) * (
        -(-nest.sizes[p.reduced[level]] // length) if p.reduced else 1
    )
    return 3 * vectors * parts


def _copies(sizes: Blocking) -> tuple[float, float, float, float]:
    """Bytes copied to scratch, additions of vectors on the way, elements read one by one, and pages
    of these."""
    nest, p = sizes.nest, sizes.plan
    k, batch = nest.points(p.reduced), nest.points(p.batch)
    a, b = sizes.factors
    copied = prologue = strided = far = 0.0
    rows = batch * sizes.row_count * nest.points(p.outer_rows)
    columns = batch * p.panels * p.vectors * p.lanes
    innermost = p.reduced[-1] if p.reduced else -1
    if p.windows:
        times, elements = _windows(sizes)
        copied += sizes.copied_bytes * times * elements
        once = sizes.window.bounds_of_runs  # tested once for a whole run
        prologue += times * elements / p.lanes * (_body_cost(sizes, a) - once)
        strided += times * elements * sizes.window.steps_apart
    for on, factor, elements, along in (
        (p.copied[0], a, rows * _in_vectors(sizes) * sizes.groups, innermost),
        (p.copied[1], b, columns * k * sizes.row_blocks, p.vector_loop),
    ):
        if on:
            copied += sizes.copied_bytes * elements
            prologue += elements / p.lanes * _body_cost(sizes, factor)
            if factor is b and sizes.sums_columns:
                prologue += 3 * elements / p.lanes / p.fused
            turned = factor is b and _is_turned(sizes)
            if turned:
                run = nest.sizes[innermost]
                prologue += TURNED * elements / run * -(-run // p.lanes)
            strided += elements * (_strided(factor, along) - turned)
            far += 0 if turned else elements * _far(sizes, factor, along)
    return copied, prologue, strided, far


def _in_vectors(sizes: Blocking) -> int:
    """Elements of a copied row, each run of it along the innermost loop in whole vectors."""
    nest, p = sizes.nest, sizes.plan
    if not p.reduced:
        return 1
    run = -(-nest.sizes[p.reduced[-1]] // p.lanes) * p.lanes
    return nest.points(p.reduced[:-1]) * run


def _windows(sizes: Blocking) -> tuple[float, float]:
    """How often a window is copied, and its elements, what its rows lack to whole vectors too."""
    nest, p = sizes.nest, sizes.plan
    copies = p.panels if p.vector_rows else sizes.groups
    inner = -(-sizes.window.extents[-1] // p.lanes) * p.lanes
    return nest.points(p.batch) * sizes.row_blocks * copies, sizes.window.runs * inner


def _body_cost(sizes: Blocking, factor: ProductFactor) -> float:
    """Additions per element of a factor, the stages it needs included."""
    stages = additions(sizes.nest, needed(sizes.nest, stages_read(factor.arguments)))
    return additions_of(factor.body) + stages + sum(len(a.bounds) for a in factor.accesses)


def _strided(factor: ProductFactor, along: int) -> int:
    """Accesses that no vector along a loop serves."""
    if along < 0:
        return 0
    looked_up = (any(x.strides[along] for x in a.indices) for a in factor.accesses)
    return sum(
        a.strides[along] not in (0, 1) or looks
        for a, looks in zip(factor.accesses, looked_up, strict=True)
    )


def _far(sizes: Blocking, factor: ProductFactor, along: int) -> int:
    """Accesses whose lines leave the caches before the next vector along a loop comes to them."""
    count = sizes.nest.sizes[along]
    reads = (a for a in factor.accesses if along >= 0 and not a.lookups)
    return sum(one_by_one(a, along, count)[1] for a in reads)


def _is_turned(sizes: Blocking) -> bool:
    """Whether a copied panel is columns that lie along the innermost reduction loop: squares of
    them are transposed in registers."""
    p, a = sizes.plan, sizes.factors[1].direct
    if a is None or a.strides[p.vector_loop] in (0, 1) or not p.reduced:
        return False
    return a.strides[p.reduced[-1]] == 1


def _is_streamed(sizes: Blocking) -> bool:
    """Whether rows of B are read in order, so few side by side that prefetchers follow."""
    return sizes.plan.k_blocks > 1 and sizes.plan.k_block <= PREFETCHED


def _pages(sizes: Blocking, machine: Machine) -> float:
    """Rows of vectors, or of a tile's rows, that no prefetcher follows, as often as fetched.

    B's rows that lie within a page count by the square of their share of one: fewer of them begin
    one, and prefetchers follow them better.
    """
    nest, p = sizes.nest, sizes.plan
    a, b = sizes.a_access, source_access(sizes.factors[1])
    if not p.reduced:
        return 0
    k = nest.points(p.batch) * nest.points(p.reduced)
    pages = 0.0
    if b and not _is_streamed(sizes):
        share = row_bytes(b, p.reduced[-1]) / PAGE_BYTES
        fits_l1 = 4 * sizes.block_k * sizes.panel_row <= machine.caches[0] // 2
        once = p.copied[1] or p.prefetch or fits_l1
        again = sizes.row_blocks if once or share < 1 else sizes.tiles  # of every block of rows
        pages += k * p.panels * p.wide * again * min(share, 1) ** 2
        again = sizes.row_blocks if once else sizes.tiles
        pages += nest.points(p.batch) * p.panels * p.wide * again * jumps(b, p.reduced, nest)
    if a and not p.strips and row_bytes(a, p.reduced[-1]) >= PAGE_BYTES:
        pages += k * sizes.tiles * (sizes.groups if p.copied[0] else p.panels)
    return pages


def jumps(b: Access, reduced: tuple[int, ...], nest: Nest) -> float:
    """How often rows of vectors begin away from the last one of a turn of an outer reduction loop,
    as shares of pages; not what goes on where that one ends, as packed weights do."""
    each, pages, inside = DTYPES[b.dtype][0] / 8, 0.0, 0
    for n in range(len(reduced) - 1, -1, -1):
        step, size = b.strides[reduced[n]], nest.sizes[reduced[n]]
        if n < len(reduced) - 1:
            share = min(abs(step - inside) * each / PAGE_BYTES, 1) ** 2
            pages += nest.points(reduced[:n]) * (size - 1) * share
        inside += step * (size - 1)
    return pages


def _pages_of_copies(sizes: Blocking, vectors: float) -> float:
    """Vectors of results that are written several times: no prefetcher follows from place to place.

    One takes as long as a row that is fetched from another page: 2.5 ns where places are 1 KiB
    apart, 5 where they are 16 KiB apart.
    """
    nest, p = sizes.nest, sizes.plan
    return vectors * nest.points(p.extra) * len(nest.stores) if p.extra else 0


def _streams(sizes: Blocking, machine: Machine) -> Iterator[tuple[float, float]]:
    """(bytes used in between, bytes fetched again) of A, of B and of the partial sums."""
    nest, p = sizes.nest, sizes.plan
    k, batch = nest.points(p.reduced), nest.points(p.batch)
    fetched = sizes.fetched_bytes
    copied = float(sizes.copied_bytes)
    of_a, of_b = (copied if on else n for n, on in zip(fetched, sizes.in_scratch, strict=True))
    panel = of_b * sizes.block_k * sizes.panel_row
    row_tile = of_a * p.rows * sizes.block_k
    block = row_tile * p.tile_block
    b_points = batch * k * p.panels * p.vectors * p.lanes
    a_points = batch * k * sizes.row_count * nest.points(p.outer_rows)
    a_bytes = of_a * a_points
    if p.windows:
        block = copied * sizes.window.elements
        row_tile = block / sizes.block_points
        a_bytes = batch * sizes.row_blocks * block
    if sizes.tiles > 1:  # a panel is read again for every row tile of a block
        yield panel + row_tile, of_b * b_points * (sizes.tiles - sizes.row_blocks)
    whole = (block * p.k_blocks, fetched[1] * b_points / batch)
    if p.order != ROWS:
        yield block + panel, a_bytes * (p.panels - sizes.groups)
        yield from _along_curve(sizes, batch, a_bytes, whole)
    elif sizes.row_blocks > 1:  # and all of B for every block
        yield whole[1] + block, batch * whole[1] * (sizes.row_blocks - 1)
    if p.order == ROWS and p.panels > 1 and not p.vector_rows:
        # a block of rows is read again for every panel
        apart = sizes.groups - 1 if p.k_blocks > 1 else 0  # all parts of the sum lie between
        yield block + panel, a_bytes * (p.panels - 1 - apart)
        if apart:
            yield whole[0] + panel * p.k_blocks * p.panel_block, a_bytes * apart
    a = sizes.factors[0].direct
    if a and p.row_loops and not p.copied[0]:
        apart, fetched_anew = row_bytes(a, p.row_loops[-1]), a_points * p.panels
        if aliased(apart, p.rows):  # a line leaves the cache before its next element is read
            yield machine.caches[0] + 1, 64.0 * fetched_anew
        elif panel > machine.caches[0] and aliased(apart, 2 * p.rows):
            yield machine.caches[0] + 1, CROWDED * fetched_anew
    if p.k_blocks > 1:
        sums = 4.0 * p.rows * p.tile_block * p.panel_block * p.vectors * p.lanes
        total = 8.0 * batch * sizes.tiles * p.rows * p.panels * p.vectors * p.lanes
        yield sums + panel, total * (p.k_blocks - 1)


def _along_curve(
    sizes: Blocking, batch: int, a_bytes: float, whole: tuple[float, float]
) -> Iterator[tuple[float, float]]:
    """As `_streams`, of blocks of rows and groups of panels along a curve. whole: bytes of such a
    block, and of all groups."""
    block, group = whole[0], whole[1] / sizes.groups
    sides = reuses(sizes.plan.order, sizes.row_blocks, sizes.groups)
    for used, each in zip(sides, (a_bytes / sizes.row_blocks, batch * group), strict=True):
        for r in used:
            yield r.rows * block + r.columns * group, r.uses * each
