"""Elementwise rows whose accesses step along two loops: squares of both, transposed in registers.

What steps along the other loop is read in vectors along that, turned, and then is a vector along
the vector loop for every row of the square; what is written so is turned at the end. Bodies that
are dear run in a loop over the rows, with the squares in scratch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eqsat.execute.kernels import casts
from eqsat.execute.kernels.ir import Index, Mask
from eqsat.execute.kernels.kinds import I8, Value, memory_type
from eqsat.execute.kernels.rowpass import Row
from eqsat.execute.kernels.rowpoints import RowCode, RowPoints
from eqsat.model.nest import Access
from eqsat.plan import expressions

LIGHT = 6  # additions of a body that is written out for every row

At = tuple[Index, ...]


@dataclass(frozen=True)
class Squares:
    """The squares of a part: `u` is its square loop, `v` its vector loop."""

    section: RowCode

    @cached_property
    def light(self) -> bool:
        s = self.section
        stages = [i for g in s.groups for i in s.passes.evaluated(g)]
        return sum(expressions.additions_of(s.nest.stages[i].body) for i in stages) <= LIGHT

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
        found: dict[int, list[Value]] = {
            i: [] for i, t in enumerate(written) if t.access in s.squares
        }
        if self.light:
            for r in range(rows):
                known = {a: casts.loaded(s.code, x[r], a.dtype) for a, x in turned.items()}
                self._evaluate(self._moved_row(at, r), known, columns, written, found)
        else:
            self._in_scratch(at, rows, columns, turned, written, found)
        for i, values in found.items():
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
        found = []
        for j in range(columns):
            here = _moved(at, v, code.add(at[v], j))
            mask = self._exists(points, here, rows if rows < n else None)
            x = points.access(a, here, mask)
            found.append(casts.stored(code, x, a.dtype))
        found += [code.zero(memory_type(a.dtype), n)] * (n - columns)
        return code.transposed(found)

    def _evaluate(
        self,
        at: At,
        known: dict[Any, Value],
        columns: int,
        written: Sequence[Any],
        found: dict[int, list[Value]],
    ) -> None:
        """A row of the square: what lies along v is stored, what does not is found."""
        s = self.section
        points = self._points(s.part.vector)
        mask = self._exists(points, at, columns if columns < s.part.lanes else None)
        for i, store in enumerate(written):
            x = points.stage(store.stage, at, known, mask)
            if i in found:
                found[i].append(s.filled(store, x, points, at))
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
        found: dict[int, list[Value]],
    ) -> None:
        s, n = self.section, self.section.part.lanes
        for a, vectors in turned.items():
            for r, x in enumerate(vectors[:rows]):
                pointer, kind = self._slot(a, r)
                s.code.store(x, pointer, kind)

        def row(r: Index) -> None:
            known: dict[Any, Value] = {}
            for a in turned:
                pointer, kind = self._slot(a, r)
                known[a] = casts.loaded(s.code, s.code.load(pointer, kind, n), a.dtype)
            own: dict[int, list[Value]] = {i: [] for i in found}
            self._evaluate(self._moved_row(at, r), known, columns, written, own)
            for i, (x,) in own.items():
                pointer, kind = self._slot(written[i].access, r)
                s.code.store(x, pointer, kind)

        s.code.loop(0, rows, 1, [], row)
        for i, values in found.items():
            for r in range(rows):
                pointer, kind = self._slot(written[i].access, r)
                values.append(s.code.load(pointer, kind, n))


def _moved(at: At, loop: int, x: Index) -> At:
    return (*at[:loop], x, *at[loop + 1 :])
