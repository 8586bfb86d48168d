"""The epilogue of a contraction over a tile's sums in memory: loops over rows, not copies of it."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

from eqsat.execute.kernels.frame import Frame
from eqsat.execute.kernels.ir import Index, Mask
from eqsat.execute.kernels.kinds import I64, POINTER, TYPES, Value
from eqsat.execute.kernels.lanes import memory_constant, stored
from eqsat.execute.kernels.points import Points
from eqsat.model.nest import Access, Store
from eqsat.plan.stages import access_loops, row_stride

Vector = tuple[int, int, int | None]
SIDE = 16  # rows and lanes of what is transposed in registers


def write_finish(outer: Frame, last: bool) -> Any:
    """The function `(sums, rows, first row)` that evaluates and stores a tile."""
    frame, (sums, rows, first) = outer.begin(
        f"finish{'.last' if last else ''}", [POINTER, I64, I64]
    )
    code, p = frame.code, frame.plan
    if not p.extra:
        _write_columns(frame, last, sums, rows, first)
    else:  # all of a tile to one place after the other: lines of one row lie side by side
        sizes = [frame.nest.sizes[i] for i in p.extra]

        def place(n: Index) -> None:
            digits = dict(zip(p.extra, code.digits(n, sizes), strict=True))
            _write_columns(frame.moved(digits), last, sums, rows, first)

        code.loop(0, frame.nest.points(p.extra), 1, [], place)
    frame.code.end()
    return frame.code.function


def _write_columns(frame: Frame, last: bool, sums: Value, rows: Index, first: Index) -> None:
    """At one point of the loops that the contraction itself does not have."""
    vectors = frame.vectors(last)
    whole = [v for v in vectors if v[2] is None]
    for v in vectors if len(whole) < 3 or frame.plan.wide > 1 else vectors[len(whole) :]:
        Column(frame, v, v[1], frame.slot(0, v)).write(sums, rows, first)
    if len(whole) >= 3 and frame.plan.wide == 1:
        lanes = frame.plan.lanes

        def turn(start: Index) -> None:
            Column(frame, (0, 0, None), start, start).write(sums, rows, first)

        frame.code.loop(0, len(whole) * lanes, lanes, [], turn)


@dataclass(frozen=True)
class Column:
    """One vector of all rows of a tile; start: its first element in the panel, slot: its sums."""

    outer: Frame
    vector: Vector
    start: Index
    slot: Index

    def write(self, sums: Value, rows: Index, first: Index) -> None:
        p, code = self.outer.plan, self.outer.code
        where = {p.vector_loop: code.add(self.outer.at[p.vector_loop], self.start)}
        if p.wide > 1:
            u = p.outer_columns[-1]
            where[u] = code.add(self.outer.at[u], self.vector[0])
        frame = self.outer.moved(where)
        steady = self._steady(frame)
        kind = frame.sum_kind
        source = code.at(sums, kind, self.slot)

        turned = self._turned()

        def row(r: Index) -> None:
            at = frame.moved(frame.rows_at(code.add(first, r)))
            place = code.at(source, kind, code.mul(r, p.vectors * p.lanes))
            values = dict(steady) | {frame.sizes.roles.root: code.load(place, kind, p.lanes)}
            if turned:
                x = self._points(at).stage(turned.stage, at.at, values, self.vector[2])
                code.store(code.broadcast(x, p.lanes), place, kind)
            else:
                self._point(at, values)

        code.loop(0, rows, 1, [], row)
        if turned:
            self._write_turned(frame, turned, source, rows, first)

    def _turned(self) -> Store | None:
        """The store, if it is one of whole tiles whose rows lie side by side and not its lanes."""
        nest, p = self.outer.nest, self.outer.plan
        (s, *others), access = nest.stores, nest.stores[0].access
        plain = not (others or s.bounds or access.bounds or access.lookups or nest.bounds)
        if not plain or p.extra or access.dtype != "f32" or self.outer.sizes.roles.dtype != "f32":
            return None
        apart = access.strides[p.vector_loop] not in (0, 1)
        is_row = row_stride(nest, p.row_loops, access) == 1
        return s if apart and is_row and p.lanes == SIDE and p.rows > SIDE // 2 else None

    def _write_turned(
        self, frame: Frame, s: Store, values: Value, rows: Index, first: Index
    ) -> None:
        """Transpose the tile's values, which lie where its sums did, and write them as vectors."""
        code, p, kind = frame.code, frame.plan, TYPES["f32"]
        start = frame.moved(frame.rows_at(first))
        place = self._points(start).offset(s.access, start.at)
        for r in range(0, p.rows, SIDE):
            square = [
                code.load(code.at(values, kind, i * p.vectors * p.lanes), kind, p.lanes)
                for i in range(r, min(r + SIDE, p.rows))
            ]
            square += [code.zero(kind, p.lanes)] * (SIDE - len(square))
            there = code.first_lanes(code.min(code.sub(rows, r), SIDE), SIDE)
            for lane, x in enumerate(code.transposed(square)[: self.vector[2]]):
                step = lane * s.access.strides[p.vector_loop] + r
                pointer = code.at(frame.writes[s.access.buffer], kind, code.add(place, step))
                code.store(x, pointer, kind, mask=there)

    def _points(self, frame: Frame) -> Points:
        p = frame.plan
        return Points(frame.code, frame.nest, frame.reads, p.vector_loop, p.lanes)

    def _steady(self, frame: Frame) -> dict[Any, Value]:
        """Values of accesses that no row changes, read once before the rows."""
        p = frame.plan
        moving = set(p.row_loops)
        values: dict[Any, Value] = {}
        for i in frame.sizes.roles.epilogue:
            for a in frame.nest.stages[i].arguments:
                if isinstance(a, Access) and not access_loops(a) & moving and a not in values:
                    there = self._exists(frame, rows=False)
                    mask = self._mask(frame, there)
                    values[a] = self._points(frame).access(a, frame.at, mask)
        return values

    def _exists(self, frame: Frame, rows: bool = True) -> Any:
        """Whether the nest has these points; without the bounds that rows decide on request."""
        p = frame.plan
        moving = set() if rows else set(p.row_loops)
        bounds = [
            b
            for b in frame.nest.bounds
            if not any(x and (i in p.reduced or i in moving) for i, x in enumerate(b.strides))
        ]
        return self._points(frame).holds(bounds, frame.at)

    def _mask(self, frame: Frame, there: Any) -> Mask:
        code, lanes = frame.code, frame.plan.lanes
        if there is True:
            return self.vector[2]
        if there is False:
            return 0
        if self.vector[2] is None:
            return code.mask(there, lanes)
        return code.both(code.mask(there, lanes), code.mask(self.vector[2], lanes))

    def _point(self, frame: Frame, values: MutableMapping[Any, Value]) -> None:
        mask = self._mask(frame, self._exists(frame))
        points = self._points(frame)
        for s in frame.nest.stores:
            x = points.stage(s.stage, frame.at, values, mask)
            self._store(frame, points, s, frame.code.broadcast(x, frame.plan.lanes), mask)

    def _store(self, frame: Frame, points: Points, s: Store, x: Value, mask: Mask) -> None:
        code, lanes = frame.code, frame.plan.lanes
        kind = TYPES[s.access.dtype]
        x = stored(code, x, s.access.dtype)
        there = points.holds(s.access.bounds, frame.at)
        if there is not True and s.access.fill is not None:
            fill = code.broadcast(memory_constant(code, s.access.fill, s.access.dtype), lanes)
            x = code.select(there, x, fill) if not isinstance(there, bool) else fill
        written = points.holds(s.bounds, frame.at)
        if written is not True:
            mask = code.both(code.mask(written, lanes), code.mask(mask, lanes))
        step = s.access.strides[frame.plan.vector_loop]
        pointer = code.at(frame.writes[s.access.buffer], kind, points.offset(s.access, frame.at))
        if step:
            code.store(x, pointer, kind, step, mask)
            return
        one = code.lane(x, 0)
        if mask is None or isinstance(mask, int):
            code.store(one, pointer, kind, mask=mask)
        else:
            code.store(one, pointer, kind, mask=code.lane(mask, 0))
