"""Bytes of scratch that one kernel takes: blocks as often as they are buffered, and what it keeps.

Two ways of making kernels are known. One walks a grid of blocks (`grid_bytes`): a TPU's, whose
vector memory holds every block of operands and results padded to rows and lanes, twice if it moves
along the grid and once if it does not. The other pipelines the loop over k of one workgroup
(`loop_bytes`): a GPU's, whose shared memory holds a number of stages of the operands' tiles. Both
were read off what the compilers state (docs/accelerators.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from eqsat.model.padding import Padding
from eqsat.model.tensor import DTYPES, cdiv

PLAIN = Padding(1, 1)  # of a memory in which nothing is padded
ROWS_AT_ONCE = 16  # of a result that a subgroup has in its registers, by mma.sync and wgmma alike


@dataclass(frozen=True)
class Block:
    """What one step of a grid reads or writes of an operand or result.

    is_moving: whether another step has another block of it; what all steps share is held once.
    """

    shape: tuple[int, ...]
    dtype: str
    is_moving: bool = True


@dataclass(frozen=True)
class StagedTile:
    """The tile of one operand that a workgroup multiplies at a time.

    from_scratch: whether the matrix unit reads it there while it computes, so that it cannot be
    overwritten yet (Hopper's wgmma); otherwise it goes through registers, and a stage is free by
    then.
    """

    nbytes: int
    from_scratch: bool = False


def tile_bytes(shape: Iterable[int], dtype: str) -> int:
    """Bytes of a tile without padding."""
    return cdiv(math.prod(shape) * DTYPES[dtype][0], 8)


def grid_bytes(
    blocks: Iterable[Block],
    resident: Iterable[Block] = (),
    padding: Padding = PLAIN,
    stages: int = 2,
) -> int:
    """Bytes of a kernel that walks a grid of blocks: operands and results in blocks.

    resident: accumulators and the like, which are there once.

    >>> lhs, rhs = Block((256, 512), "f32"), Block((512, 256), "f32")
    >>> grid_bytes([lhs, rhs, Block((256, 256), "f32")], [Block((256, 256), "f32")])
    2883584
    """
    held = [(b, stages if b.is_moving else 1) for b in blocks] + [(b, 1) for b in resident]
    return sum(padding.nbytes(b.shape, b.dtype) * times for b, times in held)


def loop_bytes(tiles: Iterable[StagedTile], stages: int, result_bytes: int = 0) -> int:
    """Bytes of a workgroup whose loop over k has several stages of loads in flight.

    result_bytes: what the result takes there on its way from registers to memory, after the loop
    and so in the same place.

    >>> loop_bytes([StagedTile(32768, True), StagedTile(32768, True)], 4)
    262144
    >>> loop_bytes([StagedTile(4096), StagedTile(4096)], 4)
    24576
    """
    staged = sum(t.nbytes * _times(t, stages) for t in tiles)
    return max(staged, result_bytes)


def passed_bytes(rows: int, columns: int, dtype: str, subgroups: int) -> int:
    """Bytes that a workgroup's result passes through to memory: 16 rows of every subgroup at once.

    0 where the number of subgroups is not stated.

    >>> passed_bytes(128, 128, "f32", 4), passed_bytes(32, 32, "f32", 4)
    (32768, 4096)
    """
    return tile_bytes((min(rows, ROWS_AT_ONCE * subgroups), columns), dtype)


def _times(tile: StagedTile, stages: int) -> int:
    return stages if tile.from_scratch else max(1, stages - 1)


def misaligned(block: tuple[int, ...], whole: tuple[int, ...], alignment: tuple[int, int]) -> str:
    """Why a grid may not have this block of a tensor; nothing if it may.

    Each of the last two extents is divisible by the alignment, or the tensor's own.

    >>> misaligned((100, 128), (2000, 128), (8, 128))
    'a block of 100x128: 100 is not divisible by 8, nor all of 2000'
    >>> misaligned((100, 128), (100, 128), (8, 128))
    ''
    """
    sides = list(zip(block[::-1], whole[::-1], alignment[::-1], strict=False))
    text = "x".join(map(str, block))
    for extent, of, unit in sides[::-1]:
        if extent % unit and extent != of:
            return f"a block of {text}: {extent} is not divisible by {unit}, nor all of {of}"
    return ""
