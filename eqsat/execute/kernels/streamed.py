"""A product of few rows whose columns are read in memory's order, each byte once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.execute.kernels.frame import converted
from eqsat.execute.kernels.ir import Code, Index, Mask
from eqsat.execute.kernels.kinds import POINTER, TYPES, Value, nbytes
from eqsat.execute.kernels.pairs import even_and_odd, in_order
from eqsat.plan.cores import ASKED_BYTES, LINE

F32 = TYPES["f32"]


@dataclass(frozen=True)
class StreamedProduct:
    """c[r, j] = Σ_k a[r, k] · b[k, j] for `rows` rows and all `width` columns j.

    Bands of `together` rows of b are read side by side and added to sums in memory: so many streams
    prefetchers follow, and what is asked for goes on in the next band where a row of b ends.
    Strides are elements from row to row; c has room for whole vectors. dtype: of b, f32 or bf16.
    """

    rows: int
    width: int
    together: int
    lanes: int
    depth: int
    a_stride: int
    b_stride: int
    c_stride: int
    a_step: int = 1  # elements between columns of a
    dtype: str = "f32"

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
            first = code.at(b, TYPES[self.dtype], code.mul(k, self.b_stride))
            here = code.at(a, F32, code.mul(k, self.a_step)), first
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
        in_line = 4 * LINE // nbytes(TYPES[p.dtype])
        together = p.lanes if p.dtype == "f32" else 2 * p.lanes
        group = max(in_line, together)
        whole = p.width // group * group

        def line(j: Index) -> None:
            self._ask_ahead(j)
            for n in range(0, group, together):
                (self._vector if p.dtype == "f32" else self._pair)(code.add(j, n), known)

        code.loop(0, whole, group, [], line)
        for j in range(whole, p.width, p.lanes):
            left = p.width - j
            self._vector(j, known, left if left < p.lanes else None)

    def _element(self, r: int, k: int) -> Value:
        p = self.product
        at = self.code.at(self.a, F32, r * p.a_stride + k * p.a_step)
        return self.code.load(at, F32, p.lanes, 0)

    def _ask_ahead(self, j: Index) -> None:
        p, code = self.product, self.code
        there = code.add(j, ASKED_BYTES // (nbytes(TYPES[p.dtype]) * self.count))
        down = code.add(code.sub(there, p.width), p.together * p.b_stride)
        there = code.select(code.compare("<", there, p.width), there, down)
        for k in range(self.count):
            self.code.prefetch(self._place(k, there), level=2)

    def _place(self, k: int, j: Index) -> Value:
        p = self.product
        return self.code.at(self.b, TYPES[p.dtype], self.code.add(j, k * p.b_stride))

    def _vector(self, j: Index, known: list[Value], mask: Mask = None) -> None:
        p, code = self.product, self.code
        kind = TYPES[p.dtype]
        read = [code.load(self._place(k, j), kind, p.lanes, mask=mask) for k in range(self.count)]
        columns = [converted(code, x, p.dtype, "f32") for x in read]
        for r in range(p.rows):
            self._add(r, j, self._sum(r, columns, known))

    def _pair(self, j: Index, known: list[Value]) -> None:
        """Two vectors of bf16 at once."""
        p, code = self.product, self.code
        kind = TYPES[p.dtype]
        read = [code.load(self._place(k, j), kind, 2 * p.lanes) for k in range(self.count)]
        columns = [even_and_odd(code, x) for x in read]
        for r in range(p.rows):
            even, odd = (self._sum(r, some, known) for some in zip(*columns, strict=True))
            for n, x in enumerate(in_order(code, even, odd)):
                self._add(r, code.add(j, n * p.lanes), x)

    def _sum(self, r: int, columns: Sequence[Value], known: list[Value]) -> Value:
        x = self.code.zero(F32, self.product.lanes)
        for k, y in enumerate(columns):
            x = self.code.fma(known[k] if known else self._element(r, k), y, x)
        return x

    def _add(self, r: int, j: Index, x: Value) -> None:
        p, code = self.product, self.code
        to = code.at(self.c, F32, code.add(j, r * p.c_stride))
        code.store(code.builder.fadd(code.load(to, F32, p.lanes), x), to, F32)
