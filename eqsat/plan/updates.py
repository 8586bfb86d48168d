"""A nest in place that chooses by position → the same nest over the few points that it changes.

Where a value is new only at places that are compared with `0, 1, …` (a row of a cache, rows from a
start on), a loop of all places becomes one of as many as may be new, which begins where the start
says. The condition stays as it is, so a start that lies outside changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache

from eqsat.model.expr import Expr, arg, call, cast, const
from eqsat.model.leaves import Leaf
from eqsat.model.nest import Access, Lookup, Nest, NoNest
from eqsat.model.schedule import Dispatch, Schedule
from eqsat.ops.meaning.iotas import is_iota
from eqsat.ops.nests.nest import nest_of_dispatch
from eqsat.plan.inplace import in_place, kept_where
from eqsat.plan.stages import access_loops
from eqsat.plan.updatecheck import update_faults

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
    found = few_points(nest, lines)
    return nest if found is None else found


@lru_cache(maxsize=10_000)
def few_points(nest: Nest, lines: frozenset[int]) -> Nest | None:
    """As `updated`; None if all points may change."""
    found = kept_where(nest, nest.stores[0]) if len(nest.stores) == 1 else None
    if found is None:
        return None
    condition, _, holds = found
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
    found: dict[int, FewPoints] = {}
    for t in terms:
        if t.fn == "eq":
            found.setdefault(t.loop, FewPoints(1, _minus(t.number, t.first)))
    for low in (t for t in terms if t.fn == "ge"):
        same = (t for t in terms if (t.fn, t.loop, t.first) == ("lt", low.loop, low.first))
        for width in (_less(high.number, low.number) for high in same):
            if width is not None and width > 0:
                found.setdefault(low.loop, FewPoints(width, _minus(low.number, low.first)))
    return {k: s for k, s in found.items() if not _loops(s) & found.keys()}


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
