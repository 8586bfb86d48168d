"""Packing of operand blocks into scratch: prologues evaluated, strides and pads straightened once.

Windows of a factor are copied with every element once, pads as what they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from eqsat.execute.kernels.frame import Frame, converted, first_row
from eqsat.execute.kernels.fused import biased, column_sum, interleaved, plus_columns
from eqsat.execute.kernels.ir import Index, Mask
from eqsat.execute.kernels.kinds import I32, TYPES, Value, lanes_of, vector
from eqsat.execute.kernels.lanes import memory_constant
from eqsat.execute.kernels.points import Points
from eqsat.model.nest import Access, Bound, Nest, Stage
from eqsat.plan.roles import ProductFactor
from eqsat.plan.stages import LINE, access_loops
from eqsat.plan.windows import WindowCopy, holder_of

AHEAD = 4  # squares of a transposed copy that are asked for before they are read


def copy_rows(
    frame: Frame, to: Value, tiles: tuple[Index, Index], first: Index, count: Index
) -> None:
    """A's rows of these tiles, over `count` points of the outermost reduction loop from `first`.

    Each tile has `rows` rows in scratch, `a_row` elements apart, along the reduction.
    """
    code, p, s = frame.code, frame.plan, frame.sizes
    factor = s.factors[0]

    def tile(t: Index) -> None:
        outer = frame.nest.points(p.outer_rows)
        assert outer == 1  # copied rows are numbered through all loops
        start = first_row(frame, t)
        rows = code.select(
            code.compare("<", t, s.full_tiles), *map(code.index, (p.rows, p.rows - 1))
        )
        if s.full_tiles == p.row_tiles:
            rows = p.rows
        base = code.mul(code.sub(t, tiles[0]), p.rows * s.a_row)

        def row(r: Index) -> None:
            here = frame.moved(frame.rows_at(code.add(start, r)))
            at = code.add(base, code.mul(r, s.a_row))
            _copy_run(here, factor, code.at(to, frame.copied_kind, at), first, count)

        code.loop(0, rows, 1, [], row)

    code.loop(tiles[0], tiles[1], 1, [], tile)


def _copy_run(frame: Frame, factor: ProductFactor, to: Value, first: Index, count: Index) -> None:
    """One row: every point of the reduction in order, vectors along the innermost loop."""
    code, p, nest = frame.code, frame.plan, frame.nest
    if not p.reduced:
        x = _value(frame, Points(code, nest, frame.reads), factor, None)
        code.store(x, to, frame.copied_kind)
        return
    _over_reduction(frame, to, (first, count), 1, lambda *run: _vectors(factor, *run))


def _over_reduction(
    frame: Frame,
    to: Value,
    run: tuple[Index, Index],
    step: int,
    innermost: Callable[[Frame, Value, Index, Index], None],
) -> None:
    """The reduction loops, of the outermost `run` (start, count); `step` elements of `to` a point.

    innermost: what is done along the last one, from a start on, for so many points.
    """
    code, p, nest = frame.code, frame.plan, frame.nest

    def level(n: int, here: Frame, to: Value) -> None:
        loop, inner = p.reduced[n], p.reduced[n + 1 :]
        start, size = run if n == 0 else (0, nest.sizes[loop])
        if not inner:
            innermost(here, to, start, size)
            return
        width = frame.sizes.run_points(inner) * step

        def turn(i: Index) -> None:
            moved = here.moved({loop: code.add(start, i)})
            level(n + 1, moved, code.at(to, frame.copied_kind, code.mul(i, width)))

        code.loop(0, size, 1, [], turn)

    level(0, frame, to)


def _vectors(factor: ProductFactor, frame: Frame, to: Value, start: Index, size: Index) -> None:
    """`size` elements along the innermost loop: whole vectors, then the rest under a mask."""
    code, nest, along = frame.code, frame.nest, frame.plan.reduced[-1]
    lanes = frame.plan.lanes
    if isinstance(size, int) and size < lanes:
        lanes = 1 << (size - 1).bit_length()
    points = Points(code, nest, frame.reads, along if lanes > 1 else -1, lanes)
    kind = frame.copied_kind

    def vector(i: Index, mask: Mask = None) -> None:
        here = frame.moved({along: code.add(start, i)})
        x = biased(here, _value(here, points, factor, mask))
        code.store(x, code.at(to, kind, i), kind, mask=mask)

    code.strips(size, lanes, vector)


def _value(frame: Frame, points: Points, factor: ProductFactor, mask: Mask) -> Value:
    """The factor at these points, as copies hold it; 0 where the nest has no such point."""
    code = frame.code
    there = points.holds(_decided_bounds(frame, factor), frame.at)
    zero = code.zero(frame.copied_kind, points.lanes)

    def value(mask: Mask) -> Value:
        sums, copied = frame.sizes.roles.dtype, frame.sizes.copied_dtype
        x = points.body(factor.body, factor.arguments, frame.at, {}, mask, sums)
        return converted(code, code.broadcast(x, points.lanes), sums, copied)

    if there is True:
        return value(mask)
    if isinstance(there, bool):
        return zero
    if lanes_of(there) == 1:
        return code.when(there, lambda: [value(mask)], lambda: [zero])[0]
    return code.select(there, value(code.within(there, mask, points.lanes)), zero)


def _decided_bounds(frame: Frame, factor: ProductFactor) -> list[Bound]:
    """Bounds of the nest that the factor's own loops decide, or that rows decide for it."""
    p = frame.plan
    decided = set(factor.loops) | set(p.reduced) | set(p.batch)
    decided |= set(
        p.row_loops if factor is frame.sizes.factors[0] else (p.vector_loop, *p.outer_columns)
    )
    return [b for b in frame.nest.bounds if access_loops(b) <= decided]


def copy_panel(frame: Frame, to: Value, first: Index, count: Index, last: bool) -> None:
    """B's panel over `count` points of the outermost reduction loop, one row of vectors a point;
    behind it 128 times the sums of columns, where tiles take them off."""
    code, p, s = frame.code, frame.plan, frame.sizes
    factor = s.factors[1]
    vectors = frame.vectors(last)
    source = factor.direct
    turned = (
        source is not None
        and p.reduced
        and source.strides[p.vector_loop] != 1
        and source.strides[p.reduced[-1]] == 1
        and not _decided_bounds(frame, factor)
    )

    panel = to
    if s.sums_columns:
        zero = code.zero(I32, p.lanes)
        for v in vectors:
            code.store(zero, column_sum(frame, panel, frame.slot(0, v)), I32)

    def rows(here: Frame, to: Value, start: Index, size: Index) -> None:
        if p.fused > 1:
            _grouped(here, factor, (panel, to), vectors, start, size)
            return
        if turned:
            _turned(here, factor, to, vectors, start, size)
            return

        def row(i: Index) -> None:
            moved = here.moved({p.reduced[-1]: code.add(start, i)})
            at = code.at(to, frame.copied_kind, code.mul(i, s.panel_row))
            _one_row(moved, factor, at, vectors)

        code.loop(0, size, 1, [], row)

    if p.reduced:
        _over_reduction(frame, to, (first, count), s.panel_row, rows)
    else:
        _one_row(frame, factor, to, vectors)


def _grouped(
    frame: Frame,
    factor: ProductFactor,
    places: tuple[Value, Value],
    vectors: Sequence[tuple[int, int, int | None]],
    start: Index,
    size: Index,
) -> None:
    """Rows that one instruction sums, element by element side by side; 0 beyond the last.

    places: of the panel, and of the first of these rows in it.
    """
    code, p, s = frame.code, frame.plan, frame.sizes
    panel, to = places
    kind, together = frame.copied_kind, p.fused

    def group(i: Index, left: int | Value | None) -> None:
        for v in vectors:
            rows = [one_row(v, code.add(start, i, n), n, left) for n in range(together)]
            at = code.add(code.mul(i, s.panel_row), code.mul(frame.slot(0, v), together))
            mixed = interleaved(code, rows)
            code.store(mixed, code.at(to, kind, at), kind)
            if s.sums_columns:
                sums = column_sum(frame, panel, frame.slot(0, v))
                words = code.builder.bitcast(mixed, vector(I32, p.lanes))
                total = plus_columns(code, code.load(sums, I32, p.lanes), words)
                code.store(total, sums, I32)

    def one_row(v: tuple[int, int, int | None], k: Index, n: int, left: Any) -> Value:
        def value() -> Value:
            here = _at_vector(frame.moved({p.reduced[-1]: k}), v)
            points = Points(code, frame.nest, frame.reads, p.vector_loop, p.lanes)
            return _value(here, points, factor, v[2])

        zero = code.zero(kind, p.lanes)
        if left is None:
            return value()
        there = code.compare("<", n, left)
        return code.when(there, lambda: [value()], lambda: [zero])[0]

    whole = code.mul(code.div(size, together), together)
    code.loop(0, whole, together, [], lambda i: group(i, None))
    left = code.sub(size, whole)
    if not isinstance(left, int):
        code.when(code.compare("<", 0, left), lambda: group(whole, left))
    elif left:
        group(whole, left)


def _at_vector(frame: Frame, vector: tuple[int, int, int | None]) -> Frame:
    code, p = frame.code, frame.plan
    where = {p.vector_loop: code.add(frame.at[p.vector_loop], vector[1])}
    if p.wide > 1:
        u = p.outer_columns[-1]
        where[u] = code.add(frame.at[u], vector[0])
    return frame.moved(where)


def _one_row(
    frame: Frame, factor: ProductFactor, to: Value, vectors: Sequence[tuple[int, int, int | None]]
) -> None:
    code, p = frame.code, frame.plan
    points = Points(code, frame.nest, frame.reads, p.vector_loop, p.lanes)
    for v in vectors:
        x = _value(_at_vector(frame, v), points, factor, v[2])
        code.store(x, code.at(to, frame.copied_kind, frame.slot(0, v)), frame.copied_kind)


def _turned(
    frame: Frame,
    factor: ProductFactor,
    to: Value,
    vectors: Sequence[tuple[int, int, int | None]],
    start: Index,
    size: Index,
) -> None:
    """Columns that are contiguous along the reduction: squares transposed in registers."""
    code, p, s = frame.code, frame.plan, frame.sizes
    source = factor.direct
    assert source is not None
    lanes, along, kind = p.lanes, p.reduced[-1], frame.source_kind(1)
    copied_kind = frame.copied_kind

    def square(i: Index, mask: Mask = None) -> None:
        for v in vectors:
            here = _at_vector(frame.moved({along: code.add(start, i)}), v)
            points = Points(code, frame.nest, frame.reads, along, lanes)
            columns = []
            for n in range(lanes):
                if v[2] is not None and n >= v[2]:
                    columns.append(code.zero(copied_kind, lanes))
                    continue
                one = here.moved({p.vector_loop: code.add(here.at[p.vector_loop], n)})
                x = points.access(source, one.at, mask)
                columns.append(converted(code, x, source.dtype, s.copied_dtype))
                if mask is None:  # no prefetcher follows so many streams
                    far = code.add(points.offset(source, one.at), AHEAD * lanes)
                    code.prefetch(code.at(frame.reads[source.buffer], kind, far), level=2)
            for n, x in enumerate(code.transposed(columns)):
                at = code.add(code.mul(code.add(i, n), s.panel_row), frame.slot(0, v))
                row = lambda x=x, at=at: code.store(x, code.at(to, copied_kind, at), copied_kind)  # noqa: E731
                if mask is None:
                    row()
                elif isinstance(mask, int):
                    if n < mask:
                        row()
                else:
                    code.when(code.lane(mask, n), lambda row=row: row() and None)

    code.strips(size, lanes, square)


# ---- windows -------------------------------------------------------------------------------------
def copy_window(frame: Frame, to: Value, tiles: tuple[Index, Index], last: bool) -> None:
    """The window of these tiles, in the other loops from the frame's indices on.

    last: of the last panel, where the window is one panel's.
    """
    p, s = frame.plan, frame.sizes
    start, points = _block(frame, tiles)
    width = s.last_width if last else s.width
    sizes = {s.block_loop: points} | ({p.vector_loop: width} if p.vector_rows else {})
    here = frame.moved({s.block_loop: start})
    _Filled(here, s.window, sizes).level(0, (), to)


def block_start(frame: Frame, first: Index) -> dict[int, Index]:
    """The first point of the loop that blocks of tiles cut, of the block that starts at a tile."""
    p = frame.plan
    at = frame.code.div(first, p.row_tiles) if p.outer_rows else first_row(frame, first)
    return {frame.sizes.block_loop: at} if frame.sizes.block_loop >= 0 else {}


def _block(frame: Frame, tiles: tuple[Index, Index]) -> tuple[Index, Index]:
    """First point and number of points of the loop that blocks of tiles cut."""
    loop = frame.sizes.block_loop
    if loop < 0:
        return 0, 1
    start, end = (block_start(frame, t)[loop] for t in tiles)
    return start, frame.code.sub(end, start)


@dataclass(frozen=True)
class _Filled:
    """frame: at the window's first points; sizes: points of loops, where not the window's."""

    frame: Frame
    window: WindowCopy
    sizes: dict[int, Index]

    def level(self, d: int, at: tuple[Index, ...], to: Value) -> None:
        """All elements at these values of the first d coordinates."""
        code, w = self.frame.code, self.window
        strides = w.coordinates.strides[d]
        start = code.affine(w.lowest[d], strides, self.frame.at)
        extent: Index = w.extents[d]
        for i, n in self.sizes.items():
            if i >= 0 and strides[i]:
                fewer = code.sub(w.points[i], n)
                extent = code.sub(extent, code.mul(fewer, abs(strides[i])))
        if d == len(w.coordinates.strides) - 1:
            self._run(at, start, extent, to)
            return

        def turn(n: Index) -> None:
            here = (*at, code.add(start, n))
            place = code.at(to, self.frame.copied_kind, code.mul(n, w.pitches[d]))
            there = self._points().holds(self._tests(d), self._padded(here))
            code.when(
                there,
                lambda: self.level(d + 1, here, place),
                lambda: self._fill(place, w.pitches[d]),
            )

        code.loop(0, extent, 1, [], turn)

    def _run(self, at: tuple[Index, ...], start: Index, size: Index, to: Value) -> None:
        """Elements along the innermost coordinate."""
        code, lanes = self.frame.code, self.frame.plan.lanes
        if isinstance(size, int) and size < lanes:
            lanes = 1 << (size - 1).bit_length()
        points = self._points(lanes)
        factor, kind = self.checked.factor, self.frame.copied_kind
        sums = self.frame.sizes.roles.dtype

        def vector(i: Index, mask: Mask = None) -> None:
            here = (*at, code.add(start, i))
            self._prefetch_ahead(here)
            x = points.body(factor.body, factor.arguments, here, {}, mask, sums)
            code.store(self._as_copied(x, lanes), code.at(to, kind, i), kind, mask=mask)

        code.strips(size, lanes, vector)

    def _prefetch_ahead(self, at: tuple[Index, ...]) -> None:
        """Ask for what the same run reads at the next value of the outermost coordinate."""
        code, w = self.frame.code, self.window
        outermost = next((d for d, n in enumerate(w.extents[:-1]) if n > 1), None)
        if outermost is None or w.extents[-1] < LINE:
            return
        for a in self.checked.factor.accesses:
            if a.strides[-1] == 1 and not a.lookups:
                offset = code.affine(a.base + a.strides[outermost], a.strides, at)
                place = code.at(self.frame.reads[a.buffer], TYPES[a.dtype], offset)
                code.prefetch(place, level=2)

    def _fill(self, to: Value, count: int) -> None:
        code = self.frame.code
        lanes = min(self.frame.plan.lanes, 1 << (count - 1).bit_length())
        kind, sums = self.frame.copied_kind, self.frame.sizes.roles.dtype
        fill = self._as_copied(memory_constant(code, self.checked.fill, sums), lanes)
        code.strips(
            count, lanes, lambda i, mask: code.store(fill, code.at(to, kind, i), kind, mask=mask)
        )

    def _as_copied(self, x: Value, lanes: int) -> Value:
        """Elements of the factor that the sums take, as the copy holds them."""
        code, s = self.frame.code, self.frame.sizes
        short = converted(code, code.broadcast(x, lanes), s.roles.dtype, s.copied_dtype)
        return biased(self.frame, short)

    def _points(self, lanes: int = 1) -> Points:
        along = len(self.window.extents) - 1 if lanes > 1 else -1
        return Points(self.frame.code, self.checked.inside, self.frame.reads, along, lanes)

    def _padded(self, at: tuple[Index, ...]) -> tuple[Index, ...]:
        return at + (0,) * (len(self.window.extents) - len(at))

    def _tests(self, d: int) -> list[Bound]:
        """Bounds that coordinate d and those before it decide."""
        return [b for b in self.checked.tests if max(_coordinates(b)) == d]

    @cached_property
    def checked(self) -> _Checked:
        return _checked(self.window.coordinates.inside, self.window.coordinates.factor)


@dataclass(frozen=True)
class _Checked:
    """A factor without the bounds that are tested once for a whole run, and those.

    fill: the factor's value where one of `tests` fails.
    """

    inside: Nest
    factor: ProductFactor
    tests: tuple[Bound, ...] = ()
    fill: float = 0.0


def _coordinates(b: Bound) -> list[int]:
    return [i for i, s in enumerate(b.strides) if s] or [0]


def _checked(inside: Nest, factor: ProductFactor) -> _Checked:
    """Taken apart where the factor is one access or stage; else its bounds stay where they are."""
    innermost = len(inside.sizes) - 1
    holder = holder_of(inside, factor)
    if holder is None:
        return _Checked(inside, factor)
    tests = tuple(b for b in holder.bounds if innermost not in _coordinates(b))

    def untested(bounds: tuple[Bound, ...]) -> tuple[Bound, ...]:
        return tuple(b for b in bounds if b not in tests)

    def arguments(of: Stage | ProductFactor) -> tuple[Access | int, ...]:
        return tuple(
            a if isinstance(a, int) else replace(a, bounds=untested(a.bounds)) for a in of.arguments
        )

    stages = tuple(
        replace(s, bounds=untested(s.bounds), arguments=arguments(s)) for s in inside.stages
    )
    checked = replace(factor, arguments=arguments(factor))
    return _Checked(replace(inside, stages=stages), checked, tests, float(holder.fill or 0.0))
