"""What a target says of the blocks of its kernels."""

from __future__ import annotations

from eqsat.model.padding import Padding
from eqsat.model.target import Target
from eqsat.plan.gridded.blocks import BlockLimits

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
