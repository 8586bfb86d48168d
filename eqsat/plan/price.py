"""Price of a plan: its work and its nest's buffers, by the constants and memory of a target.

    compute = max(multiply-adds + bodies, loads) + strided elements + pages + tiles + loops
    traffic = first fetches + fetches again, each at the nearest levels that hold what lies between
    time    = the longer + (1 - overlap) · the shorter + copies to scratch + launch

The roofline of Williams, Waterman and Patterson (CACM 2009) with a sum per level of memory, and
with a constant for what hides behind the longer side. Every part grows with its count of `Work`.

Bytes of scratch of one kernel: blocks as often as they are buffered, and accumulators. Two ways of
making kernels are known. One walks a grid of blocks (`grid_bytes`): a TPU's, whose vector memory
holds every block of operands and results padded to rows and lanes, twice if it moves along the grid
and once if it does not. The other pipelines the loop over k of one workgroup (`loop_bytes`): a
GPU's, whose shared memory holds a number of stages of the operands' tiles. Both were read off what
the compilers state (docs/accelerators.md).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from eqsat.model.devices import PS_PER_SECOND
from eqsat.model.dispatch import Constants, Parts, Plan, Work
from eqsat.model.nest import Access, Nest
from eqsat.model.pipelines import Padding
from eqsat.model.target import Memory, Target
from eqsat.model.tensor import DTYPES, cdiv
from eqsat.plan.passes import parts_of
from eqsat.plan.stages import LINE

PLAIN = Padding(1, 1)  # of a memory in which nothing is padded
ROWS_AT_ONCE = 16  # of a result that a subgroup has in its registers, by mma.sync and wgmma alike


@dataclass(frozen=True)
class Block:
    """Block of an operand or result that one step of a grid reads or writes.

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


FULL, GONE = 0.75, 1.5  # of a cache: it holds all that is used again, and nothing
Stream = tuple[float, float]  # bytes that have to stay cached for it, bytes fetched


@dataclass(frozen=True)
class Rates:
    """Rates of a target: constants, memory, launch and the cores of a dispatch."""

    constants: Constants
    memory: tuple[Memory, ...]
    launch_ps: int
    cores: int = 1


def rates(target: Target) -> Rates:
    """The rates of a target; ValueError if it says nothing of kernels."""
    k = target.kernels
    if k is None:
        raise ValueError(f"target {target.name} has no `kernels`")
    return Rates(k.constants, target.memory, target.launch_ps, k.cores)


def price(
    nest: Nest,
    plan: Plan,
    rates: Rates,
    weights: Collection[int] = (),
    working_set: float = 0,
    still: Collection[int] = (),
) -> Parts:
    """The parts of a plan's time.

    weights: buffers of the nest that follow from weights alone. They are read once per run of a
    program, so they come from the level that holds all that a run touches, `working_set`. All
    other buffers come from the level that holds what this dispatch touches. still: buffers of which
    most stays as it is; see `plan.storage.unchanged_in_place`.
    """
    return priced_parts(plan.work, rates, first_fetches(nest, weights, working_set, still))


def first_fetches(
    nest: Nest,
    weights: Collection[int] = (),
    working_set: float = 0,
    still: Collection[int] = (),
) -> tuple[Stream, ...]:
    """Every byte that is touched, once: (bytes that have to stay cached for it, bytes)."""
    touched = {b: 0.0 if b in still else n for b, n in touched_bytes(nest).items()}
    total = sum(touched.values())
    return tuple(
        (max(total, working_set) if b in weights else total, nbytes)
        for b, nbytes in touched.items()
    )


@lru_cache(maxsize=1_000)
def touched_bytes(nest: Nest) -> Mapping[int, float]:
    """Per buffer, reads before writes: bytes that its accesses touch, each counted once."""
    touched: dict[int, float] = dict.fromkeys(nest.buffers, 0.0)
    for a in _with_indices(nest.accesses):
        touched[a.buffer] = max(touched[a.buffer], _lines_bytes(nest, a))
    if len(nest.stores) > 1:
        touched |= {b: max(touched[b], n) for b, n in _written_bytes(nest).items()}
    return touched


def _written_bytes(nest: Nest) -> dict[int, float]:
    """Per buffer that is written: the bytes of all parts that share no loops, as concats have."""
    written: dict[int, float] = dict.fromkeys(nest.writes, 0.0)
    for part in parts_of(nest):
        one: dict[int, float] = {}
        for a in (s.access for s in part.stores):
            one[a.buffer] = max(one.get(a.buffer, 0.0), _lines_bytes(part, a))
        written = {b: n + one.get(b, 0.0) for b, n in written.items()}
    return written


def _lines_bytes(nest: Nest, a: Access) -> float:
    """Bytes of what an access touches: whole cache lines, where no neighbours are read."""
    steps = [abs(s) for s, n in zip(a.strides, nest.sizes, strict=True) if s and n > 1]
    each = DTYPES[a.dtype][0] / 8
    apart = 1.0 if a.lookups else min(steps, default=1)
    return _elements(nest, a) * max(each, min(apart * each, 4 * LINE))


def _with_indices(accesses: Iterable[Access]) -> Iterable[Access]:
    for a in accesses:
        yield from (a, *_with_indices(a.indices))


def _elements(nest: Nest, a: Access) -> int:
    """Elements an access touches: windows that overlap touch no more than they span."""
    loops = {i for i, s in enumerate(a.strides) if s}
    span = 1 + sum(abs(s) * (n - 1) for s, n in zip(a.strides, nest.sizes, strict=True))
    loops = loops.union(*({i for i, s in enumerate(x.strides) if s} for x in a.indices))
    span += sum(abs(k.stride) * (k.extent - 1) for k in a.lookups)
    return min(span, nest.points(loops))


def priced_parts(work: Work, rates: Rates, first: Sequence[Stream]) -> Parts:
    """The parts of the time of this work; `first`: see `first_fetches`."""
    c = rates.constants
    arithmetic = work.fma * c.fma_ps
    compute = max(arithmetic + work.scalar * c.scalar_ps, work.loads * c.load_ps)
    compute += work.strided * c.strided_ps + work.pages * c.page_ps + work.tiles * c.tile_ps
    compute += work.loops * c.loop_ps
    share = _longest_share(work.items, rates.cores)
    compute *= share
    relayout = share * work.copied * PS_PER_SECOND / c.copy_rate
    traffic = _traffic(rates.memory, (*first, *work.streams))
    moved = sum(traffic.values())
    exposed = max(compute, moved) + (1 - c.overlap) * min(compute, moved)
    time_ps = math.ceil(exposed + relayout) + rates.launch_ps
    return Parts(
        time_ps,
        round(compute),
        tuple((name, round(ps)) for name, ps in traffic.items()),
        round(relayout),
        rates.launch_ps,
        round(arithmetic * share / (time_ps or 1), 4),
    )


def _longest_share(items: int, cores: int) -> float:
    """Share of the work that the core with most items does."""
    return math.ceil(items / cores) / items if items else 1.0


def _traffic(memory: Sequence[Memory], streams: Iterable[Stream]) -> dict[str, float]:
    """Picoseconds per level that something comes from, nearest first."""
    by_level = dict.fromkeys((m.name for m in memory), 0.0)
    for between, nbytes in streams:
        left = nbytes
        for m in memory[:-1]:
            here = left * (1 - beyond(between / m.size_bytes))
            by_level[m.name] += here * PS_PER_SECOND / m.bandwidth
            left -= here
            if not left:
                break
        by_level[memory[-1].name] += left * PS_PER_SECOND / memory[-1].bandwidth
    return {name: ps for name, ps in by_level.items() if ps}


def beyond(share: float) -> float:
    """Of what lies between two uses, as a share of a cache: how much of it that does not hold."""
    return min(max((share - FULL) / (GONE - FULL), 0.0), 1.0)
