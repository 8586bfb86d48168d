"""Check of a contraction's plan against its nest: every row, column and point of the sum once.

The products that a stage sums are read from the nest alone: on what each factor depends, and at how
many points there is something to multiply.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from eqsat.model.expr import Expr
from eqsat.model.nest import Access, Bound, Nest
from eqsat.model.tensor import DTYPES
from eqsat.ops.nests.reached import MOST_POINTS, Undecided, count, digits_of, named, span
from eqsat.plan.contraction import Blocking, Tiling
from eqsat.plan.curves import ORDERS, ROWS
from eqsat.plan.roles import product_roles_of
from eqsat.plan.stages import row_stride

# ---- products ------------------------------------------------------------------------------------
Argument = Access | int


class _Multiplied(NamedTuple):
    body: Expr
    arguments: list[Argument]  # those that the body names


def _sides(nest: Nest, number: int) -> list[_Multiplied]:
    """The two sides of the product that a stage sums; none if it sums something else, or products
    at some points only."""
    stage = nest.stages[number]
    while stage.body.fn == "arg" and isinstance(inner := stage.arguments[stage.body.value], int):
        stage = nest.stages[inner]
        if stage.bounds or stage.combine:
            return []
    if stage.body.fn != "mul":
        return []
    return [_Multiplied(x, [stage.arguments[i] for i in x.operands()]) for x in stage.body.args]


def multiplied_sides(nest: Nest, number: int) -> tuple[list[Argument], list[Argument]] | None:
    """Reads of either side of the product that a stage sums; None if it sums no product."""
    sides = _sides(nest, number)
    return (sides[0].arguments, sides[1].arguments) if sides else None


def depends(nest: Nest, arguments: list[Argument]) -> set[int]:
    """The loops of more than one point by which a value differs: strides, bounds and lookups of
    all that is read for it, and what chooses between its stages."""
    loops: set[int] = set()
    for a in arguments:
        if isinstance(a, Access):
            loops |= _access_loops(a)
            continue
        s = nest.stages[a]
        below = depends(nest, list(s.arguments)).union(*(named(b.strides) for b in s.bounds))
        loops |= below - set(s.reduced)
    return {i for i in loops if nest.sizes[i] > 1}


def _access_loops(a: Access) -> set[int]:
    return named(a.strides).union(
        *(named(b.strides) for b in a.bounds), *map(_access_loops, a.indices)
    )


def zeros_beyond(nest: Nest, arguments: list[Argument], body: Expr) -> list[Bound]:
    """Bounds beyond which a factor that is but one value, or its cast, is 0."""
    while body.fn == "cast":
        (body,) = body.args
    if body.fn != "arg" or len(arguments) != 1:
        return []
    (a,) = arguments
    if isinstance(a, Access):
        return list(a.bounds) if a.fill == 0 and a.fill is not None else []
    s = nest.stages[a]
    if s.combine or s.body.fn != "arg":
        return []
    bounds = list(s.bounds) if s.bounds and len(s.arguments) == 1 and s.fill == 0 else []
    if s.bounds and not bounds:
        return []
    return bounds + zeros_beyond(nest, list(s.arguments), s.body)


def pads_of(nest: Nest, number: int) -> list[Bound]:
    """Bounds beyond which a product that a stage sums is 0."""
    return [b for x in _sides(nest, number) for b in zeros_beyond(nest, x.arguments, x.body)]


def multiply_adds(nest: Nest, number: int) -> int:
    """At least so many products are not 0 by a pad, and differ; 0 where that is not known."""
    sides = multiplied_sides(nest, number)
    if sides is None:
        return 0
    loops = depends(nest, [*sides[0], *sides[1]]) | set(nest.stages[number].reduced)
    try:
        points = count(digits_of(nest.sizes, loops, nest.bounds))
    except Undecided:
        return 0
    share = 1 - sum(1 - _share(b, nest.sizes) for b in pads_of(nest, number))
    return math.floor(points * max(share, 0))


def _share(b: Bound, sizes: tuple[int, ...]) -> float:
    """Share of the points of its loops at which a bound holds."""
    loops = sorted(named(b.strides))
    points = math.prod(sizes[i] for i in loops)
    if points > MOST_POINTS:
        return 0.0
    index = np.array(b.base)
    for i in loops:
        index = np.add.outer(index, np.arange(sizes[i]) * b.strides[i])
    return int(((index >= 0) & (index < b.extent)).sum()) / points


# ---- tiles ---------------------------------------------------------------------------------------
def tiling_faults(nest: Nest, p: Tiling) -> Iterator[str]:
    """Faults of a plan: where its kernel would compute otherwise than the nest."""
    sums = [i for i, s in enumerate(nest.stages) if s.combine]
    if len(sums) != 1:
        yield f"{len(sums)} reductions are no contraction"
        return
    wrong = list(_shape(nest, p)) or list(_loops(nest, p, sums[0]))
    yield from wrong
    if wrong:  # what follows counts on them
        return
    sizes = Blocking(nest, p, product_roles_of(nest))
    yield from _counts(sizes)
    yield from _sums(sizes)
    yield from _one_tile(sizes)
    yield from _read_in_place(sizes)
    yield from _in_registers(sizes)
    yield from _pads(sizes, sums[0])
    yield from _scratch(sizes)
    if p.windows:
        yield from _window(sizes)
    needed, issued = multiply_adds(nest, sums[0]), p.work.fma * p.lanes * p.fused
    if issued < 0.999 * needed:
        yield f"it issues {issued:,.0f} multiply-adds, the ops have {needed:,}"


def _shape(nest: Nest, p: Tiling) -> Iterator[str]:
    """Faults that all else counts on: numbers that count nothing, and loops that are not there."""
    if len(p.copied) != 2 or len(p.chain) != 2:
        yield "it is of other operands than two"
        return
    numbers = {
        "lanes": p.lanes, "rows": p.rows, "vectors": p.vectors, "wide": p.wide, "fused": p.fused,
        "tile_block": p.tile_block, "panel_block": p.panel_block, "k_block": p.k_block,
        "k_blocks": p.k_blocks, "row_tiles": p.row_tiles, "panels": p.panels, "chain": p.chain[1],
    }  # fmt: skip
    yield from (f"{name} is {n}" for name, n in numbers.items() if n < 1)
    if p.lanes & (p.lanes - 1) or p.fused not in (1, 2, 4):
        yield f"there are no vectors of {p.lanes} lanes and groups of {p.fused}"
    loops = {p.vector_loop, *p.row_loops, *p.outer_rows, *p.outer_columns, *p.batch, *p.extra}
    if not loops | set(p.reduced) <= set(range(len(nest.sizes))):
        yield "it runs over loops that there are not"
    if p.copied[0] + p.windows + p.strips > 1:
        yield "rows are copied in two ways"
    if not 0 <= p.chain[0] < max(len(p.reduced), 1):
        yield f"its chain begins at loop {p.chain[0]} of {len(p.reduced)}"
    if p.wide > 1 and (not p.outer_columns or p.vectors < p.wide):
        yield f"there are no columns of which {p.wide} are a panel"
    if p.windows and product_roles_of(nest).coordinates[p.swapped] is None:
        yield "its rows have no windows"


# ---- loops ---------------------------------------------------------------------------------------
def _loops(nest: Nest, p: Tiling, root: int) -> Iterator[str]:
    """Every loop has one role, and a factor is read along no loop that its role denies it."""
    stage, wide = nest.stages[root], {i for i, n in enumerate(nest.sizes) if n > 1}
    roles = [*p.row_loops, *p.outer_rows, *p.outer_columns, *p.batch, *p.extra, *p.reduced]
    roles.append(p.vector_loop)
    if len(set(roles)) != len(roles):
        yield "a loop has two roles"
    whole = {*stage.loops, *stage.reduced}.union(*(s.loops for s in nest.stores)) & wide
    whole |= {i for e in _behind(nest, root) for i in nest.stages[e].loops} & wide
    if missing := whole - set(roles):
        yield f"loops {sorted(missing)} are not run over"
    if set(p.reduced) & wide != set(stage.reduced) & wide:
        yield "it sums over other loops than the op"
    product = multiplied_sides(nest, root)
    if product is None:
        yield "it sums no product"
        return
    a, b = (depends(nest, x) for x in (product[::-1] if p.swapped else product))
    if (a | b) & set(p.extra):
        yield "a factor depends on a loop along which it is not read again"
    rows, columns = {*p.row_loops, *p.outer_rows}, {*p.outer_columns}
    columns |= set() if p.vector_rows else {p.vector_loop}
    if b & rows:
        yield f"the columns' factor depends on rows {sorted(b & rows)}"
    if a & columns:
        yield f"the rows' factor depends on columns {sorted(a & columns)}"


def _behind(nest: Nest, root: int) -> set[int]:
    """The stages computed from the sum."""
    behind = {root}
    for i, s in enumerate(nest.stages):
        if any(isinstance(a, int) and a in behind for a in s.arguments):
            behind.add(i)
    return behind


# ---- counts --------------------------------------------------------------------------------------
def _counts(sizes: Blocking) -> Iterator[str]:
    """Tiles are all rows, panels all columns, items all of both."""
    nest, p = sizes.nest, sizes.plan
    rows, full = nest.points(p.row_loops), sizes.full_tiles
    if full * p.rows + (p.row_tiles - full) * (p.rows - 1) != rows or not 0 < full <= p.row_tiles:
        yield f"{p.row_tiles} tiles of {p.rows} rows are not {rows} rows"
    kinds = [(0, 0, 0), *sizes.tile_kinds]
    tiles = sum((e - start) * n for (start, *_), (e, n, _) in pairwise(kinds))
    if tiles != rows:
        yield f"its kinds of tiles have {tiles} of {rows} rows"
    if p.vectors % p.wide:
        yield f"{p.vectors} vectors are not the same for {p.wide} columns"
    along, width = nest.sizes[p.vector_loop], p.vectors // p.wide * p.lanes
    outer = nest.points(p.outer_columns)
    if sizes.width != width or (sizes.panels_along - 1) * width + sizes.last_width != along:
        yield f"{sizes.panels_along} panels of {width} elements are not {along}"
    if not 0 < sizes.last_width <= width:
        yield f"the last panel has {sizes.last_width} of {width} elements"
    if p.wide > 1 and (nest.sizes[p.outer_columns[-1]] % p.wide or along % p.lanes):
        yield f"panels of {p.wide} columns do not divide them"
    if p.panels * p.wide != sizes.panels_along * outer:
        yield f"{p.panels} panels are not {sizes.panels_along * outer} columns' panels"
    tiles = p.row_tiles * nest.points(p.outer_rows)
    blocks = -(-tiles // p.tile_block) * -(-p.panels // p.panel_block)
    if sizes.tiles != tiles or p.items != nest.points(p.batch) * blocks:
        yield f"{p.items} items are not {nest.points(p.batch) * blocks}"
    yield from _visited(sizes)
    if p.strips and p.tile_block > tiles:
        yield "a strip has more tiles than there are"


def _visited(sizes: Blocking) -> Iterator[str]:
    """Its order has every block once."""
    order, cells = sizes.plan.order, sizes.row_blocks * sizes.groups
    if order not in ORDERS or cells > math.prod(sizes.nest.sizes):
        yield f"its order `{order}` does not visit {cells} blocks"
    elif order != ROWS and {*sizes.visits} != {*range(cells)}:
        yield f"its order visits {len({*sizes.visits})} of {cells} blocks"
    elif len(sizes.visits) != cells:
        yield f"its order visits {cells} blocks {len(sizes.visits)} times"


def _sums(sizes: Blocking) -> Iterator[str]:
    """Blocks and chains of the reduction are all its points."""
    nest, p = sizes.nest, sizes.plan
    first = nest.sizes[p.reduced[0]] if p.reduced else 1
    if p.k_blocks != -(-first // p.k_block):
        yield f"{p.k_blocks} blocks of {p.k_block} points are not {first}"
    level, length = p.chain
    if level and length > nest.sizes[p.reduced[level]]:
        yield "its chain is longer than the loop"
    inner = nest.points(p.reduced[1:])
    if sizes.inner_k != inner or sizes.block_k != p.k_block * inner:
        yield "a block of the reduction is not all inner points"
    if p.fused > 1:
        points = nest.sizes[p.reduced[-1]] if p.reduced else 1
        if len(p.reduced) > 1 and points % p.fused and not p.windows:
            yield f"groups of {p.fused} products do not divide {points} points"
        if sum(sizes.in_scratch) < 2:
            yield "groups of products are not copied"
        if len(p.reduced) == 1 and p.k_blocks > 1 and p.k_block % p.fused:
            yield f"groups of {p.fused} products do not divide a block"
        types = {f.narrow for f in sizes.factors}
        # pairs are of i16, which holds both; of four one factor is signed
        fits = types <= {"i8", "u8", "i16"} if p.fused == 2 else types in ({"i8"}, {"i8", "u8"})
        if not fits:
            yield f"{p.fused} products of {' and '.join(sorted(types))} are not summed at once"


def _one_tile(sizes: Blocking) -> Iterator[str]:
    """Plans of a single tile have one."""
    p = sizes.plan
    if p.dot and (sizes.row_count != p.rows or p.outer_rows or p.outer_columns or p.k_blocks > 1):
        yield "sums along the reduction are of one tile"
    if p.dot and (p.in_registers or p.windows or p.strips or p.vector_rows or any(p.copied)):
        yield "sums along the reduction are in memory, of elements that lie where they are"
    if p.in_order and (sizes.tiles != 1 or sizes.row_count != 1 or p.k_blocks == 1):
        yield "columns in order are of one row, whose sums are in memory"
    if p.in_order and (len(p.reduced) != 1 or p.dot or p.batch or p.outer_columns or any(p.copied)):
        yield "columns in order are of one loop, and lie where they are"
    yield from _shifted(sizes)
    a, b = (f.direct for f in sizes.factors)
    if p.in_order and not (a and b and a.dtype == "f32" and b.strides[p.vector_loop] == 1):
        yield "columns in order are no vectors, or the row is not of f32"


def _shifted(sizes: Blocking) -> Iterator[str]:
    """Columns that are shifted lie where they are, 16 to a vector, and a tile has all taps."""
    p, b = sizes.plan, sizes.factors[1].direct
    if not p.shifted:
        return
    if any((p.copied[1], p.vector_rows, p.dot, p.in_order, p.wide > 1, p.fused > 1, not p.reduced)):
        yield "columns that are shifted are vectors in memory, of one loop"
    elif b is None or b.dtype != "f32" or p.lanes != 16 or b.strides[p.vector_loop] != 1:
        yield "columns that are shifted are no vectors of 16 f32"
    elif not 0 < b.strides[p.reduced[-1]] < p.lanes:
        yield "columns that are shifted do not overlap"
    elif len(p.reduced) == 1 and (p.k_blocks > 1 or p.chain[1] < sizes.nest.sizes[p.reduced[0]]):
        yield "columns that are shifted are cut along their taps"
    elif p.chain[0] == len(p.reduced) - 1 and p.chain[1] < sizes.nest.sizes[p.reduced[-1]]:
        yield "columns that are shifted are summed in parts"


# ---- what is read where it lies ------------------------------------------------------------------
def _read_in_place(sizes: Blocking) -> Iterator[str]:
    """Factors that are not copied lie in memory as tiles read them, at every point."""
    nest, p = sizes.nest, sizes.plan
    a, b = sizes.factors
    cut = set[int]().union(*(named(x.strides) for x in nest.bounds))
    rows = a.accesses[0] if p.strips else a.direct
    steps = sizes.a_access if sizes.in_scratch[0] or p.strips else rows
    if not sizes.in_scratch[0] and (rows is None or cut & {*a.loops, *p.row_loops}):
        yield "its rows are not copied, and are no elements that are all there"
    elif p.vector_rows and (p.copied[0] or steps is None or steps.strides[p.vector_loop] != 1):
        yield "its rows are no vectors along its vector loop"
    elif len(p.row_loops) > 1 and not p.copied[0]:
        yield "rows of several loops are not copied"
    elif p.strips and (len(a.accesses) != 1 or rows is None or rows.lookups):
        yield "the rows of a strip are no elements of one buffer"
    if p.copied[1]:
        return
    leaves = b.inline.leaves if b.inline else (b.direct,) if b.direct else ()
    along = [x.strides[p.vector_loop] for x in leaves]
    if not leaves or cut & b.loops or not (p.dot or (along[0] == 1 and {*along} <= {0, 1})):
        yield "its columns are not copied, and are no vectors that are all there"
    if p.dot and (b.direct is None or a.direct is None or not p.reduced):
        yield "sums along the reduction are of elements in memory"
    elif p.dot and {x.direct.strides[p.reduced[-1]] for x in (a, b) if x.direct} != {1}:
        yield "sums along the reduction are not of neighbours"


def _in_registers(sizes: Blocking) -> Iterator[str]:
    """Epilogues in registers are of whole vectors, and all of their results are written."""
    nest, p = sizes.nest, sizes.plan
    if not p.in_registers or p.k_blocks > 1:
        return
    stages = [nest.stages[i] for i in sizes.roles.epilogue]
    ends = [s.access for s in nest.stores]
    accesses = [*ends, *(a for s in stages for a in s.arguments if isinstance(a, Access))]
    if p.extra or nest.bounds or any(s.bounds for s in (*nest.stores, *stages)):
        yield "sums in registers have conditions, or are written several times"
    if any(a.bounds or a.lookups or a.dtype != "f32" for a in accesses):
        yield "sums in registers are computed with other elements than f32 that are all there"
    if any(a.strides[p.vector_loop] != 1 for a in ends):
        yield "sums in registers are not written as vectors"
    if any(row_stride(nest, p.row_loops, a) is None for a in accesses):
        yield "rows of sums in registers have no one step"


# ---- pads ----------------------------------------------------------------------------------------
def _pads(sizes: Blocking, root: int) -> Iterator[str]:
    """Points that tiles leave out are 0 in the product."""
    nest, p = sizes.nest, sizes.plan
    zeros = pads_of(nest, root)
    for b in sizes.skipping:
        if b not in zeros:
            yield f"points at which {b} fails are left out, and are no pads"
    if not p.strips and not p.windows:
        return
    left = set(sizes.factors[0].accesses[0].bounds) - {*sizes.skipping} if p.strips else set()
    for level, loop in enumerate(p.reduced):
        for _, rows, tile in sizes.tile_kinds:
            spans = sizes.beside_pads(level, tile)
            between = [b for b in zeros if spans and named(b.strides) == {p.row_loops[0], loop}]
            if spans and not _is_beside(
                nest, p, between, loop, _first(p, sizes, tile), rows, spans
            ):
                yield f"tile {tile} takes other rows along loop {loop} than those beside pads"
            is_cut = p.k_blocks > 1 if level == 0 else p.chain[0] == level
            if spans and p.strips and is_cut and min(p.k_block, p.chain[1]) < len(spans):
                yield f"parts of the sum cut loop {loop}, whose pads are left out point by point"
            left -= {*between}
    if left:
        yield f"pads of its rows are read where they lie: {len(left)} bounds are not looked at"


def _first(p: Tiling, sizes: Blocking, tile: int) -> int:
    return tile * p.rows - max(0, tile - sizes.full_tiles)


def _is_beside(
    nest: Nest,
    p: Tiling,
    about: list[Bound],
    loop: int,
    first: int,
    rows: int,
    spans: list[tuple[int, int]],
) -> bool:
    """Whether the rows found are those at which the bounds hold, at every point of a loop."""
    row = p.row_loops[0]

    def is_pad(r: int, k: int) -> bool:
        at = (b.base + b.strides[row] * r + b.strides[loop] * k for b in about)
        return any(not 0 <= x < b.extent for x, b in zip(at, about, strict=True))

    return len(spans) == nest.sizes[loop] and all(
        (start <= r < end) != is_pad(first + r, k)
        for k, (start, end) in enumerate(spans)
        for r in range(rows)
    )


# ---- scratch -------------------------------------------------------------------------------------
def _scratch(sizes: Blocking) -> Iterator[str]:
    """Copies and sums lie apart, and there is room for all."""
    p, nbytes = sizes.plan, DTYPES[sizes.copied_dtype][0] // 8
    points = p.k_block * sizes.nest.points(p.reduced[1:])
    a = p.tile_block * p.rows * points if p.copied[0] else 0
    a = math.prod(sizes.window.extents) if p.windows else a
    rows = points
    if p.windows and len(p.reduced) > 1:  # every run along the innermost loop in whole groups
        last = sizes.nest.sizes[p.reduced[-1]]
        rows = points // last * (-(-last // p.fused) * p.fused)
    b = -(-rows // p.fused) * p.fused * p.vectors * p.lanes if p.copied[1] else 0
    tiles = p.tile_block * p.panel_block if p.k_blocks > 1 else 1
    partial = p.k_blocks > 1 or not p.in_registers
    sums = tiles * p.rows * p.vectors * p.lanes if partial else 0
    starts = sizes.scratch
    rooms = [end - start for start, end in pairwise(starts)]
    for what, room, need in zip(
        ("rows", "columns", "sums"), rooms, (nbytes * a, nbytes * b, 4 * sums), strict=True
    ):
        if room < need:
            yield f"{room} bytes of scratch are no room for {what}, which take {need}"
    if p.copied[0] and (sizes.a_row < points or (p.fused > 1 and sizes.a_row % p.fused)):
        yield "rows of copies lie over each other"
    if p.scratch_bytes < starts[-1]:
        yield f"it has {p.scratch_bytes} bytes of scratch, of {starts[-1]}"


def _window(sizes: Blocking) -> Iterator[str]:
    """The copy's elements lie apart, and the product reads each where it was copied."""
    w, access = sizes.window, sizes.window.access
    strides = w.coordinates.strides
    apart = zip(w.pitches, w.extents, [*w.pitches[1:], 1], [*w.extents[1:], 1], strict=True)
    for n, (pitch, extent, inner, length) in enumerate(apart):
        reach = span(strides[n], 0, w.points)
        if extent < 1 + reach[1] - reach[0] or w.lowest[n] > reach[0]:
            yield f"coordinate {n} of the window has {extent} values of {1 + reach[1] - reach[0]}"
        if n < len(strides) - 1 and pitch < inner * length:
            yield f"rows of coordinate {n} of the window lie over each other"
    for i in range(len(w.points)):
        if access.strides[i] != sum(x[i] * n for x, n in zip(strides, w.pitches, strict=True)):
            yield f"the window is read by another step along loop {i} than it is copied by"
    low, high = span(access.strides, access.base, w.points)
    if low < 0 or high >= w.elements:
        yield f"the window is read at {low if low < 0 else high} of {w.elements} elements"
