"""Plan of a contraction: register tiles of rows x vectors, blocks for caches, operands copied.

The product's factors are the rows' (A: one element at a time, broadcast, or as vectors) and the
columns' (B: vectors). A register tile sums `rows x vectors` vectors over a block of the reduction;
after Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (TOMS 2008).
Integer products are multiplied and added by one instruction in groups, as many as the machine has.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from eqsat.model.dispatch import Machine, Plan
from eqsat.model.expr import arg, cast
from eqsat.model.nest import Access, Bound, Nest
from eqsat.model.tensor import DTYPES
from eqsat.plan.curves import ROWS, visits
from eqsat.plan.roles import InlineBody, ProductFactor, ProductRoles, fetched_bytes
from eqsat.plan.stages import ASKED_BYTES, LINE, access_loops
from eqsat.plan.windows import WindowCopy, rows_within, share_within, touched

BYTES = frozenset({"i8", "u8"})
WORDS = BYTES | {"i16"}  # in pairs, as their sums wrap like those of i32


def products_at_once(
    nest: Nest,
    a: ProductFactor,
    b: ProductFactor,
    reduced: tuple[int, ...],
    machine: Machine,
    *,
    in_windows: bool = False,
) -> int:
    """4, 2 or 1 points of the reduction, for rows of factor `a` and columns of factor `b`.

    Both are copied to scratch in groups, which are parts of the innermost loop: it ends with one,
    or it is the only loop of the reduction, or rows lie in a window: what follows there is
    multiplied by columns that are 0.
    """
    if not reduced or a.narrow not in WORDS or b.narrow not in WORDS:
        return 1
    signs = {a.narrow, b.narrow}
    most = 4 if signs <= BYTES and "i8" in signs else 2
    together = min(most_at_once(machine), most)
    is_whole = len(reduced) == 1 or nest.sizes[reduced[-1]] % together == 0
    return together if is_whole or in_windows else 1


def in_groups(nest: Nest, loops: tuple[int, ...], together: int) -> int:
    """Points of these loops, each run along the last one filled up to whole groups."""
    if not loops:
        return 1
    return nest.points(loops[:-1]) * -(-nest.sizes[loops[-1]] // together) * together


def most_at_once(machine: Machine) -> int:
    """Products that one instruction of the machine multiplies and adds at the most."""
    has, lanes = set(machine.features), machine.lanes(4)
    if "avx512vnni" in has and (lanes == 16 or (lanes == 8 and "avx512vl" in has)):
        return 4
    return 2 if ("avx512bw" in has and lanes == 16) or ("avx2" in has and lanes == 8) else 1


WORTH_SKIPPING = 64  # products at one point of a reduction loop that are worth a test of pads
FEW_TILES = 4  # along rows, whose pads are worth code for each of them
UNROLL = 4  # points of the innermost reduction loop a turn


@dataclass(frozen=True)
class Tiling(Plan):
    """How a contraction runs; loops are numbers of the nest's.

    Rows are numbered through `row_loops` (the last fastest) and cut into `row_tiles` of `rows` or
    `rows - 1`; tiles of all `outer_rows` follow each other, `tile_block` of them are one block.
    Columns are vectors along `vector_loop`, of `width` elements, `vectors` of them a panel, over
    `wide` points of the last of `outer_columns`; `panel_block` panels are one group. Work items
    are batch x row blocks x panel groups; of these two the last is fastest, or they follow a curve
    (`order`; see `plan.curves`).
    """

    kind: ClassVar[str] = "contraction"
    swapped: bool = False  # the first factor is the columns'
    vector_loop: int = -1
    vector_rows: bool = False  # A is read by vectors along `vector_loop`, too
    dot: int = 0  # columns whose sums are vectors along the last of `reduced`; 0: no such sums
    lanes: int = 1
    rows: int = 1
    vectors: int = 1
    wide: int = 1
    row_loops: tuple[int, ...] = ()
    outer_rows: tuple[int, ...] = ()
    outer_columns: tuple[int, ...] = ()
    batch: tuple[int, ...] = ()
    extra: tuple[int, ...] = ()
    reduced: tuple[int, ...] = ()  # outermost first
    tile_block: int = 1
    panel_block: int = 1
    k_block: int = 1  # of the outermost reduction loop
    chain: tuple[int, int] = (0, 1)  # loop of `reduced` and its points that registers sum
    copied: tuple[bool, bool] = (False, False)  # blocks of A, panels of B
    in_order: bool = False  # of one row: rows of B are read whole, `k_block` of them side by side
    windows: bool = False  # A is copied element by element, each once; see `plan.windows`
    strips: bool = False  # A is read where it lies, and pads are left out
    # columns at neighbouring points of the innermost reduction loop are shifted in registers
    shifted: bool = False
    in_registers: bool = True  # the epilogue; else over the tile in memory
    # rows of the next panel that turns of the innermost loop ask for, so many turns (a power of
    # two) for the same; of panels copied from columns, columns: each of the turns for others
    prefetch: int = 0
    prefetch_turns: int = 1
    asking: int = 0  # which loop of `reduced` has these turns
    fused: int = 1  # points of the reduction that one instruction multiplies and adds
    row_tiles: int = 1  # of one point of `outer_rows`
    panels: int = 1
    k_blocks: int = 1
    order: str = ROWS  # of blocks of rows x groups of panels

    @property
    def goes_down(self) -> bool:
        """Whether tiles follow each other down `outer_rows`, as they read most of it again."""
        return self.strips and self.vector_rows

    def to_text(self) -> str:
        vector = f"i{self.vector_loop} by {self.lanes}"
        rows = "·".join(f"i{i}" for i in self.row_loops) or "none"
        on = (self.copied[0], self.windows, self.copied[1])
        copies = [n for n, is_on in zip(("rows", "windows", "panels"), on, strict=True) if is_on]
        return (
            f"contraction: vectors along {vector}, rows {rows}, tile {self.rows}x{self.vectors}, "
            f"blocks of {self.tile_block} tiles x {self.panel_block} panels x k {self.k_block}"
            + (f", copied {' and '.join(copies)}" if copies else "")
            + (", strips beside pads" if self.strips else "")
            + (f", {self.fused} products at once" if self.fused > 1 else "")
            + (", columns in order" if self.in_order else "")
            + (", columns shifted" if self.shifted else "")
            + (f", blocks in {self.order.title()} order" if self.order != ROWS else "")
            + f", {self.items} items, scratch {self.scratch_bytes} B"
        )


@dataclass(frozen=True)
class Blocking:
    """Sizes that follow from a nest and its plan; planner, estimate and generator share them."""

    nest: Nest
    plan: Tiling
    roles: ProductRoles

    @cached_property
    def factors(self) -> tuple[ProductFactor, ProductFactor]:
        """The rows' and the columns'."""
        a, b = self.roles.factors
        return (b, a) if self.plan.swapped else (a, b)

    @cached_property
    def fetched_bytes(self) -> tuple[float, float]:
        """Of the rows' factor and the columns' where they are fetched."""
        a, b = self.factors
        return fetched_bytes(a), fetched_bytes(b)

    @cached_property
    def columns_in_place(self) -> InlineBody:
        """Columns that tiles read where they lie, and the expression of them."""
        b = self.factors[1]
        if b.inline is not None:
            return b.inline
        assert b.direct is not None
        return InlineBody(cast(arg(0), self.roles.dtype), (b.direct,))

    @cached_property
    def line(self) -> int:
        """Elements of B's source in a cache line."""
        return int(4 * LINE // self.fetched_bytes[1])

    @cached_property
    def panels_ahead(self) -> int:
        """How far on the panel is that is asked for: streams need bytes on the way to be quick."""
        p = self.plan
        if p.k_blocks == 1:
            return 1
        panel = self.block_k * self.panel_row * self.fetched_bytes[1]
        return max(1, min(round(ASKED_BYTES / panel), p.panel_block))

    @cached_property
    def in_scratch(self) -> tuple[bool, bool]:
        """Whether tiles read copies of the rows' factor and the columns', which are f32."""
        return self.plan.copied[0] or self.plan.windows, self.plan.copied[1]

    @cached_property
    def row_count(self) -> int:
        """Rows at one point of the outer rows."""
        return self.nest.points(self.plan.row_loops)

    @cached_property
    def full_tiles(self) -> int:
        """Row tiles that have `rows` rows, the first ones; the others have one fewer."""
        p = self.plan
        return self.row_count - p.row_tiles * (p.rows - 1)

    @cached_property
    def tiles(self) -> int:
        """Row tiles of all outer rows."""
        return self.plan.row_tiles * self.nest.points(self.plan.outer_rows)

    @cached_property
    def row_blocks(self) -> int:
        return -(-self.tiles // self.plan.tile_block)

    @cached_property
    def groups(self) -> int:
        return -(-self.plan.panels // self.plan.panel_block)

    @cached_property
    def visits(self) -> Sequence[int]:
        """Numbers of the blocks of rows x groups, row by row, as they are computed."""
        return visits(self.plan.order, self.row_blocks, self.groups)

    @cached_property
    def width(self) -> int:
        """Elements of a panel in the vector loop."""
        return self.plan.vectors // self.plan.wide * self.plan.lanes

    @cached_property
    def panels_along(self) -> int:
        """Panels along the vector loop."""
        return -(-self.nest.sizes[self.plan.vector_loop] // self.width)

    @cached_property
    def last_width(self) -> int:
        """Elements of the last panel in the vector loop."""
        return self.nest.sizes[self.plan.vector_loop] - (self.panels_along - 1) * self.width

    @cached_property
    def inner_k(self) -> int:
        """Points of the reduction loops inside the outermost."""
        return self.nest.points(self.plan.reduced[1:])

    @cached_property
    def block_k(self) -> int:
        """Points of the reduction in a block."""
        return self.plan.k_block * self.inner_k

    def run_points(self, loops: tuple[int, ...]) -> int:
        """Points of the last reduction loops as panels hold them: of windows in whole groups."""
        return in_groups(self.nest, loops, self.plan.fused if self.plan.windows else 1)

    @cached_property
    def copied_dtype(self) -> str:
        """Element type of copies in scratch: that of the sums, or what is multiplied in groups."""
        return {1: self.roles.dtype, 2: "i16", 4: "i8"}[self.plan.fused]

    @cached_property
    def copied_bytes(self) -> int:
        """Of an element of a copy."""
        return DTYPES[self.copied_dtype][0] // 8

    @cached_property
    def is_biased(self) -> bool:
        """Whether rows of i8 are copied with 128 added: four products take one factor unsigned."""
        return self.plan.fused == 4 and {f.narrow for f in self.factors} == {"i8"}

    @cached_property
    def sums_columns(self) -> bool:
        """Whether copies of panels add up their columns: tiles that leave points out do that."""
        return self.is_biased and not self.skipping

    @cached_property
    def panel_elements(self) -> int:
        """Of a copied panel, whole groups."""
        rows = self.plan.k_block * self.run_points(self.plan.reduced[1:])
        return -(-rows // self.plan.fused) * self.plan.fused * self.panel_row

    @cached_property
    def a_row(self) -> int:
        """Elements between rows of a copied block: off powers of two, which share cache sets."""
        line = 4 * LINE // self.copied_bytes
        return -(-self.block_k // line) * line + line

    @cached_property
    def panel_row(self) -> int:
        """Elements between rows of a copied panel."""
        return self.plan.vectors * self.plan.lanes

    @cached_property
    def window(self) -> WindowCopy:
        """The copy of A's elements that a block of tiles needs; of one panel's if it is vectors."""
        p = self.plan
        points = dict.fromkeys(p.batch, 1)
        if self.block_loop >= 0:
            points[self.block_loop] = self.block_points
        if p.vector_rows:
            points[p.vector_loop] = min(self.width, self.nest.sizes[p.vector_loop])
        coordinates = self.roles.coordinates[p.swapped]
        assert coordinates is not None, "the planner asks before it plans windows"
        each = tuple(points.get(i, n) for i, n in enumerate(self.nest.sizes))
        return WindowCopy(coordinates, each, self.copied_dtype)

    @cached_property
    def skipping(self) -> tuple[Bound, ...]:
        """Bounds that tell at which points of the outermost sum a whole tile reads pads alone."""
        p = self.plan
        if not p.reduced or not (p.strips or (p.windows and self.inner_k >= WORTH_SKIPPING)):
            return ()
        inside = {*p.row_loops, p.vector_loop, *p.reduced[1:]}
        return tuple(
            b for b in self._pads if b.strides[p.reduced[0]] > 0 and not access_loops(b) & inside
        )

    @property
    def _pads(self) -> tuple[Bound, ...]:
        coordinates = self.roles.coordinates[self.plan.swapped]
        return coordinates.pads if coordinates else ()

    def beside_pads(self, level: int, tile: int = 0) -> list[tuple[int, int]]:
        """Per point of a reduction loop a tile's rows that are no pads, as (first, end), if any."""
        b = self._along_rows(level)
        if b is None:
            return []
        (row,), k = self.plan.row_loops, self.plan.reduced[level]
        return rows_within(b, row, k, self.nest.sizes[k], self._rows_of(tile))

    def _rows_of(self, tile: int) -> tuple[int, int]:
        """The first row of a tile and the one behind its last."""
        p, full = self.plan, min(tile, self.full_tiles)
        first = p.rows * full + (p.rows - 1) * (tile - full)
        return first, first + (p.rows if tile < self.full_tiles else p.rows - 1)

    @cached_property
    def tile_kinds(self) -> list[tuple[int, int, int]]:
        """Row tiles that are written alike, as (the tile behind the last, rows, the first tile)."""
        kinds: list[tuple[int, int, int]] = []
        seen: list[Any] = []
        levels = [i for i in range(len(self.plan.reduced)) if self._along_rows(i)]
        starts = {0, min(self.full_tiles, self.plan.row_tiles - 1)}
        for tile in range(self.plan.row_tiles) if levels else sorted(starts):
            first, end = self._rows_of(tile)
            kind = end - first, [self.beside_pads(level, tile) for level in levels]
            if not seen or seen[-1] != kind:
                seen.append(kind)
                kinds.append((tile, end - first, tile))
        ends = [*(tile for tile, _, _ in kinds[1:]), self.plan.row_tiles]
        return [(e, rows, tile) for e, (_, rows, tile) in zip(ends, kinds, strict=True)]

    def _along_rows(self, level: int) -> Bound | None:
        p = self.plan
        if not p.strips:
            if not p.windows or p.fused > 1 or not level or p.row_tiles > FEW_TILES:
                return None
            is_cut = p.chain[0] == level and p.chain[1] < self.nest.sizes[p.reduced[level]]
            if is_cut or self.nest.points(p.reduced[level + 1 :]) < WORTH_SKIPPING:
                return None
        if len(p.row_loops) != 1:
            return None
        loops = {p.row_loops[0], p.reduced[level]}
        ahead = (b for b in self._pads if b.strides[p.row_loops[0]] > 0)
        return next((b for b in ahead if access_loops(b) == loops), None)

    @cached_property
    def multiplied(self) -> float:
        """Share of the products that tiles compute; the others are those of pads."""
        share, loop = 1.0, self.plan.reduced[0] if self.plan.reduced else -1
        for b in self.skipping:
            others = [i for i, s in enumerate(b.strides) if s and i != loop]
            if len(others) == 1:
                share *= share_within(b, loop, others[0], self.nest)
        for level, k in enumerate(self.plan.reduced):
            if b := self._along_rows(level):
                share *= share_within(b, k, self.plan.row_loops[0], self.nest)
        return share

    @cached_property
    def written_out(self) -> int:
        """Points of the innermost reduction loop that a tile's code has one after the other."""
        points = self.nest.sizes[self.plan.reduced[-1]]
        return points if self.plan.strips else min(points, UNROLL)

    @cached_property
    def columns_read(self) -> tuple[int, int]:
        """Places that a tile of vectors reads of A at points that are written out, with `rows`
        rows and one fewer."""
        p, a = self.plan, self.a_access
        if a is None or not p.reduced or not p.row_loops:
            return p.rows * self.written_out, (p.rows - 1) * self.written_out
        steps = a.strides[p.row_loops[-1]], a.strides[p.reduced[-1]]
        taps = self.written_out
        full, short = (touched(steps, (rows, taps)) for rows in (p.rows, p.rows - 1))
        return full, short

    @cached_property
    def block_loop(self) -> int:
        """The loop of rows that blocks of tiles cut; -1: there are no rows."""
        p = self.plan
        return (p.outer_rows or p.row_loops or (-1,))[-1]

    @cached_property
    def block_points(self) -> int:
        """Points of `block_loop` in a block of tiles at most, where blocks are whole rows of it."""
        p = self.plan
        points = p.tile_block // p.row_tiles if p.outer_rows else p.tile_block * p.rows
        return min(points, self.nest.sizes[self.block_loop])

    @cached_property
    def a_access(self) -> Access | None:
        """A as tiles read it: where it lies, or in its window; None if rows are copied."""
        if self.plan.strips:
            return replace(self.factors[0].accesses[0], bounds=())
        return self.window.access if self.plan.windows else self.factors[0].direct

    @cached_property
    def has_partials(self) -> bool:
        """Whether sums of a tile are kept in memory between parts of the reduction."""
        p = self.plan
        level, points = p.chain
        whole = level == 0 and points >= (p.k_block if p.reduced else 1)
        stays = whole or self.adds_parts
        return p.k_blocks > 1 or not stays or not p.in_registers

    @cached_property
    def adds_parts(self) -> bool:
        """Whether sums of parts are added in registers: parts with loops of their own."""
        p = self.plan
        if p.k_blocks > 1 or not p.in_registers or len(p.reduced) < 2 or p.chain[0]:
            return False
        return p.chain[1] < p.k_block

    @cached_property
    def scratch(self) -> tuple[int, int, int, int]:
        """Offsets of A's block, B's panel and the partial sums, then the end, in bytes."""
        p = self.plan
        a = p.tile_block * p.rows * self.a_row if p.copied[0] else 0
        a = self.window.elements if p.windows else a
        b = self.panel_elements if p.copied[1] else 0
        b += 4 * self.panel_row if self.sums_columns else 0
        tiles = p.tile_block * p.panel_block if p.k_blocks > 1 else 1
        c = tiles * p.rows * p.vectors * p.lanes if self.has_partials else 0
        sizes = self.copied_bytes * a, self.copied_bytes * b, 4 * c
        ends = itertools.accumulate(-(-n // 64) * 64 for n in sizes)
        first, second, third = ends
        return 0, first, second, third
