"""A plan of rows held against its nest: every reduction and store in one pass, at all points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from eqsat.model.nest import Bound, Nest
from eqsat.model.tensor import DTYPES
from eqsat.plan.passes import dependences
from eqsat.plan.rows import Part, Pass, Rows, scratch_of, square_slots


def row_faults(nest: Nest, plan: Rows) -> Iterator[str]:
    """What of a plan its kernel would compute otherwise than the nest."""
    stores = Counter(i for part in plan.parts for q in part.passes for i in q.stores)
    if stores != Counter(range(len(nest.stores))):
        yield "stores are not written by one pass each"
    if plan.items != sum(p.items for p in plan.parts):
        yield "it has other work items than its parts"
    passes = dependences(nest)
    made = [passes.groups(s) for s in passes.sections]
    if [[(q.stages, q.stores) for q in part.passes] for part in plan.parts] != [
        [(g.stages, g.stores) for g in groups] for groups in made
    ]:
        yield "its passes are not those of the nest"
        return
    for part in plan.parts:
        yield from _outer(nest, part)
        yield from _order(nest, part)
        yield from _inside(nest, part)
        for q in part.passes:
            yield from _pass(nest, part, q)
        yield from _scratch(nest, part, plan.scratch_bytes)


def _outer(nest: Nest, part: Part) -> Iterator[str]:
    """Work items are all points of the outer loops, whole vectors each."""
    if len(set(part.outer)) != len(part.outer):
        yield "an outer loop is run over twice"
    if part.lanes & (part.lanes - 1) or part.vectors < 1 or min(part.vector, part.square) < -1:
        yield f"there are no {part.vectors} vectors of {part.lanes} lanes"
    if part.square >= 0 and any(q.inner or q.reduced for q in part.passes):
        yield "squares are of rows that have no loops inside"
    if part.vector >= 0 and part.outer[-1:] != (part.vector,):
        yield "the vector loop is not the innermost outer one"
    if part.square >= 0 and part.outer[-2:-1] != (part.square,):
        yield "squares are not of the loop in front of the vectors'"
    if not 0 <= part.numbered <= len(part.outer) or part.block < 1 or part.lanes < 1:
        yield "work items are of loops that there are not"
        return
    items, numbered = 1, part.outer[: part.numbered]
    for i in numbered[:-1]:
        items *= nest.sizes[i]
    if numbered:
        items *= -(-nest.sizes[numbered[-1]] // part.block)
    if items != part.items:
        yield f"{part.items} items are not {items}"
    grain = (
        {part.vector: part.lanes, part.square: part.lanes}.get(numbered[-1], 1) if numbered else 1
    )
    if grain > 1 and part.block % grain and part.block < nest.sizes[numbered[-1]]:
        yield f"blocks of {part.block} cut vectors of {part.lanes}"


def _pass(nest: Nest, part: Part, q: Pass) -> Iterator[str]:
    """A pass runs over the loops of what it computes."""
    wide = {i for i, n in enumerate(nest.sizes) if n > 1}
    outer, inner, reduced = (set(x) & wide for x in (part.outer, q.inner, q.reduced))
    if q.lanes & (q.lanes - 1) or q.lanes < 1 or q.vectors < 1 or q.vector < -1:
        yield f"there are no {q.vectors} vectors of {q.lanes} lanes"
    innermost = {q.inner[-1:], q.reduced[-1:]}
    if q.vector >= 0 and (part.vector >= 0 or (q.vector,) not in innermost):
        yield "the vector loop of a pass is not its innermost one"
    if outer & (inner | reduced) or inner & reduced:
        yield "a pass runs over a loop twice"
    for i in q.stages:
        s = nest.stages[i]
        if set(s.reduced) & wide != reduced or set(s.loops) & wide != outer | inner:
            yield f"stage {i} is reduced over other loops than its own"
    for i in q.stores:
        if set(nest.stores[i].loops) & wide != outer | inner | reduced:
            yield f"store {i} is written over other loops than its own"


def _order(nest: Nest, part: Part) -> Iterator[str]:
    """What a pass reads of reductions, earlier passes have made."""
    done: set[int] = set()
    for q in part.passes:
        ends = [a for i in q.stages for a in nest.stages[i].arguments]
        ends += [nest.stores[i].stage for i in q.stores]
        if missing := _sums_read(nest, ends) - done:
            yield f"a pass reads stage {min(missing)} before it is reduced"
        done |= set(q.stages)


def _sums_read(nest: Nest, arguments: Sequence[object]) -> set[int]:
    """The reductions that these need, without those that the reductions themselves need."""
    found: set[int] = set()
    for a in arguments:
        if isinstance(a, int):
            s = nest.stages[a]
            found |= {a} if s.combine else _sums_read(nest, s.arguments)
    return found


def _inside(nest: Nest, part: Part) -> Iterator[str]:
    """What is not tested inside holds there."""
    if (own := part.inside) is None:
        return
    if part.vector not in part.outer or part.square >= 0:
        yield "rows that are not side by side have an inside"
        return
    size, lanes = nest.sizes[part.vector], part.lanes
    is_whole = own.low % lanes == 0 and (own.high % lanes == 0 or own.high == size)
    if not (is_whole and 0 <= own.low <= own.high <= size):
        yield f"its inside {own.low}:{own.high} is not of whole vectors"
    rows = {i for i in part.outer if i != part.vector}
    for b in own.bounds:
        fixed = tuple(s if i in rows else 0 for i, s in enumerate(b.strides))
        tests = [t for t in own.rows if t.strides == fixed] if any(fixed) else [Bound(fixed, 0, 1)]
        ends = [
            sorted((s * own.low, s * (own.high - 1)) if i == part.vector else (0, s * (n - 1)))
            for i, (s, n) in enumerate(zip(b.strides, nest.sizes, strict=True))
            if i not in rows
        ]
        least, most = (b.base + sum(e[k] for e in ends) for k in (0, 1))
        # where a test holds, the rows' part of the index is -t.base … t.extent - t.base - 1
        if all(least < t.base or most + t.extent - t.base > b.extent for t in tests):
            yield f"a bound of extent {b.extent} is not tested, and fails somewhere inside"


def _scratch(nest: Nest, part: Part, nbytes: int) -> Iterator[str]:
    """What is kept lies apart, and there is room for all."""
    places, kept = scratch_of(nest, part)
    end = 0
    for number, (start, loops) in places.items():
        if start < end:
            yield f"stage {number} is kept where another one is"
        each = part.lanes * part.vectors if part.vector >= 0 else 1
        width = max(DTYPES[nest.stages[number].dtype][0], 8) // 8
        end = start + width * each * nest.points(loops)
    slots, squares = square_slots(nest, part)
    ends = sorted(slots.values())
    if any(b - a < part.lanes * part.lanes for a, b in pairwise(ends)):
        yield "squares lie over each other"
    if kept < end or nbytes < kept + squares:
        yield f"it has {nbytes} bytes of scratch, of {max(end, kept) + squares}"
