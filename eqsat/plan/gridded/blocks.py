"""A dispatch as a grid of blocks that are copied into scratch, as on a TPU.

Every access becomes a block of its buffer: whole dims, or as much of one as a block of a loop
reaches. Loops of all results are cut into blocks of the grid; a loop that is summed up in the end
is cut too, innermost, with its sum in scratch. Legal blocks and scratch are those of the target.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from eqsat.model.affine import Affine
from eqsat.model.attr import Shape
from eqsat.model.nest import Access, Nest, NoNest, Stage, Store
from eqsat.model.pipelines import WORD_BITS, Padding
from eqsat.model.tensor import DTYPES
from eqsat.plan.gridded.shapes import (
    BufferView,
    ProductStage,
    is_bound,
    products_of,
    reach,
    split_loops,
    stage_loops,
    view,
)
from eqsat.plan.price import Block, grid_bytes

WIDEST = 512  # extent of a block of one loop, if more are needed: two are in scratch at a time
UNROLLED = 128  # positions of windows that are written out one by one


@dataclass(frozen=True)
class BlockLimits:
    """Limits of the blocks of a machine.

    padding: how its scratch pads them; the last two dims of a block are multiples of its rows and
    lanes, unless they are whole dims. scratch_bytes: what all blocks of a dispatch and its values
    take.
    """

    padding: Padding
    scratch_bytes: int

    def tile(self, dtype: str) -> tuple[int, int]:
        """Rows and lanes of the native tile of an element type: narrow ones share words."""
        shared = max(1, WORD_BITS // max(DTYPES[dtype][0], 8))
        return self.padding.rows * shared, self.padding.lanes


@dataclass(frozen=True)
class DimBlock:
    """The part of a dim that is in scratch, and how loops read it.

    loop: the loop along whose blocks it moves; -1: none. radix: the loops that make up its index,
    outermost first, each a multiple of the next. is_cut: elements are chosen from it inside of the
    kernel, by `index`.
    """

    index: Affine
    block: int
    loop: int = -1
    start: int = 0  # number of the block where it does not move
    radix: tuple[int, ...] = ()
    is_cut: bool = False


@dataclass(frozen=True)
class AccessBlock:
    """An access, the shape that its buffer is seen in, and its block."""

    access: Access
    shape: Shape
    dims: tuple[DimBlock, ...]

    @property
    def block(self) -> Shape:
        return tuple([d.block for d in self.dims])

    @property
    def moves(self) -> bool:
        """Whether another step of the grid has another block."""
        return any(d.loop >= 0 for d in self.dims)

    @property
    def key(self) -> tuple[int, Shape, tuple[tuple[int, int, int], ...]]:
        """Accesses of one key are one block in scratch."""
        moves = tuple([(d.block, d.loop, d.start) for d in self.dims])
        return self.access.buffer, self.shape, moves


@dataclass(frozen=True)
class BlockPlan:
    """extents: of each loop in a block. order: of all loops, as values have their dims.

    grid: the loops of which blocks are counted, outermost first; those of `steps`, the innermost,
    are summed up from block to block. unrolled: loops of windows, each position by itself.
    """

    nest: Nest
    extents: tuple[int, ...]
    order: tuple[int, ...]
    grid: tuple[int, ...]
    steps: tuple[int, ...]
    unrolled: tuple[int, ...]
    accesses: tuple[AccessBlock, ...]  # in the order of `nest.accesses`
    scratch_bytes: int

    def blocks(self, loop: int) -> int:
        """Blocks of a loop."""
        return -(-self.nest.sizes[loop] // self.extents[loop])

    def is_ragged(self, loop: int) -> bool:
        """Whether its last block has points that do not exist."""
        return self.nest.sizes[loop] % self.extents[loop] != 0

    @cached_property
    def roots(self) -> tuple[int, ...]:
        """The stages that are summed up over steps."""
        stages = enumerate(self.nest.stages)
        return tuple([i for i, s in stages if set(s.reduced) & set(self.steps)])

    @cached_property
    def products(self) -> Mapping[int, ProductStage]:
        return products_of(self.nest)


def plan_blocks(nest: Nest, shapes: Mapping[int, Shape], limits: BlockLimits) -> BlockPlan:
    """The grid and blocks of a nest whose buffers have these shapes.

    NoNest with the reason if it has none, or none that fits in scratch.
    """
    return _BlockPlanner(split_loops(nest, shapes), shapes, limits).plan()


class _BlockPlanner:
    def __init__(self, nest: Nest, shapes: Mapping[int, Shape], limits: BlockLimits):
        self.nest, self.limits = nest, limits
        if any(a.lookups for a in nest.accesses):
            raise NoNest("a gather reads rows that are known at run time only")
        self.views = [self._view(a, shapes[a.buffer], s) for a, s in _with_stores(nest)]
        self._check_stores()
        self.unrolled = self._windows()
        self._check_diagonals()
        self.pinned = self._pinned()
        self.parallel = self._parallel()
        self.steps = self._steps()
        self.products = products_of(nest)

    def _view(self, access: Access, shape: Shape, store: Store | None) -> BufferView:
        by_dims = view(access, shape, self.nest, store.bounds if store else ())
        if by_dims is None:
            raise NoNest(f"%{access.buffer} is read or written across the borders of its dims")
        indices = by_dims.indices
        missing = max(2 - len(indices), 0)
        return BufferView((1,) * missing + by_dims.shape, (Affine(()),) * missing + indices)

    def _check_stores(self) -> None:
        """Points that do not exist have to lie outside of what is written."""
        for s, v in zip(self.nest.stores, self._store_views(), strict=True):
            inside = list(zip(v.indices, v.shape, strict=True))
            for b in (*self.nest.bounds, *s.bounds):
                loops = {d for d, stride in enumerate(b.strides) if stride}
                if loops & set(s.loops) and not any(is_bound(b, i, n) for i, n in inside):
                    raise NoNest(f"%{s.access.buffer} is written at some points of a block only")

    def _check_diagonals(self) -> None:
        """A loop runs along one dim of a buffer, or each of its positions is written out."""
        for v, a in zip(self.views, self.nest.accesses, strict=True):
            loops = [d for i in v.indices for d, _ in i.terms if d not in self.unrolled]
            if len(loops) != len(set(loops)):
                raise NoNest(f"%{a.buffer} is read or written along a diagonal")

    def _store_views(self) -> list[BufferView]:
        return self.views[len(self.views) - len(self.nest.stores) :]

    # ---- which loops are cut
    def _windows(self) -> tuple[int, ...]:
        """Reduced loops that share an index with others: each of their positions is written out."""
        reduced = {d for s in self.nest.stages for d in s.reduced}
        unrolled: set[int] = set()
        for v in self.views:
            for i in v.indices:
                loops = [d for d, _ in i.terms]
                if len(loops) > 1 and not radix(i, self.nest.sizes):
                    left = [d for d in loops if d not in reduced]
                    if len(left) > 1:
                        raise NoNest("an index is a sum of several loops of the result")
                    # one loop may stay
                    unrolled |= set(loops) & reduced if left else set(loops[1:])
        if math.prod(self.nest.sizes[d] for d in unrolled) > UNROLLED:
            raise NoNest(f"windows have more than {UNROLLED} positions")
        for s in self.nest.stages:
            if unrolled & set(s.reduced) and unrolled & set(s.loops):
                raise NoNest("a window is reduced twice")
        return tuple(sorted(unrolled))

    def _pinned(self) -> set[int]:
        """Loops that no block can cut."""
        pinned, sizes = set(self.unrolled), self.nest.sizes
        several = _several(self.nest)
        stores = self._store_views()
        for v in self.views:
            for i, extent in zip(v.indices, v.shape, strict=True):
                digits = radix(i, sizes)
                is_written = any(v is w for w in stores)
                is_part = is_written and reach(i, sizes)[1] + 1 < extent
                whole = digits[1:] if digits and not i.constant and not is_part else [
                    d for d, _ in i.terms
                ]  # fmt: skip
                pinned |= set(whole)
        for group in several:
            for indices in zip(*(stores[n].indices for n in group), strict=True):
                if len(set(indices)) > 1:
                    pinned |= {d for i in indices for d, _ in i.terms}
        return pinned

    def _parallel(self) -> list[int]:
        """Loops of all results, in the order of the first one."""
        stores = self.nest.stores
        every = set.intersection(*(set(s.loops) for s in stores))
        reduced = {d for s in self.nest.stages for d in s.reduced}
        moved = set.intersection(
            *({d for i in v.indices for d, _ in i.terms} for v in self._store_views())
        )
        first = stores[0].access.strides
        parallel = (every & moved) - reduced - self.pinned
        return sorted(parallel, key=lambda d: (not self._is_shared(d), -abs(first[d])))

    def _is_shared(self, loop: int) -> bool:
        """Whether every reduction has this loop: in its blocks another is computed anew."""
        return all(loop in s.loops for s in self.nest.stages if s.reduced)

    def _steps(self) -> list[int]:
        """Reduced loops that are summed up block by block: those of one set of stages alone."""
        stages = self.nest.stages
        stored = {d for s in self.nest.stores for d in s.loops}
        candidates = {d for s in stages for d in s.reduced} - self.pinned - stored
        candidates -= {d for d in candidates if self._is_read_again(d)}
        sets = {frozenset(set(s.reduced) & candidates) for s in stages} - {frozenset()}
        return sorted(next(iter(sets))) if len(sets) == 1 else []

    def _is_read_again(self, loop: int) -> bool:
        """Whether a stage over this loop needs what is reduced over it."""
        after: set[int] = set()
        for i, s in enumerate(self.nest.stages):
            needs = any(isinstance(a, int) and a in after for a in s.arguments)
            if needs and loop in stage_loops(s):
                return True
            if needs or loop in s.reduced:
                after.add(i)
        return False

    # ---- how far
    def plan(self) -> BlockPlan:
        extents = list(self.nest.sizes)
        for d in (*filter(self._is_shared, self.parallel), *self.steps):
            if extents[d] > WIDEST:
                extents[d] = self._narrower(d, 2 * WIDEST)
        while True:
            candidate = self._planned(extents)
            if candidate.scratch_bytes <= self.limits.scratch_bytes:
                return candidate
            if not self._narrow(extents):
                raise NoNest(
                    f"its blocks take {candidate.scratch_bytes} bytes of scratch, of"
                    f" {self.limits.scratch_bytes}"
                )

    def _narrow(self, extents: list[int]) -> bool:
        """Halve the widest loop that can be; whether there is one."""
        loops = sorted(
            (*self.parallel, *self.steps),
            key=lambda d: (d in self.parallel and not self._is_shared(d), -extents[d]),
        )
        for d in loops:
            narrower = self._narrower(d, extents[d])
            if narrower < extents[d]:
                extents[d] = narrower
                return True
        return False

    def _narrower(self, loop: int, extent: int) -> int:
        """About half of an extent, as the tiles of all buffers have it; else the same."""
        align = self._alignment(loop)
        half = -(-extent // 2)
        return min(-(-half // align) * align, extent, self.nest.sizes[loop])

    def _alignment(self, loop: int) -> int:
        alignment = 1
        for v, a in zip(self.views, self.nest.accesses, strict=True):
            for d, i in enumerate(v.indices):
                digits = radix(i, self.nest.sizes)
                if digits[:1] == (loop,):
                    stride = dict(i.terms)[loop]
                    tile = self._tile(a.dtype, d - len(v.shape))
                    alignment = math.lcm(alignment, tile // math.gcd(tile, stride))
        return alignment

    def _tile(self, dtype: str, place: int) -> int:
        """Divisor of the extent of a block in a dim, counted from the last one, -1."""
        return self.limits.tile(dtype)[place] if place >= -2 else 1

    def _planned(self, extents: Sequence[int]) -> BlockPlan:
        cut = [d for d in (*self.parallel, *self.steps) if extents[d] < self.nest.sizes[d]]
        pairs = zip(self.views, self.nest.accesses, strict=True)
        first = len(self.views) - len(self.nest.stores)
        accesses = [self._block(v, a, cut, extents, n >= first) for n, (v, a) in enumerate(pairs)]
        plan = BlockPlan(
            self.nest,
            tuple(extents),
            self._order(),
            tuple(cut),
            tuple([d for d in cut if d in self.steps]),
            self.unrolled,
            tuple(accesses),
            0,
        )
        return replace(plan, scratch_bytes=self._bytes(plan))

    def _block(
        self,
        v: BufferView,
        access: Access,
        cut: Sequence[int],
        extents: Sequence[int],
        is_written: bool,
    ) -> AccessBlock:
        dims = []
        for d, (index, extent) in enumerate(zip(v.indices, v.shape, strict=True)):
            digits, place = radix(index, self.nest.sizes), d - len(v.shape)
            # what is written in several pieces is one block for all of them
            if not index.terms and place < -2 and not is_written:
                dims.append(DimBlock(index, 1, start=index.constant))
            elif digits and digits[0] in cut:
                block = dict(index.terms)[digits[0]] * extents[digits[0]]
                dims.append(DimBlock(index, block, digits[0], radix=digits))
            else:
                covered = reach(index, self.nest.sizes)[1] + 1
                whole = bool(digits or not index.terms) and not index.constant
                is_cut = not whole or covered != extent or bool(set(digits) & set(self.unrolled))
                dims.append(DimBlock(index, extent, radix=digits, is_cut=is_cut))
        return AccessBlock(access, v.shape, tuple(dims))

    def _order(self) -> tuple[int, ...]:
        """Batches of products, then the loops of the first result in its order, then the rest."""
        first = self.nest.stores[0].access.strides
        batches = [set(p.batch) for p in self.products.values()]
        batch = set.intersection(*batches) if batches else set()
        loops = range(len(self.nest.sizes))
        return tuple(sorted(loops, key=lambda d: (d not in batch, not first[d], -abs(first[d]), d)))

    # ---- scratch
    def _bytes(self, plan: BlockPlan) -> int:
        blocks = {b.key: b for b in plan.accesses}.values()
        held = [Block(b.block, b.access.dtype, b.moves) for b in blocks]
        stages = list(enumerate(self.nest.stages))
        values = [self._value(plan, i, s) for i, s in stages]
        values += [self._value(plan, i, s) for i, s in stages if i in plan.roots]
        return grid_bytes(held, values, self.limits.padding)

    def _value(self, plan: BlockPlan, number: int, s: Stage) -> Block:
        """Block of the value of a stage; of a sum that is no product, all that it sums."""
        loops = s.loops if number in plan.products or not s.reduced else stage_loops(s)
        dims = [d for d in plan.order if d in loops and d not in plan.unrolled]
        return Block((1, 1, *(plan.extents[d] for d in dims)), s.dtype)


def radix(index: Affine, sizes: Sequence[int]) -> tuple[int, ...]:
    """The loops of an index that counts all numbers up in their order, outermost first; else ()."""
    expected, digits = 1, []
    for d, s in sorted(index.terms, key=lambda t: abs(t[1])):
        if s != expected:
            return ()
        digits.append(d)
        expected *= sizes[d]
    return tuple(reversed(digits))


def _with_stores(nest: Nest) -> Iterable[tuple[Access, Store | None]]:
    for s in nest.stages:
        for a in s.arguments:
            if isinstance(a, Access):
                yield a, None
    for store in nest.stores:
        yield store.access, store


def _several(nest: Nest) -> list[list[int]]:
    """Numbers of the stores of each buffer that is written in several pieces."""
    stores_of: dict[int, list[int]] = {}
    for n, s in enumerate(nest.stores):
        stores_of.setdefault(s.access.buffer, []).append(n)
    return [g for g in stores_of.values() if len(g) > 1]
