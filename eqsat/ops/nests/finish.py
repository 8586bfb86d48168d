"""A nest from what was pulled: equal stages once, bounds where they are needed, loops merged."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from eqsat.model.affine import Affine, map_loops
from eqsat.model.expr import Expr, arg, const
from eqsat.model.nest import Access, Bound, Lookup, Nest, NoNest, Scalar, Stage, Store
from eqsat.ops.nests.draft import (
    Constant,
    Element,
    Layer,
    LookupNumber,
    ReadValue,
    StageDraft,
    Written,
    joined_index,
)
from eqsat.ops.nests.loops import Loops, Point, affine_sum

Bounds = tuple[tuple[Affine, int], ...]


def finished(loops: Loops, stages: list[StageDraft], written: list[Written]) -> Nest:
    """The nest; NoNest if a reduction would run more than once for some of its values."""
    return _Finish(loops).nest(stages, written)


@dataclass
class _UnnumberedRead:
    """An access whose loops are not numbered yet."""

    buffer: int
    dtype: str
    address: Affine
    bounds: Bounds = ()
    fill: Scalar | None = None
    lookups: tuple[_Lookup, ...] = ()

    def indices(self) -> Iterable[Affine]:
        yield self.address
        for index, _ in self.bounds:
            yield index
        for k in self.lookups:
            for x in k.arguments:
                yield from x.indices()


class _Lookup(NamedTuple):
    arguments: tuple[_UnnumberedRead, ...]
    body: Expr
    dtype: str
    stride: int
    extent: int


@dataclass
class _Stage:
    node: int
    names: set[int]
    body: Expr
    arguments: tuple[_UnnumberedRead | int, ...]
    dtype: str
    combine: str = ""
    reduced: set[int] = field(default_factory=set)
    bounds: Bounds = ()
    fill: Scalar = 0


@dataclass
class _Store:
    access: _UnnumberedRead
    stage: int
    names: set[int]
    bounds: Bounds


class _Finish:
    def __init__(self, loops: Loops):
        self.loops = loops
        self.stages: list[_Stage] = []
        self.points: Counter[tuple[int, int]] = Counter()  # at which each reduction is computed
        self.stores: list[_Store] = []

    def nest(self, stages: list[StageDraft], written: list[Written]) -> Nest:
        number: list[int] = []  # of every stage that was made
        number_of: dict[tuple[int, int, Point], int] = {}
        for m in stages:
            at = self.loops.all_now(m.at)
            key = (m.node, m.result, at)
            if key not in number_of:
                number_of[key] = self._stage(m, at, number)
            number.append(number_of[key])
        for w in written:
            self._store(w, number)
        return self._numbered()

    # ---- reading
    def _read(self, e: Element) -> _UnnumberedRead:
        """The element at its address, where it has one."""
        at = self.loops.all_now(e.at)
        address = joined_index(at, e.shape)
        bounds = self._bounds(at, e.shape)
        if not self.loops.lookups:
            return _UnnumberedRead(e.buffer, e.dtype, address, bounds)
        looked_up = [t for t in address.terms if t[0] in self.loops.lookups]
        lookups = tuple([self._lookup(loop, stride) for loop, stride in looked_up])
        plain = Affine(tuple(t for t in address.terms if t not in looked_up), address.constant)
        return _UnnumberedRead(e.buffer, e.dtype, plain, bounds, None, lookups)

    def _lookup(self, loop: int, stride: int) -> _Lookup:
        index = self.loops.lookups[loop]
        assert isinstance(index, LookupNumber)
        arguments: list[_UnnumberedRead] = []
        for v in index.arguments:
            x, pads = self._padded_read(v)
            if pads:
                raise NoNest("a gather looks up by indices that are padded twice")
            arguments.append(x)
        return _Lookup(tuple(arguments), index.body, index.dtype, stride, self.loops.sizes[loop])

    def _bounds(self, at: Point, shape: Sequence[int]) -> Bounds:
        """The conditions under which a point is inside, those left out that always hold."""
        bounds = []
        for index, size in zip(self.loops.all_now(at), shape, strict=True):
            if not self.loops.is_within(index, size):
                if map_loops([index]) & self.loops.lookups.keys():
                    raise NoNest("a gather reads beyond the rows of a padded table")
                bounds.append((index, size))
        return tuple(bounds)

    def _layer(self, layer: Layer) -> Bounds:
        every = [b for at, shape in layer.bounds for b in self._bounds(at, shape)]
        return tuple(dict.fromkeys(every))

    def _value(self, v: ReadValue, node: int, number: list[int]) -> _UnnumberedRead | int:
        """Operand of a stage; a stage of its own for every pad that no access can hold."""
        value: _UnnumberedRead | int
        if isinstance(v.source, Element):
            value, pads = self._padded_read(v)
            dtype = v.source.dtype
        else:
            assert isinstance(v.source, int)
            value = number[v.source]
            dtype = self.stages[value].dtype
            pads = [(self._layer(k), k.fill) for k in reversed(v.layers) if k.fill is not None]
        for bounds, fill in pads:
            value = self._padded(value, node, dtype, bounds, fill) if bounds else value
        return value

    def _padded_read(self, v: ReadValue) -> tuple[_UnnumberedRead, list[tuple[Bounds, Scalar]]]:
        """An element with the pads that its access can hold, innermost first; the other pads."""
        assert isinstance(v.source, Element)
        read, pads = self._read(v.source), []
        for layer in reversed(v.layers):
            bounds = self._layer(layer)
            if not bounds:
                continue
            if not pads and _is_same(read.fill, layer.fill):
                read.bounds = tuple(dict.fromkeys((*bounds, *read.bounds)))
                read.fill = read.fill if layer.fill is None else layer.fill
            elif layer.fill is not None:
                pads.append((bounds, layer.fill))
        return read, pads

    def _padded(
        self, value: _UnnumberedRead | int, node: int, dtype: str, bounds: Bounds, fill: Scalar
    ) -> int:
        names = map_loops([i for i, _ in bounds])
        names |= self.stages[value].names if isinstance(value, int) else map_loops(_all(value))
        self.stages.append(_Stage(node, names, arg(0), (value,), dtype, bounds=bounds, fill=fill))
        return len(self.stages) - 1

    # ---- stages and stores
    def _stage(self, m: StageDraft, at: Point, number: list[int]) -> int:
        arguments = tuple([self._value(v, m.node, number) for v in m.arguments])
        reduced = map_loops(self.loops.all_now(m.reduced))
        names = self._names(at)
        bounds = self._layer(m.choice) if m.choice else ()
        if m.choice:
            names |= map_loops([i for i, _ in bounds])
            arguments = arguments if bounds else arguments[:1]
        if m.combine:
            self._check_once(m, at)
        self.stages.append(
            _Stage(m.node, names, m.body, arguments, m.dtype, m.combine, reduced, bounds)
        )
        return len(self.stages) - 1

    def _names(self, at: Point) -> set[int]:
        """The loops of a point, also those by which something is looked up."""
        names = map_loops(at)
        for d in names & self.loops.lookups.keys():
            index = self.loops.lookups[d]
            assert isinstance(index, LookupNumber)
            arguments = [
                self._names(self.loops.all_now(p)) for v in index.arguments for p in v.points()
            ]
            names = (names - {d}).union(*arguments)
        return names

    def _check_once(self, m: StageDraft, at: Point) -> None:
        """NoNest if a reduction would run more often than it has values."""
        counts = [(math.prod(self.loops.sizes[d] for d in map_loops([i])), n)
                  for i, n in zip(at, m.shape, strict=True)]  # fmt: skip
        self.points[m.node, m.result] += math.prod(map(min, counts))
        if not self._is_once(at) or self.points[m.node, m.result] > math.prod(m.shape):
            raise NoNest(f"%{m.node} (generic) would be computed more than once for some values")

    def _is_once(self, at: Point) -> bool:
        """Whether all points of the loops are other points of a value."""
        seen: set[int] = set(self.loops.lookups)
        for index in at:
            if map_loops([index]) & seen:
                return False
            seen |= map_loops([index])
            reach = 0
            for loop, stride in sorted(index.terms, key=lambda t: abs(t[1])):
                if abs(stride) <= reach:
                    return False
                reach += abs(stride) * (self.loops.sizes[loop] - 1)
        return True

    def _store(self, w: Written, number: list[int]) -> None:
        at = self.loops.all_now(w.at)
        offset = [affine_sum([(i, 1)], a) for i, a in zip(at, w.piece.offsets, strict=True)]
        access = _UnnumberedRead(w.piece.node, w.dtype, joined_index(offset, w.shape))
        value, outer = w.value, None
        if isinstance(value.source, int) and value.layers:
            # the outermost pad is written with what is stored
            *inner, outer = [*reversed(value.layers)]
            value = ReadValue(value.source, tuple(reversed(inner)))
            access.bounds, access.fill = self._layer(outer), outer.fill
        if isinstance(value.source, int):
            stage = self._value(value, w.piece.node, number)
        else:
            stage = self._copied(w, value, number)
        assert isinstance(stage, int)
        self.stores.append(_Store(access, stage, map_loops(at), self._bounds(at, w.piece.sizes)))

    def _copied(self, w: Written, value: ReadValue, number: list[int]) -> int:
        """The stage of what is written without being computed."""
        node = w.piece.node
        if isinstance(value.source, Constant):
            self.stages.append(_Stage(node, set(), const(value.source.value), (), w.dtype))
            return len(self.stages) - 1
        stage = self._value(value, node, number)
        if not isinstance(stage, int):
            self.stages.append(_Stage(node, map_loops(_all(stage)), arg(0), (stage,), w.dtype))
            stage = len(self.stages) - 1
        return stage

    # ---- numbers of loops
    def _numbered(self) -> Nest:
        uneven = [
            (self.loops.now(Affine(((u, 1),))), self.loops.sizes[u]) for u in self.loops.uneven
        ]
        order: dict[int, None] = {}
        for s in self.stores:
            order.update(dict.fromkeys(_by_stride(s.access.address)))
            order.update(dict.fromkeys(sorted(s.names)))
        for s in self.stages:
            order.update(dict.fromkeys([*sorted(s.names), *sorted(s.reduced)]))
        used = order.keys()
        bounds = [(i, n) for i, n in uneven if map_loops([i]) & used and self.loops.span(i)[1] >= n]
        return _Columns(self, list(order), bounds).nest()


def _is_same(a: Scalar | None, b: Scalar | None) -> bool:
    return a is None or b is None or (type(a) is type(b) and repr(a) == repr(b))


def _all(read: _UnnumberedRead) -> list[Affine]:
    return list(read.indices())


def _by_stride(index: Affine) -> list[int]:
    return [d for d, _ in sorted(index.terms, key=lambda t: -abs(t[1]))]


class _Columns:
    """A column of strides per loop, over all indices; two loops that are one are merged."""

    def __init__(self, finish: _Finish, order: list[int], bounds: list[tuple[Affine, int]]):
        self.finish, self.order, self.bounds = finish, order, bounds
        self.sizes = {d: finish.loops.sizes[d] for d in order}
        self.indices: list[Affine] = [i for i, _ in bounds]
        for s in finish.stages:
            self.indices += [i for i, _ in s.bounds]
            for a in s.arguments:
                if isinstance(a, _UnnumberedRead):
                    self.indices += a.indices()
        for s in finish.stores:
            self.indices += [*s.access.indices(), *(i for i, _ in s.bounds)]
        columns = {d: [0] * len(self.indices) for d in order}
        for n, index in enumerate(self.indices):
            for d, stride in index.terms:
                columns[d][n] = stride
        self.columns = {d: tuple(c) for d, c in columns.items()}
        self.sides = {d: self._sides(d) for d in order}
        self._merge()

    def _sides(self, d: int) -> tuple[bool, ...]:
        every = [x for s in self.finish.stages for x in (d in s.names, d in s.reduced)]
        return (*every, *(d in s.names for s in self.finish.stores))

    def _merge(self) -> None:
        """An outer loop whose every stride is that of an inner one times its extent is its part."""
        while (pair := self._pair()) is not None:
            outer, inner = pair
            self.sizes[inner] *= self.sizes[outer]
            self.order.remove(inner)
            self.order[self.order.index(outer)] = inner

    def _pair(self) -> tuple[int, int] | None:
        """Two loops that are one: the outer, the inner."""
        sides: dict[tuple[bool, ...], list[int]] = {}
        for d in self.order:
            sides.setdefault(self.sides[d], []).append(d)
        for alike in sides.values():
            for inner in alike if len(alike) > 1 else ():
                size = self.sizes[inner]
                wide = tuple([s * size for s in self.columns[inner]])
                for outer in alike:
                    if outer != inner and self.columns[outer] == wide:
                        return outer, inner
        return None

    def nest(self) -> Nest:
        bounds = [self._bound(i, n) for i, n in self.bounds]
        sizes = [self.sizes[d] for d in self.order]
        cutting = []
        for b in bounds:  # of a single loop: it is shorter
            loops = [n for n, s in enumerate(b.strides) if s]
            if len(loops) == 1 and b.base == 0 and b.strides[loops[0]] > 0:
                sizes[loops[0]] = min(sizes[loops[0]], -(-b.extent // b.strides[loops[0]]))
            else:
                cutting.append(b)
        stages = tuple([self._stage(s) for s in self.finish.stages])
        stores = tuple([self._store(s) for s in self.finish.stores])
        return Nest(tuple(sizes), stages, stores, tuple(cutting))

    def _strides(self, index: Affine) -> tuple[int, ...]:
        stride_of = dict(index.terms)
        return tuple([stride_of.get(d, 0) for d in self.order])

    def _bound(self, index: Affine, size: int) -> Bound:
        return Bound(self._strides(index), index.constant, size)

    def _bounds(self, bounds: Bounds) -> tuple[Bound, ...]:
        return tuple([self._bound(i, n) for i, n in bounds])

    def _loops(self, names: set[int]) -> tuple[int, ...]:
        return tuple([n for n, d in enumerate(self.order) if d in names])

    def _access(self, r: _UnnumberedRead) -> Access:
        lookups = tuple(
            [
                Lookup(tuple([self._access(x) for x in k.arguments]), k.body, k.dtype, k.stride,
                       k.extent)
                for k in r.lookups
            ]
        )  # fmt: skip
        strides = self._strides(r.address)
        bounds = self._bounds(r.bounds)
        return Access(r.buffer, r.dtype, strides, r.address.constant, bounds, r.fill, lookups)

    def _stage(self, s: _Stage) -> Stage:
        arguments = tuple([a if isinstance(a, int) else self._access(a) for a in s.arguments])
        names, reduced = self._loops(s.names), self._loops(s.reduced)
        bounds = self._bounds(s.bounds)
        return Stage(s.node, names, s.body, arguments, s.dtype, s.combine, reduced, bounds, s.fill)

    def _store(self, s: _Store) -> Store:
        access, loops = self._access(s.access), self._loops(s.names)
        return Store(access, s.stage, loops, self._bounds(s.bounds))
