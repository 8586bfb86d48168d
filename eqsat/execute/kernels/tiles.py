"""The register tile of a contraction: rows x vectors summed over a block of the reduction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from eqsat.execute.kernels.frame import F32, Frame, Prefetches, Steps, Vector, operands
from eqsat.execute.kernels.fused import FusedSums
from eqsat.execute.kernels.ir import Code, Index
from eqsat.execute.kernels.kinds import I64, POINTER, TYPES, Value
from eqsat.execute.kernels.points import lower_body
from eqsat.model.nest import Access
from eqsat.plan.contraction import UNROLL

MOST_PARTS = 8  # of a sum that are written one after the other


def argument_kinds(columns: int) -> list[Any]:
    """Of a tile's function: a, all of b, partial sums, what to prefetch, points of the outermost
    reduction loop, first row."""
    return [POINTER] * (3 + columns) + [I64, I64]


def write_tile(outer: Frame, rows: int, last: bool, tile: int = 0) -> Any:
    """The function of the tiles with so many rows, of the last panel or the others.

    tile: one of them; they have the same pads.
    """
    a, b = operands(outer)
    name = f"tile{rows}{f'.{tile}' if tile else ''}{'.last' if last else ''}"
    frame, (start, *rest) = outer.begin(name, argument_kinds(len(b)))
    b_starts, (sums, ahead, points, row) = rest[: len(b)], rest[len(b) :]
    varies = frame.plan.k_blocks > 1 or frame.sizes.skipping
    count: Index = points if varies else frame.plan.k_block
    vectors = frame.vectors(last)
    prefetches = Prefetches(frame, rows, vectors, a, row)
    RegisterTile(
        frame, rows, vectors, a, b, start, b_starts, sums, ahead, count, row,
        prefetches, (0, rows), tile,
    ).write()  # fmt: skip
    frame.code.end()
    return frame.code.function


def _fewer(count: int, lanes: int) -> int | None:
    """Lanes of a vector of which so many elements are there, if not all."""
    return count if count < lanes else None


@dataclass(frozen=True)
class RegisterTile:
    frame: Frame
    rows: int
    vectors: list[Vector]
    a: Steps
    b: list[Steps]  # of all that B is computed from
    a_start: Value
    b_starts: list[Value]
    partial: Value
    ahead: Value
    count: Index  # points of the outermost reduction loop
    row: Value
    prefetches: Prefetches
    summed: tuple[int, int]  # rows that are summed: the first, the end; the others are pads
    number: int  # of a row tile that has the same pads

    @property
    def code(self) -> Code:
        return self.frame.code

    @property
    def lanes(self) -> int:
        return self.frame.plan.lanes

    def write(self) -> None:
        p, sizes = self.frame.plan, self.frame.sizes
        if p.k_blocks == 1:
            self.prefetches.at_start()
        if p.goes_down:
            self.prefetches.below(self.a_start)
        zero = [self.code.zero(self.frame.sum_kind, self.lanes)] * (self.rows * len(self.vectors))
        level, points = p.chain
        whole = level == 0 and points >= p.k_block
        if whole:
            if p.fused > 1:
                sums = FusedSums(
                    self.frame, self.rows, self.vectors, self.a, self.b[0], self.ahead
                ).write(self.a_start, self.b_starts[0], self.count)
            else:
                sums = self._chain(0, self.a_start, self.b_starts, self.count, zero)
            if p.k_blocks > 1:
                self._add(sums)
            elif sizes.has_partials:
                self._keep(sums)
            else:
                self._store(sums)
            return
        if sizes.adds_parts:
            self._store(self._added_parts(zero))
            return
        if p.k_blocks == 1:
            self._keep(zero)
        self._parts(0, self.a_start, self.b_starts)
        if p.k_blocks == 1 and p.in_registers:
            self._store(self._kept())

    # ---- the reduction ---------------------------------------------------------------------------
    def _size(self, level: int) -> Index:
        reduced = self.frame.plan.reduced
        return self.count if level == 0 else self.frame.nest.sizes[reduced[level]]

    def _moved(self, level: int, a: Value, b: list[Value], i: Index) -> tuple[Value, list[Value]]:
        code = self.code
        x = self.a.at(code, a, code.mul(i, self.a.reduced[level]))
        y = [s.at(code, q, code.mul(i, s.reduced[level])) for s, q in zip(self.b, b, strict=True)]
        return x, y

    def _parts(self, level: int, a: Value, b: list[Value]) -> None:
        """Sum part by part, each added to the sums in memory: rounding errors stay short."""
        code, (last, length) = self.code, self.frame.plan.chain
        size = self._size(level)
        if level < last:

            def inner(tile: RegisterTile, i: Index) -> None:
                tile._parts(level + 1, *self._moved(level, a, b, i))

            apart = self._by_pads(level)
            if not apart:
                code.loop(0, size, 1, [], lambda i: inner(self, i))
            for i, tile in enumerate(apart):
                if tile.summed[0] < tile.summed[1]:
                    inner(tile, i)
            return
        even = isinstance(size, int) and size % length == 0
        zero = [code.zero(self.frame.sum_kind, self.lanes)] * (self.rows * len(self.vectors))

        def part(i: Index) -> None:
            points = length if even else code.min(length, code.sub(size, i))
            self._add(self._chain(level, *self._moved(level, a, b, i), points, zero, i))

        code.loop(0, size, length, [], part)

    def _by_pads(self, level: int) -> list[RegisterTile]:
        """The tile at each point of a reduction loop, of the rows that are no pads there; none if
        that is not known or makes no difference."""
        return [replace(self, summed=x) for x in self.frame.sizes.beside_pads(level, self.number)]

    def _added_parts(self, zero: list[Value]) -> list[Value]:
        """Sums of parts of the outermost loop, one after the other, added in registers.

        They are not needed while a part is summed, so they may wait on the stack.
        """
        code, length, count = self.code, self.frame.plan.chain[1], self.count

        def part(i: Index, *totals: Value) -> list[Value]:
            there = self._moved(0, self.a_start, self.b_starts, i)
            sums = self._chain(0, *there, code.min(length, code.sub(count, i)), zero, i)
            return [self._plus(t, x) for t, x in zip(totals, sums, strict=True)]

        if not isinstance(count, int) or count > MOST_PARTS * length:
            return code.loop(0, count, length, zero, part)
        result = self._chain(0, self.a_start, self.b_starts, min(length, count), zero)
        for i in range(length, count, length):
            result = part(i, *result)
        return result

    def _chain(
        self, level: int, a: Value, b: list[Value], size: Index, sums: list[Value], first: Index = 0
    ) -> list[Value]:
        """The sum over `size` points of a reduction loop and all loops inside it, in registers.

        first: the first of these points, `a` and `b` are there.
        """
        code, p, reduced = self.code, self.frame.plan, self.frame.plan.reduced
        if level >= len(reduced):
            return self._step(a, b, sums, 0)
        if level == len(reduced) - 1:
            return self._innermost(level, a, b, size, sums, first)

        apart = self._by_pads(level) if size == self.frame.nest.sizes[reduced[level]] else []
        for i, tile in enumerate(apart):
            if tile.summed[0] < tile.summed[1]:
                there = self._moved(level, a, b, i)
                sums = tile._chain(level + 1, *there, self._size(level + 1), sums)
        if apart:
            return sums

        def turn(i: Index, a: Value, *carried: Value) -> list[Value]:
            b, sums = self._apart(carried)
            if p.prefetch and level == p.asking:
                self.prefetches.next_panel(i, self.ahead)
            inner = self._chain(level + 1, a, b, self._size(level + 1), sums)
            return self._carried(*self._moved(level, a, b, 1), inner)

        return self._apart(code.loop(0, size, 1, self._carried(a, b, sums), turn)[1:])[1]

    @staticmethod
    def _carried(a: Value, b: list[Value], sums: list[Value]) -> list[Value]:
        """Values that loops hand on from turn to turn."""
        return [a, *b, *sums]

    def _apart(self, carried: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        """B's places and the sums."""
        return list(carried[: len(self.b)]), list(carried[len(self.b) :])

    def _innermost(
        self, level: int, a: Value, b: list[Value], size: Index, sums: list[Value], first: Index
    ) -> list[Value]:
        code = self.code
        if apart := self._by_pads(level):
            for i, tile in enumerate(apart):
                sums = tile._step(a, b, sums, i)
            return sums
        if self.frame.plan.shifted:
            assert isinstance(size, int), "parts of shifted columns are whole loops"
            return self._shifted(a, b[0], size, sums)

        def turn(i: Index, a: Value, *carried: Value) -> list[Value]:
            b, sums = self._apart(carried)
            self.prefetches.in_turn(code.add(code.div(first, UNROLL), i), a, self.ahead)
            for u in range(UNROLL):
                sums = self._step(a, b, sums, u)
            return self._carried(*self._moved(level, a, b, UNROLL), sums)

        turns = code.div(size, UNROLL)
        a, *carried = code.loop(0, turns, 1, self._carried(a, b, sums), turn)
        b, sums = self._apart(carried)
        if isinstance(size, int):
            for u in range(size % UNROLL):
                sums = self._step(a, b, sums, u)
            return sums

        def single(i: Index, a: Value, *carried: Value) -> list[Value]:
            b, sums = self._apart(carried)
            return self._carried(*self._moved(level, a, b, 1), self._step(a, b, sums, 0))

        left = code.rem(size, UNROLL)
        return self._apart(code.loop(0, left, 1, self._carried(a, b, sums), single)[1:])[1]

    def _shifted(self, a: Value, b: Value, size: int, sums: list[Value]) -> list[Value]:
        """The innermost loop along neighbours of the vectors: these are shifted from tap to tap.

        A vector that is read anew for each tap crosses a cache line nearly every time, which takes
        twice as long as one that does not.
        """
        (x,), lanes = self.b, self.lanes
        step, (_, start, left) = x.reduced[-1], self.vectors[-1]
        width = start + (left or lanes)
        together = -(-lanes // step)  # taps that begin in the first vector
        for first in range(0, size, together):
            taps = min(together, size - first)
            ends = width + (taps - 1) * step
            read = [
                self._load(x, b, first * step + n, _fewer(ends - n, lanes))
                for n in range(0, ends, lanes)
            ]
            for u in range(taps):
                columns = [self._shift(read[j:], u * step) for j in range(len(self.vectors))]
                sums = self._products(a, columns, sums, first + u)
        return sums

    def _shift(self, read: Sequence[Value], by: int) -> Value:
        """The vector that begins so many elements behind the first one's start."""
        behind = read[1] if len(read) > 1 else read[0]  # no lane of it is used
        return self.code.shifted(read[0], behind, by) if by else read[0]

    def _step(self, a: Value, b: list[Value], sums: list[Value], u: int) -> list[Value]:
        """All multiply-adds at one point of the reduction, `u` points on."""
        return self._products(a, [self._columns_of(b, v, u) for v in self.vectors], sums, u)

    def _products(self, a: Value, columns: list[Value], sums: list[Value], u: int) -> list[Value]:
        """The sums with the products of these columns, `u` points on."""
        code, plan = self.code, self.frame.plan
        a_point = u * (self.a.reduced[-1] if self.a.reduced else 0)
        totals = list(sums)
        if self._overlaps():
            a = code.opaque(a)
        for r in range(*self.summed):
            start = a_point + r * self.a.row
            one = self.a.at(code, a, start)
            x = None if plan.vector_rows else self.a.load(code, one, self.lanes, 0)
            for j, v in enumerate(self.vectors):
                if plan.vector_rows:
                    x = self._load(self.a, a, start + self._column(self.a, v), v[2])
                at = r * len(self.vectors) + j
                totals[at] = self._plus_product(x, columns[j], totals[at])
        return totals

    def _columns_of(self, b: list[Value], v: Vector, u: int) -> Value:
        """A vector of B, read or computed."""
        lanes, s = self._lanes_there(v), self.frame.sizes
        columns: list[Value] = []
        for x, pointer in zip(self.b, b, strict=True):
            offset = u * (x.reduced[-1] if x.reduced else 0) + self._column(x, v)
            if s.factors[1].inline is None or self.frame.plan.copied[1]:
                return self._load(x, pointer, offset, lanes)
            place = x.at(self.code, pointer, offset)
            step = x.vector
            kind = TYPES[x.dtype]
            columns.append(self.code.load(place, kind, self.lanes, step, lanes if step else None))
        inline, dtypes = s.columns_in_place, dict(enumerate(x.dtype for x in self.b))
        given = dict(enumerate(columns))
        x = lower_body(self.code, inline.body, given, self.lanes, dtypes, s.roles.dtype)
        return self.code.broadcast(x, self.lanes)

    def _plus_product(self, a: Value, b: Value, total: Value) -> Value:
        if self.frame.sizes.roles.dtype == "f32":
            return self.code.fma(a, b, total)
        return self._plus(total, self.code.builder.mul(a, b))

    def _plus(self, a: Value, b: Value) -> Value:
        builder = self.code.builder
        add = builder.fadd if self.frame.sizes.roles.dtype == "f32" else builder.add
        return add(a, b)

    def _overlaps(self) -> bool:
        """Whether a row is another row some points on: windows of neighbouring pixels.

        LLVM keeps what it has read of it. Of vectors that saves loads; elements in every lane
        would take the registers that the sums need.
        """
        step, row = self.a.reduced[-1] if self.a.reduced else 0, self.a.row
        if not row or self.frame.plan.vector_rows:
            return False
        far = abs(row) * (self.rows - 1)
        return any(u * step % row == 0 and abs(u * step) <= far for u in range(1, 2 * UNROLL))

    def _lanes_there(self, vector: Vector) -> int | None:
        """Lanes of B's vector that may be read; a copied panel has them all."""
        return None if self.frame.plan.copied[1] else vector[2]

    def _load(self, x: Steps, pointer: Value, offset: int, lanes: int | None) -> Value:
        return x.load(self.code, x.at(self.code, pointer, offset), self.lanes, 1, lanes)

    @staticmethod
    def _column(x: Steps, vector: Vector) -> int:
        return vector[0] * x.wide + vector[1] * x.vector

    # ---- sums in memory --------------------------------------------------------------------------
    def _slots(self) -> list[Value]:
        return [
            self.code.at(self.partial, self.frame.sum_kind, self.frame.slot(r, v))
            for r in range(self.rows)
            for v in self.vectors
        ]

    def _kept(self) -> list[Value]:
        kind = self.frame.sum_kind
        return [self.code.load(x, kind, self.lanes) for x in self._slots()]

    def _keep(self, sums: Sequence[Value]) -> None:
        for pointer, x in zip(self._slots(), sums, strict=True):
            self.code.store(x, pointer, self.frame.sum_kind)

    def _add(self, sums: Sequence[Value]) -> None:
        part = slice(*(r * len(self.vectors) for r in self.summed))
        for pointer, x in zip(self._slots()[part], sums[part], strict=True):
            before = self.code.load(pointer, self.frame.sum_kind, self.lanes)
            self.code.store(self._plus(before, x), pointer, self.frame.sum_kind)

    # ---- the epilogue in registers ---------------------------------------------------------------
    def _store(self, sums: Sequence[Value]) -> None:
        """Evaluate the epilogue's stages for each vector and write what is stored."""
        starts: dict[tuple[Access, bool], Value] = {}
        shared: dict[tuple[Any, ...], Value] = {}
        each = iter(sums)
        for r in range(self.rows):
            for v in self.vectors:
                self._store_vector(next(each), r, v, starts, shared)

    def _store_vector(
        self, total: Value, r: int, v: Vector, starts: dict[Any, Value], shared: dict[Any, Value]
    ) -> None:
        nest, roles = self.frame.nest, self.frame.sizes.roles
        values = {roles.root: total}

        def value(a: Access | int) -> Value:
            if isinstance(a, int):
                return values[a]
            pointer, key = self.frame.at_tile(a, self.row, r, v, starts)
            if key not in shared:
                step = a.strides[self.frame.plan.vector_loop]
                shared[key] = self.code.load(pointer, F32, self.lanes, step, v[2] if step else None)
            return shared[key]

        for i in roles.epilogue:
            s = nest.stages[i]
            read = {k: s.arguments[k] for k in s.body.operands()}
            given = {k: value(a) for k, a in read.items()}
            types = {
                k: (nest.stages[a] if isinstance(a, int) else a).dtype for k, a in read.items()
            }
            result = lower_body(self.code, s.body, given, self.lanes, types)
            values[i] = self.code.broadcast(result, self.lanes)
        for s in nest.stores:
            pointer, _ = self.frame.at_tile(s.access, self.row, r, v, starts, self.frame.writes)
            self.code.store(values[s.stage], pointer, F32, mask=v[2])
