"""Parts of a row-block kernel: products of two blocks, and passes along one row in scratch.

A product of blocks in scratch or memory is rows x vectors of sums in registers; a pass computes
bodies and reductions, and what later passes read.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from eqsat.execute.kernels import math
from eqsat.execute.kernels.ir import Code, Index, Mask
from eqsat.execute.kernels.kinds import I32, POINTER, TYPES, Value, constants, memory_type
from eqsat.execute.kernels.lanes import Lanes
from eqsat.execute.kernels.points import Points
from eqsat.model.nest import Store
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.scalar import neutral
from eqsat.plan.rowblocks import RowExtents
from eqsat.plan.stages import CHAIN

if TYPE_CHECKING:
    from eqsat.execute.kernels.rowblocks import Items

# ---- passes --------------------------------------------------------------------------------------
F32 = TYPES["f32"]
TOGETHER = 4  # rows of a pass: some compute while what crosses the lanes of another waits
HEAVY = 8  # additions of a pass that has few vectors at once
MOST = {True: (2, 4), False: (4, 8)}  # whether heavy: vectors at once of one row, and of all


@dataclass
class BlockRow:
    """A row of a block; `number`: its own in the block, `items`: where it is."""

    items: Items
    number: Index
    values: dict[Any, Value] = field(default_factory=dict)  # numbers of the row, by stage


@dataclass
class BlockPasses:
    """All passes of some rows, in turn."""

    items: Items
    rows: Sequence[BlockRow]

    @property
    def code(self) -> Code:
        return self.items.code

    @property
    def sizes(self) -> RowExtents:
        return self.items.sizes

    @cached_property
    def points(self) -> Points:
        return self.items.points(self.sizes.roles.along)

    def write(self) -> None:
        roles = self.sizes.roles
        for now in range(roles.passes):
            self._numbers(now)
            self._pass(now)
        self._numbers(roles.passes)
        one = Points(self.code, self.sizes.nest, self.items.head.reads)
        for row in self.rows:
            for i in roles.late:
                self.code.store(row.values[i], self.items.scalar(i, row.number), F32)
            for s in self.sizes.nest.stores:
                if s.stage in roles.scalars:
                    writes = self.items.head.writes
                    store_stage(one, s, writes, row.items.at, row.values, None)

    def _numbers(self, now: int) -> None:
        """Numbers of the rows that are known before a pass, and are no reductions."""
        roles, one = self.sizes.roles, Points(self.code, self.sizes.nest, self.items.head.reads)
        for row in self.rows:
            for i in roles.scalars:
                if not roles.reduces(i) and roles.level[i] == now:
                    one.stage(i, row.items.at, row.values)

    def _pass(self, now: int) -> None:
        s, code, roles = self.sizes, self.code, self.sizes.roles
        lanes, stages = s.plan.lanes, s.nest.stages
        reductions = [i for i in roles.scalars if roles.reduces(i) and roles.level[i] == now]
        wide = [
            {i: code.broadcast(x, lanes) for i, x in row.values.items() if isinstance(i, int)}
            for row in self.rows
        ]
        starts = [
            math.lane_constant(
                code, lanes, neutral(stages[i].combine, stages[i].dtype), stages[i].dtype
            )
            for i in reductions
        ]
        whole = s.length // lanes
        cost = sum(scalar.cost(stages[i].body) for i in roles.values if roles.level[i] == now)
        each, everyone = MOST[cost >= HEAVY]
        most = min(each, everyone // len(self.rows))
        unroll = next(n for n in (4, 2, 1) if n <= most and whole % n == 0)
        chains = [(n, r) for n in range(unroll) for r in range(len(self.rows))]

        def turn(u: Index, *sums: Value) -> list[Value]:
            result: list[Value] = []
            for k, (n, r) in enumerate(chains):
                part = sums[k * len(reductions) : (k + 1) * len(reductions)]
                at = code.mul(code.add(u, n), lanes)
                result += self._vector(self.rows[r], now, at, dict(wide[r]), reductions, part, None)
            return result

        sums = code.loop(0, whole, unroll, starts * len(chains), turn)
        for r, row in enumerate(self.rows):
            totals: list[Value] = []
            for k in range(r, len(chains), len(self.rows)):
                part = sums[k * len(reductions) : (k + 1) * len(reductions)]
                before = totals or [None] * len(reductions)
                totals = [
                    b if a is None else self._combined(i, a, b)
                    for i, a, b in zip(reductions, before, part, strict=True)
                ]
            if s.length % lanes:
                at, rest = whole * lanes, s.length % lanes
                totals = self._vector(row, now, at, dict(wide[r]), reductions, totals, rest)
            for i, x in zip(reductions, totals, strict=True):
                row.values[i] = self._across(i, x)

    def _vector(
        self,
        row: BlockRow,
        now: int,
        j: Index,
        values: MutableMapping[Any, Value],
        reductions: Sequence[int],
        sums: Sequence[Value],
        mask: Mask,
    ) -> list[Value]:
        """One vector of a pass: what is kept is read before anything is written."""
        s, code, roles = self.sizes, self.code, self.sizes.roles
        lanes, at = s.plan.lanes, row.items.moved({roles.along: j}).at
        slots = dict(s.plan.slots)
        for i, slot in slots.items():
            is_first = roles.first is not None and i == roles.first.stage
            if now in roles.uses[i] and (roles.level[i] < now or is_first):
                values[i] = code.load(self._place(row, slot, j), F32, lanes)
        computed = [i for i in roles.values if roles.level[i] == now and i in slots]
        writes = [(slots[i], self._stage(i, at, values, mask)) for i in computed]
        if now == roles.last_level and roles.weights.fn != "arg":
            x = self.points.body(roles.weights, roles.arguments, at, values, mask)
            writes.append((s.plan.weights_slot, code.broadcast(x, lanes)))
        totals = [
            self._reduced(i, at, values, x, mask) for i, x in zip(reductions, sums, strict=True)
        ]
        for slot, x in writes:
            code.store(x, self._place(row, slot, j), F32)
        for t in s.nest.stores:
            first = roles.first is not None and t.stage == roles.first.stage
            if (t.stage in roles.values or first) and roles.level[t.stage] == now:
                store_stage(self.points, t, self.items.head.writes, at, values, mask)
        return totals

    def _stage(
        self, i: int, at: Sequence[Index], values: MutableMapping[Any, Value], mask: Mask
    ) -> Value:
        return self.code.broadcast(self.points.stage(i, at, values, mask), self.sizes.plan.lanes)

    def _place(self, row: BlockRow, slot: int, j: Index) -> Value:
        code, s = self.code, self.sizes
        at = code.add(code.mul(row.number, s.row_stride), j)
        return code.at(self.items.row_buffer(slot), F32, at)

    # ---- reductions ------------------------------------------------------------------------------
    def _reduced(
        self,
        i: int,
        at: Sequence[Index],
        values: MutableMapping[Any, Value],
        total: Value,
        mask: Mask,
    ) -> Value:
        s, code, lanes = self.sizes.nest.stages[i], self.code, self.sizes.plan.lanes
        x = self.points.body(s.body, s.arguments, at, values, mask, s.dtype)
        x = code.broadcast(x, lanes)
        if mask is not None:
            nothing = math.lane_constant(code, lanes, neutral(s.combine, s.dtype), s.dtype)
            x = code.select(code.mask(mask, lanes), x, nothing)
        return self._combined(i, total, x)

    def _combined(self, i: int, a: Value, b: Value, lanes: int | None = None) -> Value:
        s = self.sizes.nest.stages[i]
        v = Lanes(self.code, lanes or self.sizes.plan.lanes, math.ELEMENTS[s.dtype])
        return math.combine(v, s.combine, a, b, s.dtype)

    def _across(self, i: int, x: Value) -> Value:
        """All lanes combined, halves at a time."""
        s, code, lanes = self.sizes.nest.stages[i], self.code, self.sizes.plan.lanes
        if s.combine == "add":
            return code.sum_of_lanes(x)
        while lanes > 1:
            lanes //= 2
            if lanes == 1:
                low, high = code.lane(x, 0), code.lane(x, 1)
            else:
                parts = (constants(I32, range(n, n + lanes)) for n in (0, lanes))
                low, high = (code.builder.shuffle_vector(x, x, part) for part in parts)
            x = self._combined(i, low, high, lanes)
        return x


def store_stage(
    points: Points,
    store: Store,
    writes: Mapping[int, Value],
    at: Sequence[Index],
    values: MutableMapping[Any, Value],
    mask: Mask,
) -> None:
    """Write a stage's value where the store says, at these points."""
    code, lanes, access = points.code, points.lanes, store.access
    x = code.broadcast(points.stage(store.stage, at, values, mask), lanes)
    kind = memory_type(access.dtype)
    pointer = code.at(writes[access.buffer], kind, points.offset(access, at))
    step = access.strides[points.along] if lanes > 1 else 1
    code.store(x, pointer, kind, step, mask)


# ---- products ------------------------------------------------------------------------------------
UNROLL = 4


@dataclass(frozen=True)
class Product:
    """c[r, j] = Σ_k a[r, k] · b[k, j] for `rows` rows and `vectors` vectors of `lanes` columns.

    Strides are elements from row to row; `tail`: lanes of the last vector of b that there are.
    """

    rows: int
    vectors: int
    lanes: int
    depth: int
    a_stride: int
    b_stride: int
    c_stride: int
    tail: int | None = None

    def write(self, module: Any, name: str) -> Any:
        """The function `name(a, b, c)`, a part of a kernel."""
        code, (a, b, c) = Code.begin(module, name, [POINTER] * 3, internal=True)
        zero = [code.zero(F32, self.lanes)] * (self.rows * self.vectors)
        if self.depth <= CHAIN:
            sums = self._chain(code, a, b, self.depth, zero)
        else:
            sums = self._chains(code, a, b, zero)
        for i, x in enumerate(sums):
            r, v = divmod(i, self.vectors)
            code.store(x, code.at(c, F32, r * self.c_stride + v * self.lanes), F32)
        code.end()
        return code.function

    def _chains(self, code: Code, a: Value, b: Value, zero: list[Value]) -> list[Value]:
        """Sums of short chains are added: rounding errors grow with the length of a chain."""

        def chain(k: Index, *totals: Value) -> list[Value]:
            length = code.min(CHAIN, code.sub(self.depth, k))
            here = code.at(a, F32, k), code.at(b, F32, code.mul(k, self.b_stride))
            sums = self._chain(code, *here, length, zero)
            return [code.builder.fadd(t, x) for t, x in zip(totals, sums, strict=True)]

        return code.loop(0, self.depth, CHAIN, zero, chain)

    def _chain(
        self, code: Code, a: Value, b: Value, length: Index, sums: list[Value]
    ) -> list[Value]:
        def turn(_: Index, a: Value, b: Value, *sums: Value) -> list[Value]:
            totals = list(sums)
            for k in range(UNROLL):
                totals = self._step(code, a, b, totals, k)
            return [
                code.at(a, F32, UNROLL), code.at(b, F32, UNROLL * self.b_stride), *totals
            ]  # fmt: skip

        turns = code.div(length, UNROLL)
        a, b, *sums = code.loop(0, turns, 1, [a, b, *sums], turn)
        if isinstance(length, int):
            for k in range(length % UNROLL):
                sums = self._step(code, a, b, sums, k)
            return sums

        def single(_: Index, a: Value, b: Value, *sums: Value) -> list[Value]:
            totals = self._step(code, a, b, list(sums), 0)
            return [code.at(a, F32, 1), code.at(b, F32, self.b_stride), *totals]

        return code.loop(0, code.rem(length, UNROLL), 1, [a, b, *sums], single)[2:]

    def _step(self, code: Code, a: Value, b: Value, sums: list[Value], k: int) -> list[Value]:
        columns = []
        for v in range(self.vectors):
            at = code.at(b, F32, k * self.b_stride + v * self.lanes)
            mask = self.tail if v == self.vectors - 1 else None
            columns.append(code.load(at, F32, self.lanes, mask=mask))
        totals = list(sums)
        for r in range(self.rows):
            at = code.at(a, F32, r * self.a_stride + k)
            x = code.load(at, F32, self.lanes, 0)
            for v, y in enumerate(columns):
                i = r * self.vectors + v
                totals[i] = code.fma(x, y, totals[i])
        return totals
