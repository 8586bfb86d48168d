"""Windows of a factor copied to scratch: every element once, pads as what they hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from eqsat.execute.kernels.casts import memory_constant
from eqsat.execute.kernels.frame import Frame, converted, first_row
from eqsat.execute.kernels.fused import biased
from eqsat.execute.kernels.ir import Index, Mask
from eqsat.execute.kernels.kinds import TYPES, Value
from eqsat.execute.kernels.points import Points
from eqsat.model.nest import Access, Bound, Nest, Stage
from eqsat.plan.cores import LINE
from eqsat.plan.roles import ProductFactor
from eqsat.plan.windows import WindowCopy, holder_of


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
            self._ask_ahead(here)
            x = points.body(factor.body, factor.arguments, here, {}, mask, sums)
            code.store(self._as_copied(x, lanes), code.at(to, kind, i), kind, mask=mask)

        code.strips(size, lanes, vector)

    def _ask_ahead(self, at: tuple[Index, ...]) -> None:
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
        """What the sums would take of the factor as the copy holds it."""
        code, s = self.frame.code, self.frame.sizes
        short = converted(code, code.broadcast(x, lanes), s.roles.dtype, s.copied_dtype)
        return biased(self.frame, short)

    def _points(self, lanes: int = 1) -> Points:
        along = len(self.window.extents) - 1 if lanes > 1 else -1
        return Points(self.frame.code, self.checked.inside, self.frame.reads, along, lanes)

    def _padded(self, at: tuple[Index, ...]) -> tuple[Index, ...]:
        return at + (0,) * (len(self.window.extents) - len(at))

    def _tests(self, d: int) -> list[Bound]:
        """What is decided by coordinate d and those before it."""
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
