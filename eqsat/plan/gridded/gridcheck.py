"""Check of a grid of blocks against its nest and its target's limits of blocks.

Every point of a result is in one block, each block is done once.
"""

from __future__ import annotations

from collections.abc import Iterator

from eqsat.model.nest import Store
from eqsat.model.padding import Padding
from eqsat.model.target import Target
from eqsat.plan.gridded.blocks import AccessBlock, BlockLimits, BlockPlan
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
