"""Where rows lie inside: points of a part of rows at which bounds hold, so that nobody tests them.

A row is inside where it is away from every border that it reads beyond; along its vectors, from
the first whole vector behind one border to the last in front of the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from eqsat.model.nest import Access, Bound, Nest, Stage
from eqsat.ops.nests.reached import span
from eqsat.plan.passes import Dependences, Sweep
from eqsat.plan.stages import access_loops

if TYPE_CHECKING:
    from eqsat.plan.rows import Part

LEAST_SHARE = 0.5  # of the points, at which a bound has to hold for code of its own
MOST_ROWS = 1 << 14  # that are counted to know at how many of them a bound holds


class Interior(NamedTuple):
    """bounds: hold at all points of a row where `rows` hold, those of the vector loop from `low` to
    `high` - 1. Both are whole vectors apart from its start; `high` may be its end."""

    bounds: tuple[Bound, ...]
    rows: tuple[Bound, ...]
    low: int
    high: int


def held_within_rows(
    nest: Nest, passes: Dependences, groups: Sequence[Sweep], outer: Collection[int]
) -> dict[Bound, Bound]:
    """Bounds that the rows of these passes test and that hold at most points, with the bounds of
    rows at all of whose points they do. outer: loops of the rows."""
    inner = frozenset[int]().union(*(g.inner | g.reduced for g in groups))
    held = {b: _over(b, inner, nest) for b in _tested(nest, passes, groups, {*outer, *inner})}
    return {b: r for b, r in held.items() if share_held(r, nest) >= LEAST_SHARE}


def interior(nest: Nest, held: Mapping[Bound, Bound], part: Part) -> Interior | None:
    """The interior of a part whose lanes are rows; None if there is little or nothing to test.

    held: see `held_within_rows`.
    """
    if part.vector < 0 or part.square >= 0 or not held:
        return None
    along = [b for b, r in held.items() if access_loops(r) == {part.vector}]
    rows = {b: r for b, r in held.items() if part.vector not in access_loops(r)}
    low, high = _vectors(nest, part, [held[b] for b in along])
    if high - low < LEAST_SHARE * nest.sizes[part.vector]:
        along, low, high = [], 0, nest.sizes[part.vector]
    if not along and not rows:
        return None
    return Interior((*along, *rows), tuple(dict.fromkeys(rows.values())), low, high)


def share_inside(nest: Nest, part: Part) -> float:
    """The share of a part's vectors that lie inside."""
    if part.inside is None:
        return 0.0
    size, lanes = nest.sizes[part.vector], part.lanes
    count = -(-part.inside.high // lanes) - part.inside.low // lanes
    rows = (share_held(b, nest) for b in part.inside.rows)
    return reduce(lambda a, b: a * b, rows, count / -(-size // lanes))


def without_bounds(nest: Nest, bounds: Iterable[Bound]) -> Nest:
    """The nest that does not test these bounds; what it reads then is the same where they hold."""
    gone = frozenset(bounds)

    def left(own: tuple[Bound, ...]) -> tuple[Bound, ...]:
        return tuple(b for b in own if b not in gone)

    def stage(s: Stage) -> Stage:
        found = (a if isinstance(a, int) else untested(a, gone) for a in s.arguments)
        return replace(s, arguments=tuple(found), bounds=left(s.bounds))

    stores = tuple(
        replace(s, access=untested(s.access, gone), bounds=left(s.bounds)) for s in nest.stores
    )
    return replace(nest, stages=tuple(map(stage, nest.stages)), stores=stores,
                   bounds=left(nest.bounds))  # fmt: skip


def untested(a: Access, bounds: Collection[Bound]) -> Access:
    """The access where these bounds hold."""
    if not any(b in bounds for b in a.bounds):
        return a
    own = tuple(b for b in a.bounds if b not in bounds)
    return replace(a, bounds=own, fill=a.fill if own else None)


def share_held(b: Bound, nest: Nest) -> float:
    """At which share of all points a bound holds; 0 where there are too many to count."""
    loops = sorted(access_loops(b))
    if nest.points(loops) > MOST_ROWS:
        return 0.0
    values = [b.base]
    for i in loops:
        values = [v + b.strides[i] * n for v in values for n in range(nest.sizes[i])]
    return sum(0 <= v < b.extent for v in values) / len(values)


def _tested(
    nest: Nest, passes: Dependences, groups: Sequence[Sweep], loops: set[int]
) -> list[Bound]:
    """All bounds that the rows of these passes test, over these loops."""
    own = {i for g in groups for i in (*passes.evaluated(g), *g.stages)}
    stages = [nest.stages[i] for i in sorted(own)]
    stores = [nest.stores[i] for g in groups for i in g.stores]
    found = [b for s in stages for b in s.bounds]
    found += [b for s in stages for a in s.arguments if isinstance(a, Access) for b in a.bounds]
    found += [b for s in stores for b in (*s.bounds, *s.access.bounds)]
    return list(dict.fromkeys(b for b in (*found, *nest.bounds) if access_loops(b) <= loops))


def _over(b: Bound, inner: Iterable[int], nest: Nest) -> Bound:
    """The bound that holds where this one does at all points of loops within a row."""
    steps = [s if i in inner else 0 for i, s in enumerate(b.strides)]
    low, high = span(steps, 0, nest.sizes)
    rest = tuple(s - t for s, t in zip(b.strides, steps, strict=True))
    return Bound(rest, b.base + low, b.extent - (high - low))


def _vectors(nest: Nest, part: Part, along: Sequence[Bound]) -> tuple[int, int]:
    """The whole vectors at which bounds of the vector loop alone hold."""
    size, lanes = nest.sizes[part.vector], part.lanes
    first, end = 0, size
    for b in along:
        step = b.strides[part.vector]
        reach = sorted((-b.base * step, (b.extent - 1 - b.base) * step))
        first = max(first, -(-reach[0] // step**2))
        end = min(end, reach[1] // step**2 + 1)
    first = -(-first // lanes) * lanes
    return first, end if end == size else max(first, end // lanes * lanes)
