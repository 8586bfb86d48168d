"""A kernel of row blocks: copies of what lies along the rows, then a few rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from eqsat.execute.kernels.ir import Code, Index, Mask
from eqsat.execute.kernels.kernel import Head
from eqsat.execute.kernels.kinds import I8, TYPES, Value
from eqsat.execute.kernels.matvec import KeyDots, StreamedProduct
from eqsat.execute.kernels.points import Points
from eqsat.execute.kernels.rowpasses import TOGETHER, BlockPasses, BlockRow, Product, store_stage
from eqsat.model.dispatch import Machine
from eqsat.model.nest import Nest
from eqsat.plan.roles import ProductFactor
from eqsat.plan.rowblocks import RowBlocks, RowExtents
from eqsat.plan.rowroles import First, row_roles_of

F32 = TYPES["f32"]


def emit(head: Head, nest: Nest, plan: RowBlocks, machine: Machine) -> None:
    """Write the body of the kernel."""
    roles = row_roles_of(nest)
    sizes = RowExtents(roles.nest, plan, roles)
    scratch = {name: head.code.at(head.scratch, I8, x) for name, x in sizes.scratch.items()}
    Items(head, sizes, scratch, tuple(0 for _ in nest.sizes)).write()


@dataclass(frozen=True)
class Items:
    """scratch: where its parts begin. at: an index per loop, those of the block at hand."""

    head: Head
    sizes: RowExtents
    scratch: dict[str, Value]
    at: tuple[Index, ...]
    parts: dict[Any, Any] = field(default_factory=dict)  # functions written so far

    @property
    def code(self) -> Code:
        return self.head.code

    def moved(self, where: dict[int, Index]) -> Items:
        return replace(self, at=tuple(where.get(i, x) for i, x in enumerate(self.at)))

    def points(self, along: int) -> Points:
        return Points(self.code, self.sizes.nest, self.head.reads, along, self.sizes.plan.lanes)

    def write(self) -> None:
        s, code = self.sizes, self.code
        batch = [s.nest.sizes[i] for i in s.roles.batch]

        def item(number: Index) -> None:
            *where, chunk = code.digits(number, [*batch, s.chunks])
            here = self.moved(dict(zip(s.roles.batch, where, strict=True)))
            if s.roles.first is not None and not s.plan.dots:
                here.copy_keys(s.roles.first)
            if s.plan.columns_copied:
                here.copy_columns()
            first = code.mul(chunk, s.plan.chunk)
            last = code.min(code.add(first, s.plan.chunk), s.plan.blocks)
            code.loop(first, last, 1, [], here.block)

        code.loop(self.head.lo, self.head.hi, 1, [], item)

    # ---- copies ----------------------------------------------------------------------------------
    def copy_keys(self, first: First) -> None:
        """[panel][depth][elements of a panel], zeros behind the end of a row."""
        s, code = self.sizes, self.code
        lanes, access = s.plan.lanes, first.keys.plain
        turned = access is not None and access.strides[first.depth] == 1

        def vector(u: Index, mask: Mask = None) -> None:
            panel, v = code.div(u, s.plan.vectors), code.rem(u, s.plan.vectors)
            start = code.add(code.mul(panel, s.depth * s.panel), code.mul(v, lanes))
            to = code.at(self.scratch["keys"], F32, start)
            here = self.moved({s.roles.along: code.mul(u, lanes)})
            (here.turn_keys if turned else here.evaluate_keys)(first, to, mask)

        self._vectors(s.length, s.panels * s.plan.vectors, vector)

    def turn_keys(self, first: First, to: Value, mask: Mask) -> None:
        """Squares of keys that are contiguous along the depth, transposed in registers."""
        s, code = self.sizes, self.code
        lanes, points = s.plan.lanes, self.points(first.depth)
        access = first.keys.plain
        assert access is not None
        there = lanes if mask is None else mask

        def square(d: Index, some: Mask = None) -> None:
            rows = []
            for n in range(lanes):
                if n >= there:
                    rows.append(code.zero(F32, lanes))
                    continue
                j = code.add(self.at[s.roles.along], n)
                here = self.moved({s.roles.along: j, first.depth: d})
                rows.append(points.access(access, here.at, some))
            for n, x in enumerate(code.transposed(rows)[: lanes if some is None else some]):
                code.store(x, code.at(to, F32, code.mul(code.add(d, n), s.panel)), F32)

        self._vectors(
            s.depth, -(-s.depth // lanes), lambda u, m=None: square(code.mul(u, lanes), m)
        )

    def evaluate_keys(self, first: First, to: Value, mask: Mask) -> None:
        s, code, points = self.sizes, self.code, self.points(self.sizes.roles.along)

        def row(d: Index) -> None:
            x = self.moved({first.depth: d}).value(points, first.keys, mask)
            code.store(x, code.at(to, F32, code.mul(d, s.panel)), F32)

        code.loop(0, s.depth, 1, [], row)

    def copy_columns(self) -> None:
        """[along][elements of the result's row], zeros behind its end."""
        s, code, points = self.sizes, self.code, self.points(self.sizes.roles.wide)
        lanes = s.plan.lanes

        def row(j: Index) -> None:
            def vector(u: Index, mask: Mask = None) -> None:
                e = code.mul(u, lanes)
                here = self.moved({s.roles.along: j, s.roles.wide: e})
                x = here.value(points, s.roles.columns, mask)
                at = code.add(code.mul(j, s.result_stride), e)
                code.store(x, code.at(self.scratch["columns"], F32, at), F32)

            self._vectors(s.width, s.wide_panels * s.plan.wide_vectors, vector)

        code.loop(0, s.length, 1, [], row)

    def copy_queries(self, first: First, rows: int, start: Index) -> None:
        s, code, points = self.sizes, self.code, self.points(first.depth)
        lanes = s.plan.lanes

        def row(r: Index) -> None:
            here = self.at_row(code.add(start, r))

            def vector(u: Index, mask: Mask = None) -> None:
                d = code.mul(u, lanes)
                x = here.moved({first.depth: d}).value(points, first.queries, mask)
                at = code.add(code.mul(r, s.query_stride), d)
                code.store(x, code.at(self.scratch["queries"], F32, at), F32)

            self._vectors(s.depth, -(-s.depth // lanes), vector)

        code.loop(0, rows, 1, [], row)

    def value(self, points: Points, factor: ProductFactor, mask: Mask) -> Value:
        """A factor at neighbouring points; 0 out of the mask."""
        code, lanes = self.code, points.lanes
        x = points.body(factor.body, factor.arguments, self.at, {}, mask)
        x = code.broadcast(x, lanes)
        return x if mask is None else code.select(code.mask(mask, lanes), x, code.zero(F32, lanes))

    def _vectors(self, length: int, padded: int, vector: Callable[..., None]) -> None:
        """Whole vectors, the rest under a mask, then those of padding with a mask of no lane."""
        lanes = self.sizes.plan.lanes
        self.code.loop(0, length // lanes, 1, [], vector)
        if length % lanes:
            vector(length // lanes, length % lanes)
        for u in range(-(-length // lanes), padded):
            vector(u, 0)

    # ---- blocks of rows --------------------------------------------------------------------------
    def at_row(self, row: Index) -> Items:
        s = self.sizes
        digits = self.code.digits(row, [s.nest.sizes[i] for i in s.roles.single])
        return self.moved(dict(zip(s.roles.single, digits, strict=True)))

    def block(self, number: Index) -> None:
        s, code, p = self.sizes, self.code, self.sizes.plan
        if s.full_blocks == p.blocks:
            self._rows(p.rows, code.mul(number, p.rows))
            return
        short = code.mul(number, p.rows - 1)
        code.when(
            code.compare("<", number, s.full_blocks),
            lambda: self._rows(p.rows, code.mul(number, p.rows)),
            lambda: self._rows(p.rows - 1, code.add(short, s.full_blocks)),
        )

    def _rows(self, rows: int, start: Index) -> None:
        """A block of rows, from the first contraction to what is stored."""
        first = self.sizes.roles.first
        if first is not None:
            self.copy_queries(first, rows, start)
            (self._dots if self.sizes.plan.dots else self._scores)(rows, first)
        self._passes(rows, start)
        self._results(rows)
        self.code.loop(
            0, rows, 1, [], lambda r: self._finish(self.at_row(self.code.add(start, r)), r)
        )

    def _passes(self, rows: int, start: Index) -> None:
        code = self.code

        def some(r: Index, count: int = TOGETHER) -> None:
            numbers = [code.add(r, n) for n in range(count)]
            rows = [BlockRow(self.at_row(code.add(start, n)), n) for n in numbers]
            BlockPasses(self, rows).write()

        code.loop(0, rows - rows % TOGETHER, TOGETHER, [], some)
        if rows % TOGETHER:
            some(rows - rows % TOGETHER, rows % TOGETHER)

    def row_buffer(self, slot: int) -> Value:
        s = self.sizes
        return self.code.at(self.scratch["rows"], F32, slot * s.plan.rows * s.row_stride)

    def _scores(self, rows: int, first: First) -> None:
        s, code = self.sizes, self.code
        product = Product(
            rows, s.plan.vectors, s.plan.lanes, s.depth, s.query_stride, s.panel, s.row_stride
        )
        to = self.row_buffer(dict(s.plan.slots)[first.stage])

        def panel(n: Index) -> None:
            keys = code.at(self.scratch["keys"], F32, code.mul(n, s.depth * s.panel))
            self._call(
                product, self.scratch["queries"], keys, code.at(to, F32, code.mul(n, s.panel))
            )

        code.loop(0, s.panels, 1, [], panel)

    def _dots(self, rows: int, first: First) -> None:
        """Scores of keys that are read where they are, those of the last few one by one."""
        s, code, keys = self.sizes, self.code, first.keys.plain
        assert keys is not None
        step, to = keys.strides[s.roles.along], self.row_buffer(dict(s.plan.slots)[first.stage])
        start = self.points(first.depth).offset(
            keys, self.moved({s.roles.along: 0, first.depth: 0}).at
        )
        b = code.at(self.head.reads[keys.buffer], F32, start)
        done = 0
        for count in dict.fromkeys((s.plan.dots, 1)):
            groups = (s.length - done) // count
            part = KeyDots(
                rows, count, s.plan.lanes, s.depth, s.query_stride, step, s.row_stride
            )  # fmt: skip
            if groups:
                from_here = code.at(b, F32, done * step), code.at(to, F32, done)
                self._call(part, self.scratch["queries"], *from_here, code.index(groups))
            done += groups * count

    def _results(self, rows: int) -> None:
        """The last contraction into scratch, its columns in order or panel by panel."""
        if self.sizes.plan.streamed:
            self._streamed_results(rows)
        else:
            self._panelled_results(rows)

    def _streamed_results(self, rows: int) -> None:
        s, code, p = self.sizes, self.code, self.sizes.plan
        columns = s.roles.columns.plain
        assert columns is not None
        product = StreamedProduct(
            rows, s.width, p.streamed, p.lanes, s.length, s.row_stride,
            columns.strides[s.roles.along], s.result_stride,
        )  # fmt: skip
        here = self.moved({s.roles.wide: 0, s.roles.along: 0})
        start = self.points(s.roles.wide).offset(columns, here.at)
        b = code.at(self.head.reads[columns.buffer], F32, start)
        self._call(product, self.row_buffer(p.weights_slot), b, self.scratch["result"])

    def _panelled_results(self, rows: int) -> None:
        s, code, p = self.sizes, self.code, self.sizes.plan
        columns = s.roles.columns.plain
        copied = p.columns_copied
        stride = s.result_stride
        if not copied:
            assert columns is not None
            stride = columns.strides[s.roles.along]
        whole = Product(
            rows, p.wide_vectors, p.lanes, s.length, s.row_stride, stride, s.result_stride
        )
        weights = self.row_buffer(p.weights_slot)

        def panel(n: Index, product: Product = whole) -> None:
            e = code.mul(n, s.wide_panel)
            if copied:
                b = code.at(self.scratch["columns"], F32, e)
            else:
                assert columns is not None
                here = self.moved({s.roles.wide: e, s.roles.along: 0})
                offset = self.points(s.roles.wide).offset(columns, here.at)
                b = code.at(self.head.reads[columns.buffer], F32, offset)
            self._call(product, weights, b, code.at(self.scratch["result"], F32, e))

        rest = s.width % s.wide_panel
        if copied or not rest:
            code.loop(0, s.wide_panels, 1, [], panel)
            return
        code.loop(0, s.wide_panels - 1, 1, [], panel)
        short = replace(whole, vectors=-(-rest // p.lanes), tail=rest % p.lanes or None)
        panel(s.wide_panels - 1, short)

    def _call(self, product: Product | KeyDots | StreamedProduct, *arguments: Value) -> None:
        if product not in self.parts:
            name = f"{self.head.code.function.name}.product{len(self.parts)}"
            self.parts[product] = product.write(self.code.module, name)
        self.code.builder.call(self.parts[product], arguments)

    def _finish(self, here: Items, r: Index) -> None:
        """Epilogue of a row of the last contraction, and its stores."""
        s, code, roles = self.sizes, self.code, self.sizes.roles
        lanes, points = s.plan.lanes, self.points(self.sizes.roles.wide)
        scalars: dict[Any, Value] = {
            i: code.broadcast(code.load(self.scalar(i, r), F32), lanes) for i in roles.late
        }
        ends = [t for t in s.nest.stores if t.stage in (roles.last, *roles.epilogue)]

        def vector(u: Index, mask: Mask = None) -> None:
            e = code.mul(u, lanes)
            at = code.add(code.mul(r, s.result_stride), e)
            x = code.load(code.at(self.scratch["result"], F32, at), F32, lanes)
            if roles.divisor is not None:
                x = code.builder.fdiv(x, scalars[roles.divisor])
            values = scalars | {roles.last: x}
            point = here.moved({roles.wide: e}).at
            for t in ends:
                store_stage(points, t, self.head.writes, point, values, mask)

        self._vectors(s.width, 0, vector)

    def scalar(self, stage: int, r: Index) -> Value:
        """Where a number of the block's row is kept."""
        s, code = self.sizes, self.code
        start = s.roles.scalars.index(stage) * s.plan.rows
        return code.at(self.scratch["scalars"], F32, code.add(start, r))
