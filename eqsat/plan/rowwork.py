"""What a plan of rows does, counted: see `model.plan.Work`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.model.nest import Access, Nest
from eqsat.model.plan import Work
from eqsat.model.tensor import DTYPES
from eqsat.plan import estimate, expressions
from eqsat.plan.cores import NEAR, PAGE_BYTES
from eqsat.plan.interior import share_inside, untested
from eqsat.plan.passes import Dependences, Sweep
from eqsat.plan.stages import access_loops, accesses_read, additions, summed

if TYPE_CHECKING:
    from eqsat.plan.rows import Part, Pass


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


def row_work(nest: Nest, passes: Dependences, groups: list[Sweep], part: Part) -> Work:
    rows = nest.points(i for i in part.outer if i != part.vector)
    if part.vector >= 0:
        rows *= -(-nest.sizes[part.vector] // part.lanes)
    done: list[Work] = []
    kept: set[int] = set()  # what earlier passes left in scratch
    for g, q in zip(groups, part.passes, strict=True):
        done.append(_pass_work(nest, passes, g, q, part, rows, kept))
        kept |= set(part.kept) & set(passes.evaluated(g))
    again = _again(nest, passes, groups, part)
    return summed([*done, Work(streams=again)])


def _pass_work(
    nest: Nest, passes: Dependences, group: Sweep, q: Pass, part: Part, rows: float, kept: set[int]
) -> Work:
    loops = (*q.inner, *q.reduced)
    lanes = part.lanes if part.vector >= 0 else q.lanes
    along = part.vector if part.vector >= 0 else q.vector
    points = rows
    for i in loops:
        points *= -(-nest.sizes[i] // q.lanes) if i == q.vector else nest.sizes[i]
    stages = [i for i in passes.evaluated(group) if i not in kept] + list(group.stages)
    steady = [
        i
        for i in stages
        if loops and i not in group.stages and not set(nest.stages[i].loops) & set(loops)
    ]
    moving = [i for i in stages if i not in steady]
    arithmetic = points * additions(nest, moving) + rows * additions(nest, steady)
    arithmetic += points * len(group.stages)
    if q.reduced and q.vector in q.reduced:
        results = rows * nest.points(q.inner)
        arithmetic += results * len(group.stages) * 2 * lanes.bit_length()
    ends = [a for i in moving for a in accesses_read(nest.stages[i].arguments)]
    ends += [nest.stores[i].access for i in group.stores]
    loads = strided = pages = 0.0
    beside, seen = 1 - share_inside(nest, part), set[Access]()
    square = turned(nest, part.vector, part.square) if part.square >= 0 else []
    for a in dict.fromkeys(ends):
        one = points if access_loops(a) & set(loops) or part.vector >= 0 else rows
        inside = untested(a, part.inside.bounds) if part.inside else a
        one *= beside if inside in seen else 1  # inside it is one element
        seen.add(inside)
        far = along >= 0 and (
            a.strides[along] not in (0, 1) or any(along in access_loops(x) for x in a.indices)
        )
        if far and a in square:
            loads += one * (2 + lanes.bit_length())
            pages += one * (4 * abs(a.strides[along]) >= PAGE_BYTES)
        elif far and _is_near(a, along) and part.square < 0:
            loads += one * (2 * a.strides[along] - 1)  # and shuffles
        elif far:
            each, far_each = estimate.one_by_one(a, along, nest.sizes[along])
            strided += one * lanes * max(each, 1)
            pages += one * lanes * far_each
        else:
            loads += one
        arithmetic += one * 2 * _bounds_tested(a, along, part, beside)
        for k in a.lookups:
            own = frozenset[int]().union(*(access_loops(x) for x in k.arguments))
            steady = nest.points(i for i in part.outer if i != part.vector)
            times = one * (lanes if far else 1) if own & {*loops, part.vector} else steady
            loads += times * len(k.arguments)
            arithmetic += times * expressions.additions_of(k.body)
        step = [abs(a.strides[i]) for i in loops[-1:] if i != along]
        pages += one / part.vectors * (bool(step) and 4 * step[0] >= PAGE_BYTES)
    loads += points * len(kept & set(passes.evaluated(group)))
    return Work(loads=loads, scalar=arithmetic, strided=strided, pages=pages)


def _bounds_tested(a: Access, along: int, part: Part, beside: float) -> float:
    """Bounds per vector; those that all lanes share are tested once for neighbouring vectors.

    beside: the share of vectors that are not inside.
    """
    found, inside = 0.0, part.inside.bounds if part.inside else ()
    for b in a.bounds:
        shared = along < 0 or not b.strides[along]
        found += (1 / part.vectors if shared else 1) * (beside if b in inside else 1)
    return found


def _is_near(a: Access, along: int) -> bool:
    """Whether whole vectors are read for elements that lie apart."""
    return 1 < a.strides[along] <= NEAR and not any(along in access_loops(x) for x in a.indices)


def _again(
    nest: Nest, passes: Dependences, groups: list[Sweep], part: Part
) -> tuple[tuple[float, float], ...]:
    """A row that does not fit the nearest cache is fetched again by every pass but the first."""
    rows = nest.points(part.outer)
    found: list[tuple[float, float]] = []
    seen: set[Access] = set()
    row = 0.0
    for group in groups:
        loops = group.inner | group.reduced
        own = [a for a in passes.accesses(group, part.kept) if access_loops(a) & loops]
        size = {a: nest.points(access_loops(a) & loops) * element_bytes(a.dtype) for a in own}
        width = part.lanes * part.vectors if part.vector >= 0 else 1
        row += width * sum(n for a, n in size.items() if a not in seen)
        found += [(row, rows * n) for a, n in size.items() if a in seen]
        seen |= set(own)
    return tuple((b, n) for b, n in found if n)
