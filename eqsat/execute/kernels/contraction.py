"""A contraction's kernel: work items, blocks, copies to scratch, register tiles, in that order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from eqsat.execute.kernels.copies import block_start, copy_panel, copy_rows, copy_window
from eqsat.execute.kernels.epilogue import write_finish
from eqsat.execute.kernels.frame import Frame, ahead_start, first_row, operands
from eqsat.execute.kernels.ir import Index
from eqsat.execute.kernels.kernel import Head
from eqsat.execute.kernels.kinds import I8, TYPES, Value
from eqsat.execute.kernels.matvec import StreamedProduct, write_dots
from eqsat.execute.kernels.tiles import write_tile
from eqsat.model.dispatch import Machine
from eqsat.model.nest import Nest
from eqsat.plan.contraction import Blocking, Tiling
from eqsat.plan.curves import ROWS
from eqsat.plan.roles import product_roles_of, source_access


def emit(head: Head, nest: Nest, plan: Tiling, machine: Machine) -> None:
    """Write the body of the kernel."""
    sizes = Blocking(nest, plan, product_roles_of(nest))
    at = tuple(0 for _ in nest.sizes)
    frame = Frame(sizes, head.code, head.reads, head.writes, at)
    a, b, c, _ = sizes.scratch
    scratch = [head.code.at(head.scratch, I8, x) for x in (a, b, c)]
    CacheBlocks(frame, *scratch).write(head.lo, head.hi)


@dataclass(frozen=True)
class CacheBlocks:
    """The loops around the tiles; the pointers are scratch for A's block, B's panel, the sums."""

    frame: Frame
    a: Value
    b: Value
    sums: Value
    parts: dict[Any, Any] = field(default_factory=dict)  # functions written so far
    behind: Index | None = None  # the panel that follows an item's

    def write(self, lo: Value, hi: Value) -> None:
        p, s, code = self.frame.plan, self.frame.sizes, self.frame.code
        batch = [self.frame.nest.sizes[i] for i in p.batch]

        def item(number: Index) -> None:
            *where, place = code.digits(number, [*batch, s.row_blocks * s.groups])
            block, group, behind = self._cell(place)
            frame = self.frame.moved(dict(zip(p.batch, where, strict=True)))
            first, panel = code.mul(block, p.tile_block), code.mul(group, p.panel_block)
            tiles = first, code.min(code.add(first, p.tile_block), s.tiles)
            panels = panel, code.min(code.add(panel, p.panel_block), p.panels)
            replace(self, behind=behind)._item(frame, tiles, panels)

        code.loop(lo, hi, 1, [], item)

    def _cell(self, place: Index) -> tuple[Index, Index, Index | None]:
        """The block of rows and the group of panels of an item, and where panels go on behind it,
        unless it is where these end."""
        p, s, code = self.frame.plan, self.frame.sizes, self.frame.code
        if p.order == ROWS:
            return *code.digits(place, [s.row_blocks, s.groups]), None
        visits = [*s.visits, s.visits[-1]]
        here, after = code.entries(visits, place, code.add(place, 1))
        block, group = code.digits(here, [s.row_blocks, s.groups])
        return block, group, code.mul(code.rem(after, s.groups), p.panel_block)

    def _item(self, frame: Frame, tiles: tuple[Index, Index], panels: tuple[Index, Index]) -> None:
        p, code = frame.plan, frame.code
        if p.in_order:
            self._columns_in_order(frame, panels[0])
            code.loop(*panels, 1, [], lambda n: self._finish_panel(frame, tiles, panels, n))
            return
        if p.k_blocks > 1:
            self._clear(code.mul(code.sub(panels[1], panels[0]), p.tile_block))
        if p.windows and not p.vector_rows:
            copy_window(frame, self.a, tiles, last=False)
        size = frame.nest.sizes[p.reduced[0]] if p.reduced else 1

        def block(k: Index) -> None:
            even = size % p.k_block == 0
            count = p.k_block if even else code.min(code.sub(size, k), p.k_block)
            if p.copied[0]:
                copy_rows(frame, self.a, tiles, k, count)

            def all_panels(tiles: tuple[Index, Index]) -> None:
                code.loop(*panels, 1, [], lambda n: self._panel(frame, tiles, panels, n, k, count))

            if p.goes_down:
                code.loop(*tiles, 1, [], lambda t: all_panels((t, code.add(t, 1))))
            else:
                all_panels(tiles)

        code.loop(0, size, p.k_block, [], block)
        if p.k_blocks > 1:
            code.loop(*panels, 1, [], lambda n: self._finish_panel(frame, tiles, panels, n))

    def _clear(self, tiles: Index) -> None:
        """Zero the sums of an item."""
        p, code = self.frame.plan, self.frame.code
        each = p.rows * p.vectors * p.lanes
        kind = self.frame.sum_kind
        zero = code.zero(kind, p.lanes)
        code.loop(
            0,
            code.mul(tiles, each),
            p.lanes,
            [],
            lambda i: code.store(zero, code.at(self.sums, kind, i), kind),
        )

    def _columns_in_order(self, frame: Frame, panel: Index) -> None:
        """The sums of one row of A and of all columns of an item, from its first panel on."""
        p, s, code = frame.plan, frame.sizes, frame.code
        a, b = s.a_access, source_access(s.factors[1])
        assert a is not None and b is not None
        (loop,), each = p.reduced, p.panel_block * s.width
        here = self._at_panel(frame, panel)
        pointers = [self._rows(here, 0, 0, 0), self._sources(here, 0)[0], self.sums]

        def variant(width: int) -> None:
            product = StreamedProduct(
                1, width, p.k_block, p.lanes, frame.nest.sizes[loop], 0, b.strides[loop], 0,
                a.strides[loop], b.dtype,
            )  # fmt: skip
            if product not in self.parts:
                name = code.module.get_unique_name(f"{code.function.name}.inorder")
                self.parts[product] = product.write(code.module, name)
            code.builder.call(self.parts[product], pointers)

        last = frame.nest.sizes[p.vector_loop] - (s.groups - 1) * each
        if s.groups == 1 or last == each:
            variant(last)
            return
        is_last = code.compare("==", panel, (s.groups - 1) * p.panel_block)
        code.when(is_last, lambda: variant(last), lambda: variant(each))

    # ---- panels ----------------------------------------------------------------------------------
    def _at_panel(self, frame: Frame, number: Index) -> Frame:
        """The frame at a panel: outer columns, then panels along the vector loop."""
        p, s, code = frame.plan, frame.sizes, frame.code
        sizes = [frame.nest.sizes[i] for i in p.outer_columns]
        if p.wide > 1:
            sizes[-1] //= p.wide
        *outer, along = code.digits(number, [*sizes, s.panels_along])
        where = dict(zip(p.outer_columns, outer, strict=True))
        if p.wide > 1:
            where[p.outer_columns[-1]] = code.mul(where[p.outer_columns[-1]], p.wide)
        where[p.vector_loop] = code.mul(along, s.width)
        return frame.moved(where)

    def _is_last(self, frame: Frame) -> Any:
        """Whether the frame's panel is the last along the vector loop, and that one is short."""
        s, p, code = frame.sizes, frame.plan, frame.code
        if s.last_width == s.width:
            return False
        start = (s.panels_along - 1) * s.width
        return code.compare("==", frame.at[p.vector_loop], start)

    def _panel(
        self,
        frame: Frame,
        tiles: tuple[Index, Index],
        panels: tuple[Index, Index],
        number: Index,
        k: Index,
        count: Index,
    ) -> None:
        code, p = frame.code, frame.plan
        here = self._at_panel(frame, number)
        sums = self._sums(frame, panels, number)

        def variant(last: bool) -> None:
            b = self._columns(here, k)
            if p.copied[1]:
                copy_panel(here, self.b, k, count, last)
            if p.windows and p.vector_rows:
                copy_window(here, self.a, tiles, last)
            ahead = self._ahead(frame, panels, number, k)
            code.loop(
                *tiles,
                1,
                [],
                lambda t: self._tile(here, tiles[0], t, b, ahead, sums, k, count, last),
            )

        code.when(self._is_last(here), lambda: variant(True), lambda: variant(False))

    def _ahead(self, frame: Frame, panels: tuple[Index, Index], number: Index, k: Index) -> Value:
        """Where the panel starts that is asked for: behind a stream's last, the next block's."""
        p, code = frame.plan, frame.code
        after = code.add(number, frame.sizes.panels_ahead)
        beyond = code.compare(">=", after, panels[1])
        if p.k_blocks == 1:
            if self.behind is not None:
                after = code.select(beyond, code.index(self.behind), code.index(after))
            return self._sources(self._at_panel(frame, after), k)[0]
        back = code.select(beyond, code.index(code.sub(*panels[::-1])), code.index(0))
        down = code.select(beyond, code.index(p.k_block), code.index(0))
        behind = self._at_panel(frame, code.sub(after, back))
        return self._sources(behind, code.add(k, down))[0]

    def _columns(self, frame: Frame, k: Index) -> list[Value]:
        """Where the panel's first vector of B is, or of all that B is computed from."""
        return [self.b] if frame.plan.copied[1] else self._sources(frame, k)

    def _sources(self, frame: Frame, k: Index) -> list[Value]:
        """Where the panel starts in B's own buffers, if tiles could read it there."""
        p, code, b = frame.plan, frame.code, frame.sizes.factors[1]
        if source_access(b) is None:
            return [self.b]
        at = frame.moved({p.reduced[0]: k} if p.reduced else {}).at
        starts: list[Value] = []
        for x in frame.sizes.columns_in_place.leaves:
            offset = code.affine(x.base, x.strides, at)
            starts.append(code.at(frame.reads[x.buffer], TYPES[x.dtype], offset))
        return starts

    def _sums(self, frame: Frame, panels: tuple[Index, Index], n: Index) -> Value:
        """Where the sums of a panel's first tile are."""
        p, code = frame.plan, frame.code
        if p.k_blocks == 1:
            return self.sums
        each = p.rows * p.vectors * p.lanes
        at = code.mul(code.sub(n, panels[0]), p.tile_block * each)
        return code.at(self.sums, frame.sum_kind, at)

    # ---- tiles -----------------------------------------------------------------------------------
    def _at_tile(self, frame: Frame, t: Index) -> tuple[Frame, Index, Index]:
        """The frame at a tile's outer rows, the number of the tile there, its first row."""
        p, code = frame.plan, frame.code
        sizes = [frame.nest.sizes[i] for i in p.outer_rows]
        if p.goes_down:
            number, *outer = code.digits(t, [p.row_tiles, *sizes])
        else:
            *outer, number = code.digits(t, [*sizes, p.row_tiles])
        here = frame.moved(dict(zip(p.outer_rows, outer, strict=True)))
        return here, number, first_row(frame, number)

    def _tile(
        self,
        frame: Frame,
        first: Index,
        t: Index,
        b: list[Value],
        ahead: Value,
        sums: Value,
        k: Index,
        count: Index,
        last: bool,
    ) -> None:
        p, s, code = frame.plan, frame.sizes, frame.code
        here, number, row = self._at_tile(frame, t)
        done = code.sub(t, first)
        each = p.rows * p.vectors * p.lanes
        kind = frame.sum_kind
        mine = code.at(sums, kind, code.mul(done, each)) if p.k_blocks > 1 else sums
        if s.skipping:
            start, count = self._beside_pads(here, k, count)
            k = code.add(k, start)
            steps = operands(frame)[1]
            b = [
                x.at(code, q, code.mul(start, x.reduced[0])) for x, q in zip(steps, b, strict=True)
            ]
        if p.copied[0]:
            a = code.at(self.a, frame.copied_kind, code.mul(done, p.rows * s.a_row))
        else:
            a = self._rows(here, first, row, k)
        if p.prefetch:
            ahead = code.at(ahead, frame.source_kind(1), ahead_start(frame, done))
        arguments = [a, *b, mine, ahead, count, row]

        def variant(rows: int, tile: int) -> None:
            part = (write_dots, rows, last) if p.dot else (write_tile, rows, last, tile)
            here.call(self._part(*part), arguments)
            if p.k_blocks == 1 and not p.in_registers:
                here.call(self._part(write_finish, last), [mine, rows, row])

        self._by_rows(here, number, variant)

    def _beside_pads(self, here: Frame, k: Index, count: Index) -> tuple[Index, Index]:
        """Of `count` points of the outermost reduction loop from k on those where the tile's rows
        are no pads: the first, from k on, and how many."""
        code, loop = here.code, here.plan.reduced[0]
        start, stop = 0, count
        for b in here.sizes.skipping:
            step = b.strides[loop]
            others = [0 if i == loop else s for i, s in enumerate(b.strides)]
            first = code.affine(b.base, others, here.at)
            lowest = code.div(code.max(code.sub(step - 1, first), 0), step)
            end = code.div(code.max(code.sub(b.extent - 1 + step, first), 0), step)
            start = code.max(start, code.sub(lowest, k))
            stop = code.min(stop, code.sub(end, k))
        return start, code.max(code.sub(stop, start), 0)

    def _by_rows(self, frame: Frame, number: Index, variant: Any) -> None:
        """The variant of the tile's number of rows, and of those that are pads."""
        code, kinds = frame.code, frame.sizes.tile_kinds

        def chosen(i: int) -> None:
            end, rows, tile = kinds[i]
            if i == len(kinds) - 1:
                variant(rows, tile)
                return
            here = code.compare("<", number, end)
            code.when(here, lambda: variant(rows, tile), lambda: chosen(i + 1))

        chosen(0)

    def _part(self, write: Any, *arguments: Any) -> Any:
        key = (write, arguments)
        if key not in self.parts:
            self.parts[key] = write(self.frame, *arguments)
        return self.parts[key]

    def _rows(self, frame: Frame, first: Index, row: Index, k: Index) -> Value:
        """Where the tile's first row of A is; `first`: the first tile of its block."""
        p, code = frame.plan, frame.code
        source = frame.sizes.a_access
        assert source is not None
        where = frame.rows_at(row) | ({p.reduced[0]: k} if p.reduced else {})
        here = frame.moved(where)
        if p.windows:
            here = here.moved(self._in_window(here, first))
            place = code.affine(source.base, source.strides, here.at)
            return code.at(self.a, frame.copied_kind, place)
        offset = code.affine(source.base, source.strides, here.at)
        return code.at(frame.reads[source.buffer], TYPES[source.dtype], offset)

    def _in_window(self, frame: Frame, first: Index) -> dict[int, Index]:
        """Indices of the loops of which a window is a part, from its first points on."""
        p, code = frame.plan, frame.code
        indices: dict[int, Index] = dict.fromkeys(p.batch, 0)
        if p.vector_rows:
            indices[p.vector_loop] = 0
        for loop, start in block_start(frame, first).items():
            indices[loop] = code.sub(frame.at[loop], start)
        return indices

    def _finish_panel(
        self, frame: Frame, tiles: tuple[Index, Index], panels: tuple[Index, Index], n: Index
    ) -> None:
        code, p = frame.code, frame.plan
        panel = self._at_panel(frame, n)
        sums = self._sums(frame, panels, n)
        each = p.rows * p.vectors * p.lanes

        def variant(last: bool) -> None:
            def tile(t: Index) -> None:
                here, number, row = self._at_tile(panel, t)
                done = code.sub(t, tiles[0])
                mine = code.at(sums, frame.sum_kind, code.mul(done, each))
                part = self._part(write_finish, last)
                self._by_rows(here, number, lambda rows, _: here.call(part, [mine, rows, row]))

            code.loop(*tiles, 1, [], tile)

        code.when(self._is_last(panel), lambda: variant(True), lambda: variant(False))
