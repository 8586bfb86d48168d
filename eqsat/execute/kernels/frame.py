"""Frame of a contraction kernel, which its parts share: sizes, buffers, loops, prefetches.

Prefetches ask for cache lines that a tile, or a later one, reads or writes. All at once, prefetches
hold up the tile's own loads: where turns of one loop follow each other, each turn has a few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from eqsat.execute.kernels.ir import Code, Index, Mask
from eqsat.execute.kernels.kinds import I64, POINTER, TYPES, Value, lanes_of
from eqsat.execute.kernels.lanes import Lanes, lane_convert
from eqsat.model.nest import Access, Nest
from eqsat.model.tensor import DTYPES
from eqsat.plan.contraction import UNROLL, Blocking, Tiling
from eqsat.plan.roles import source_access
from eqsat.plan.stages import LINE, accesses_read, row_stride

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
    """A loaded value of one element type as another one."""
    return x if dtype == wanted else lane_convert(Lanes(code, lanes_of(x)), x, dtype, wanted)


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


FEW_ROWS = 4  # of a tile: their elements are columns' worth and come in order
FAR_ROWS = 64 << 10  # bytes of rows from which on they are not in the nearest cache
AHEAD_ROWS = 3  # of all tiles at most: a line is multiplied quicker than it comes


@dataclass(frozen=True)
class Prefetches:
    """Prefetches of one tile of `rows` rows, the first of them number `first`; a: how A steps."""

    frame: Frame
    rows: int
    vectors: list[Vector]
    a: Steps
    first: Value
    starts: dict[tuple[Access, bool], Value] = field(default_factory=dict[Any, Value])

    def at_start(self) -> None:
        """Ask for the lines that the tile writes in the end, and those it adds to its sums.

        Stores wait for them in order, and an epilogue is too short to fetch what it reads early.
        """
        for a, buffers, _ in self._ends():
            places = [(r, v) for r in range(self.rows) for v in self.vectors]
            for r, v in places[:1] if self._turns_share else places:
                pointer, _ = self.frame.at_tile(a, self.first, r, v, self.starts, buffers)
                if not self._turns_share:
                    self.frame.code.prefetch(pointer, write=buffers is not None)

    def in_turn(self, turn: Index, a: Value, ahead: Value) -> None:
        """Prefetches of a turn of the innermost loop; it reads A at `a`.

        ahead: this tile's share of the next panel.
        """
        p = self.frame.plan
        if p.prefetch and p.asking == len(p.reduced) - 1:
            self.next_panel(turn, ahead)
        if self._far_rows:
            self._next_rows(turn, a)
        if self._turns_share:
            self._some_ends(turn)

    # ---- ends of the tile ------------------------------------------------------------------------
    @cached_property
    def _turns_share(self) -> bool:
        """Whether the turns of the innermost loop ask for the tile's ends, a few each."""
        p = self.frame.plan
        if len(p.reduced) != 1 or p.k_blocks > 1 or p.fused > 1 or p.lanes <= 4:
            return False
        return self.rows > 1 and self._turns > 1

    @property
    def _turns(self) -> int:
        return self.frame.plan.k_block // UNROLL

    def _ends(self) -> Iterator[tuple[Access, dict[int, Value] | None, int]]:
        """Accesses, the buffers they write (None: they read), and their steps from row to row."""
        p, frame = self.frame.plan, self.frame
        stages = [frame.nest.stages[i] for i in frame.sizes.roles.epilogue]
        read = dict.fromkeys(a for s in stages for a in accesses_read(s.arguments))
        ends = [(a, None) for a in read if not a.bounds and not a.lookups]
        for a, buffers in [*ends, *((s.access, frame.writes) for s in frame.nest.stores)]:
            step = row_stride(frame.nest, p.row_loops, a)
            # for every row, such as biases
            is_same = buffers is None and step == 0 and self.rows > 1
            if a.strides[p.vector_loop] == 1 and step is not None and not is_same and not p.extra:
                yield a, buffers, step

    def _some_ends(self, turn: Index) -> None:
        """Rows of the ends, in order, all of them in the first half of the turns."""
        code, frame = self.frame.code, self.frame
        each = -(-2 * self.rows // self._turns)
        last = -(-self.rows // each) - 1
        number = code.mul(code.min(turn, last), each)
        for a, buffers, step in self._ends():
            kind, start = TYPES[a.dtype], self.starts[a, buffers is None]
            place = code.at(start, kind, code.mul(number, step))
            for r in range(each):
                for v in self.vectors:
                    pointer = code.at(place, kind, r * step + frame.across(a, v))
                    code.prefetch(pointer, write=buffers is not None)

    def below(self, a: Value) -> None:
        """Ask for the rows of A that the next tile of a strip reads and this one does not."""
        p, code, access = self.frame.plan, self.frame.code, self.frame.sizes.a_access
        if access is None or not p.outer_rows or len(p.reduced) < 2:
            return
        loops = p.outer_rows[-1], p.reduced[0], p.reduced[-1]
        step, tap, beside = (abs(access.strides[i]) for i in loops)
        if not step or not tap:
            return
        behind = self.frame.nest.sizes[p.reduced[0]] * access.strides[p.reduced[0]]
        columns = range(0, self.rows * self.a.row, min(beside or self.a.row, self.a.row))
        for start in range(behind, behind + step, tap):
            for column in columns:
                for v in self.vectors:
                    at = start + column + v[1] * self.a.vector
                    code.prefetch(self.a.at(code, a, at))

    # ---- factors ---------------------------------------------------------------------------------
    @cached_property
    def _far_rows(self) -> bool:
        """Whether rows are read where they lie, each in order, and more than what is near."""
        p, s = self.frame.plan, self.frame.sizes
        in_place = not p.copied[0] and not p.windows and not p.vector_rows
        if not in_place or len(p.reduced) != 1 or self.a.reduced[0] != 1 or p.lanes <= 4:
            return False
        nbytes = s.row_count * s.block_k * s.fetched_bytes[0]
        return self.rows >= FEW_ROWS and nbytes >= FAR_ROWS

    def _next_rows(self, turn: Index, a: Value) -> None:
        """Prefetch these columns of the next tile's rows: others each turn, all in a line's."""
        code = self.frame.code
        turns = 4 * LINE * 8 // DTYPES[self.a.dtype][0] // UNROLL
        row = code.add(code.rem(turn, turns), self.rows)
        pointer = self.a.at(code, a, code.mul(row, self.a.row))
        for r in range(0, self.rows, turns):
            code.prefetch(self.a.at(code, pointer, r * self.a.row), level=2)

    @cached_property
    def _starts_of_runs(self) -> list[int]:
        """Where the runs of a panel begin, in elements, if few rows multiply it as it comes.

        Then a core's own loads are many lines ahead, and asks take the place of these. One line of
        each run a turn is enough: prefetchers bring those behind it.
        """
        p, s = self.frame.plan, self.frame.sizes
        b = s.factors[1].direct
        if b is None or b.dtype != "f32" or p.copied[1] or p.windows or p.k_blocks > 1:
            return []
        in_runs = len(p.reduced) == 1 and b.strides[p.reduced[0]] == s.width
        if not in_runs or b.strides[p.vector_loop] != 1 or s.tiles > 1 or p.rows > AHEAD_ROWS:
            return []
        return [self.frame.across(b, (u, 0, None)) for u in range(p.wide)]

    def next_panel(self, turn: Index, ahead: Value) -> None:
        """Of the loop that asks, this turn's part of the tile's share of the next panel."""
        code, p = self.frame.code, self.frame.plan
        each, across, along = ahead_steps(self.frame)
        group, number = code.div(turn, p.prefetch_turns), code.rem(turn, p.prefetch_turns)
        start = code.add(code.mul(group, along), code.mul(number, across))
        kind = self.frame.source_kind(1)
        pointer = code.at(ahead, kind, start)
        # one or two tiles reach the next panel late, and rows that share sets fill the first cache
        level = 2 if p.k_blocks > 1 or p.tile_block <= 2 else 1
        for run in self._starts_of_runs:
            code.prefetch(code.at(pointer, kind, run), level=level)
        if self._starts_of_runs:
            return
        line = self.frame.sizes.line
        lines = 1 if p.copied[1] else -(-len(self.vectors) * p.lanes // line)
        for i in range(p.prefetch):
            for n in range(lines):
                code.prefetch(code.at(pointer, kind, i * each + n * line), level=level)
