"""A product of two blocks in scratch or memory: rows x vectors of sums in registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eqsat.execute.kernels.ir import Code, Index
from eqsat.execute.kernels.kinds import POINTER, TYPES, Value
from eqsat.plan.cores import CHAIN

F32 = TYPES["f32"]
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
            found = list(sums)
            for k in range(UNROLL):
                found = self._step(code, a, b, found, k)
            return [
                code.at(a, F32, UNROLL), code.at(b, F32, UNROLL * self.b_stride), *found
            ]  # fmt: skip

        turns = code.div(length, UNROLL)
        a, b, *sums = code.loop(0, turns, 1, [a, b, *sums], turn)
        if isinstance(length, int):
            for k in range(length % UNROLL):
                sums = self._step(code, a, b, sums, k)
            return sums

        def single(_: Index, a: Value, b: Value, *sums: Value) -> list[Value]:
            found = self._step(code, a, b, list(sums), 0)
            return [code.at(a, F32, 1), code.at(b, F32, self.b_stride), *found]

        return code.loop(0, code.rem(length, UNROLL), 1, [a, b, *sums], single)[2:]

    def _step(self, code: Code, a: Value, b: Value, sums: list[Value], k: int) -> list[Value]:
        columns = []
        for v in range(self.vectors):
            at = code.at(b, F32, k * self.b_stride + v * self.lanes)
            mask = self.tail if v == self.vectors - 1 else None
            columns.append(code.load(at, F32, self.lanes, mask=mask))
        found = list(sums)
        for r in range(self.rows):
            at = code.at(a, F32, r * self.a_stride + k)
            x = code.load(at, F32, self.lanes, 0)
            for v, y in enumerate(columns):
                i = r * self.vectors + v
                found[i] = code.fma(x, y, found[i])
        return found
