"""Products of few rows (GEMV and its kin), bound by the bytes of the columns that they read.

`dots`: sums of a tile are vectors along the reduction, each added up in the end. `keydots`: the
scores of an attention, vectors along the depth, keys where they are in memory. `streamed`: columns
are read in memory's order, each byte once.

Vectors of bf16 are read two at once: each word of 32 bits holds two elements, an f32's upper half
each. To spread the elements of one vector over words is a shuffle; a shift and a mask need none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import llvmlite.ir as ll

from eqsat.execute.kernels.frame import Frame, converted, operands
from eqsat.execute.kernels.ir import Code, Index, Mask
from eqsat.execute.kernels.kinds import (
    I32,
    I64,
    POINTER,
    TYPES,
    Value,
    constants,
    lanes_of,
    nbytes,
    vector,
)
from eqsat.execute.kernels.tiles import argument_kinds
from eqsat.plan.stages import ASKED_BYTES, LINE, OWN_CACHE


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
                self._prefetch_ahead(y)
            return self._step(x, y, list(sums), None)

        whole = size // lanes * lanes
        sums = code.loop(0, whole, lanes, sums, turn)
        if size == whole:
            return sums
        x, y = rows.at(code, a, whole), columns.at(code, b, whole)
        return self._step(x, y, sums, size - whole)

    def _prefetch_ahead(self, b: Value) -> None:
        """Prefetch some columns on: no prefetcher follows so few streams from end to end."""
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
        totals = list(sums)
        for r in range(self.rows):
            x = rows.load(code, rows.at(code, a, r * rows.row), lanes, 1, mask)
            for c, y in enumerate(ys):
                at = r * self.columns + c
                totals[at] = code.fma(x, y, totals[at])
        return totals


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
            self._prefetch_ahead(code, here)
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
        totals = list(sums)
        for r in range(self.rows):
            x = code.load(code.at(a, F32, code.add(r * self.a_stride, d)), F32, self.lanes)
            for j, y in enumerate(keys):
                at = r * self.keys + j
                totals[at] = code.fma(x, y, totals[at])
        return totals

    def _prefetch_ahead(self, code: Code, b: Value) -> None:
        """Prefetch some keys on: prefetchers stop where a page ends."""
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
    parts, lanes = list(vectors), lanes_of(vectors[0])
    if len(parts) == 1:
        return code.sum_of_lanes(parts[0])
    for low, high in _folds(lanes):
        if len(parts) == 1:
            break
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [_folded(code, x, y, low, high) for x, y in pairs]
    (x,) = parts
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
    folds = [(x, [i + 2 for i in x]) for x in (single, double)]
    if lanes > BLOCK:
        half = [side + n for side in (0, lanes) for n in range(lanes // 2)]
        folds.append((half, [i + lanes // 2 for i in half]))
    if lanes > 2 * BLOCK:
        other = [
            side + b + n
            for side in (0, lanes)
            for b in range(0, lanes, 2 * BLOCK)
            for n in range(BLOCK)
        ]
        folds.append((other, [i + BLOCK for i in other]))
    return folds


UPPER = 0xFFFF0000


def even_and_odd(code: Code, x: Value) -> tuple[Value, Value]:
    """Of a vector of bf16 the elements of even and of odd number, as f32."""
    lanes, b = lanes_of(x) // 2, code.builder
    words = b.bitcast(x, vector(I32, lanes))
    even = b.shl(words, constants(I32, [16] * lanes))
    odd = b.and_(words, constants(I32, [UPPER] * lanes))
    return b.bitcast(even, vector(F32, lanes)), b.bitcast(odd, vector(F32, lanes))


def in_order(code: Code, even: Value, odd: Value) -> tuple[Value, Value]:
    """The elements of both, in order: the first half of them, the second."""
    lanes = lanes_of(even)
    order = [n // 2 + lanes * (n % 2) for n in range(2 * lanes)]
    first, second = (constants(I32, order[n : n + lanes]) for n in (0, lanes))
    shuffle = code.builder.shuffle_vector
    return shuffle(even, odd, first), shuffle(even, odd, second)


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
        elements = [self._element(0, k) for k in range(self.count)] if p.rows == 1 else []
        in_line = 4 * LINE // nbytes(TYPES[p.dtype])
        together = p.lanes if p.dtype == "f32" else 2 * p.lanes
        group = max(in_line, together)
        whole = p.width // group * group

        def line(j: Index) -> None:
            self._prefetch_ahead(j)
            for n in range(0, group, together):
                (self._vector if p.dtype == "f32" else self._pair)(code.add(j, n), elements)

        code.loop(0, whole, group, [], line)
        for j in range(whole, p.width, p.lanes):
            left = p.width - j
            self._vector(j, elements, left if left < p.lanes else None)

    def _element(self, r: int, k: int) -> Value:
        p = self.product
        at = self.code.at(self.a, F32, r * p.a_stride + k * p.a_step)
        return self.code.load(at, F32, p.lanes, 0)

    def _prefetch_ahead(self, j: Index) -> None:
        p, code = self.product, self.code
        there = code.add(j, ASKED_BYTES // (nbytes(TYPES[p.dtype]) * self.count))
        down = code.add(code.sub(there, p.width), p.together * p.b_stride)
        there = code.select(code.compare("<", there, p.width), there, down)
        for k in range(self.count):
            self.code.prefetch(self._place(k, there), level=2)

    def _place(self, k: int, j: Index) -> Value:
        p = self.product
        return self.code.at(self.b, TYPES[p.dtype], self.code.add(j, k * p.b_stride))

    def _vector(self, j: Index, elements: list[Value], mask: Mask = None) -> None:
        p, code = self.product, self.code
        kind = TYPES[p.dtype]
        read = [code.load(self._place(k, j), kind, p.lanes, mask=mask) for k in range(self.count)]
        columns = [converted(code, x, p.dtype, "f32") for x in read]
        for r in range(p.rows):
            self._add(r, j, self._sum(r, columns, elements))

    def _pair(self, j: Index, elements: list[Value]) -> None:
        """Two vectors of bf16 at once."""
        p, code = self.product, self.code
        kind = TYPES[p.dtype]
        read = [code.load(self._place(k, j), kind, 2 * p.lanes) for k in range(self.count)]
        columns = [even_and_odd(code, x) for x in read]
        for r in range(p.rows):
            even, odd = (self._sum(r, some, elements) for some in zip(*columns, strict=True))
            for n, x in enumerate(in_order(code, even, odd)):
                self._add(r, code.add(j, n * p.lanes), x)

    def _sum(self, r: int, columns: Sequence[Value], elements: list[Value]) -> Value:
        x = self.code.zero(F32, self.product.lanes)
        for k, y in enumerate(columns):
            x = self.code.fma(elements[k] if elements else self._element(r, k), y, x)
        return x

    def _add(self, r: int, j: Index, x: Value) -> None:
        p, code = self.product, self.code
        to = code.at(self.c, F32, code.add(j, r * p.c_stride))
        code.store(code.builder.fadd(code.load(to, F32, p.lanes), x), to, F32)
