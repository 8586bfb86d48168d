"""A dispatch as programs over points of its loops, as on a GPU: elements are read by address.

Every program of the grid has a block of the loops of the results, extents powers of two. What is
reduced is whole in a program, or goes through it block by block. Points beyond the end of a loop
are masked.

The check holds a grid of blocks against its nest and the limits of its target: every point of a
result is in one block, each block is done once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat.model.nest import Nest, NoNest, Stage, Store
from eqsat.model.pipelines import Padding
from eqsat.model.target import Target
from eqsat.plan.gridded.blocks import AccessBlock, BlockLimits, BlockPlan
from eqsat.plan.gridded.shapes import ProductStage, argument_type, products_of, stage_loops

ELEMENTS = 16384  # of a value at most: the registers of a program hold it
SIMPLE = 1024  # elements of a program that multiplies no matrices
SIDE, STEP = 64, 32  # rows or columns of a product in a program, and products summed at a time
LEAST = 16  # of each side of a product in the matrix unit
MULTIPLIED = frozenset({"f32", "f16", "bf16", "i8"})  # what a matrix unit multiplies
_FOLDED = ("add", "max", "min")  # what a program combines across its points


@dataclass(frozen=True)
class FlatPlan:
    """extents: of each loop in a program. grid: the loops that programs share out, outermost first.
    steps: the loops that a program reduces block by block. order: of all loops, as values have
    their dims. scratch_bytes: of the operands of products at one time.
    """

    nest: Nest
    extents: tuple[int, ...]
    order: tuple[int, ...]
    grid: tuple[int, ...]
    steps: frozenset[int]
    products: Mapping[int, ProductStage]
    scratch_bytes: int = 0

    def blocks(self, loop: int) -> int:
        """Blocks of a loop."""
        return -(-self.nest.sizes[loop] // self.extents[loop])

    def is_ragged(self, loop: int) -> bool:
        """Whether its last block has points that do not exist."""
        return self.nest.sizes[loop] % self.extents[loop] != 0

    @property
    def programs(self) -> int:
        """Programs of the grid."""
        return math.prod(self.blocks(d) for d in self.grid)


def plan_flat(nest: Nest, scratch_bytes: int) -> FlatPlan:
    """The programs of a nest on a machine with this much scratch for each.

    NoNest with the reason if there are none.
    """
    return _FlatPlanner(nest, scratch_bytes).plan()


class _FlatPlanner:
    def __init__(self, nest: Nest, scratch_bytes: int):
        self.nest, self.limit = nest, scratch_bytes
        stored = [set(s.loops) for s in nest.stores]
        moved = [{d for d, s in enumerate(x.access.strides) if s} for x in nest.stores]
        self.reduced = {d for s in nest.stages for d in s.reduced}
        self.parallel = set.intersection(*stored, *moved) - self.reduced
        self.stored = set.union(*stored)
        self.products = {i: p for i, p in products_of(nest).items() if self._is_multiplied(i, p)}
        self.steps: set[int] = set()
        self.least = self._least()

    def _is_multiplied(self, number: int, p: ProductStage) -> bool:
        """Whether a matrix unit computes it: rows, columns, no batch inside of a program."""
        types = {argument_type(self.nest, number, place) for place in p.arguments}
        plain = all(f.fn == "arg" or f.value in ("f32", "i32") for f in p.factors)
        return (
            bool(p.rows and p.columns and p.summed)
            and set(p.batch) <= self.parallel
            and len(types) == 1
            and types <= MULTIPLIED
            and plain
        )

    def _least(self) -> dict[int, int]:
        """Least extent of a loop: a role of a product has `LEAST` points by its widest loop."""
        least: dict[int, int] = {}
        for p in self.products.values():
            for role in (p.rows, p.columns, p.summed):
                widest = max(role, key=lambda d: (self.nest.sizes[d], d))
                least[widest] = LEAST
        return least

    def plan(self) -> FlatPlan:
        extents = self._first()
        for d in {d for s in self.nest.stages if _is_sequential(s) for d in s.reduced}:
            if d in self.stored:
                raise NoNest("a GPU has no reduction by this function inside of a program")
            extents[d] = 1
            self.steps.add(d)
        while (widest := self._widest(extents)) > ELEMENTS or self._scratch(extents) > self.limit:
            if not self._narrow(extents):
                raise NoNest(f"a value of {widest} elements does not fit in registers")
        grid = tuple([d for d in self._order() if d in self.parallel])
        plan = FlatPlan(
            self.nest, tuple(extents), self._order(), grid, frozenset(self.steps), self.products,
            self._scratch(extents),
        )  # fmt: skip
        return replace(plan, grid=tuple([d for d in grid if plan.blocks(d) > 1]))

    def _first(self) -> list[int]:
        """As much of each loop as a program should have."""
        extents = [max(_power(n), self.least.get(d, 1)) for d, n in enumerate(self.nest.sizes)]
        summed = {d for p in self.products.values() for d in p.summed}
        for d in self.reduced - self.stored:
            if d in summed and not self._is_made_again(d):
                self._step(extents, d, STEP)
            elif extents[d] > SIMPLE:
                self._step(extents, d, SIMPLE)
        for p in self.products.values():
            for d in p.batch:
                extents[d] = 1
            for role in (p.rows, p.columns):
                self._cut_side(extents, role)
        if not self.products:
            self._share(extents)
        return extents

    def _cut_side(self, extents: list[int], role: Sequence[int]) -> None:
        """At most `SIDE` points of a side of a product, its widest loop first."""
        left = SIDE
        for d in sorted(set(role) & self.parallel, key=lambda d: -extents[d]):
            extents[d] = max(min(extents[d], left), self.least.get(d, 1))
            left = max(left // extents[d], 1)

    def _share(self, extents: list[int]) -> None:
        """Points of the results, the innermost first, as far as a program has elements for them."""
        whole = math.prod(extents[d] for d in self.stored | self.reduced if d not in self.parallel)
        left = max(SIMPLE // whole, 1)
        first = self.nest.stores[0].access.strides
        for d in sorted(self.parallel, key=lambda d: abs(first[d])):
            extents[d] = min(extents[d], left)
            left = max(left // extents[d], 1)

    def _is_made_again(self, loop: int) -> bool:
        """Whether a product inside of this loop would be computed at each reduction over it."""
        inside = [i for i in self.products if loop in self.nest.stages[i].loops]
        return bool(inside) and sum(loop in s.reduced for s in self.nest.stages) > 1

    def _step(self, extents: list[int], loop: int, extent: int) -> None:
        if self.nest.sizes[loop] > extent:
            extents[loop] = max(min(extents[loop], extent), self.least.get(loop, 1))
            self.steps.add(loop)

    def _narrow(self, extents: list[int]) -> bool:
        """Halve the widest loop that can be; whether there is one."""
        free = self.parallel | (self.reduced - self.stored)
        key = lambda d: (d in self.parallel, extents[d])  # noqa: E731
        for d in sorted(free, key=key, reverse=True):
            if extents[d] > self.least.get(d, 1):
                extents[d] //= 2
                if d not in self.parallel:
                    self.steps.add(d)
                return True
        return False

    def _widest(self, extents: list[int]) -> int:
        """Elements of the largest value."""
        widest = 1
        for i, s in enumerate(self.nest.stages):
            loops = s.loops if i in self.products else stage_loops(s)
            widest = max(widest, math.prod(extents[d] for d in loops))
        for i, p in self.products.items():
            for free in (p.rows, p.columns):
                widest = max(widest, math.prod(extents[d] for d in (*free, *p.summed)))
            del i
        return widest

    def _scratch(self, extents: list[int]) -> int:
        """Bytes of the factors of the largest product, which lie in shared memory."""
        most = 0
        for i, p in self.products.items():
            nbytes = {"f32": 4, "i8": 1}.get(argument_type(self.nest, i, p.arguments[0]), 2)
            sides = (math.prod(extents[d] for d in (*r, *p.summed)) for r in (p.rows, p.columns))
            most = max(most, nbytes * sum(sides))
        return most

    def _order(self) -> tuple[int, ...]:
        """The loops of the first result in its order, then the rest."""
        first = self.nest.stores[0].access.strides
        loops = range(len(self.nest.sizes))
        return tuple(sorted(loops, key=lambda d: (not first[d], -abs(first[d]), d)))


def _is_sequential(s: Stage) -> bool:
    """Whether what it reduces is combined one by one."""
    return bool(s.combine) and s.combine not in _FOLDED and s.dtype != "i1"


def _power(n: int) -> int:
    """The least power of two that is not below n."""
    return 1 << (n - 1).bit_length()


def grid_faults(plan: BlockPlan | FlatPlan) -> Iterator[str]:
    """Faults of a plan: where its kernel computes otherwise than the nest."""
    nest, steps = plan.nest, set(plan.steps)
    stored = [set(s.loops) for s in nest.stores]
    if len(set(plan.grid)) != len(plan.grid) or sorted(plan.order) != [*range(len(nest.sizes))]:
        yield "a loop is run over twice, or not at all"
    for d, (size, extent) in enumerate(zip(nest.sizes, plan.extents, strict=True)):
        if extent < 1 or (extent < size and d not in {*plan.grid, *steps}):
            yield f"loop {d} has {extent} of {size} points"
    for d in set(plan.grid) - steps:
        moved = all(s.access.strides[d] for s in nest.stores)
        if not moved or not all(d in loops for loops in stored):
            yield f"a block of loop {d} writes what another one writes"
    if any(steps & loops for loops in stored):
        yield "what is summed block by block is written"
    if isinstance(plan, BlockPlan):
        yield from _blocks(plan)
    elif odd := [n for n in plan.extents if n & (n - 1)]:
        yield f"{odd[0]} points are no power of two"


def _blocks(plan: BlockPlan) -> Iterator[str]:
    """Blocks are all of their buffers, and one for all that writes to a buffer."""
    by_buffer: dict[int, AccessBlock] = {}
    first = len(plan.accesses) - len(plan.nest.stores)
    for block in plan.accesses:
        yield from _dims(plan, block)
    for store, block in zip(plan.nest.stores, plan.accesses[first:], strict=True):
        if by_buffer.setdefault(store.access.buffer, block).key != block.key:
            yield f"%{store.access.buffer} is written in blocks of two shapes"
        yield from _written(plan, store, block)


def _dims(plan: BlockPlan, block: AccessBlock) -> Iterator[str]:
    """A dim's blocks step as its loop does."""
    buffer = block.access.buffer
    for n, (dim, extent) in enumerate(zip(block.dims, block.shape, strict=True)):
        stride = dict(dim.index.terms).get(dim.loop, 0)
        if dim.loop < 0:
            if not 0 <= dim.start * dim.block < extent or dim.block > extent:
                yield f"block {dim.start} of {dim.block} is none of dim {n} of %{buffer}"
        elif dim.loop not in plan.grid or dim.block != stride * plan.extents[dim.loop]:
            yield f"dim {n} of %{buffer} has blocks of {dim.block} for {stride} times its loop's"


def _written(plan: BlockPlan, store: Store, block: AccessBlock) -> Iterator[str]:
    """Every block of a written dim is a block of its loop; what does not move is whole."""
    for n, (dim, extent) in enumerate(zip(block.dims, block.shape, strict=True)):
        if dim.loop < 0 and dim.block != extent:
            what = f"dim {n} of %{store.access.buffer}"
            yield f"{dim.block} of {extent} elements of {what} are written"
        elif dim.loop >= 0 and -(-extent // dim.block) != plan.blocks(dim.loop):
            yield f"loop {dim.loop} has other blocks than dim {n} of %{store.access.buffer}"


BLOCKS, FLAT = "blocks", "flat"
SCRATCH = 16 * 2**20  # bytes, where a target has no blocks: what a TPU's kernel has by default
NATIVE = Padding(8, 128)  # of a TPU


def kernel_form(target: Target) -> str:
    """How kernels of a target reach memory: by blocks in scratch, or element by element.

    A GPU, which has pipelines and pads nothing, computes addresses; all else has blocks, as a TPU.
    """
    first = _first(target)
    return FLAT if first.pipelines and first.padding is None else BLOCKS


def block_limits(target: Target) -> BlockLimits:
    """How blocks are padded, and the scratch of a dispatch; of a TPU where the target is none.

    What a CPU's target calls scratch is what a dispatch keeps on the stack, no limit of blocks.
    """
    first = _first(target)
    if first.padding is None:
        return BlockLimits(NATIVE, SCRATCH)
    return BlockLimits(first.padding, first.limits.scratch_bytes or SCRATCH)


def program_scratch(target: Target) -> int:
    """Bytes of shared memory for one program of a grid."""
    return _first(target).limits.scratch_bytes or SCRATCH


def _first(target: Target) -> Target:
    """The target itself, or of a machine of several devices the first one's."""
    return target.devices[0][1] if target.devices else target
