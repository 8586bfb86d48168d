"""A nest over few points held against the nest in place that it stands for, by computing both.

Places are computed for numbers at and around the borders of all loops that became shorter, and for
every place of these: where the condition may hold the few points have to be, and there they have to
read and write the elements that the whole nest does.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eqsat.model.expr import Expr
from eqsat.model.nest import Access, Lookup, Nest
from eqsat.ops.meaning import scalar
from eqsat.plan.inplace import kept_where

MOST = 1 << 16  # places that are computed at once
ROUNDS = 3  # in each of which every number has each of its values once

Array = np.ndarray[Any, Any]


def update_faults(whole: Nest, few: Nest, lines: Collection[int]) -> Iterator[str]:
    """What is wrong of a nest over few points of another one, each in a sentence.

    lines: buffers that hold 0, 1, …
    """
    if fault := _shape_fault(whole, few):
        yield fault
        return
    own = [i for i, n in enumerate(whole.sizes) if few.sizes[i] != n]
    if math.prod(whole.sizes[i] for i in own) > MOST:
        yield f"loops {own} have more than {MOST:,} places together"
        return
    new = [k for a, b in _pairs(whole, few) for k in b.lookups[len(a.lookups) :]]
    numbers = sorted({x for k in new for x in k.arguments}, key=str)
    if any(x.strides[i] for x in numbers for i in own):
        yield "where it begins depends on loops that became shorter"
        return
    for values in _tried([whole.sizes[i] for i in own], len(numbers)):
        given = dict(zip(numbers, values, strict=True))
        if fault := _Places(whole, own, given, lines).fault(few):
            yield f"{fault}, where {values} are looked up"
            return


def _tried(sizes: Sequence[int], numbers: int) -> Iterator[tuple[int, ...]]:
    """Values of several numbers: at and around the ends of loops, in one, and far outside."""
    near = {e + d for n in sizes for e in (0, n) for d in (-2, -1, 0, 1)}
    values = sorted(near | {n // 2 for n in sizes} | {-(2**31), 2**31 - 1})
    count = len(values)
    for shift in range(ROUNDS if numbers > 1 else 1):
        for i in range(count):
            yield tuple(values[(i * (1 + shift * n) + n) % count] for n in range(numbers))


def _shape_fault(whole: Nest, few: Nest) -> str:
    """What differs besides sizes, and where accesses are."""
    sides = zip(whole.sizes, few.sizes, strict=False)
    if len(whole.sizes) != len(few.sizes) or not all(0 < b <= a for a, b in sides):
        return "its loops are not those of the whole, or longer"
    if len(whole.stores) != 1 or len(few.stores) != 1:
        return "it has other stores than the whole"

    def still(nest: Nest) -> Nest:
        stages = tuple([replace(s, arguments=tuple(map(_placeless, s.arguments)))
                        for s in nest.stages])  # fmt: skip
        stores = tuple([replace(s, access=_placeless(s.access)) for s in nest.stores])
        return replace(nest, sizes=(), stages=stages, stores=stores)

    same = still(whole) == still(few) and all(_looks_up(a, b) for a, b in _pairs(whole, few))
    return "" if same else "it computes something else than the whole"


def _looks_up(a: Access, b: Access) -> bool:
    """Whether the second access has the lookups of the first one, and more."""
    sides = zip(a.lookups, b.lookups, strict=False)
    kinds = [[(k.body, k.dtype, k.stride, k.extent, len(k.arguments)) for k in p] for p in sides]
    return len(a.lookups) <= len(b.lookups) and all(one == other for one, other in kinds)


def _placeless(a: Any) -> Any:
    if not isinstance(a, Access):
        return a
    return Access(a.buffer, a.dtype, (), 0, a.bounds, a.fill)


def _pairs(whole: Nest, few: Nest) -> Iterator[tuple[Access, Access]]:
    """Accesses of both nests, side by side; what lookups of the whole read as well."""
    left = list(zip(whole.accesses, few.accesses, strict=True))
    while left:
        a, b = left.pop()
        yield a, b
        for one, other in zip(a.lookups, b.lookups, strict=False):
            left += zip(one.arguments, other.arguments, strict=True)


@dataclass(frozen=True)
class _Places:
    """All places of the loops that became shorter, at given values of numbers.

    own: these loops; the others are at their first point. given: by the access that reads it.
    """

    whole: Nest
    own: Sequence[int]
    given: Mapping[Access, int]
    lines: Collection[int]

    def fault(self, few: Nest) -> str:
        every, some = self._points(self.whole), self._points(few)
        (one,), (other,) = self.whole.stores, few.stores
        written, visited = self._address(one.access, every), self._address(other.access, some)
        if one.access.lookups or np.unique(written).size < written.size:
            return "where elements are written cannot be told apart"
        order = np.argsort(written)
        found = np.searchsorted(written, visited, sorter=order)
        at = order[np.minimum(found, len(order) - 1)]
        if np.unique(visited).size < visited.size or (written[at] != visited).any():
            return "an element is written twice, or one that the whole does not write"
        changes = self._may_change(every)
        changes[at] = False
        if changes.any():
            return "an element that may change is left out"
        for a, b in _pairs(self.whole, few):
            added = replace(b, lookups=b.lookups[len(a.lookups) :])
            plain = replace(a, lookups=())
            if (self._address(plain, every[:, at]) != self._address(added, some)).any():
                return f"%{a.buffer} is read at another place than in the whole"
        return ""

    def _points(self, nest: Nest) -> Array:
        """The places of own loops, a column each."""
        sizes = [nest.sizes[i] for i in self.own]
        return np.indices(sizes).reshape(len(sizes), math.prod(sizes))

    def _address(self, a: Access, points: Array) -> Array:
        own = a.base + np.array([a.strides[i] for i in self.own], np.int64) @ points
        return own + sum(k.stride * self._looked_up(k) for k in a.lookups)

    def _looked_up(self, k: Lookup) -> int:
        """The number of a lookup that is the same at all points."""
        values = [np.array([self.given[x]], np.int32) for x in k.arguments]
        found = scalar.hold(scalar.evaluate_body(k.body, values), k.dtype)
        return int(np.clip(found, 0, k.extent - 1).max())

    # ---- the condition
    def _may_change(self, points: Array) -> Array:
        """Per place: whether the condition may hold, whatever is not known of it."""
        store = self.whole.stores[0]
        condition = kept_where(self.whole, store)
        if condition is None or not condition[2]:
            return np.ones(points.shape[1], bool)
        return self._may_hold(store.stage, condition[0], points)

    def _may_hold(self, stage: int, e: Expr, points: Array) -> Array:
        if e.fn == "and":
            one, other = (self._may_hold(stage, x, points) for x in e.args)
            return one & other
        below = self.whole.stages[stage].arguments[e.value] if e.fn == "arg" else None
        if isinstance(below, int) and not self.whole.stages[below].combine:
            return self._may_hold(below, self.whole.stages[below].body, points)
        found = self._value(stage, e, points)
        known = True if found is None else found
        return np.broadcast_to(known, points.shape[1:]).astype(bool)

    def _value(self, stage: int, e: Expr, points: Array) -> Any:
        """The value per place; None if it is not known."""
        operands: dict[int, Any] = {}
        for i in e.operands():
            operands[i] = self._operand(self.whole.stages[stage].arguments[i], points)
            if operands[i] is None:
                return None
        values: list[Any] = [operands.get(i) for i in range(max(operands, default=-1) + 1)]
        return scalar.evaluate_body(e, values)

    def _operand(self, a: Access | int, points: Array) -> Any:
        if isinstance(a, int):
            s = self.whole.stages[a]
            value = None if s.combine or s.bounds else self._value(a, s.body, points)
            return None if value is None else scalar.hold(value, s.dtype)
        if a in self.given:
            return np.array([self.given[a]], np.int32)
        others = {i for i, s in enumerate(a.strides) if s} - {*self.own}
        if a.buffer not in self.lines or a.lookups or a.bounds or others:
            return None
        return self._address(a, points).astype(np.int32)
