"""A contraction's plan held against its nest: every row, column and point of the sum once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from eqsat.model.nest import Bound, Nest
from eqsat.model.tensor import DTYPES
from eqsat.ops.nests.reached import named, span
from eqsat.plan.contraction import Blocking, Tiling
from eqsat.plan.productcheck import depends, multiplied_sides, multiply_adds, pads_of
from eqsat.plan.roles import product_roles_of


def tiling_faults(nest: Nest, p: Tiling) -> Iterator[str]:
    """What of a plan its kernel would compute otherwise than the nest."""
    sums = [i for i, s in enumerate(nest.stages) if s.combine]
    if len(sums) != 1:
        yield f"{len(sums)} reductions are no contraction"
        return
    wrong = [*_loops(nest, p, sums[0]), *_positive(p)]
    yield from wrong
    if wrong:  # what follows counts on them
        return
    sizes = Blocking(nest, p, product_roles_of(nest))
    yield from _counts(sizes)
    yield from _sums(sizes)
    yield from _pads(sizes, sums[0])
    yield from _scratch(sizes)
    if p.windows:
        yield from _window(sizes)
    needed, issued = multiply_adds(nest, sums[0]), p.work.fma * p.lanes * p.fused
    if issued < 0.999 * needed:
        yield f"it issues {issued:,.0f} multiply-adds, the ops have {needed:,}"


def _positive(p: Tiling) -> Iterator[str]:
    numbers = {
        "lanes": p.lanes, "rows": p.rows, "vectors": p.vectors, "wide": p.wide, "fused": p.fused,
        "tile_block": p.tile_block, "panel_block": p.panel_block, "k_block": p.k_block,
        "k_blocks": p.k_blocks, "row_tiles": p.row_tiles, "panels": p.panels, "chain": p.chain[1],
    }  # fmt: skip
    yield from (f"{name} is {n}" for name, n in numbers.items() if n < 1)


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
    found = {root}
    for i, s in enumerate(nest.stages):
        if any(isinstance(a, int) and a in found for a in s.arguments):
            found.add(i)
    return found


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
    if p.strips and p.tile_block > tiles:
        yield "a strip has more tiles than there are"


def _sums(sizes: Blocking) -> Iterator[str]:
    """Blocks and chains of the reduction are all its points."""
    nest, p = sizes.nest, sizes.plan
    first = nest.sizes[p.reduced[0]] if p.reduced else 1
    if p.k_blocks != -(-first // p.k_block):
        yield f"{p.k_blocks} blocks of {p.k_block} points are not {first}"
    level, length = p.chain
    if not 0 <= level < max(len(p.reduced), 1):
        yield f"its chain begins at loop {level} of {len(p.reduced)}"
    elif level and length > nest.sizes[p.reduced[level]]:
        yield "its chain is longer than the loop"
    inner = nest.points(p.reduced[1:])
    if sizes.inner_k != inner or sizes.block_k != p.k_block * inner:
        yield "a block of the reduction is not all inner points"
    if p.fused > 1:
        own = nest.sizes[p.reduced[-1]] if p.reduced else 1
        if len(p.reduced) > 1 and own % p.fused:
            yield f"groups of {p.fused} products do not divide {own} points"
        if sum(sizes.in_scratch) < 2:
            yield "groups of products are not copied"
    if p.dot and (sizes.row_count != p.rows or p.outer_rows or p.outer_columns or p.k_blocks > 1):
        yield "sums along the reduction are of one tile"
    if p.in_order and (sizes.tiles != 1 or sizes.row_count != 1):
        yield "columns in order are of one row"


# ---- pads ----------------------------------------------------------------------------------------
def _pads(sizes: Blocking, root: int) -> Iterator[str]:
    """What tiles leave out is 0 in the product."""
    nest, p = sizes.nest, sizes.plan
    zeros = pads_of(nest, root)
    for b in sizes.skipping:
        if b not in zeros:
            yield f"points at which {b} fails are left out, and are no pads"
    if not p.strips and not p.windows:
        return
    for level, loop in enumerate(p.reduced):
        for _, rows, tile in sizes.tile_kinds:
            found = sizes.beside_pads(level, tile)
            if found and not _is_beside(nest, p, zeros, loop, _first(p, sizes, tile), rows, found):
                yield f"tile {tile} leaves out rows along loop {loop} that are no pads"


def _first(p: Tiling, sizes: Blocking, tile: int) -> int:
    return tile * p.rows - max(0, tile - sizes.full_tiles)


def _is_beside(
    nest: Nest,
    p: Tiling,
    zeros: list[Bound],
    loop: int,
    first: int,
    rows: int,
    found: list[tuple[int, int]],
) -> bool:
    """Whether all rows but those found lie beyond one of the bounds, at every point of a loop."""
    (row,) = p.row_loops
    about = [b for b in zeros if named(b.strides) == {row, loop}]

    def is_pad(r: int, k: int) -> bool:
        at = (b.base + b.strides[row] * r + b.strides[loop] * k for b in about)
        return any(not 0 <= x < b.extent for x, b in zip(at, about, strict=True))

    return len(found) == nest.sizes[loop] and all(
        start <= r < end or is_pad(first + r, k)
        for k, (start, end) in enumerate(found)
        for r in range(rows)
    )


# ---- scratch -------------------------------------------------------------------------------------
def _scratch(sizes: Blocking) -> Iterator[str]:
    """Copies and sums lie apart, and there is room for all."""
    p, nbytes = sizes.plan, DTYPES[sizes.copied_dtype][0] // 8
    points = p.k_block * sizes.nest.points(p.reduced[1:])
    a = p.tile_block * p.rows * points if p.copied[0] else 0
    a = math.prod(sizes.window.extents) if p.windows else a
    b = -(-points // p.fused) * p.fused * p.vectors * p.lanes if p.copied[1] else 0
    tiles = p.tile_block * p.panel_block if p.k_blocks > 1 else 1
    kept = p.k_blocks > 1 or not p.in_registers
    sums = tiles * p.rows * p.vectors * p.lanes if kept else 0
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
    w, own = sizes.window, sizes.window.access
    strides = w.coordinates.strides
    apart = zip(w.pitches, w.extents, [*w.pitches[1:], 1], [*w.extents[1:], 1], strict=True)
    for n, (pitch, extent, inner, length) in enumerate(apart):
        reach = span(strides[n], 0, w.points)
        if extent < 1 + reach[1] - reach[0] or w.lowest[n] > reach[0]:
            yield f"coordinate {n} of the window has {extent} values of {1 + reach[1] - reach[0]}"
        if n < len(strides) - 1 and pitch < inner * length:
            yield f"rows of coordinate {n} of the window lie over each other"
    for i in range(len(w.points)):
        if own.strides[i] != sum(x[i] * n for x, n in zip(strides, w.pitches, strict=True)):
            yield f"the window is read by another step along loop {i} than it is copied by"
    low, high = span(own.strides, own.base, w.points)
    if low < 0 or high >= w.elements:
        yield f"the window is read at {low if low < 0 else high} of {w.elements} elements"
