"""Prefetch of cache lines that a tile, or a later one, reads or writes.

All at once, prefetches hold up the tile's own loads: where turns of one loop follow each other,
each turn has a few.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from eqsat.execute.kernels.frame import Frame, Steps, Vector, ahead_steps
from eqsat.execute.kernels.ir import Index
from eqsat.execute.kernels.kinds import TYPES, Value
from eqsat.model.nest import Access
from eqsat.model.tensor import DTYPES
from eqsat.plan.contraction import UNROLL
from eqsat.plan.stages import LINE, accesses_read, row_stride

FEW_ROWS = 4  # of a tile: their elements are columns' worth and come in order
FAR_ROWS = 64 << 10  # bytes of rows from which on they are not in the nearest cache
AHEAD_ROWS = 3  # of all tiles at most: a line is multiplied quicker than it comes


@dataclass(frozen=True)
class Asks:
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
        """What a turn of the innermost loop asks for; it reads A at `a`.

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
        """The same columns of the next tile's rows: each turn other rows, in a line's turns all."""
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
