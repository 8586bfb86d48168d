"""Operand blocks copied to scratch: prologues evaluated, strides and pads straightened once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from eqsat.execute.kernels.frame import Frame, converted, first_row
from eqsat.execute.kernels.fused import biased, column_sum, interleaved, plus_columns
from eqsat.execute.kernels.ir import Index, Mask
from eqsat.execute.kernels.kinds import I32, Value, lanes_of, vector
from eqsat.execute.kernels.points import Points
from eqsat.model.nest import Bound
from eqsat.plan.roles import ProductFactor
from eqsat.plan.stages import access_loops

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
    there = points.holds(_own_bounds(frame, factor), frame.at)
    zero = code.zero(frame.copied_kind, points.lanes)

    def value(mask: Mask) -> Value:
        sums, own = frame.sizes.roles.dtype, frame.sizes.copied_dtype
        x = points.body(factor.body, factor.arguments, frame.at, {}, mask, sums)
        return converted(code, code.broadcast(x, points.lanes), sums, own)

    if there is True:
        return value(mask)
    if isinstance(there, bool):
        return zero
    if lanes_of(there) == 1:
        return code.when(there, lambda: [value(mask)], lambda: [zero])[0]
    return code.select(there, value(code.within(there, mask, points.lanes)), zero)


def _own_bounds(frame: Frame, factor: ProductFactor) -> list[Bound]:
    """Bounds of the nest that the factor's own loops decide, or that rows decide for it."""
    p = frame.plan
    known = set(factor.loops) | set(p.reduced) | set(p.batch)
    known |= set(
        p.row_loops if factor is frame.sizes.factors[0] else (p.vector_loop, *p.outer_columns)
    )
    return [b for b in frame.nest.bounds if access_loops(b) <= known]


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
        and not _own_bounds(frame, factor)
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
    own = frame.copied_kind

    def square(i: Index, mask: Mask = None) -> None:
        for v in vectors:
            here = _at_vector(frame.moved({along: code.add(start, i)}), v)
            points = Points(code, frame.nest, frame.reads, along, lanes)
            columns = []
            for n in range(lanes):
                if v[2] is not None and n >= v[2]:
                    columns.append(code.zero(own, lanes))
                    continue
                one = here.moved({p.vector_loop: code.add(here.at[p.vector_loop], n)})
                x = points.access(source, one.at, mask)
                columns.append(converted(code, x, source.dtype, s.copied_dtype))
                if mask is None:  # no prefetcher follows so many streams
                    far = code.add(points.offset(source, one.at), AHEAD * lanes)
                    code.prefetch(code.at(frame.reads[source.buffer], kind, far), level=2)
            for n, x in enumerate(code.transposed(columns)):
                at = code.add(code.mul(code.add(i, n), s.panel_row), frame.slot(0, v))
                row = lambda x=x, at=at: code.store(x, code.at(to, own, at), own)  # noqa: E731
                if mask is None:
                    row()
                elif isinstance(mask, int):
                    if n < mask:
                        row()
                else:
                    code.when(code.lane(mask, n), lambda row=row: row() and None)

    code.strips(size, lanes, square)
