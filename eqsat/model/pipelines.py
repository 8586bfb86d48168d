"""Pipelines and padding: how a GPU or TPU computes a contraction and lays out a buffer.

A pipeline is one way in which its compiler computes unpacked contractions. A Condition is what a
tile, kernel or pipeline requires of a contraction. A Padding is a memory made of rows of lanes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from eqsat.model.tensor import DTYPES, cdiv


@dataclass(frozen=True)
class Condition:
    """`left op right`, e.g. `m <= 8` or `lhs == f32`.

    left: a loop extent (m, n, k, batch; of a convolution c, k, batch, and of a kernel for one also
    window and places) or an element type (lhs, rhs, acc).
    """

    left: str
    op: str  # == != < <= > >=
    right: int | str


CUTS = ("innermost", "any")  # loops of a role that an extent may cut
UNALIGNED = ("refused", "padded", "whole")  # what becomes of a role that no extent divides
# what a kernel walks: workgroups side by side, or the blocks of a grid one after another
WORKGROUPS, GRID = "workgroups", "grid"
ACCUMULATOR = "f32"  # what a grid keeps of a result between steps of k; of integers i32
Unit = tuple[int, int, int]  # extents of m, n and k that are computed at once


@dataclass(frozen=True)
class Intrinsic:
    """The matrix instruction of a pipeline: what it multiplies at once.

    types: the element type that both operands have is one of these, as `f16` or at a precision as
    `f32/high`.
    """

    mnk: Unit
    types: tuple[str, ...]


@dataclass(frozen=True)
class Units:
    """Compute units or streaming multiprocessors, which run workgroups, and what each has.

    lanes: of a subgroup; register_bytes: of all that is resident, most: of one lane.
    """

    count: int
    scratch_bytes: int
    subgroups: int
    lanes: int
    register_bytes: int
    lane_bytes: int

    def rooms(self, subgroups: int, scratch_bytes: int, accumulator_bytes: int) -> dict[str, int]:
        """Workgroups that each resource of a unit has room for, of those that are asked for.

        0 subgroups: not stated.

        >>> Units(132, 233472, 64, 32, 262144, 1020).rooms(4, 131072, 65536)
        {'scratch': 1, 'subgroups': 16, 'registers': 4}
        """
        rooms = {"scratch": self.scratch_bytes // scratch_bytes} if scratch_bytes else {}
        if subgroups:
            rooms["subgroups"] = self.subgroups // subgroups
        if accumulator_bytes:
            is_over = subgroups * self.lanes * self.lane_bytes < accumulator_bytes
            room = self.register_bytes // accumulator_bytes
            rooms["registers"] = 0 if subgroups and is_over else room
        return rooms

    def to_text(self) -> str:
        """The pipeline, on one line."""
        return (
            f"{self.count} units: {self.scratch_bytes} bytes of scratch, {self.subgroups} subgroups"
            f" of {self.lanes} lanes, {self.register_bytes} bytes of registers"
        )


@dataclass(frozen=True)
class Pipeline:
    """How contractions are cut into workgroups, with the scratch and the rate of these.

    m, n, k: extents a workgroup may compute, the preferred one first. intrinsics: those of a matrix
    unit, of which extents are multiples and whose types it takes; none: any extents and types.
    rates: operations per second where they are not the target's, by type or `type/precision`.
    rate: the share of that; None: what the target says of unpacked contractions.

    walk: a `grid` holds blocks of operands and results in scratch, `stages` of each that moves, and
    an accumulator. Workgroups hold `stages` tiles of every operand in `from_scratch`, which the
    matrix unit reads there, and one less of the others. subgroups: of a workgroup; 0: not stated.
    depth: bytes of an operand along k at most. row_pad: bytes behind every row of a tile in
    scratch, so that banks do not conflict.
    """

    name: str
    m: tuple[int, ...] = (1,)
    n: tuple[int, ...] = (1,)
    k: tuple[int, ...] = (1,)
    cut: str = "innermost"
    collapse: bool = False  # loops that lie together in all operands are one loop
    unaligned: str = "refused"
    promote: tuple[str, ...] = ("lhs", "rhs")  # tiles kept in scratch: lhs, rhs, result
    rate: float | None = None
    rates: tuple[tuple[str, float], ...] = ()
    intrinsics: tuple[Intrinsic, ...] = ()
    when: tuple[Condition, ...] = ()
    walk: str = WORKGROUPS
    stages: int = 1
    from_scratch: tuple[str, ...] = ()
    subgroups: int = 0
    depth: int | None = None
    row_pad: int = 0

    def __hash__(self) -> int:  # asked of every dispatch that is priced
        return hash(self.name)

    def extents(self, role: str, unit: Unit = (1, 1, 1), bits: int = 0) -> tuple[int, ...]:
        """Extents of a role that are multiples of what is computed at once; bits: of an element."""
        listed = {"m": self.m, "n": self.n, "k": self.k}[role]
        if role == "k" and self.depth is not None:
            listed = tuple(e for e in listed if e * bits <= self.depth * 8)
        return tuple(e for e in listed if e % unit["mnk".index(role)] == 0)

    def units(self, dtypes: tuple[str, ...], precision: str) -> tuple[Unit, ...]:
        """Blocks computed at once of operands of these types; none if it does not take them.

        One element of each where there are no intrinsics.
        """
        if not self.intrinsics:
            return ((1, 1, 1),)
        if len(set(dtypes)) > 1:
            return ()
        keys = {dtypes[0], f"{dtypes[0]}/{precision}"}
        return tuple(i.mnk for i in self.intrinsics if not keys.isdisjoint(i.types))

    def peak(self, dtype: str, precision: str) -> float | None:
        """Its own operations per second for an element type; None: those of the target."""
        rates = dict(self.rates)
        return rates.get(f"{dtype}/{precision}", rates.get(dtype))

    def to_text(self) -> str:
        """Its extents and what it does with the rest, on one line."""
        extents = ", ".join(f"{r} {list(self.extents(r))}" for r in "mnk")
        how = [f"cuts the {self.cut} loop" if self.cut == "innermost" else "cuts any loop"]
        how += ["collapsed first"] * self.collapse + [f"unaligned: {self.unaligned}"]
        units = ("x".join(map(str, i.mnk)) + f" {'|'.join(i.types)}" for i in self.intrinsics)
        how += [f"by {', '.join(units)}"] if self.intrinsics else []
        how += [f"{self.stages} stages"] if self.stages > 1 else []
        how += ["blocks of a grid"] if self.walk == GRID else []
        how += [f"{self.subgroups} subgroups"] if self.subgroups else []
        how += [f"{self.depth} bytes along k"] if self.depth is not None else []
        how += [f"{self.row_pad} bytes behind rows"] if self.row_pad else []
        how += [f"{self.rate:g} of the peak"] if self.rate is not None else []
        return f"pipeline {self.name}: {extents}; {', '.join(how)}"


@dataclass(frozen=True)
class Refusal:
    """Why a pipeline does not compute a dispatch: what it requires, what the dispatch has instead.

    changes: of a key, a dim, an order of loops or a type; each alone would do.
    """

    pipeline: str
    condition: str
    value: str
    changes: tuple[str, ...] = ()

    def to_text(self) -> str:
        """`matrix: the innermost loop of n in 64, 32 or 16; it is 56 of 64x56; would do: …`."""
        do = f"; would do: {' | '.join(self.changes)}" if self.changes else ""
        return f"{self.pipeline}: {self.condition}; {self.value}{do}"


@dataclass(frozen=True)
class Occupancy:
    """How full a contraction leaves the units of a device.

    tile: results of a workgroup, m by n; depth: of k at a time. rooms: workgroups that each
    resource of a unit has room for; none: it keeps nothing that is known. subgroups: of a
    workgroup; 0: not stated.
    """

    workgroups: int
    tile: tuple[int, int]
    depth: int
    units: Units
    rooms: tuple[tuple[str, int], ...]
    subgroups: int = 0

    @property
    def resident(self) -> int:
        """Workgroups that a unit holds at once; 0 if it holds none, or nothing is known."""
        return min((room for _, room in self.rooms), default=0)

    @property
    def rounds(self) -> int:
        """How often the units are filled; 0 if a unit holds none."""
        return cdiv(self.workgroups, self.units.count * self.resident) if self.resident else 0

    def to_text(self) -> str:
        """Workgroups on units, what a unit holds and why no more, subgroups and results a lane."""
        u, (m, n) = self.units, self.tile
        least = ", ".join(f"{name} {room}" for name, room in self.rooms)
        text = f"{self.workgroups:,} workgroups of {m}x{n} results, {self.depth} of k at a time"
        if self.rooms:
            text += f"; a unit has room for {self.resident} ({least})"
        if self.resident:
            room = self.rounds * u.count * self.resident
            text += (
                f"; {u.count} units are filled {self.rounds}x, {self.workgroups / room:.0%} full"
            )
        if not self.subgroups:
            return f"{text}; `subgroups` of the pipeline are not stated"
        held, lane = self.subgroups * self.resident, cdiv(m * n, self.subgroups * u.lanes)
        return f"{text}; {held} of {u.subgroups} subgroups of a unit, {lane} results a lane"

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {
            "units": self.units.count,
            "rooms": dict(self.rooms),
            "resident": self.resident,
            "rounds": self.rounds,
        }


@dataclass(frozen=True)
class PipelineTold:
    """The pipeline of a dispatch, why each other one is not, and how full it leaves the device."""

    dispatch: int
    pipeline: str
    refusals: tuple[Refusal, ...]
    occupancies: tuple[Occupancy, ...]

    def lines(self) -> list[str]:
        """As `eqsat explain` prints them."""
        fill = [f"    fill   {x.to_text()}" for x in self.occupancies]
        refused = [f"    not    {r.to_text()}" for r in self.refusals]
        return [f"dispatch {self.dispatch} by {self.pipeline}", *fill, *refused]

    def to_json(self) -> dict[str, Any]:
        return {
            "dispatch": self.dispatch,
            "pipeline": self.pipeline,
            "refusals": [dict(vars(r)) for r in self.refusals],
            "occupancy": [x.to_json() for x in self.occupancies],
        }


@dataclass(frozen=True)
class RowPadding:
    """Rows that a contraction without tiles reads are whole cache lines, and begin in any set.

    A row that takes a multiple of all sets is one line longer in memory, so that what is below is
    in another set; one that is shorter than all sets stays as it is. operands: whose rows, lhs or
    rhs. Source: IREE's GPUPaddingResolverAttr (GPUEncodingExternalModels.cpp at 0188ef905aa7).
    """

    line_bytes: int
    sets: int
    operands: tuple[str, ...]

    def elements(self, row: int, dtype: str) -> int:
        """Elements of no value behind a row of so many.

        >>> RowPadding(128, 4, ("lhs",)).elements(4096, "f16")
        64
        """
        bits, span = DTYPES[dtype][0], self.line_bytes * self.sets
        nbytes = row * bits // 8
        if bits % 8 or nbytes < span:
            return 0
        more = -nbytes % self.line_bytes
        more += self.line_bytes if (nbytes + more) % span == 0 else 0
        return more * 8 // bits

    def to_text(self) -> str:
        """What is asked for, on one line."""
        whose = " and ".join(self.operands)
        return f"rows of {whose} padded to lines of {self.line_bytes} bytes, {self.sets} sets"


WORD_BITS = 32  # of a lane: narrower elements of neighbouring rows share one


@dataclass(frozen=True)
class Padding:
    """The last two dims of a buffer are padded to rows and lanes.

    rows: more rows are a multiple of it, fewer a power of two, of narrow types at least as many
    as share a word (2 of bf16, 4 of i8); a vector lies in rows of lanes. granule_bytes: what
    memory is given out by. The figures of a TPU are 8 rows, 128 lanes and 512 B: XLA states them
    in its layouts, such as `T(8,128)(2,1)`. narrowed: type and precision of contractions, and the
    type in which a temporary is kept that nothing else reads (`f32/default`, `bf16`).
    """

    rows: int
    lanes: int
    granule_bytes: int = 1
    narrowed: tuple[tuple[str, str], ...] = ()

    def shape(self, shape: Sequence[int], dtype: str) -> tuple[int, ...]:
        """The extents that a tensor takes, with its dims in this order.

        >>> Padding(8, 128).shape((100, 100), "f32"), Padding(8, 128).shape((1, 100), "bf16")
        ((104, 128), (2, 128))
        """
        if len(shape) < 2:
            return self._vector(shape, dtype)
        *outer, rows, lanes = shape
        return (*outer, self._rows(rows, dtype), cdiv(lanes, self.lanes) * self.lanes)

    def to_text(self) -> str:
        """The rule of padding, on one line."""
        padded = f"padded to {self.rows} rows of {self.lanes} lanes, {self.granule_bytes} bytes"
        return padded + "".join(f", {read} kept as {stored}" for read, stored in self.narrowed)

    def _rows(self, rows: int, dtype: str) -> int:
        if rows >= self.rows:
            return cdiv(rows, self.rows) * self.rows
        return max(min(self.rows, _shared(dtype)), _power(rows))

    def _vector(self, shape: Sequence[int], dtype: str) -> tuple[int, ...]:
        rows = min(self.rows, max(_shared(dtype), _power(cdiv(math.prod(shape), self.lanes))))
        unit = rows * self.lanes
        return (cdiv(max(1, math.prod(shape)), unit) * unit,)

    def nbytes(self, shape: Sequence[int], dtype: str) -> int:
        """Bytes of a tensor whose dims lie in this order.

        >>> Padding(8, 128).nbytes((128, 128), "f32"), Padding(8, 128).nbytes((100,), "i8")
        (65536, 512)
        """
        return cdiv(math.prod(self.shape(shape, dtype)) * DTYPES[dtype][0], 8)

    def buffer_bytes(self, shape: Sequence[int], dtype: str) -> int:
        """Bytes of a buffer whose order of dims is the compiler's choice: the fewest there are.

        >>> Padding(8, 128, 512).buffer_bytes((8, 1), "f32")
        512
        """
        return _least_bytes(self, tuple(shape), dtype)


def _shared(dtype: str) -> int:
    """Rows of an element type that share a word."""
    return max(1, WORD_BITS // DTYPES[dtype][0])


def _power(extent: int) -> int:
    """The power of two that is not below."""
    return 1 << max(0, extent - 1).bit_length()


@lru_cache(maxsize=100_000)
def _least_bytes(padding: Padding, shape: tuple[int, ...], dtype: str) -> int:
    if 0 in shape:
        return 0
    granule = padding.granule_bytes
    choices = [padding.nbytes(shape, dtype)]
    dims = range(len(shape))
    for row in dims:
        for lane in dims:
            if row != lane:
                outer = [s for d, s in enumerate(shape) if d not in (row, lane)]
                choices.append(padding.nbytes((*outer, shape[row], shape[lane]), dtype))
    return cdiv(min(choices), granule) * granule
