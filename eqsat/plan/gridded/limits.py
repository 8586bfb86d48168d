"""What a target says of the blocks of its kernels."""

from __future__ import annotations

from eqsat.model.target import Target
from eqsat.model.tensor import DTYPES
from eqsat.plan.gridded.blocks import BlockLimits

BLOCKS, FLAT = "blocks", "flat"
SCRATCH = 16 * 2**20  # bytes, where a target names no limit: what a TPU kernel has by default
_LANES, _TILE_BYTES = 128, 4096  # of a native tile of a TPU, of every element type


def form(target: Target) -> str:
    """How kernels of a target reach memory: by blocks in scratch, or element by element.

    A GPU, which has pipelines, computes addresses; what else there is has blocks, as a TPU.
    """
    first = target.devices[0][1] if target.devices else target
    return FLAT if first.pipelines else BLOCKS


def block_limits(target: Target) -> BlockLimits:
    """The native tiles of all element types, and the scratch of a dispatch."""
    first = target.devices[0][1] if target.devices else target
    tiles = tuple([(t, _tile(bits)) for t, (bits, _) in DTYPES.items()])
    return BlockLimits(tiles, SCRATCH)


def program_scratch(target: Target) -> int:
    """Bytes of shared memory for one program of a grid."""
    first = target.devices[0][1] if target.devices else target
    return first.limits.scratch_bytes or SCRATCH


def _tile(bits: int) -> tuple[int, int]:
    """Rows and lanes of a tile; types of less than a byte are kept in bytes."""
    nbytes = min(max(bits, 8) // 8, 4)
    return _TILE_BYTES // (_LANES * nbytes), _LANES
