"""Integer products that one instruction multiplies and adds up in groups of two or four.

`vpmaddwd` multiplies pairs of i16 and adds the two products, `vpdpbusd` (VNNI) multiplies four u8
by four i8 and adds the products to a sum of i32, both without saturation: sums are exact, as i32
wraps. Copies in scratch hold the points of a group side by side: of rows as they follow each other,
of columns `[k / group, n, group]`, zeros beyond the last.

Where both factors are i8, rows are copied with 128 added, as `vpdpbusd` takes one factor unsigned;
128 times the sum of the columns is taken off again. Copies of panels add it up, or tiles by one
more sum for each vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import llvmlite.ir as ll

from eqsat.execute.kernels.frame import Frame, Steps, ahead_piece
from eqsat.execute.kernels.ir import Code, Index
from eqsat.execute.kernels.kinds import I8, I32, Value, constants, lanes_of, vector

BYTES = 4  # products of `vpdpbusd`
BIAS = 128
Vector = tuple[int, int, int | None]


def biased(frame: Frame, x: Value) -> Value:
    """Vector of the rows' factor as copied: i8 with 128 added, all else as it is."""
    if not frame.sizes.is_biased:
        return x
    lanes = lanes_of(x)
    return frame.code.builder.xor(x, constants(I8, [-BIAS] * lanes))


def interleaved(code: Code, rows: Sequence[Value]) -> Value:
    """Vectors of one width as one: element 0 of each, element 1 of each …; two or four of them."""
    if len(rows) == 1:
        return rows[0]
    even, odd = interleaved(code, rows[::2]), interleaved(code, rows[1::2])
    count = lanes_of(even)
    order = [x for i in range(count) for x in (i, count + i)]
    return code.builder.shuffle_vector(even, odd, ll.Constant(vector(I32, 2 * count), order))


def plus_columns(code: Code, total: Value, group: Value) -> Value:
    """A sum of vectors of columns, and 128 times the four bytes of each column of a group."""
    every = int.from_bytes([BIAS] * BYTES, "little", signed=True)
    return _four_products(code, total, code.constant(I32, every, lanes_of(total)), group)


def _four_products(code: Code, total: Value, x: Value, y: Value) -> Value:
    name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes_of(total)}"
    return code.call_external(name, total.type, [total, x, y])


def column_sum(frame: Frame, panel: Value, column: Index) -> Value:
    """Where a copied panel has 128 times the sums of its columns, from one of them on."""
    code = frame.code
    behind = code.at(panel, I8, frame.sizes.panel_elements)
    return code.at(behind, I32, column)


@dataclass(frozen=True)
class FusedSums:
    """The sums of a register tile over copies in scratch."""

    frame: Frame
    rows: int
    vectors: list[Vector]
    a: Steps
    b: Steps
    ahead: Value  # this tile's share of the next panel

    def write(self, a: Value, b: Value, count: Index) -> list[Value]:
        """Per row and vector, the sum over so many points of the outermost reduction loop."""
        code, p, kind = self.frame.code, self.frame.plan, self.frame.copied_kind
        together = p.fused
        zero = code.zero(I32, p.lanes)
        sizes = self.frame.sizes
        taken_off = len(self.vectors) if sizes.is_biased and not sizes.sums_columns else 0
        number = self.rows * len(self.vectors)
        row = together * self.frame.sizes.panel_row
        nest, reduced = self.frame.nest, p.reduced

        def turn(_: Index, a: Value, b: Value, ahead: Value, *sums: Value) -> list[Value]:
            totals = self._step(a, b, sums[:number])
            totals += self._columns_of(b, sums[number:])
            return [
                code.at(a, kind, together), code.at(b, kind, row), self._prefetched(ahead), *totals
            ]  # fmt: skip

        def groups(points: Index, carried: Sequence[Value]) -> list[Value]:
            turns = code.div(code.add(points, together - 1), together)
            return code.loop(0, turns, 1, carried, turn)

        def level(n: int, size: Index, carried: Sequence[Value]) -> list[Value]:
            """Over windows: each loop has steps of its own; columns follow each other."""
            if n == len(reduced) - 1:
                return groups(size, carried)

            def point(_: Index, a: Value, *rest: Value) -> list[Value]:
                inner = level(n + 1, nest.sizes[reduced[n + 1]], [a, *rest])
                return [self.a.at(code, a, self.a.reduced[n]), *inner[1:]]

            return code.loop(0, size, 1, carried, point)

        start = [a, b, self.ahead, *[zero] * (number + taken_off)]
        if p.windows:
            sums = level(0, count, start)[3:]
        else:
            sums = groups(code.mul(count, self.frame.sizes.inner_k), start)[3:]
        if not sizes.is_biased:
            return sums
        more = sums[number:] or [
            code.load(column_sum(self.frame, b, self._column(v)), I32, p.lanes)
            for v in self.vectors
        ]
        return [code.builder.sub(x, more[i % len(more)]) for i, x in enumerate(sums[:number])]

    def _prefetched(self, ahead: Value) -> Value:
        """Ask for a piece of the next panel, which copies it from the second cache then; the place
        of the piece that the next turn asks for."""
        code, frame = self.frame.code, self.frame
        if not frame.plan.prefetch:
            return ahead
        piece, kind = ahead_piece(frame), frame.source_kind(1)
        for at in range(0, piece, frame.sizes.line):
            code.prefetch(code.at(ahead, kind, at), level=2)
        return code.at(ahead, kind, piece)

    def _step(self, a: Value, b: Value, sums: Sequence[Value]) -> list[Value]:
        """The products of one group."""
        code, p, kind = self.frame.code, self.frame.plan, self.frame.copied_kind
        columns = self._loaded(b)
        totals = list(sums)
        for r in range(self.rows):
            one = code.builder.load(code.at(a, kind, r * self.a.row), typ=I32, align=1)
            x = code.broadcast(one, p.lanes)
            for j, y in enumerate(columns):
                at = r * len(columns) + j
                totals[at] = self._plus_products(totals[at], x, y)
        return totals

    def _columns_of(self, b: Value, sums: Sequence[Value]) -> list[Value]:
        """128 times the columns added up, where rows are 128 too high."""
        if not sums:
            return []
        pairs = zip(sums, self._loaded(b), strict=True)
        return [plus_columns(self.frame.code, total, y) for total, y in pairs]

    def _loaded(self, b: Value) -> list[Value]:
        """A group of every vector of columns, as i32 of its points."""
        code, p = self.frame.code, self.frame.plan
        starts = (
            code.at(b, self.frame.copied_kind, p.fused * self._column(v)) for v in self.vectors
        )
        return [code.load(x, I32, p.lanes) for x in starts]

    def _column(self, v: Vector) -> int:
        return v[0] * self.b.wide + v[1] * self.b.vector

    def _plus_products(self, total: Value, x: Value, y: Value) -> Value:
        code, lanes = self.frame.code, self.frame.plan.lanes
        if self.frame.plan.fused == BYTES:
            unsigned_columns = self.frame.sizes.factors[1].narrow == "u8"
            return _four_products(code, total, *((y, x) if unsigned_columns else (x, y)))
        pairs = vector(ll.IntType(16), 2 * lanes)
        name = "llvm.x86.avx512.pmaddw.d.512" if lanes == 16 else "llvm.x86.avx2.pmadd.wd"
        both = [code.builder.bitcast(z, pairs) for z in (x, y)]
        return code.builder.add(total, code.call_external(name, total.type, both))
