"""Buffers of a nest as arrays of several dims, and stages of it that sum products of two values.

A nest knows flat addresses. Blocks of an accelerator are boxes of arrays, so the shape that a
buffer has in its program is looked for in the strides: loops are cut where dims end, with an index
per dim. Where another shape fits better the buffer is seen as that one, which changes no byte.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product

from eqsat.model.affine import Affine
from eqsat.model.attr import Shape
from eqsat.model.expr import Expr
from eqsat.model.generic import without_casts
from eqsat.model.nest import Access, Bound, Lookup, Nest, Stage, Store
from eqsat.plan.stages import access_loops


@dataclass(frozen=True)
class BufferView:
    """How an access sees its buffer: as an array of this shape, at an index per dim."""

    shape: Shape
    indices: tuple[Affine, ...]


def strides_of(shape: Sequence[int]) -> list[int]:
    """Elements from one index of a dim to the next, rows first."""
    return [math.prod(shape[d + 1 :]) for d in range(len(shape))]


def reach(index: Affine, sizes: Sequence[int]) -> tuple[int, int]:
    """The least and the largest value of an index over whole loops."""
    ends = [s * (sizes[d] - 1) for d, s in index.terms]
    low = index.constant + sum(min(e, 0) for e in ends)
    return low, index.constant + sum(max(e, 0) for e in ends)


# ---- loops cut where dims end --------------------------------------------------------------------
def split_loops(nest: Nest, shapes: Mapping[int, Shape]) -> Nest:
    """Nest with loops that run over several dims of a buffer cut into one per dim.

    shapes: of every buffer. Where two buffers cut a loop in different ways the first one counts,
    results before operands.
    """
    parts = [_parts(nest, shapes, loop) for loop in range(len(nest.sizes))]
    return nest if all(len(p) == 1 for p in parts) else _Split(nest, parts).nest()


def _parts(nest: Nest, shapes: Mapping[int, Shape], loop: int) -> list[int]:
    """Extents into which a loop is cut, the outermost first."""
    size, chain = nest.sizes[loop], [1, nest.sizes[loop]]
    for a in reversed(nest.accesses):
        step = abs(a.strides[loop])
        for border in strides_of(shapes[a.buffer]) if step else ():
            cut, rest = divmod(border, step)
            if rest or not 1 < cut < size:
                continue
            if all(max(cut, c) % min(cut, c) == 0 for c in chain) and cut not in chain:
                chain.append(cut)
    chain.sort()
    return [b // a for a, b in pairwise(chain)][::-1] or [1]


class _Split:
    """A nest over parts of its loops."""

    def __init__(self, nest: Nest, parts: list[list[int]]):
        self.whole, self.parts = nest, parts
        starts = [0]
        for p in parts:
            starts.append(starts[-1] + len(p))
        self.digits_of = [tuple(range(a, b)) for a, b in pairwise(starts)]

    def nest(self) -> Nest:
        n = self.whole
        sizes = tuple([s for p in self.parts for s in p])
        stages = tuple([self._stage(s) for s in n.stages])
        stores = tuple([self._store(s) for s in n.stores])
        return Nest(sizes, stages, stores, tuple([self._bound(b) for b in n.bounds]))

    def _strides(self, strides: Sequence[int]) -> tuple[int, ...]:
        pairs = zip(strides, self.parts, strict=True)
        return tuple([s * inner for s, p in pairs for inner in strides_of(p)])

    def _loops(self, loops: Iterable[int]) -> tuple[int, ...]:
        return tuple([part for loop in loops for part in self.digits_of[loop]])

    def _bound(self, b: Bound) -> Bound:
        return Bound(self._strides(b.strides), b.base, b.extent)

    def _access(self, a: Access) -> Access:
        lookups = tuple(
            [
                Lookup(tuple(map(self._access, k.arguments)), k.body, k.dtype, k.stride, k.extent)
                for k in a.lookups
            ]
        )
        bounds = tuple(map(self._bound, a.bounds))
        strides = self._strides(a.strides)
        return replace(a, strides=strides, bounds=bounds, lookups=lookups)

    def _stage(self, s: Stage) -> Stage:
        arguments = [a if isinstance(a, int) else self._access(a) for a in s.arguments]
        return replace(
            s,
            loops=self._loops(s.loops),
            reduced=self._loops(s.reduced),
            arguments=tuple(arguments),
            bounds=tuple(map(self._bound, s.bounds)),
        )

    def _store(self, s: Store) -> Store:
        bounds = tuple(map(self._bound, s.bounds))
        return replace(s, access=self._access(s.access), loops=self._loops(s.loops), bounds=bounds)


# ---- an index per dim ----------------------------------------------------------------------------
def view(
    access: Access, shape: Shape, nest: Nest, holds: Sequence[Bound] = ()
) -> BufferView | None:
    """The access as an index per dim of its buffer, or of another shape of it; None if neither is.

    holds: conditions under which the element is there, beside its own and the nest's. An index that
    leaves its dim does so only where one of these conditions fails.
    """
    conditions = (*access.bounds, *nest.bounds, *holds)
    indices = _indices(access, shape, nest.sizes, conditions)
    other = _other_shape(access, math.prod(shape))
    if indices is not None and not (len(shape) == 1 and other and _is_digits(indices[0])):
        return BufferView(shape, indices)
    new = None if other is None else _indices(access, other, nest.sizes, conditions)
    if other is not None and new is not None:
        return BufferView(other, new)
    return None if indices is None else BufferView(shape, indices)


def _is_digits(index: Affine) -> bool:
    """Whether an index of a vector is made of several loops: kernels cannot cut it well."""
    return len(index.terms) > 1 and index.constant == 0


def _other_shape(access: Access, elements: int) -> Shape | None:
    """A shape with a dim per loop, if each stride is a multiple of the next one."""
    steps = sorted({abs(s) for s in access.strides if s}, reverse=True)
    above, shape = elements, []
    for step in steps:
        if above % step:
            return None
        shape.append(above // step)
        above = step
    return (*shape, above) if above > 1 else tuple(shape)


def _indices(
    access: Access, shape: Shape, sizes: Sequence[int], conditions: Sequence[Bound]
) -> tuple[Affine, ...] | None:
    steps = strides_of(shape)
    dims = [d for d, extent in enumerate(shape) if extent > 1]
    terms: list[list[tuple[int, int]]] = [[] for _ in shape]
    for loop, stride in enumerate(access.strides):
        left = abs(stride)
        for d in dims:
            count, left = divmod(left, steps[d])
            if count:
                terms[d].append((loop, count if stride > 0 else -count))
    for constants in _constants(access.base, dims, steps):
        indices = tuple([Affine(tuple(t), c) for t, c in zip(terms, constants, strict=True)])
        if all(_stays(i, n, sizes, conditions) for i, n in zip(indices, shape, strict=True)):
            return indices
    return None


def _constants(base: int, dims: Sequence[int], steps: Sequence[int]) -> Iterable[list[int]]:
    """The ways to write an address as one index per dim, each one near the quotient."""
    for choice in product((0, 1), repeat=max(len(dims) - 1, 0)):
        indices, left = [0] * len(steps), base
        for d, up in zip(dims, (*choice, 0), strict=False):
            indices[d] = left // steps[d] + up
            left -= indices[d] * steps[d]
        if left == 0:
            yield indices


def _stays(index: Affine, extent: int, sizes: Sequence[int], conditions: Sequence[Bound]) -> bool:
    """Whether an index is within its dim, or bounds say so."""
    low, high = reach(index, sizes)
    bounds = [b for b in conditions if _terms(b) == index.terms]
    is_above = low >= 0 or any(b.base <= index.constant for b in bounds)
    return is_above and (
        high < extent or any(index.constant - b.base + b.extent <= extent for b in bounds)
    )


def is_bound(b: Bound, index: Affine, extent: int) -> bool:
    """Whether a bound fails only where this index is below 0, or the extent or more."""
    if _terms(b) != index.terms:
        return False
    return b.base >= index.constant and index.constant - b.base + b.extent >= extent


def _terms(b: Bound) -> tuple[tuple[int, int], ...]:
    return tuple([(d, s) for d, s in enumerate(b.strides) if s])


@dataclass(frozen=True)
class ProductStage:
    """A sum of products: its two factors as bodies of one argument each, and loops by role.

    A loop of the stage that neither factor has is in none.
    """

    factors: tuple[Expr, Expr]
    arguments: tuple[int, int]  # places in the stage's arguments
    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    summed: tuple[int, ...]


def product_of(nest: Nest, number: int) -> ProductStage | None:
    """The product that a stage sums; None if it is something else, or sums one factor alone."""
    s = nest.stages[number]
    if s.combine != "add" or s.bounds:
        return None
    body = without_casts(s.body)
    if body.fn != "mul" or body is not s.body:
        return None
    inner = [without_casts(a) for a in body.args]
    if any(a.fn != "arg" for a in inner) or inner[0] == inner[1]:
        return None
    places = (int(inner[0].value), int(inner[1].value))
    left, right = (loops_read(nest, s.arguments[p]) for p in places)
    every = {*s.loops, *s.reduced}
    left, right = left & every, right & every
    if not set(s.reduced) <= left & right:
        return None

    def among(loops: set[int]) -> tuple[int, ...]:
        return tuple(sorted(loops))

    free = set(s.loops)
    return ProductStage(
        (body.args[0], body.args[1]),
        places,
        among(left & right & free),
        among((left - right) & free),
        among((right - left) & free),
        among(set(s.reduced)),
    )


def products_of(nest: Nest) -> dict[int, ProductStage]:
    """Number of a stage → the product it sums."""
    products = {i: product_of(nest, i) for i in range(len(nest.stages))}
    return {i: p for i, p in products.items() if p is not None}


def argument_type(nest: Nest, number: int, place: int) -> str:
    """The element type of an argument of a stage."""
    a = nest.stages[number].arguments[place]
    return nest.stages[a].dtype if isinstance(a, int) else a.dtype


def loops_read(nest: Nest, argument: Access | int) -> set[int]:
    """The loops along which an argument of a stage differs."""
    if isinstance(argument, int):
        return set(nest.stages[argument].loops)
    return set(access_loops(argument))


def stage_loops(s: Stage) -> tuple[int, ...]:
    """All loops over which a stage runs."""
    return (*s.loops, *s.reduced)
