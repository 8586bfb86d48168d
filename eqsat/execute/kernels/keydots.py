"""Scores of few rows: sums of vectors along the depth, keys where they are in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import llvmlite.ir as ll

from eqsat.execute.kernels.ir import Code, Index
from eqsat.execute.kernels.kinds import I32, I64, POINTER, TYPES, Value, lanes_of, vector
from eqsat.plan.cores import ASKED_BYTES, LINE

F32 = TYPES["f32"]
BLOCK = 4  # elements of 16 bytes, within which shuffles are cheapest
UNROLLED = 8  # vectors along the depth at most that are written out


@dataclass(frozen=True)
class KeyDots:
    """c[r, j] = Σ_d a[r, d] · b[j, d] for `rows` rows and `keys` columns j at a time.

    Strides are elements from row to row of c and a, and from key to key. Rows of a are in scratch,
    zeros behind the depth; b may end there.
    """

    rows: int
    keys: int
    lanes: int
    depth: int
    a_stride: int
    b_stride: int
    c_stride: int

    def write(self, module: Any, name: str) -> Any:
        """The function `name(a, b, c, groups)`, a part of a kernel."""
        kinds = [POINTER] * 3 + [I64]
        code, (a, b, c, groups) = Code.begin(module, name, kinds, internal=True)

        def group(g: Index) -> None:
            first = code.mul(g, self.keys)
            here = code.at(b, F32, code.mul(first, self.b_stride))
            self._ask_ahead(code, here)
            self._store(code, self._sums(code, a, here), code.at(c, F32, first))

        code.loop(0, groups, 1, [], group)
        code.end()
        return code.function

    def _sums(self, code: Code, a: Value, b: Value) -> list[Value]:
        """A vector for each row and key, those of a row side by side."""
        whole, rest = divmod(self.depth, self.lanes)
        sums = [code.zero(F32, self.lanes)] * (self.rows * self.keys)
        if whole <= UNROLLED:
            for n in range(whole):
                sums = self._step(code, a, b, sums, n * self.lanes)
        else:

            def turn(n: Index, *sums: Value) -> list[Value]:
                return self._step(code, a, b, sums, code.mul(n, self.lanes))

            sums = code.loop(0, whole, 1, sums, turn)
        return self._step(code, a, b, sums, whole * self.lanes, rest) if rest else sums

    def _step(
        self,
        code: Code,
        a: Value,
        b: Value,
        sums: Sequence[Value],
        d: Index,
        mask: int | None = None,
    ) -> list[Value]:
        keys = [
            code.load(code.at(b, F32, code.add(j * self.b_stride, d)), F32, self.lanes, mask=mask)
            for j in range(self.keys)
        ]
        found = list(sums)
        for r in range(self.rows):
            x = code.load(code.at(a, F32, code.add(r * self.a_stride, d)), F32, self.lanes)
            for j, y in enumerate(keys):
                at = r * self.keys + j
                found[at] = code.fma(x, y, found[at])
        return found

    def _ask_ahead(self, code: Code, b: Value) -> None:
        """What lies some keys on: prefetchers stop where a page ends."""
        ahead = max(self.keys, ASKED_BYTES // (4 * abs(self.b_stride))) * self.b_stride
        for j in range(self.keys):
            for d in range(0, self.depth, LINE):
                code.prefetch(code.at(b, F32, ahead + j * self.b_stride + d), level=2)

    def _store(self, code: Code, sums: Sequence[Value], c: Value) -> None:
        count = len(sums)
        together = self.lanes if count % self.lanes == 0 else min(self.keys, BLOCK)
        each = min(together, self.keys)
        for start in range(0, count, together):
            x = sums_of_lanes(code, sums[start : start + together])
            for n in range(0, together, each):
                r, j = divmod(start + n, self.keys)
                code.store(
                    some_lanes(code, x, n, each), code.at(c, F32, r * self.c_stride + j), F32
                )


def sums_of_lanes(code: Code, vectors: Sequence[Value]) -> Value:
    """One vector, of the sum of the lanes of each vector: as many as they have lanes, 4, 2 or 1.

    Pairs are folded into one, first within 16 bytes, then blocks of these.
    """
    found, lanes = list(vectors), lanes_of(vectors[0])
    if len(found) == 1:
        return code.sum_of_lanes(found[0])
    for low, high in _folds(lanes):
        if len(found) == 1:
            break
        pairs = zip(found[::2], found[1::2], strict=True)
        found = [_folded(code, x, y, low, high) for x, y in pairs]
    (x,) = found
    while lanes_of(x) > len(vectors):
        half = lanes_of(x) // 2
        x = code.builder.fadd(some_lanes(code, x, 0, half), some_lanes(code, x, half, half))
    return x


def some_lanes(code: Code, x: Value, start: int, count: int) -> Value:
    """Neighbouring lanes of a vector, the element itself if it is one."""
    if count == lanes_of(x):
        return x
    if count == 1:
        return code.lane(x, start)
    order = ll.Constant(vector(I32, count), list(range(start, start + count)))
    return code.builder.shuffle_vector(x, x, order)


def _folded(code: Code, x: Value, y: Value, low: list[int], high: list[int]) -> Value:
    kind = vector(I32, len(low))
    one, other = (code.builder.shuffle_vector(x, y, ll.Constant(kind, m)) for m in (low, high))
    return code.builder.fadd(one, other)


def _folds(lanes: int) -> list[tuple[list[int], list[int]]]:
    """Which lanes of a pair are added to which, fold by fold, so that sums end in order."""
    blocks = range(0, lanes, BLOCK)
    single = [b + n + side for b in blocks for n in (0, 1) for side in (0, lanes)]
    double = [b + n + side for b in blocks for side in (0, lanes) for n in (0, 1)]
    found = [(x, [i + 2 for i in x]) for x in (single, double)]
    if lanes > BLOCK:
        half = [side + n for side in (0, lanes) for n in range(lanes // 2)]
        found.append((half, [i + lanes // 2 for i in half]))
    if lanes > 2 * BLOCK:
        other = [
            side + b + n
            for side in (0, lanes)
            for b in range(0, lanes, 2 * BLOCK)
            for n in range(BLOCK)
        ]
        found.append((other, [i + BLOCK for i in other]))
    return found
