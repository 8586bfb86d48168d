"""What the parts of a contraction kernel share: its sizes, buffers and place in the loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from eqsat.execute.kernels import casts
from eqsat.execute.kernels.ir import Code, Index, Mask
from eqsat.execute.kernels.kinds import I64, POINTER, TYPES, Value, lanes_of
from eqsat.execute.kernels.lanes import Lanes
from eqsat.model.nest import Access, Nest
from eqsat.plan.contraction import UNROLL, Blocking, Tiling
from eqsat.plan.roles import source_access
from eqsat.plan.stages import row_stride

F32 = TYPES["f32"]
# point of the loop a panel is wide over, element in the panel, lanes if not all
Vector = tuple[int, int, int | None]


@dataclass(frozen=True)
class Frame:
    """at: an index per loop of the nest; those of rows and of reductions count from 0 inside."""

    sizes: Blocking
    code: Code
    reads: dict[int, Value]
    writes: dict[int, Value]
    at: tuple[Index, ...]

    @property
    def plan(self) -> Tiling:
        return self.sizes.plan

    @property
    def nest(self) -> Nest:
        return self.sizes.nest

    @property
    def passed(self) -> tuple[int, ...]:
        """Loops whose index the parts are called with."""
        p = self.plan
        return (*p.batch, *p.outer_rows, *p.outer_columns, p.vector_loop)

    def source_kind(self, which: int) -> Any:
        """Element type in memory of the rows' factor (0) or the columns' (1); f32 of a body."""
        source = source_access(self.sizes.factors[which])
        return TYPES[source.dtype] if source else F32

    @property
    def sum_kind(self) -> Any:
        """Element type of the sums."""
        return TYPES[self.sizes.roles.dtype]

    @property
    def copied_kind(self) -> Any:
        """Element type of copies in scratch."""
        return TYPES[self.sizes.copied_dtype]

    def moved(self, where: dict[int, Index]) -> Frame:
        """The frame with other indices of these loops."""
        return replace(self, at=tuple(where.get(i, x) for i, x in enumerate(self.at)))

    def begin(self, name: str, kinds: Sequence[Any]) -> tuple[Frame, tuple[Value, ...]]:
        """Start a part of the kernel, a function of its own; its frame and its own arguments."""
        shared = [I64] * len(self.passed) + [POINTER] * (len(self.reads) + len(self.writes))
        full = self.code.module.get_unique_name(f"{self.code.function.name}.{name}")
        code, arguments = Code.begin(self.code.module, full, [*kinds, *shared], internal=True)
        rest = iter(arguments[len(kinds) :])
        where = {i: next(rest) for i in self.passed}
        reads = {b: next(rest) for b in self.reads}
        writes = {b: next(rest) for b in self.writes}
        inner = replace(self, code=code, reads=reads, writes=writes)
        return inner.moved(where), arguments[: len(kinds)]

    def call(self, part: Any, numbers: Sequence[Index]) -> None:
        code = self.code
        values = [*numbers, *(self.at[i] for i in self.passed)]
        pointers = [*self.reads.values(), *self.writes.values()]
        code.builder.call(part, [*(code.index(x) for x in values), *pointers])

    def rows_at(self, number: Index) -> dict[int, Index]:
        """Indices of the row loops at a row."""
        loops = self.plan.row_loops
        digits = self.code.digits(number, [self.nest.sizes[i] for i in loops])
        return dict(zip(loops, digits, strict=True))

    def vectors(self, last: bool) -> list[Vector]:
        """The vectors of a panel."""
        p, s = self.plan, self.sizes
        width = s.last_width if last else s.width
        vectors: list[Vector] = []
        for u in range(p.wide):
            for start in range(0, width, p.lanes):
                left = width - start
                vectors.append((u, start, left if left < p.lanes else None))
        return vectors

    def at_tile(
        self,
        access: Access,
        first: Index,
        r: int,
        v: Vector,
        starts: dict[tuple[Access, bool], Value],
        buffers: dict[int, Value] | None = None,
    ) -> tuple[Value, tuple[Any, ...]]:
        """Where an access is at a row and vector of the tile, and what tells it from others.

        first: the tile's first row; starts: addresses at its first vector so far.
        """
        p, code, kind = self.plan, self.code, TYPES[access.dtype]
        key = (access, buffers is None)
        if key not in starts:
            offset = code.affine(access.base, access.strides, self.moved(self.rows_at(first)).at)
            buffer = (self.reads if buffers is None else buffers)[access.buffer]
            starts[key] = code.at(buffer, kind, offset)
        step = r * (row_stride(self.nest, p.row_loops, access) or 0) + self.across(access, v)
        return code.at(starts[key], kind, step), (access, step, v[2])

    def across(self, access: Access, v: Vector) -> int:
        """Elements from the panel's first vector to this one."""
        p = self.plan
        wide = access.strides[p.outer_columns[-1]] if p.wide > 1 else 0
        return v[0] * wide + v[1] * access.strides[p.vector_loop]

    def slot(self, row: Index, vector: Vector) -> Index:
        """Element of the tile's partial sums at which a row's vector starts."""
        p = self.plan
        u, start, _ = vector
        j = u * (p.vectors // p.wide) + start // p.lanes
        return self.code.add(self.code.mul(row, p.vectors * p.lanes), j * p.lanes)


@dataclass(frozen=True)
class Steps:
    """How a tile steps through a factor, in elements: rows, vectors, and per reduction loop."""

    row: int
    vector: int  # per element of the vector loop
    wide: int  # per point of the loop a panel is wide over
    reduced: tuple[int, ...]
    dtype: str  # of the elements there
    sums: str  # what the tile makes of them

    def at(self, code: Code, pointer: Value, offset: Index) -> Value:
        """The address so many elements on."""
        return code.at(pointer, TYPES[self.dtype], offset)

    def load(self, code: Code, pointer: Value, lanes: int, stride: int, mask: Mask = None) -> Value:
        """A vector for the sums, of elements that follow each other, or (stride 0) of one."""
        kind = TYPES[self.dtype]
        return converted(code, code.load(pointer, kind, lanes, stride, mask), self.dtype, self.sums)


def converted(code: Code, x: Value, dtype: str, wanted: str) -> Value:
    """What was loaded of an element type as another one."""
    return x if dtype == wanted else casts.lane_convert(Lanes(code, lanes_of(x)), x, dtype, wanted)


def operands(frame: Frame) -> tuple[Steps, list[Steps]]:
    """Of the rows' factor and of what the columns' is made of: as an access steps, or as its copy
    in scratch."""
    p, s = frame.plan, frame.sizes
    linear = tuple(s.run_points(p.reduced[i + 1 :]) for i in range(len(p.reduced)))
    copied, sums = s.copied_dtype, s.roles.dtype
    rows = Steps(s.a_row, 0, 0, linear, copied, sums) if p.copied[0] else _stepping(s, s.a_access)
    if p.copied[1]:
        each = p.vectors // p.wide * p.lanes
        return rows, [Steps(0, 1, each, tuple(n * s.panel_row for n in linear), copied, sums)]
    return rows, [_stepping(s, x) for x in s.columns_in_place.leaves]


def first_row(frame: Frame, t: Index) -> Index:
    """The first row of a tile: the first ones have a row more than the others."""
    code, p, s = frame.code, frame.plan, frame.sizes
    if s.full_tiles == p.row_tiles:
        return code.mul(t, p.rows)
    return code.add(code.mul(t, p.rows - 1), code.min(t, s.full_tiles))


def ahead_start(frame: Frame, done: Index) -> Index:
    """Where the part of the next panel begins for which a tile asks, `done` tiles being before."""
    p, s, code = frame.plan, frame.sizes, frame.code
    if p.fused > 1:
        turns = s.run_points(p.reduced) if p.windows else -(-s.block_k // p.fused) * p.fused
        return code.mul(done, turns // p.fused * ahead_piece(frame))
    _, across, along = ahead_steps(frame)
    if not p.copied[1]:
        points = frame.nest.sizes[p.reduced[p.asking]] if p.asking else p.k_block
        return code.mul(done, -(-points // UNROLL // p.prefetch_turns) * along)
    each = p.prefetch * p.prefetch_turns
    last = -(-p.vectors * p.lanes // each) - 1
    return code.mul(code.min(done, last), each * across)


def ahead_piece(frame: Frame) -> int:
    """Elements of the next panel, which is one run, that a turn over a group asks for."""
    return -(-frame.plan.fused * frame.sizes.panel_row // frame.plan.tile_block)


def ahead_steps(frame: Frame) -> tuple[int, int, int]:
    """Elements of B's buffer between prefetches of a turn, turns of a group, and groups."""
    source, p = source_access(frame.sizes.factors[1]), frame.plan
    assert source is not None
    column, row = source.strides[p.vector_loop], source.strides[p.reduced[p.asking]]
    if p.copied[1]:  # a line of each column, other columns every turn
        return p.prefetch_turns * column, column, p.prefetch_turns * UNROLL * row
    return row, 0, p.prefetch * row


def _stepping(s: Blocking, access: Access | None) -> Steps:
    assert access is not None
    p = s.plan
    return Steps(
        access.strides[p.row_loops[-1]] if p.row_loops else 0,
        access.strides[p.vector_loop],
        access.strides[p.outer_columns[-1]] if p.wide > 1 else 0,
        tuple(access.strides[i] for i in p.reduced),
        access.dtype,
        s.roles.dtype,
    )
