"""Plan of a contraction: register tiles of rows x vectors, blocks for caches, operands copied.

The product's factors are the rows' (A: one element at a time, broadcast, or as vectors) and the
columns' (B: vectors). A register tile sums `rows x vectors` vectors over a block of the reduction;
after Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (TOMS 2008).
Candidates are few, so all are estimated and the cheapest is the plan.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from eqsat.model.nest import Access, Nest, NoNest
from eqsat.model.plan import Machine, Plan
from eqsat.plan import estimate
from eqsat.plan.roles import Factor, Roles, loops_of, loops_of_bound, roles_of

PAGE_BYTES = 4096
CHAIN = 384  # longest sum in registers: its error is then like that of blocked libraries
UNROLL = 4
ITEMS_PER_CORE = 4


@dataclass(frozen=True)
class Contraction(Plan):
    """How a contraction runs; loops are numbers of the nest's.

    Rows are numbered through `row_loops` (the last fastest) and cut into `row_tiles` of `rows` or
    `rows - 1`; tiles of all `outer_rows` follow each other, `tile_block` of them are one block.
    Columns are vectors along `vector_loop`, of `width` elements, `vectors` of them a panel, over
    `wide` points of the last of `outer_columns`; `panel_block` panels are one group. Work items
    are batch x row blocks x panel groups, the last fastest.
    """

    kind: ClassVar[str] = "contraction"
    swapped: bool = False  # the first factor is the columns'
    vector_loop: int = -1
    vector_rows: bool = False  # A is read by vectors along `vector_loop`, too
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
    in_registers: bool = True  # the epilogue; else over the tile in memory
    prefetch: int = 0  # rows of the next panel per turn of the innermost loop
    row_tiles: int = 1  # of one point of `outer_rows`
    panels: int = 1
    k_blocks: int = 1

    def to_text(self) -> str:
        vector = f"i{self.vector_loop} by {self.lanes}"
        rows = "·".join(f"i{i}" for i in self.row_loops) or "none"
        copies = [n for n, on in zip(("rows", "panels"), self.copied, strict=True) if on]
        return (
            f"contraction: vectors along {vector}, rows {rows}, tile {self.rows}x{self.vectors}, "
            f"blocks of {self.tile_block} tiles x {self.panel_block} panels x k {self.k_block}"
            + (f", copied {' and '.join(copies)}" if copies else "")
            + f", {self.items} items, scratch {self.scratch_bytes} B"
        )


@dataclass(frozen=True)
class Sizes:
    """What follows from a nest and its plan; planner, estimate and generator share it."""

    nest: Nest
    plan: Contraction
    roles: Roles

    @cached_property
    def factors(self) -> tuple[Factor, Factor]:
        """The rows' and the columns'."""
        a, b = self.roles.factors
        return (b, a) if self.plan.swapped else (a, b)

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

    @cached_property
    def a_row(self) -> int:
        """Elements between rows of a copied block: off powers of two, which share cache sets."""
        return -(-self.block_k // 16) * 16 + 16

    @cached_property
    def panel_row(self) -> int:
        """Elements between rows of a copied panel."""
        return self.plan.vectors * self.plan.lanes

    @cached_property
    def has_partials(self) -> bool:
        """Whether sums of a tile are kept in memory between parts of the reduction."""
        p = self.plan
        level, points = p.chain
        whole = level == 0 and points >= (p.k_block if p.reduced else 1)
        return p.k_blocks > 1 or not whole or not p.in_registers

    @cached_property
    def scratch(self) -> tuple[int, int, int, int]:
        """Offsets of A's block, B's panel and the partial sums, then the end, in bytes."""
        p = self.plan
        a = p.tile_block * p.rows * self.a_row if p.copied[0] else 0
        b = self.block_k * self.panel_row if p.copied[1] else 0
        tiles = p.tile_block * p.panel_block if p.k_blocks > 1 else 1
        c = tiles * p.rows * p.vectors * p.lanes if self.has_partials else 0
        ends = itertools.accumulate(-(-4 * n // 64) * 64 for n in (a, b, c))
        first, second, third = ends
        return 0, first, second, third


def plan(nest: Nest, machine: Machine) -> Contraction:
    """The cheapest plan by `estimate`; raises NoNest for what is no contraction and epilogue."""
    roles = roles_of(nest)
    if any(s.bounds for s in nest.stages):
        raise NoNest("a stage of the contraction pads what it reads")
    found = [_finished(nest, roles, c, machine) for c in _candidates(nest, roles, machine)]
    if not found:
        raise NoNest("no loop of the contraction's result can be its vector loop")
    return min(found, key=lambda c: estimate.cycles(c.work, machine))


def _finished(nest: Nest, roles: Roles, c: Contraction, machine: Machine) -> Contraction:
    sizes = Sizes(nest, c, roles)
    items = nest.points(c.batch) * sizes.row_blocks * sizes.groups
    work = estimate.work(sizes, machine, items)
    return replace(c, items=items, scratch_bytes=sizes.scratch[-1], work=work)


def _candidates(nest: Nest, roles: Roles, machine: Machine) -> Iterator[Contraction]:
    for swapped in (False, True):
        a, b = roles.factors[::-1] if swapped else roles.factors
        rows, columns = roles.only[::-1] if swapped else roles.only
        base = Contraction(
            swapped=swapped, batch=roles.batch, extra=roles.extra, lanes=machine.lanes(4)
        )
        for v in _vector_loops(nest, a, b, columns, roles.batch):
            own = replace(
                base,
                vector_loop=v,
                vector_rows=v in roles.batch,
                batch=tuple(i for i in roles.batch if i != v),
                outer_columns=tuple(i for i in columns if i != v),
            )
            yield from _tiled(nest, roles, own, rows, machine)


def _vector_loops(
    nest: Nest, a: Factor, b: Factor, columns: tuple[int, ...], batch: tuple[int, ...]
) -> list[int]:
    """Loops along which vectors of B lie, or the result's do; of both factors if there are such."""
    unit = [i for i in columns if b.plain and b.plain.strides[i] == 1]
    written = [i for i in columns if any(s.access.strides[i] == 1 for s in nest.stores)]
    of_b = [i for i in columns if any(x.strides[i] == 1 for x in b.accesses)]
    found = list(dict.fromkeys([*unit, *written, *of_b]))
    both = [
        i
        for i in batch
        if a.plain and b.plain and a.plain.strides[i] == 1 and b.plain.strides[i] == 1
    ]
    return [*found, *both] or list(columns[-1:])


def _tiled(
    nest: Nest, roles: Roles, own: Contraction, rows: tuple[int, ...], machine: Machine
) -> Iterator[Contraction]:
    a, b = roles.factors[::-1] if own.swapped else roles.factors
    must_a, must_b = _must_copy(nest, a, own, rows), _must_copy(nest, b, own, ())
    strided = b.plain is None or b.plain.strides[own.vector_loop] != 1
    if own.vector_rows and (must_a or must_b):
        return
    reduced = _reduction_order(nest, roles, a, b)
    for copy_a in (False, True):
        for copy_b in (False, True):
            if (must_a and not copy_a) or ((must_b or strided) and not copy_b):
                continue
            if copy_a and (own.vector_rows or (not must_a and len(rows) < 2)):
                continue
            row_loops, outer = _rows(nest, a, rows, copy_a)
            one = replace(
                own,
                row_loops=row_loops,
                outer_rows=outer,
                reduced=reduced,
                copied=(copy_a, copy_b),
            )
            for vectors, wide in _panels(nest, one, b, machine):
                yield _blocked(nest, roles, replace(one, vectors=vectors, wide=wide), machine)


def _must_copy(nest: Nest, factor: Factor, own: Contraction, rows: tuple[int, ...]) -> bool:
    """Whether a factor is more than an access, or some of its points do not exist."""
    if factor.plain is None:
        return True
    return any(loops_of_bound(b) & (factor.loops | set(rows)) for b in nest.bounds)


def _reduction_order(nest: Nest, roles: Roles, a: Factor, b: Factor) -> tuple[int, ...]:
    """Reduction loops, the ones of longest strides outermost; B's count before A's."""

    def key(i: int) -> tuple[int, int]:
        return (
            -max((abs(x.strides[i]) for x in b.accesses), default=0),
            -max((abs(x.strides[i]) for x in a.accesses), default=0),
        )

    contiguous = [i for i in roles.reduced if any(x.strides[i] == 1 for x in a.accesses)]
    last = contiguous[:1] if a.plain is None else []
    return (*sorted((i for i in roles.reduced if i not in last), key=key), *last)


def _rows(
    nest: Nest, a: Factor, rows: tuple[int, ...], copied: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Loops that number the rows of tiles, and those around them."""
    if copied or len(rows) < 2:
        return rows, ()
    inner = max(rows, key=lambda i: (min(nest.sizes[i], 14), -abs(a.accesses[0].strides[i])))
    return (inner,), tuple(i for i in rows if i != inner)


def _panels(nest: Nest, own: Contraction, b: Factor, machine: Machine) -> Iterator[tuple[int, int]]:
    """Vectors of a panel, and over how many points of another loop they go."""
    along = -(-nest.sizes[own.vector_loop] // own.lanes)
    most = machine.registers - 4
    choices = [n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24) if n <= min(along, most)]
    rows = nest.points(own.row_loops)
    yield from ((n, 1) for n in choices if n < 4 or rows * n <= most or n <= machine.registers // 5)
    whole = nest.sizes[own.vector_loop] % own.lanes == 0
    if whole and own.outer_columns and along < 4:
        u = own.outer_columns[-1]
        yield from ((along * q, q) for q in (2, 3) if nest.sizes[u] % q == 0 and along * q <= 4)


def _blocked(nest: Nest, roles: Roles, own: Contraction, machine: Machine) -> Contraction:
    """Rows of a tile from the registers, then blocks from the caches."""
    count = nest.points(own.row_loops)
    per_row = own.vectors * (2 if own.vector_rows else 1)
    most = max(1, (machine.registers - 1 - own.vectors) // per_row) if count > 1 else 1
    row_tiles = -(-count // most)
    one = replace(own, rows=-(-count // row_tiles), row_tiles=row_tiles)
    one = replace(one, panels=_panel_count(nest, one))
    one = _reduction_blocks(nest, one, machine)
    one = replace(one, in_registers=_light(nest, roles, one))
    sizes = Sizes(nest, one, roles)
    l2 = machine.caches[:2][-1]
    block = max(1, l2 // 2 // (4 * one.rows * max(sizes.block_k, 1)))
    tile_block = min(sizes.tiles, block)
    panel_block = one.panels if one.copied[0] or _streams(one, sizes) else 1
    one = replace(one, tile_block=tile_block, panel_block=panel_block)
    return _prefetching(nest, roles, _split(nest, roles, one, machine))


def _panel_count(nest: Nest, one: Contraction) -> int:
    along = -(-nest.sizes[one.vector_loop] // (one.vectors // one.wide * one.lanes))
    return along * nest.points(one.outer_columns) // one.wide


def _streams(one: Contraction, sizes: Sizes) -> bool:
    """Whether panels follow each other inside a short block of the reduction."""
    return one.k_blocks > 1 and sizes.tiles == 1


def _reduction_blocks(nest: Nest, one: Contraction, machine: Machine) -> Contraction:
    """Blocks of the reduction for the caches, and the part of a block that registers sum."""
    if not one.reduced:
        return replace(one, k_block=1, k_blocks=1, chain=(0, 1))
    first = nest.sizes[one.reduced[0]]
    inner = nest.points(one.reduced[1:])
    l2 = machine.caches[:2][-1]
    room = l2 // 4 // (4 * one.vectors * one.lanes * inner)
    k_block = first
    if room < first:
        blocks = -(-first // max(room, 1))
        k_block = _multiple(-(-first // blocks), UNROLL if inner == 1 else 1)
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


def _light(nest: Nest, roles: Roles, one: Contraction) -> bool:
    """Whether the epilogue is a few additions on accesses that step evenly from row to row."""
    accesses = [a for i in roles.epilogue for a in nest.stages[i].arguments]
    plain = [a for a in accesses if isinstance(a, Access)] + [s.access for s in nest.stores]
    cost = sum(estimate.scalar_cost(nest.stages[i]) for i in roles.epilogue)
    return (
        one.k_blocks == 1
        and not one.extra
        and not nest.bounds
        and cost <= 4
        and all(not a.bounds and not a.lookups for a in plain)
        and not any(s.bounds for s in nest.stores)
        and all(
            loops_of(s.access) >= {one.vector_loop} and s.access.strides[one.vector_loop] == 1
            for s in nest.stores
        )
        and all(row_stride(nest, one.row_loops, a) is not None for a in plain)
    )


def row_stride(nest: Nest, row_loops: tuple[int, ...], access: Access) -> int | None:
    """Elements from row to row, if that is one number for all rows of `row_loops`."""
    step, found = 1, None
    for i in reversed(row_loops):
        if nest.sizes[i] > 1:
            if found is None:
                found = access.strides[i]
            elif access.strides[i] != found * step:
                return None
            step *= nest.sizes[i]
    return found or 0


def _split(nest: Nest, roles: Roles, one: Contraction, machine: Machine) -> Contraction:
    """Blocks cut smaller until every core has several items."""
    wanted = ITEMS_PER_CORE * machine.cores if machine.cores > 1 else 1
    sizes = Sizes(nest, one, roles)
    cells = nest.points(one.batch)
    if cells * sizes.row_blocks * sizes.groups >= wanted:
        return one
    if one.panel_block > 1:
        groups = min(one.panels, -(-wanted // (cells * sizes.row_blocks)))
        one = replace(one, panel_block=-(-one.panels // groups))
        sizes = Sizes(nest, one, roles)
    missing = -(-wanted // (cells * sizes.row_blocks * sizes.groups))
    if missing > 1 and not one.copied[1]:
        one = replace(one, tile_block=max(1, -(-one.tile_block // missing)))
    return one


def _prefetching(nest: Nest, roles: Roles, one: Contraction) -> Contraction:
    """How much of the next panel each turn of the innermost loop asks for."""
    b = (roles.factors[0] if one.swapped else roles.factors[1]).plain
    if b is None or one.copied[1] or len(one.reduced) != 1 or one.k_blocks > 1:
        return one
    if one.panels == 1 or nest.points(one.reduced) < 4 * UNROLL:
        return one
    return replace(one, prefetch=-(-UNROLL // one.tile_block))
