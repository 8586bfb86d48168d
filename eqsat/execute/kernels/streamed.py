"""A product of few rows whose columns are read in memory's order, each byte once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eqsat.execute.kernels.ir import Code, Index, Mask
from eqsat.execute.kernels.kinds import POINTER, TYPES, Value
from eqsat.plan.contraction import ASKED_BYTES
from eqsat.plan.cores import LINE

F32 = TYPES["f32"]


@dataclass(frozen=True)
class StreamedProduct:
    """c[r, j] = Σ_k a[r, k] · b[k, j] for `rows` rows and all `width` columns j.

    Bands of `together` rows of b are read side by side and added to sums in memory: so many streams
    prefetchers follow, and what is asked for goes on in the next band where a row of b ends.
    Strides are elements from row to row; c has room for whole vectors.
    """

    rows: int
    width: int
    together: int
    lanes: int
    depth: int
    a_stride: int
    b_stride: int
    c_stride: int

    def write(self, module: Any, name: str) -> Any:
        """The function `name(a, b, c)`, a part of a kernel."""
        code, (a, b, c) = Code.begin(module, name, [POINTER] * 3, internal=True)
        zero = code.zero(F32, self.lanes)
        for r in range(self.rows):
            to = code.at(c, F32, r * self.c_stride)
            code.loop(
                0,
                self.width,
                self.lanes,
                [],
                lambda j, to=to: code.store(zero, code.at(to, F32, j), F32),
            )

        def band(k: Index, count: int) -> None:
            here = code.at(a, F32, k), code.at(b, F32, code.mul(k, self.b_stride))
            _Band(self, code, count, *here, c).write()

        whole = self.depth // self.together * self.together
        code.loop(0, whole, self.together, [], lambda k: band(k, self.together))
        if whole < self.depth:
            band(whole, self.depth - whole)
        code.end()
        return code.function


@dataclass(frozen=True)
class _Band:
    """Products with `count` rows of b, which begin at `b`; columns of a begin at `a`."""

    product: StreamedProduct
    code: Code
    count: int
    a: Value
    b: Value
    c: Value

    def write(self) -> None:
        p, code = self.product, self.code
        # of one row they stay in registers; of more, multiply-adds read them
        known = [self._element(0, k) for k in range(self.count)] if p.rows == 1 else []
        group = max(1, LINE // p.lanes) * p.lanes
        whole = p.width // group * group

        def line(j: Index) -> None:
            self._ask_ahead(j)
            for n in range(0, group, p.lanes):
                self._vector(code.add(j, n), known, None)

        code.loop(0, whole, group, [], line)
        for j in range(whole, p.width, p.lanes):
            left = p.width - j
            self._vector(j, known, left if left < p.lanes else None)

    def _element(self, r: int, k: int) -> Value:
        p = self.product
        at = self.code.at(self.a, F32, r * p.a_stride + k)
        return self.code.load(at, F32, p.lanes, 0)

    def _ask_ahead(self, j: Index) -> None:
        p, code = self.product, self.code
        there = code.add(j, ASKED_BYTES // (4 * self.count))
        down = code.add(code.sub(there, p.width), p.together * p.b_stride)
        there = code.select(code.compare("<", there, p.width), there, down)
        for k in range(self.count):
            code.prefetch(code.at(self.b, F32, code.add(there, k * p.b_stride)), level=2)

    def _vector(self, j: Index, known: list[Value], mask: Mask) -> None:
        p, code = self.product, self.code
        columns = [
            code.load(code.at(self.b, F32, code.add(j, k * p.b_stride)), F32, p.lanes, mask=mask)
            for k in range(self.count)
        ]
        for r in range(p.rows):
            x = code.zero(F32, p.lanes)
            for k, y in enumerate(columns):
                x = code.fma(known[k] if known else self._element(r, k), y, x)
            to = code.at(self.c, F32, code.add(j, r * p.c_stride))
            code.store(code.builder.fadd(code.load(to, F32, p.lanes), x), to, F32)
