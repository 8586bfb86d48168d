"""One pass over a row: its loops, its reductions in several sums, what it stores and keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import llvmlite.ir as ll

from eqsat.execute.kernels import math
from eqsat.execute.kernels.ir import Index, Mask
from eqsat.execute.kernels.kinds import I32, Value, lanes_of, vector
from eqsat.execute.kernels.lanes import Lanes
from eqsat.execute.kernels.points import RowCode, RowPoints
from eqsat.model.nest import Access, Bound, Lookup
from eqsat.model.tensor import is_float
from eqsat.ops.meaning import scalar
from eqsat.plan.passes import Sweep
from eqsat.plan.rows import Pass
from eqsat.plan.stages import access_loops
from eqsat.plan.storage import update_of

CHAIN = 128  # additions to one sum; longer sums are summed in blocks

At = tuple[Index, ...]


@dataclass(frozen=True)
class Row:
    """A row, or a vector of rows: where it is, and what is known of it.

    values: accesses and stages that are the same at all of its points, as scalars unless lanes are
    rows. mask: of the rows that there are. positions: lookups that are the same in all rows beside
    it.
    """

    section: RowCode
    at: At
    mask: Mask
    column: int
    values: dict[Any, Value] = field(default_factory=dict)
    positions: Mapping[Lookup, Index] = field(default_factory=dict)

    @property
    def points(self) -> RowPoints:
        s = self.section
        lanes = s.part.lanes if s.part.vector >= 0 else 1
        return self.along(s.part.vector, lanes)

    def along(self, loop: int, lanes: int, there: frozenset[int] = frozenset()) -> RowPoints:
        s = self.section
        return RowPoints(
            s.code, s.nest, s.reads, loop, lanes, self.positions, s, there, self.column
        )

    def where(self, there: Any) -> Row:
        """The row where a condition holds besides."""
        if there is True or lanes_of(there) == 1:
            return self
        lanes = self.section.part.lanes
        return replace(self, mask=self.section.code.within(there, self.mask, lanes))


@dataclass(frozen=True)
class RowPass:
    """A pass over rows that lie side by side; done: stages that scratch has."""

    section: RowCode
    q: Pass
    group: Sweep
    rows: Sequence[Row]
    done: frozenset[int]

    @property
    def loops(self) -> frozenset[int]:
        return frozenset((*self.q.inner, *self.q.reduced))

    @property
    def lanes(self) -> int:
        part = self.section.part
        return part.lanes if part.vector >= 0 else self.q.lanes

    @cached_property
    def there(self) -> frozenset[int]:
        """Stages that are read from scratch: kept ones, and reductions with loops in the row."""
        inner = {i for i in self.section.slots if self.section.nest.stages[i].combine}
        return self.done | (inner - set(self.group.stages))

    def run(self) -> None:
        steady = [self._steady(row) for row in self.rows]
        points = [self._points(row) for row in self.rows]
        self._inner(0, {}, None, list(zip(self.rows, points, steady, strict=True)))

    def _points(self, row: Row) -> RowPoints:
        along = self.section.part.vector if self.section.part.vector >= 0 else self.q.vector
        points = row.along(along, self.lanes, self.there)
        new = [k for k in self._steady_lookups if k not in row.positions]
        return replace(
            points, positions={**row.positions, **{k: points.looked_up(k, row.at) for k in new}}
        )

    @cached_property
    def _steady_lookups(self) -> list[Lookup]:
        """Lookups of what moves within the pass that are the same at all its points."""
        moving = self.loops | {self.section.part.vector}
        reads = self.section.passes.accesses(self.group, self.there)
        lookups = dict.fromkeys(k for a in reads if access_loops(a) & moving for k in a.lookups)
        return [k for k in lookups if not any(access_loops(x) & moving for x in k.arguments)]

    def _steady(self, row: Row) -> dict[Any, Value]:
        """Loop invariants of the pass, computed before it."""
        nest, passes = self.section.nest, self.section.passes
        points = replace(row.points, there=self.there)
        late = {nest.stores[n].stage for n in self.group.stores if update_of(nest, nest.stores[n])}
        stages = [i for i in passes.evaluated(self.group) if i not in self.there | late]
        same = [i for i in stages if not self._moves(i)]
        for i in same:
            points.stage(i, row.at, row.values, row.mask)
        for i in (*(i for i in stages if i not in same), *self.group.stages):
            for a in nest.stages[i].arguments:
                if (
                    isinstance(a, Access)
                    and not access_loops(a) & self.loops
                    and a not in row.values
                ):
                    row.values[a] = points.access(a, row.at, row.mask)
        wide = self.section.part.vector < 0 and self.lanes > 1
        if not wide:
            return dict(row.values)
        return {k: self.section.code.broadcast(x, self.lanes) for k, x in row.values.items()}

    def _moves(self, stage: int) -> bool:
        s = self.section.nest.stages[stage]
        if set(s.loops) & self.loops or any(access_loops(b) & self.loops for b in s.bounds):
            return True
        return any(isinstance(a, Access) and access_loops(a) & self.loops for a in s.arguments)

    # ---- loops -----------------------------------------------------------------------------------
    def _inner(self, level: int, where: dict[int, Index], mask: Mask, rows: Any) -> None:
        """The loops of results within the row from a level on."""
        code, q = self.section.code, self.q
        if level == len(q.inner):
            self._point(where, mask, rows)
            return
        loop = q.inner[level]
        size = self.section.nest.sizes[loop]

        def turn(i: Index, mask: Mask = mask) -> None:
            self._inner(level + 1, where | {loop: i}, mask, rows)

        if loop != q.vector:
            code.loop(0, size, 1, [], turn)
            return
        whole = size // q.lanes * q.lanes
        code.loop(0, whole, q.lanes, [], turn)
        if size > whole:
            turn(whole, size - whole)

    def _point(self, where: dict[int, Index], mask: Mask, rows: Any) -> None:
        """At a point of the results: the reductions, or else what is stored there."""
        if not self.group.stages:
            for row, points, steady in rows:
                self._guarded(row, points, where, mask, lambda m, r=(row, points, steady): (
                    self._evaluate(r, where, m), [])[1], [])  # fmt: skip
            return
        sums = self._reduced(where, mask, rows)
        for (row, points, _), totals in zip(rows, sums, strict=True):
            for i, x in zip(self.group.stages, totals, strict=True):
                self._result(row, points, i, x, where, mask)

    def _result(
        self, row: Row, points: RowPoints, stage: int, x: Value, where: dict[int, Index], mask: Mask
    ) -> None:
        if not self.q.inner:
            row.values[stage] = x
            return
        if self.q.vector in self.q.reduced:  # one value for all lanes
            points = replace(points, lanes=1, along=-1)
        points.keep(stage, x, _at(row, where), self._mask(row, mask))

    # ---- reductions ------------------------------------------------------------------------------
    def _reduced(self, where: dict[int, Index], mask: Mask, rows: Any) -> list[list[Value]]:
        """Per row, the values of the pass's reductions at a point."""
        count = len(rows) * len(self.group.stages)
        sums = self._sums(0, where, mask, rows, self._neutral() * self.q.vectors)
        parts = [sums[u * count : (u + 1) * count] for u in range(self.q.vectors)]
        while len(parts) > 1:  # in a tree
            half = -(-len(parts) // 2)
            parts = [
                self._combined(a, parts[half + i]) if half + i < len(parts) else a
                for i, a in enumerate(parts[:half])
            ]
        totals = parts[0]
        if self.q.vector in self.q.reduced and self.lanes > 1:
            totals = [self._across(x, i) for x, i in zip(totals, self._each(), strict=True)]
        totals = [self._rounded(x, i) for x, i in zip(totals, self._each(), strict=True)]
        width = len(self.group.stages)
        return [totals[r * width : (r + 1) * width] for r in range(len(rows))]

    def _each(self) -> list[int]:
        return [i for _ in self.rows for i in self.group.stages]

    def _neutral(self) -> list[Value]:
        code, nest = self.section.code, self.section.nest
        starts = []
        for i in self._each():
            s = nest.stages[i]
            neutral = scalar.neutral(s.combine, s.dtype)
            starts.append(math.lane_constant(code, self.lanes, neutral, self._held(i)))
        return starts

    def _held(self, stage: int) -> str:
        """Element type in which a reduction is made: short floats are rounded when it is done."""
        dtype = self.section.nest.stages[stage].dtype
        return "f32" if dtype in ("f16", "bf16") else dtype

    def _rounded(self, x: Value, stage: int) -> Value:
        code, dtype = self.section.code, self.section.nest.stages[stage].dtype
        return math.lane_cast(code, lanes_of(x), math.Typed(x, self._held(stage)), dtype).value

    def _combined(self, a: Sequence[Value], b: Sequence[Value]) -> list[Value]:
        stages = self._each()
        return [
            self._combine(x, y, stages[n % len(stages)])
            for n, (x, y) in enumerate(zip(a, b, strict=True))
        ]

    def _combine(self, a: Value, b: Value, stage: int) -> Value:
        how, dtype = self.section.nest.stages[stage].combine, self._held(stage)
        v = Lanes(self.section.code, lanes_of(a), math.ELEMENTS[dtype])
        return math.combine(v, how, a, b, dtype)

    def _across(self, x: Value, stage: int) -> Value:
        """All lanes combined, halves with halves."""
        b, lanes = self.section.code.builder, lanes_of(x)
        while lanes > 2:
            lanes //= 2
            low, high = (
                b.shuffle_vector(x, x, ll.Constant(vector(I32, lanes), list(range(s, s + lanes))))
                for s in (0, lanes)
            )
            x = self._combine(low, high, stage)
        code = self.section.code
        return self._combine(code.lane(x, 0), code.lane(x, 1), stage)

    @property
    def _adds(self) -> bool:
        """Whether long sums lose accuracy: then every loop, and every block, has its own."""
        stages = [self.section.nest.stages[i] for i in self.group.stages]
        return all(s.combine == "add" and is_float(s.dtype) for s in stages)

    def _sums(
        self, level: int, where: dict[int, Index], mask: Mask, rows: Any, sums: list[Value]
    ) -> list[Value]:
        """The reduction loops from a level on, added to `sums`."""
        code, q = self.section.code, self.q
        if level == len(q.reduced):
            return self._accumulate(where, mask, rows, sums, 0)
        loop = q.reduced[level]
        size = self.section.nest.sizes[loop]
        if loop == q.vector:
            return self._vector_sums(where, rows, sums)

        def turn(i: Index, *before: Value) -> list[Value]:
            here = where | {loop: i}
            if not self._adds or level + 1 == len(q.reduced):
                return self._sums(level + 1, here, mask, rows, list(before))
            fresh = self._sums(level + 1, here, mask, rows, self._neutral() * q.vectors)
            return self._combined(before, fresh)

        return (
            self._in_blocks(0, size, 1, sums, turn)
            if self._adds
            else code.loop(0, size, 1, sums, turn)
        )

    def _in_blocks(
        self,
        start: int,
        stop: int,
        step: int,
        sums: list[Value],
        turn: Callable[..., list[Value]],
    ) -> list[Value]:
        """A loop whose sums are short: blocks of turns are summed alone first."""
        code, block = self.section.code, CHAIN * step
        whole = start + (stop - start) // block * block
        if whole - start < 2 * block:
            return code.loop(start, stop, step, sums, turn)

        def one(i: Index, *before: Value) -> list[Value]:
            fresh = code.loop(
                0,
                block,
                step,
                self._neutral() * self.q.vectors,
                lambda j, *s: turn(code.add(i, j), *s),
            )
            return self._combined(before, fresh)

        sums = code.loop(start, whole, block, sums, one)
        return code.loop(whole, stop, step, sums, turn)

    def _vector_sums(self, where: dict[int, Index], rows: Any, sums: list[Value]) -> list[Value]:
        """The vector loop: several vectors a turn into sums of their own, the rest, the tail."""
        q = self.q
        size, count = self.section.nest.sizes[q.vector], len(self._each())
        step = q.lanes * q.vectors

        def turn(i: Index, *before: Value) -> list[Value]:
            totals: list[Value] = []
            for u in range(q.vectors):
                part = list(before[u * count : (u + 1) * count])
                at = where | {q.vector: self.section.code.add(i, u * q.lanes)}
                totals += self._accumulate(at, None, rows, part, 0)
            return totals

        whole = size // step * step
        sums = (
            self._in_blocks(0, whole, step, sums, turn)
            if self._adds
            else self.section.code.loop(0, whole, step, sums, turn)
        )
        for n, start in enumerate(range(whole, size, q.lanes)):
            left = size - start
            part = sums[n * count : (n + 1) * count]
            mask = left if left < q.lanes else None
            part = self._accumulate(where | {q.vector: start}, mask, rows, part, 0)
            sums[n * count : (n + 1) * count] = part
        return sums

    def _accumulate(
        self, where: dict[int, Index], mask: Mask, rows: Any, sums: list[Value], start: int
    ) -> list[Value]:
        """The bodies of the reductions at a point of every row, combined with the sums."""
        totals, width = list(sums), len(self.group.stages)
        for r, one in enumerate(rows):
            row, points, _ = one
            at = start + r * width
            before = totals[at : at + width]
            totals[at : at + width] = self._guarded(
                row,
                points,
                where,
                mask,
                lambda m, one=one, before=before: self._added(one, where, m, before),
                before,
            )
        return totals

    def _added(
        self, one: Any, where: dict[int, Index], mask: Mask, sums: list[Value]
    ) -> list[Value]:
        row, points, _ = one
        nest, code = self.section.nest, self.section.code
        values = self._evaluate(one, where, mask)
        totals = []
        for i, before in zip(self.group.stages, sums, strict=True):
            s = nest.stages[i]
            x = points.body(s.body, s.arguments, _at(row, where), values, mask, s.dtype)
            if mask is not None:
                neutral = scalar.neutral(s.combine, s.dtype)
                other = math.lane_constant(code, self.lanes, neutral, s.dtype)
                x = code.select(code.mask(mask, self.lanes), x, other)
            x = math.lane_cast(code, self.lanes, math.Typed(x, s.dtype), self._held(i)).value
            totals.append(self._combine(before, x, i))
        return totals

    # ---- points ----------------------------------------------------------------------------------
    def _bounds(self) -> list[Bound]:
        """Bounds of the nest that the loops of the pass decide."""
        loops = set(self.section.part.outer) | self.loops
        return [
            b
            for b in self.section.nest.bounds
            if access_loops(b) <= loops and access_loops(b) & self.loops
        ]

    def _mask(self, row: Row, mask: Mask) -> Mask:
        """Lanes that exist: rows, or points of the pass."""
        return row.mask if self.section.part.vector >= 0 else mask

    def _guarded(
        self,
        row: Row,
        points: RowPoints,
        where: dict[int, Index],
        mask: Mask,
        then: Callable[[Mask], list[Value]],
        otherwise: list[Value],
    ) -> list[Value]:
        """`then(mask)` where the nest has a point, else the other values."""
        code, mask = self.section.code, self._mask(row, mask)
        there = points.holds(self._bounds(), _at(row, where))
        if there is True:
            return then(mask)
        if there is False:
            return otherwise
        some = code.any_lane(there)
        if lanes_of(there) > 1:
            mask = code.within(there, mask, self.lanes)
        return code.when(some, lambda: then(mask), lambda: otherwise)

    def _evaluate(self, one: Any, where: dict[int, Index], mask: Mask) -> dict[Any, Value]:
        """Store and keep what belongs to a point; the values that this took."""
        row, points, steady = one
        at = _at(row, where)
        values: dict[Any, Value] = dict(steady)
        for i in self.section.part.cached:
            if i not in self.there and i in self.section.passes.evaluated(self.group):
                points.keep(i, points.stage(i, at, values, mask), at, mask)
        for n in self.group.stores:
            store = self.section.nest.stores[n]
            if update_of(self.section.nest, store):
                self.section.change(store, points, at, values, mask)
                continue
            x = points.stage(store.stage, at, values, mask)
            self.section.store(store, x, points, at, mask)
        return values


def _at(row: Row, where: dict[int, Index]) -> At:
    return tuple(where.get(i, x) for i, x in enumerate(row.at))
