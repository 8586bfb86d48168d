"""Kernels of rows: passes over the points of a row, lanes along the row or across rows.

After `plan.rows`: work items are points (or blocks) of the outer loops of a part. At a row, values
that do not change within a pass are computed before it, reductions in several sums at once, and
what is kept lies in scratch.

Elementwise rows whose accesses step along two loops are done in squares of both, transposed in
registers. What steps along the other loop is read in vectors along that, turned, and then is a
vector along the vector loop for every row of the square; what is written so is turned at the end.
Bodies that are dear run in a loop over the rows, with the squares in scratch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from eqsat.execute.kernels.ir import Index, Mask
from eqsat.execute.kernels.kernel import Head
from eqsat.execute.kernels.kinds import I8, Value, memory_type
from eqsat.execute.kernels.lanes import loaded, stored
from eqsat.execute.kernels.points import Points, RowCode, RowPoints
from eqsat.execute.kernels.rowpass import Row, RowPass
from eqsat.model.dispatch import Machine
from eqsat.model.nest import Access, Lookup, Nest
from eqsat.plan.passes import dependences
from eqsat.plan.rows import Part, Rows
from eqsat.plan.rowwork import without_bounds
from eqsat.plan.stages import access_loops, additions_of

# ---- squares of two loops, transposed in registers -----------------------------------------------
LIGHT = 6  # additions of a body that is written out for every row

At = tuple[Index, ...]


@dataclass(frozen=True)
class RegisterTranspose:
    """The squares of a part: `u` is its square loop, `v` its vector loop."""

    section: RowCode

    @cached_property
    def light(self) -> bool:
        s = self.section
        stages = [i for g in s.groups for i in s.passes.evaluated(g)]
        return sum(additions_of(s.nest.stages[i].body) for i in stages) <= LIGHT

    def run(self, at: At, start: Index, stop: Index) -> None:
        """All squares over these points of u; a last one that is not whole is the nest's last."""
        s, code = self.section, self.section.code
        u, n = s.part.square, s.part.lanes
        size = s.nest.sizes[u]
        whole = size // n * n
        code.loop(start, code.min(stop, whole), n, [], lambda i: self._row(_moved(at, u, i), n))
        if size > whole:
            last = code.compare(">", stop, whole)
            code.when(last, lambda: self._row(_moved(at, u, whole), size - whole))

    def _row(self, at: At, rows: int) -> None:
        s, code = self.section, self.section.code
        v, n = s.part.vector, s.part.lanes
        size = s.nest.sizes[v]
        whole = size // n * n
        code.loop(0, whole, n, [], lambda i: self._square(_moved(at, v, i), rows, n))
        if size > whole:
            self._square(_moved(at, v, whole), rows, size - whole)

    def _square(self, at: At, rows: int, columns: int) -> None:
        """One square of which so many rows (of u) and columns (of v) are there."""
        s = self.section
        written = [s.nest.stores[i] for g in s.groups for i in g.stores]
        reads = [a for g in s.groups for a in s.passes.accesses(g) if a in s.squares]
        turned = {a: self._read(a, at, rows, columns) for a in dict.fromkeys(reads)}
        squares: dict[int, list[Value]] = {
            i: [] for i, t in enumerate(written) if t.access in s.squares
        }
        if self.light:
            for r in range(rows):
                leaves = {a: loaded(s.code, x[r], a.dtype) for a, x in turned.items()}
                self._evaluate(self._moved_row(at, r), leaves, columns, written, squares)
        else:
            self._in_scratch(at, rows, columns, turned, written, squares)
        for i, values in squares.items():
            self._write(written[i], values, at, rows, columns)

    def _moved_row(self, at: At, r: Index) -> At:
        u = self.section.part.square
        return _moved(at, u, self.section.code.add(at[u], r))

    def _points(self, along: int) -> RowPoints:
        return Row(self.section, (), None, 0).along(along, self.section.part.lanes)

    def _exists(self, points: RowPoints, at: At, mask: Mask) -> Mask:
        """The mask where the nest has these points."""
        s = self.section
        there = points.holds(s.nest.bounds, at)
        if there is True:
            return mask
        return s.code.mask(s.code.within(there, mask, points.lanes), points.lanes)

    def _read(self, a: Access, at: At, rows: int, columns: int) -> list[Value]:
        """Per row of u, the access as a vector along v, as it lies in memory."""
        s = self.section
        code, v, n = s.code, s.part.vector, s.part.lanes
        points = self._points(s.part.square)
        vectors = []
        for j in range(columns):
            here = _moved(at, v, code.add(at[v], j))
            mask = self._exists(points, here, rows if rows < n else None)
            x = points.access(a, here, mask)
            vectors.append(stored(code, x, a.dtype))
        vectors += [code.zero(memory_type(a.dtype), n)] * (n - columns)
        return code.transposed(vectors)

    def _evaluate(
        self,
        at: At,
        values: dict[Any, Value],
        columns: int,
        written: Sequence[Any],
        squares: dict[int, list[Value]],
    ) -> None:
        """A row of the square: what lies along v is stored, what does not is found."""
        s = self.section
        points = self._points(s.part.vector)
        mask = self._exists(points, at, columns if columns < s.part.lanes else None)
        for i, store in enumerate(written):
            x = points.stage(store.stage, at, values, mask)
            if i in squares:
                squares[i].append(s.filled(store, x, points, at))
            else:
                s.store(store, x, points, at, mask)

    def _write(self, store: Any, values: list[Value], at: At, rows: int, columns: int) -> None:
        s = self.section
        code, v, n = s.code, s.part.vector, s.part.lanes
        kind = memory_type(store.access.dtype)
        points = self._points(s.part.square)
        values = values + [code.zero(kind, n)] * (n - rows)
        for j, x in enumerate(code.transposed(values)[:columns]):
            here = _moved(at, v, code.add(at[v], j))
            mask = self._exists(points, here, rows if rows < n else None)
            written = points.holds(store.bounds, here)
            if written is not True:
                mask = code.mask(code.within(written, mask, n), n)
            pointer = code.at(
                s.writes[store.access.buffer], kind, points.offset(store.access, here)
            )
            code.store(x, pointer, kind, 1, mask)

    # ---- by scratch ------------------------------------------------------------------------------
    def _slot(self, a: Access, row: Index) -> tuple[Value, Any]:
        s = self.section
        kind = memory_type(a.dtype)
        base = s.code.at(s.scratch, I8, s.squares[a])
        return s.code.at(base, kind, s.code.mul(row, s.part.lanes)), kind

    def _in_scratch(
        self,
        at: At,
        rows: int,
        columns: int,
        turned: dict[Access, list[Value]],
        written: Sequence[Any],
        squares: dict[int, list[Value]],
    ) -> None:
        s, n = self.section, self.section.part.lanes
        for a, vectors in turned.items():
            for r, x in enumerate(vectors[:rows]):
                pointer, kind = self._slot(a, r)
                s.code.store(x, pointer, kind)

        def row(r: Index) -> None:
            leaves: dict[Any, Value] = {}
            for a in turned:
                pointer, kind = self._slot(a, r)
                leaves[a] = loaded(s.code, s.code.load(pointer, kind, n), a.dtype)
            row_values: dict[int, list[Value]] = {i: [] for i in squares}
            self._evaluate(self._moved_row(at, r), leaves, columns, written, row_values)
            for i, (x,) in row_values.items():
                pointer, kind = self._slot(written[i].access, r)
                s.code.store(x, pointer, kind)

        s.code.loop(0, rows, 1, [], row)
        for i, values in squares.items():
            for r in range(rows):
                pointer, kind = self._slot(written[i].access, r)
                values.append(s.code.load(pointer, kind, n))


def _moved(at: At, loop: int, x: Index) -> At:
    return (*at[:loop], x, *at[loop + 1 :])


# ---- rows ----------------------------------------------------------------------------------------
def emit(head: Head, nest: Nest, plan: Rows, machine: Machine) -> None:
    """The body of the kernel: every part over those of its work items that are asked for."""
    code, first = head.code, 0
    passes = dependences(nest)
    parts = plan.parts
    for part, section in zip(parts, passes.sections, strict=True):
        lo, hi = head.lo, head.hi
        if len(parts) > 1:
            lo = code.sub(code.max(lo, first), first)
            hi = code.sub(code.min(hi, first + part.items), first)
        run = PartCode(head, RowCode(code, nest, part, passes, section, head.reads, head.writes,
                                     head.scratch))  # fmt: skip
        code.loop(lo, hi, 1, [], run.item)
        first += part.items


@dataclass(frozen=True)
class PartCode:
    """The loops around the rows of a part."""

    head: Head
    section: RowCode

    @property
    def part(self) -> Part:
        return self.section.part

    def item(self, number: Index) -> None:
        code, part, nest = self.head.code, self.part, self.section.nest
        loops = part.outer[: part.numbered]
        counts = [nest.sizes[i] for i in loops[:-1]]
        counts += [-(-nest.sizes[i] // part.block) for i in loops[-1:]]
        at: list[Index] = [0] * len(nest.sizes)
        for i, x in zip(loops, code.digits(number, counts), strict=True):
            at[i] = x
        if not loops:
            self._outer(0, tuple(at), None)
            return
        start = code.mul(at[loops[-1]], part.block)
        size = nest.sizes[loops[-1]]
        stop = code.add(start, part.block)
        stop = stop if size % part.block == 0 else code.min(stop, size)
        self._outer(len(loops) - 1, tuple(at), (start, stop))

    def _outer(self, level: int, at: At, span: tuple[Index, Index] | None) -> None:
        """The loops from a level on; span: the points of this level's, if not all."""
        code, part = self.head.code, self.part
        if level == len(part.outer):
            self._row(at, None, 1)
            return
        loop = part.outer[level]
        start, stop = span or (0, self.section.nest.sizes[loop])
        if loop == part.vector:
            self._vectors(at, start, stop)
        elif loop == part.square:
            RegisterTranspose(self.section).run(at, start, stop)
        elif part.numbered == level + 1 and part.block == 1 and span:
            self._outer(level + 1, _moved(at, loop, start), None)
        else:
            code.loop(
                start, stop, 1, [], lambda i: self._outer(level + 1, _moved(at, loop, i), None)
            )

    def _vectors(self, at: At, start: Index, stop: Index) -> None:
        """Rows side by side; those that are beside no border without its tests."""
        code, inside, indices = self.head.code, self.part.inside, self._lookup_indices(at)
        if inside is None:
            self._run(at, start, stop, indices, self.part.vectors)
            return
        row = Points(code, self.section.nest, self.section.reads).holds(inside.rows, at)
        low = code.max(code.min(inside.low, stop), start)
        high = code.max(code.min(inside.high, stop), low)
        low, high = (self._choice(row, x, stop) for x in (low, high))
        has_tail = inside.high == self.section.nest.sizes[self.part.vector]
        self._interior._run(at, low, high, indices, self.part.vectors, has_tail)
        beside = self.part.vectors if inside.low == 0 else 1

        def side(behind: Index) -> None:
            first = code.compare("==", behind, 0)
            ends = self._choice(first, start, high), self._choice(first, low, stop)
            self._run(at, *ends, indices, beside)

        code.loop(0, 2, 1, [], side)

    def _choice(self, condition: Any, a: Index, b: Index) -> Index:
        if isinstance(condition, bool):
            return a if condition else b
        code = self.head.code
        return code.select(condition, code.index(a), code.index(b))

    @cached_property
    def _interior(self) -> PartCode:
        """Code of the part where it is beside no border."""
        s, inside = self.section, self.part.inside
        assert inside is not None
        nest = without_bounds(s.nest, inside.bounds)
        return replace(self, section=replace(s, nest=nest, passes=dependences(nest)))

    def _run(
        self,
        at: At,
        start: Index,
        stop: Index,
        indices: Mapping[Lookup, Index],
        most: int,
        has_tail: bool = True,
    ) -> None:
        """Rows from one to another: several vectors of them, single ones, and those of the tail."""
        code, part = self.head.code, self.part
        loop, lanes = part.vector, part.lanes
        count = code.sub(stop, start)

        def rows(i: Index, mask: Mask, vectors: int) -> None:
            self._row(_moved(at, loop, i), mask, vectors, indices)

        for vectors in sorted({most, 1}, reverse=True):
            step = lanes * vectors
            end = code.add(start, code.mul(code.div(count, step), step))
            code.loop(start, end, step, [], lambda i, n=vectors: rows(i, None, n))
            count, start = code.sub(stop, end), end
        if not has_tail or self.section.nest.sizes[loop] % lanes == 0:
            return
        mask = code.first_lanes(count, lanes)
        self._when(code.compare(">", count, 0), lambda: rows(start, mask, 1))

    def _when(self, condition: Any, then: Callable[[], None]) -> None:
        self.head.code.when(condition, lambda: then() and None)

    def _lookup_indices(self, at: At) -> dict[Lookup, Index]:
        """Lookups that are the same along the vector loop."""
        section, part = self.section, self.part
        if section.nest.bounds:  # there may be no row at which to look up
            return {}
        loops = {*part.outer} - {part.vector}
        reads = [a for g in section.groups for a in section.passes.accesses(g)]
        same = [
            k
            for a in reads
            for k in a.lookups
            if all(access_loops(x) <= loops for x in k.arguments)
        ]
        points = Points(self.head.code, section.nest, section.reads)
        return {k: points.looked_up(k, at) for k in dict.fromkeys(same)}

    def _row(
        self, at: At, mask: Mask, vectors: int, indices: Mapping[Lookup, Index] | None = None
    ) -> None:
        """The passes of one row, or of as many vectors of rows."""
        code, part, section = self.head.code, self.part, self.section
        loops = {i for i in part.outer}
        bounds = [b for b in section.nest.bounds if access_loops(b) <= loops]
        rows = []
        for j in range(vectors):
            here = at
            if part.vector >= 0:
                here = _moved(at, part.vector, code.add(at[part.vector], j * part.lanes))
            rows.append(Row(section, here, mask, j, positions=indices or {}))
        if not bounds:
            self._passes(rows)
            return
        for row in rows:
            there = row.points.holds(bounds, row.at)
            some = code.any_lane(there) if not isinstance(there, bool) else there
            self._when(some, lambda row=row, there=there: self._passes([row.where(there)]))

    def _passes(self, rows: list[Row]) -> None:
        done: set[int] = set()
        for q, group in zip(self.part.passes, self.section.groups, strict=True):
            RowPass(self.section, q, group, rows, frozenset(done)).run()
            done |= set(self.part.cached) & set(self.section.passes.evaluated(group))
