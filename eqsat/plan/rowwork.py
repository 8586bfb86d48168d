"""Work of a plan of rows, counted (`model.plan.Work`), and the interior of its rows.

A row is inside where it is away from every border that it reads beyond; along its vectors, from
the first whole vector behind one border to the last in front of the other. At points inside, bounds
hold and are not tested.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from eqsat.model.dispatch import Work
from eqsat.model.expr import Expr
from eqsat.model.nest import Access, Bound, Nest, Stage
from eqsat.model.tensor import DTYPES
from eqsat.ops.nests.reached import span
from eqsat.plan import estimate
from eqsat.plan.passes import Dependences, Sweep
from eqsat.plan.price import touched_bytes
from eqsat.plan.stages import (
    NEAR,
    OWN_CACHE,
    PAGE_BYTES,
    access_loops,
    accesses_read,
    additions,
    additions_of,
    combining,
    summed,
)
from eqsat.plan.storage import update_of

if TYPE_CHECKING:
    from eqsat.plan.rows import Part, Pass

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
    shares = {b: _over(b, inner, nest) for b in _tested(nest, passes, groups, {*outer, *inner})}
    return {b: r for b, r in shares.items() if share_held(r, nest) >= LEAST_SHARE}


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

    def left(bounds: tuple[Bound, ...]) -> tuple[Bound, ...]:
        return tuple(b for b in bounds if b not in gone)

    def stage(s: Stage) -> Stage:
        arguments = (a if isinstance(a, int) else untested(a, gone) for a in s.arguments)
        return replace(s, arguments=tuple(arguments), bounds=left(s.bounds))

    stores = tuple(
        replace(s, access=untested(s.access, gone), bounds=left(s.bounds)) for s in nest.stores
    )
    return replace(nest, stages=tuple(map(stage, nest.stages)), stores=stores,
                   bounds=left(nest.bounds))  # fmt: skip


def untested(a: Access, bounds: Collection[Bound]) -> Access:
    """The access where these bounds hold."""
    if not any(b in bounds for b in a.bounds):
        return a
    left = tuple(b for b in a.bounds if b not in bounds)
    return replace(a, bounds=left, fill=a.fill if left else None)


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
    numbers = {i for g in groups for i in (*passes.evaluated(g), *g.stages)}
    stages = [nest.stages[i] for i in sorted(numbers)]
    stores = [nest.stores[i] for g in groups for i in g.stores]
    bounds = [b for s in stages for b in s.bounds]
    bounds += [b for s in stages for a in s.arguments if isinstance(a, Access) for b in a.bounds]
    bounds += [b for s in stores for b in (*s.bounds, *s.access.bounds)]
    return list(dict.fromkeys(b for b in (*bounds, *nest.bounds) if access_loops(b) <= loops))


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


SHUFFLE = 1  # additions, of a vector that is made of two
AT_ONCE = 3  # additions of single numbers that take as long as one of vectors


def element_bytes(dtype: str) -> int:
    return max(DTYPES[dtype][0], 8) // 8


def turned(nest: Nest, v: int, u: int) -> list[Access]:
    """Accesses that step along u by one and along v by more: what squares of both transpose."""
    return [
        a
        for a in dict.fromkeys(nest.accesses)
        if a.strides[u] == 1
        and a.strides[v] not in (0, 1)
        and not any({u, v} & access_loops(x) for x in a.indices)
    ]


class SweepParts(NamedTuple):
    """Work of a pass at a point of its loops and of its rows, whatever its vectors.

    moving: additions of vectors at a point, steady: once a row. from_scratch: values that come from
    scratch. ends: what is read and written. new, again: bytes along a row that no earlier pass of
    the row touches, and of each access that one did.
    """

    moving: float
    combined: float
    steady: float
    from_scratch: int
    ends: tuple[Access, ...]
    new: int
    again: tuple[int, ...]


def parts_of_sweeps(
    nest: Nest, passes: Dependences, groups: Sequence[Sweep], in_scratch: Sequence[int]
) -> list[SweepParts]:
    """The parts of all passes of a row. in_scratch: stages that lie there once computed."""
    parts: list[SweepParts] = []
    there, seen = set[int](), set[Access]()
    for g in groups:
        loops, evaluated = g.inner | g.reduced, passes.evaluated(g)
        stages = [*(i for i in evaluated if i not in there), *g.stages]
        staying = [i for i in stages if loops and i not in g.stages]
        steady = [i for i in staying if loops.isdisjoint(nest.stages[i].loops)]
        moving = [i for i in stages if i not in steady]
        combined = combining(nest, g.stages)
        reads = [a for a in passes.accesses(g, in_scratch) if access_loops(a) & loops]
        size = [nest.points(access_loops(a) & loops) * element_bytes(a.dtype) for a in reads]
        both = list(zip(reads, size, strict=True))
        parts.append(
            SweepParts(
                _bodies(nest, moving) + combined,
                combined,
                additions(nest, steady),
                len(there.intersection(evaluated)),
                tuple(_ends(nest, moving, g.stores)),
                sum(n for a, n in both if a not in seen),
                tuple(n for a, n in both if a in seen),
            )
        )
        there |= set(in_scratch).intersection(evaluated)
        seen |= set(reads)
    return parts


def row_work(nest: Nest, parts: Sequence[SweepParts], part: Part) -> Work:
    rows = nest.points(i for i in part.outer if i != part.vector)
    if part.vector >= 0:
        rows *= -(-nest.sizes[part.vector] // part.lanes)
    done = [Work(loops=_rows_begun(nest, part))]
    squares = frozenset(turned(nest, part.vector, part.square) if part.square >= 0 else ())
    for sweep, q in zip(parts, part.passes, strict=True):
        done.append(_pass_work(nest, sweep, q, part, rows, squares))
    return summed([*done, Work(streams=_again(nest, parts, part))])


def _rows_begun(nest: Nest, part: Part) -> float:
    """Innermost loops of rows: two where some of a row is inside; none of one whole turn."""
    if part.inside:
        return 2 * nest.points(part.outer[:-1])
    size = nest.sizes[part.outer[-1]] if part.outer else 0
    is_whole = size in (1, part.lanes * part.vectors)
    return nest.points(part.outer[: -2 if is_whole else -1])


def _pass_work(
    nest: Nest, sweep: SweepParts, q: Pass, part: Part, rows: float, squares: frozenset[Access]
) -> Work:
    """squares: accesses that are transposed in registers."""
    loops = frozenset((*q.inner, *q.reduced))
    lanes = part.lanes if part.vector >= 0 else q.lanes
    points = rows
    for i in loops:
        points *= -(-nest.sizes[i] // q.lanes) if i == q.vector else nest.sizes[i]
    arithmetic = points * sweep.moving + rows * sweep.steady
    if q.reduced and q.vector in q.reduced:
        results = rows * nest.points(q.inner)
        arithmetic += results * sweep.combined * lanes.bit_length()
    loads, strided, pages = points * sweep.from_scratch, 0.0, 0.0
    beside, seen = 1 - share_inside(nest, part), set[Access]()
    begun = nest.points(i for i in part.outer if i != part.vector)
    for a in sweep.ends:
        along = access_loops(a)
        one = begun if not loops and part.vector not in along else rows
        one = points if along & loops else one  # else it stays in a register
        if part.inside:
            inside = untested(a, part.inside.bounds)
            one *= beside if inside in seen else 1  # inside it is one element
            seen.add(inside)
        more = _access_work(nest, a, q, part, one, begun, beside, a in squares)
        loads, arithmetic = loads + more[0], arithmetic + more[1]
        strided, pages = strided + more[2], pages + more[3]
    loops_begun = rows / part.vectors if points > rows else 0
    return Work(loads=loads, scalar=arithmetic, strided=strided, pages=pages, loops=loops_begun)


def _access_work(
    nest: Nest,
    a: Access,
    q: Pass,
    part: Part,
    one: float,
    begun: float,
    beside: float,
    in_square: bool,
) -> tuple[float, float, float, float]:
    """Loads, additions, single elements and pages of so many vectors of an access.

    begun: rows; what a place depends on that is looked up is computed anew for each, if it stays
    along a row. beside: see `_bounds_tested`.
    """
    loops = (*q.inner, *q.reduced)
    lanes = part.lanes if part.vector >= 0 else q.lanes
    along = part.vector if part.vector >= 0 else q.vector
    arithmetic = one * 2 * _bounds_tested(a, along, part, beside)
    loads = strided = pages = 0.0
    far = along >= 0 and (
        a.strides[along] not in (0, 1) or any(along in access_loops(x) for x in a.indices)
    )
    if far and in_square:
        loads += one * (2 + lanes.bit_length())
        pages += one * (4 * abs(a.strides[along]) >= PAGE_BYTES)
    elif far and _is_near(a, along) and part.square < 0:
        vectors = abs(a.strides[along])
        loads += one * vectors
        arithmetic += one * SHUFFLE * max(vectors - 1, 1)
    elif far:
        each, far_each = estimate.one_by_one(a, along, nest.sizes[along])
        strided += one * lanes * max(each, 1)
        pages += one * lanes * far_each
    else:
        loads += one
    for k in a.lookups:
        walked = frozenset[int]().union(*(access_loops(x) for x in k.arguments))
        times = one * (lanes if far else 1) if walked & {*loops, part.vector} else begun
        times /= 1 if far else part.vectors  # neighbouring vectors share the place
        loads += times * len(k.arguments)
        arithmetic += times * additions_of(k.body) / AT_ONCE
    step = [abs(a.strides[i]) for i in loops[-1:] if i != along]
    if step and 4 * step[0] >= PAGE_BYTES and sum(touched_bytes(nest).values()) > OWN_CACHE:
        pages += one / part.vectors  # nearer, what no prefetcher follows is there in time
    return loads, arithmetic, strided, pages


def _bodies(nest: Nest, stages: Sequence[int]) -> float:
    """Additions of one point. In place a condition is tested for all lanes at once, and only what
    changes is computed."""
    changed = _changed(nest)
    values = [changed.get(i, nest.stages[i].body) for i in stages]
    return sum(additions_of(v) for v in values) + len(changed.keys() & set(stages))


def _ends(nest: Nest, stages: Sequence[int], stores: Sequence[int]) -> Iterable[Access]:
    """Accesses that a point of these stages reads and writes, each once."""
    changed, ends = _changed(nest), dict[Access, None]()
    for i in stages:
        s = nest.stages[i]
        used = changed[i].operands() if i in changed else range(len(s.arguments))
        ends |= dict.fromkeys(accesses_read(s.arguments[n] for n in used))
    return ends | dict.fromkeys(nest.stores[i].access for i in stores)


def _changed(nest: Nest) -> dict[int, Expr]:
    """Per stage that is written in place where a condition holds: what is written there."""
    updates = ((s.stage, update_of(nest, s)) for s in nest.stores if s.in_place >= 0)
    return {i: where[1] for i, where in updates if where is not None}


def _bounds_tested(a: Access, along: int, part: Part, beside: float) -> float:
    """Bounds per vector; those that all lanes share are tested once for neighbouring vectors.

    beside: the share of vectors that are not inside.
    """
    tests, inside = 0.0, part.inside.bounds if part.inside else ()
    for b in a.bounds:
        shared = along < 0 or not b.strides[along]
        tests += (1 / part.vectors if shared else 1) * (beside if b in inside else 1)
    return tests


def _is_near(a: Access, along: int) -> bool:
    """Whether whole vectors are read for elements that lie apart."""
    near = a.strides[along] == -1 or 1 < a.strides[along] <= NEAR
    return near and not any(along in access_loops(x) for x in a.indices)


def _again(nest: Nest, parts: Sequence[SweepParts], part: Part) -> tuple[tuple[float, float], ...]:
    """A row that does not fit the nearest cache is fetched again by every pass but the first."""
    rows = nest.points(part.outer)
    streams: list[tuple[float, float]] = []
    row = 0.0
    width = part.lanes * part.vectors if part.vector >= 0 else 1
    for sweep in parts:
        row += width * sweep.new
        streams += [(row, rows * n) for n in sweep.again]
    return tuple((b, n) for b, n in streams if n)
