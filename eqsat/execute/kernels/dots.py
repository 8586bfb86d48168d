"""A tile of few rows whose sums are vectors along the reduction, each added up in the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eqsat.execute.kernels.frame import F32, Frame, operands
from eqsat.execute.kernels.ir import Code, Index, Mask
from eqsat.execute.kernels.kinds import Value
from eqsat.execute.kernels.tiles import argument_kinds
from eqsat.plan.cores import ASKED_BYTES, OWN_CACHE


def write_dots(outer: Frame, rows: int, last: bool) -> Any:
    """The function that sums a panel's columns, a few at a time, for so many rows."""
    frame, (a, b, sums, *_) = outer.begin(f"dots{rows}{'.last' if last else ''}", argument_kinds(1))
    code, p, s = frame.code, frame.plan, frame.sizes
    columns = s.last_width if last else s.width
    (columns_of,) = operands(frame)[1]

    def group(count: int, first: Index) -> None:
        start = columns_of.at(code, b, code.mul(first, columns_of.vector))
        Dots(frame, rows, count).write(a, start, code.at(sums, F32, first))

    whole = columns // p.dot * p.dot
    code.loop(0, whole, p.dot, [], lambda i: group(p.dot, i))
    if columns > whole:
        group(columns - whole, whole)
    code.end()
    return code.function


@dataclass(frozen=True)
class Dots:
    """Sums of `rows` rows and `columns` columns, a vector each."""

    frame: Frame
    rows: int
    columns: int

    @property
    def code(self) -> Code:
        return self.frame.code

    def write(self, a: Value, b: Value, to: Value) -> None:
        p = self.frame.plan
        sums = [self.code.zero(F32, p.lanes)] * (self.rows * self.columns)
        sums = self._sum(0, a, b, sums)
        for i, x in enumerate(sums):
            r, c = divmod(i, self.columns)
            at = self.code.at(to, F32, r * p.vectors * p.lanes + c)
            self.code.store(self.code.sum_of_lanes(x), at, F32)

    def _sum(self, level: int, a: Value, b: Value, sums: list[Value]) -> list[Value]:
        code, p = self.code, self.frame.plan
        size = self.frame.nest.sizes[p.reduced[level]]
        if level == len(p.reduced) - 1:
            return self._innermost(a, b, size, sums)
        rows, (columns,) = operands(self.frame)

        def turn(i: Index, *sums: Value) -> list[Value]:
            x = rows.at(code, a, code.mul(i, rows.reduced[level]))
            y = columns.at(code, b, code.mul(i, columns.reduced[level]))
            return self._sum(level + 1, x, y, list(sums))

        return code.loop(0, size, 1, sums, turn)

    def _innermost(self, a: Value, b: Value, size: int, sums: list[Value]) -> list[Value]:
        code, lanes = self.code, self.frame.plan.lanes
        rows, (columns,) = operands(self.frame)
        nest, sizes = self.frame.nest, self.frame.sizes
        is_far = nest.points(sizes.factors[1].loops) * sizes.fetched_bytes[1] > OWN_CACHE

        def turn(i: Index, *sums: Value) -> list[Value]:
            x, y = rows.at(code, a, i), columns.at(code, b, i)
            if is_far:
                self._ask_ahead(y)
            return self._step(x, y, list(sums), None)

        whole = size // lanes * lanes
        sums = code.loop(0, whole, lanes, sums, turn)
        if size == whole:
            return sums
        x, y = rows.at(code, a, whole), columns.at(code, b, whole)
        return self._step(x, y, sums, size - whole)

    def _ask_ahead(self, b: Value) -> None:
        """The same place some columns on: no prefetcher follows so few streams from end to end."""
        (columns,), sizes = operands(self.frame)[1], self.frame.sizes
        apart = int(ASKED_BYTES // (columns.vector * sizes.fetched_bytes[1]))
        for c in range(self.columns):
            there = (max(self.columns, apart) + c) * columns.vector
            self.code.prefetch(columns.at(self.code, b, there), level=2)

    def _step(self, a: Value, b: Value, sums: list[Value], mask: Mask) -> list[Value]:
        """A vector of every row and column; lanes out of the mask are 0 on both sides."""
        code, lanes = self.code, self.frame.plan.lanes
        rows, (columns,) = operands(self.frame)
        ys = [
            columns.load(code, columns.at(code, b, c * columns.vector), lanes, 1, mask)
            for c in range(self.columns)
        ]
        found = list(sums)
        for r in range(self.rows):
            x = rows.load(code, rows.at(code, a, r * rows.row), lanes, 1, mask)
            for c, y in enumerate(ys):
                at = r * self.columns + c
                found[at] = code.fma(x, y, found[at])
        return found
