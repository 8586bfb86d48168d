"""Nests in place that choose by position → the same nests over the few points that they change.

Where a value is new only at places that are compared with `0, 1, …` (a row of a cache, rows from a
start on), a loop of all places becomes one of as many as may be new, which begins where the start
says. The condition stays as it is, so a start that lies outside changes nothing.

A check computes both: places for numbers at and around the borders of all loops that became
shorter, and for every place of these. Where the condition may hold the few points have to be, and
there they have to read and write the elements that the whole nest does.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from eqsat.model.expr import Expr, arg, call, cast, const
from eqsat.model.leaves import Leaf
from eqsat.model.nest import Access, Lookup, Nest, NoNest
from eqsat.model.schedule import Dispatch, Schedule
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.programs import is_iota
from eqsat.ops.nests.nest import nest_of_dispatch
from eqsat.plan.stages import access_loops
from eqsat.plan.storage import in_place, update_of

# ---- the check -----------------------------------------------------------------------------------
MOST = 1 << 16  # places that are computed at once
ROUNDS = 3  # in each of which every number has each of its values once

Array = np.ndarray[Any, Any]


def update_faults(whole: Nest, few: Nest, lines: Collection[int]) -> Iterator[str]:
    """Faults of a nest over few points of another one, each in a sentence.

    lines: buffers that hold 0, 1, …
    """
    if fault := _shape_fault(whole, few):
        yield fault
        return
    loops = [i for i, n in enumerate(whole.sizes) if few.sizes[i] != n]
    if math.prod(whole.sizes[i] for i in loops) > MOST:
        yield f"loops {loops} have more than {MOST:,} places together"
        return
    new = [k for a, b in _pairs(whole, few) for k in b.lookups[len(a.lookups) :]]
    numbers = sorted({x for k in new for x in k.arguments}, key=str)
    if any(x.strides[i] for x in numbers for i in loops):
        yield "where it begins depends on loops that became shorter"
        return
    for values in _tried([whole.sizes[i] for i in loops], len(numbers)):
        given = dict(zip(numbers, values, strict=True))
        if fault := _Places(whole, loops, given, lines).fault(few):
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
    """Difference of two nests besides sizes and places of accesses."""
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

    loops: these; the others are at their first point. given: by the access that reads it.
    """

    whole: Nest
    loops: Sequence[int]
    given: Mapping[Access, int]
    lines: Collection[int]

    def fault(self, few: Nest) -> str:
        every, some = self._points(self.whole), self._points(few)
        (one,), (other,) = self.whole.stores, few.stores
        written, visited = self._address(one.access, every), self._address(other.access, some)
        if one.access.lookups or np.unique(written).size < written.size:
            return "where elements are written cannot be told apart"
        order = np.argsort(written)
        positions = np.searchsorted(written, visited, sorter=order)
        at = order[np.minimum(positions, len(order) - 1)]
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
        sizes = [nest.sizes[i] for i in self.loops]
        return np.indices(sizes).reshape(len(sizes), math.prod(sizes))

    def _address(self, a: Access, points: Array) -> Array:
        address = a.base + np.array([a.strides[i] for i in self.loops], np.int64) @ points
        return address + sum(k.stride * self._looked_up(k) for k in a.lookups)

    def _looked_up(self, k: Lookup) -> int:
        """The number of a lookup that is the same at all points."""
        values = [np.array([self.given[x]], np.int32) for x in k.arguments]
        number = scalar.hold(scalar.evaluate_body(k.body, values), k.dtype)
        return int(np.clip(number, 0, k.extent - 1).max())

    # ---- the condition
    def _may_change(self, points: Array) -> Array:
        """Per place: whether the condition may hold, whatever is not known of it."""
        store = self.whole.stores[0]
        condition = update_of(self.whole, store)
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
        value = self._value(stage, e, points)
        holds = True if value is None else value
        return np.broadcast_to(holds, points.shape[1:]).astype(bool)

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
        others = {i for i, s in enumerate(a.strides) if s} - {*self.loops}
        if a.buffer not in self.lines or a.lookups or a.bounds or others:
            return None
        return self._address(a, points).astype(np.int32)


# ---- the few points ------------------------------------------------------------------------------
Number = tuple[Expr, tuple[Access, ...]]  # an integer, and what it is computed from


def nest_in_place(schedule: Schedule, dispatch: Dispatch) -> Nest:
    """The nest of a dispatch as its schedule has it write in place; NoNest if it has none."""
    nest = nest_of_dispatch(schedule, dispatch)
    pairs = [(r, a) for r, a in schedule.in_place if r in dispatch.writes]
    for result, argument in pairs:
        nest = in_place(nest, argument, result)
    return updated(nest, lines_of(schedule, dispatch.reads)) if pairs else nest


def lines_of(schedule: Schedule, nodes: Collection[int]) -> frozenset[int]:
    """Of these nodes the weights that hold 0, 1, …"""
    leaves = ((i, schedule.program.nodes[i].attr) for i in nodes)
    return frozenset(i for i, leaf in leaves if isinstance(leaf, Leaf) and is_iota(leaf))


def few_of(nest: Nest, arguments: Collection[int], lines: frozenset[int]) -> Nest | None:
    """The nest with a result in the bytes of one of these arguments, over the few points that it
    changes; None if all points may change."""
    for argument in arguments if len(nest.stores) == 1 else ():
        with suppress(NoNest):
            few = few_points(in_place(nest, argument, nest.writes[0]), lines)
            if few is not None:
                return few
    return None


@dataclass(frozen=True)
class FewPoints:
    """Places of a loop: so many from a start on; the loop's own `base` of them comes first."""

    width: int
    start: Number


def updated(nest: Nest, lines: frozenset[int]) -> Nest:
    """The nest over the points that its one store in place may change; itself if that is all.

    lines: buffers that hold 0, 1, …
    """
    few = few_points(nest, lines)
    return nest if few is None else few


@lru_cache(maxsize=10_000)
def few_points(nest: Nest, lines: frozenset[int]) -> Nest | None:
    """Nest over few points, as `updated`; None if all points may change."""
    update = update_of(nest, nest.stores[0]) if len(nest.stores) == 1 else None
    if update is None:
        return None
    condition, _, holds = update
    if not holds:
        return None
    spans = _spans(nest, lines, nest.stores[0].stage, condition)
    few = nest
    for loop, span in spans.items():
        if span.width < nest.sizes[loop] and not _is_bounded(nest, loop):
            few = _narrowed(few, loop, span)
    if few is nest or next(update_faults(nest, few, lines), ""):
        return None
    return few


# ---- conditions ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Term:
    """`line + first fn number` of a loop."""

    loop: int
    first: int
    fn: str
    number: Number


_TURNED = {"eq": "eq", "ge": "le", "le": "ge", "lt": "gt", "gt": "lt"}


def _spans(nest: Nest, lines: Collection[int], stage: int, condition: Expr) -> dict[int, FewPoints]:
    """Per loop the places outside of which the condition fails, where it says so."""
    terms = [t for e, s in _all_of(nest, stage, condition) for t in _terms(nest, lines, s, e)]
    spans: dict[int, FewPoints] = {}
    for t in terms:
        if t.fn == "eq":
            spans.setdefault(t.loop, FewPoints(1, _minus(t.number, t.first)))
    for low in (t for t in terms if t.fn == "ge"):
        same = (t for t in terms if (t.fn, t.loop, t.first) == ("lt", low.loop, low.first))
        for width in (_less(high.number, low.number) for high in same):
            if width is not None and width > 0:
                spans.setdefault(low.loop, FewPoints(width, _minus(low.number, low.first)))
    return {k: s for k, s in spans.items() if not _loops(s) & spans.keys()}


def _loops(span: FewPoints) -> frozenset[int]:
    """The loops that a start depends on."""
    return frozenset().union(*map(access_loops, span.start[1]))


def _all_of(nest: Nest, stage: int, e: Expr) -> Iterator[tuple[Expr, int]]:
    """The conditions that all have to hold, each with the stage whose arguments it names."""
    if e.fn == "and":
        for a in e.args:
            yield from _all_of(nest, stage, a)
        return
    below = nest.stages[stage].arguments[e.value] if e.fn == "arg" else None
    if isinstance(below, int) and _is_plain(nest, below):
        yield from _all_of(nest, below, nest.stages[below].body)
        return
    yield e, stage


def _is_plain(nest: Nest, stage: int) -> bool:
    s = nest.stages[stage]
    return not s.combine and not s.bounds


def _terms(nest: Nest, lines: Collection[int], stage: int, e: Expr) -> Iterator[_Term]:
    if e.fn not in _TURNED or len(e.args) != 2:
        return
    for line, other, fn in ((*e.args, e.fn), (*reversed(e.args), _TURNED[e.fn])):
        a = nest.stages[stage].arguments[line.value] if line.fn == "arg" else None
        if not isinstance(a, Access) or a.buffer not in lines or a.bounds or a.lookups:
            continue
        loops = [i for i, s in enumerate(a.strides) if s]
        number = _number(nest, stage, other)
        if len(loops) == 1 and a.strides[loops[0]] == 1 and a.dtype == "i32" and number:
            yield _Term(loops[0], a.base, fn, number)


def _number(nest: Nest, stage: int, e: Expr) -> Number | None:
    """An i32 over the accesses that it reads."""
    arguments: list[Access] = []
    new: dict[int, Expr] = {}
    for i in e.operands():
        a = nest.stages[stage].arguments[i]
        if isinstance(a, int):
            below = _number(nest, a, nest.stages[a].body) if _is_plain(nest, a) else None
            if below is None or nest.stages[a].dtype != "i32":
                return None
            body, read = below
            shifted = {k: arg(k + len(arguments)) for k in body.operands()}
            new[i] = cast(body.substitute(shifted), "i32")
            arguments += read
            continue
        if a.bounds:
            return None
        new[i] = arg(len(arguments))
        arguments.append(a)
    return e.substitute(new), tuple(arguments)


def _minus(number: Number, base: int) -> Number:
    body, arguments = number
    if not base:
        return number
    if body.fn == "const":
        return const(body.value - base), arguments
    return call("sub", body, const(base)), arguments


def _less(high: Number, low: Number) -> int | None:
    """By how much one number is more than another, if it is that plus a constant."""
    (one, read), (other, same) = high, low
    if one.fn == "const" and other.fn == "const":
        return int(one.value) - int(other.value)
    for number, more in (one.args, reversed(one.args)) if one.fn == "add" else ():
        if more.fn == "const" and number is other and read == same:
            return int(more.value)
    return None


# ---- loops ---------------------------------------------------------------------------------------
def _is_bounded(nest: Nest, loop: int) -> bool:
    """Whether a bound is about this loop: what it tests is not moved."""
    bounds = [*nest.bounds, *(b for s in (*nest.stages, *nest.stores) for b in s.bounds)]
    bounds += [b for a in _accesses(nest) for b in a.bounds]
    return any(b.strides[loop] for b in bounds)


def _accesses(nest: Nest) -> Iterator[Access]:
    left = list(nest.accesses)
    while left:
        a = left.pop()
        yield a
        left += a.indices


def _narrowed(nest: Nest, loop: int, span: FewPoints) -> Nest:
    """The nest with these places of a loop alone."""
    size = nest.sizes[loop]
    body, arguments = span.start

    def moved(a: Access) -> Access:
        a = a.with_indices(moved)
        step = a.strides[loop]
        if not step:
            return a
        if body.fn == "const":
            at = min(max(int(body.value), 0), size - span.width)
            return replace(a, base=a.base + step * at)
        lookup = Lookup(arguments, body, "i32", step, size - span.width + 1)
        return replace(a, lookups=(*a.lookups, lookup))

    stages = [
        replace(s, arguments=tuple([a if isinstance(a, int) else moved(a) for a in s.arguments]))
        for s in nest.stages
    ]
    stores = [replace(s, access=moved(s.access)) for s in nest.stores]
    sizes = (*nest.sizes[:loop], span.width, *nest.sizes[loop + 1 :])
    return replace(nest, sizes=sizes, stages=tuple(stages), stores=tuple(stores))
