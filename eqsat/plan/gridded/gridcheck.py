"""A grid of blocks held against its nest: every point of a result in one block, each block once."""

from __future__ import annotations

from collections.abc import Iterator

from eqsat.model.nest import Store
from eqsat.plan.gridded.blocks import AccessBlock, BlockPlan
from eqsat.plan.gridded.flat import FlatPlan


def grid_faults(plan: BlockPlan | FlatPlan) -> Iterator[str]:
    """What of a plan its kernel would compute otherwise than the nest, each in a sentence."""
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
    own: dict[int, AccessBlock] = {}
    first = len(plan.accesses) - len(plan.nest.stores)
    for block in plan.accesses:
        yield from _dims(plan, block)
    for store, block in zip(plan.nest.stores, plan.accesses[first:], strict=True):
        if own.setdefault(store.access.buffer, block).key != block.key:
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
