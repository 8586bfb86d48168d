"""Plan of a nest without a contraction: rows, and passes over a row.

Each section of the nest (see `plan.passes`) runs over the points of its outer loops. Either one of
them is the vector loop, so that lanes are neighbouring rows, or every pass has a vector loop of its
own within the row. What several passes need and is dear is kept in scratch; accesses that step
along another loop than the lanes are transposed in registers, a square at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

from eqsat.model.dispatch import Machine, Plan, Work
from eqsat.model.nest import Access, Bound, Nest, NoNest
from eqsat.plan import estimate
from eqsat.plan.passes import Dependences, RowSection, Sweep, dependences
from eqsat.plan.rowwork import (
    Interior,
    SweepParts,
    element_bytes,
    held_within_rows,
    interior,
    parts_of_sweeps,
    row_work,
    turned,
)
from eqsat.plan.stages import (
    access_loops,
    additions,
    additions_of,
    check_bodies,
    stages_read,
    summed,
)

ITEM_COST = 4_000  # additions of vectors that a work item is worth at least
ITEMS = 64  # work items that are enough
KEPT_COST = 4  # additions; what is cheaper is computed again rather than kept
VECTORS = 4  # neighbouring vectors of one turn, to have independent sums
SQUARE = 16  # lanes of squares at most, which registers have to hold


class Pass(NamedTuple):
    """inner, reduced: loops, outermost first; the vector loop, if it is one of them, is last.

    vector: that loop, -1 if lanes are rows or the pass has no loops. vectors: at once along it.
    """

    stages: tuple[int, ...]
    stores: tuple[int, ...]
    inner: tuple[int, ...]
    reduced: tuple[int, ...]
    vector: int
    lanes: int
    vectors: int


class Part(NamedTuple):
    """How a section runs.

    outer: its loops, outermost first, the vector loop, if it is one, last. The first `numbered` of
    them are numbered by work items, the last of these in blocks of `block` points. square: the
    loop with which the vector loop is transposed in squares, -1: none. inside: where rows are away
    from all borders.
    """

    passes: tuple[Pass, ...]
    outer: tuple[int, ...]
    numbered: int
    block: int
    items: int
    vector: int
    lanes: int
    vectors: int
    square: int
    cached: tuple[int, ...]
    inside: Interior | None = None


@dataclass(frozen=True)
class Rows(Plan):
    """parts: one per section, in the order of their work items."""

    kind: ClassVar[str] = "rows"
    parts: tuple[Part, ...] = ()

    def to_text(self) -> str:
        lines = "; ".join(_text(p) for p in self.parts)
        return f"rows: {lines}; {self.items} items, scratch {self.scratch_bytes} B"


def _text(p: Part) -> str:
    outer = " ".join(f"i{i}" for i in p.outer) or "none"
    vector = f"vectors along i{p.vector} by {p.lanes}, " if p.vector >= 0 else ""
    square = f"squares with i{p.square}, " if p.square >= 0 else ""
    scratch = f", kept {' '.join(f's{i}' for i in p.cached)}" if p.cached else ""
    passes = ", ".join(
        f"i{q.vector} by {q.lanes}" if q.vector >= 0 else "rows" for q in p.passes if p.vector < 0
    )
    inner = f"passes along {passes}" if passes else f"{len(p.passes)} passes"
    inside = f", inside {p.inside.low}:{p.inside.high}" if p.inside else ""
    return f"outer loops {outer}, {vector}{square}{inner}{scratch}{inside}"


def plan(nest: Nest, machine: Machine) -> Rows:
    """Rows take every nest; NoNest where a function or an element type has no vector code."""
    check_bodies(nest)
    passes = dependences(nest)
    return _of_sections(nest, [_section(nest, passes, s, machine) for s in passes.sections])


def other_rows(nest: Nest, machine: Machine) -> Iterator[Rows]:
    """Plans with another choice of one section: its vector loop, lanes, squares, vectors a turn."""
    check_bodies(nest)
    passes = dependences(nest)
    chosen = [_section(nest, passes, s, machine) for s in passes.sections]
    for i, section in enumerate(passes.sections):
        for c in _Section(nest, passes, section, machine).choices(neighbours=True):
            other = _with_items(nest, c)
            yield _of_sections(nest, [*chosen[:i], other, *chosen[i + 1 :]])


def _of_sections(nest: Nest, chosen: Sequence[_Choice]) -> Rows:
    parts = tuple(c.part for c in chosen)
    items = sum(p.items for p in parts)
    scratch = max((scratch_of(nest, p)[1] + square_slots(nest, p)[1] for p in parts), default=0)
    return Rows(items, scratch, replace(summed(c.work for c in chosen), items=items), parts)


def scratch_of(nest: Nest, part: Part) -> tuple[dict[int, tuple[int, tuple[int, ...]]], int]:
    """Stage kept → byte at which it starts, its inner loops (the last one contiguous); all bytes.

    Where lanes are rows an element is one vector per vector of the part; else the contiguous loop
    is padded to whole vectors, so that all can be written.
    """
    places: dict[int, tuple[int, tuple[int, ...]]] = {}
    at = 0
    for number in in_scratch(part):
        s = nest.stages[number]
        loops = tuple(i for q in part.passes for i in (*q.inner, *q.reduced) if i in s.loops)
        loops = tuple(dict.fromkeys(loops))
        sizes = [nest.sizes[i] for i in loops]
        if part.vector >= 0:
            sizes.append(part.lanes * part.vectors)
        elif sizes:
            sizes[-1] = -(-sizes[-1] // widest_lanes(part)) * widest_lanes(part)
        count = 1
        for n in sizes:
            count *= n
        places[number] = (at, loops)
        at += -(-count * element_bytes(s.dtype) // 64) * 64
    return places, at


def square_slots(nest: Nest, part: Part) -> tuple[dict[Access, int], int]:
    """Transposed access → byte of scratch at which its square lies; all bytes."""
    slots: dict[Access, int] = {}
    at = 0
    for a in turned(nest, part.vector, part.square) if part.square >= 0 else []:
        slots[a] = at
        at += -(-part.lanes * part.lanes * element_bytes(a.dtype) // 64) * 64
    return slots, at


def widest_lanes(part: Part) -> int:
    """Lanes of the widest vector of the part."""
    return max((q.lanes for q in part.passes), default=1)


def in_scratch(part: Part) -> list[int]:
    """Stages whose values lie in scratch: those kept, and sums that have loops within the row."""
    sums = [i for q in part.passes if q.inner for i in q.stages]
    return sorted({*sums, *part.cached})


class _Choice(NamedTuple):
    part: Part
    work: Work


def _section(nest: Nest, passes: Dependences, section: RowSection, machine: Machine) -> _Choice:
    choices = list(_Section(nest, passes, section, machine).choices())
    if not choices:
        raise NoNest("kernels write no passes of a row whose places are looked up")
    return _with_items(nest, min(choices, key=lambda c: estimate.cycles(c.work, machine)))


def _with_items(nest: Nest, choice: _Choice) -> _Choice:
    part = _items(nest, *choice)
    return _Choice(part, replace(choice.work, items=part.items))


@dataclass(frozen=True)
class _Section:
    """The ways to run a section, and what is the same of all of them."""

    nest: Nest
    passes: Dependences
    section: RowSection
    machine: Machine

    def choices(self, *, neighbours: bool = False) -> Iterator[_Choice]:
        """neighbours: also with half the lanes, and other numbers of vectors a turn."""
        nest, section = self.nest, self.section
        widest = self.machine.lanes(max(element_bytes(a.dtype) for a in nest.accesses))
        pure = all(not g.inner and not g.reduced for g in self.groups)
        outer = [i for i in section.outer if nest.sizes[i] > 1]
        looked_up = [x for i in section.stores for x in nest.stores[i].access.indices]
        tied = frozenset[int]().union(*map(access_loops, looked_up))
        for v in outer:
            lanes = 1 if v in tied else _lanes(nest.sizes[v], widest)
            squares = [-1, *(u for u in outer if u != v)] if pure and not looked_up else [-1]
            for u in squares:
                side = min(lanes, SQUARE) if u >= 0 else lanes
                if u < 0 or (side == min(widest, SQUARE) and _squares(nest, v, u)):
                    yield self._choice(v, side, u)
            if neighbours and lanes > 1:
                yield self._choice(v, lanes // 2, -1)
                yield from (self._choice(v, lanes, -1, n) for n in (1, 2, VECTORS))
        if (not pure or not outer) and not tied:
            yield self._choice(-1, widest, -1)
            if neighbours and widest > 1:
                yield self._choice(-1, widest // 2, -1)

    @cached_property
    def groups(self) -> list[Sweep]:
        return self.passes.groups(self.section)

    @cached_property
    def _cached(self) -> tuple[int, ...]:
        return _cached(self.nest, self.passes, self.groups)

    @cached_property
    def _parts(self) -> list[SweepParts]:
        return parts_of_sweeps(self.nest, self.passes, self.groups, self._cached)

    @cached_property
    def _held(self) -> dict[Bound, Bound]:
        return held_within_rows(self.nest, self.passes, self.groups, self.section.outer)

    @cached_property
    def _order(self) -> tuple[int, ...]:
        """Loops by how far they step in what is written, then in what is read; the farthest
        first."""

        def key(i: int) -> tuple[int, int, int]:
            written, read = self.passes.steps(self.section.stores, i)
            return -written, -read, i

        return tuple(sorted(self.section.outer, key=key))

    @cached_property
    def _widest_bytes(self) -> int:
        """Of the types that are read, written or, on the way, computed: bytes that are dequantised
        fill four times as many registers as they lie in."""
        nest = self.nest
        casts = (e.value for s in nest.stages for e in s.body.walk() if e.fn == "cast")
        types = {*(a.dtype for a in nest.accesses), *(s.dtype for s in nest.stages), *casts}
        return max(map(element_bytes, types))

    @cached_property
    def _is_light(self) -> bool:
        return sum(additions(self.nest, self.passes.evaluated(g)) for g in self.groups) < 8

    @cached_property
    def _passes_by_vector(self) -> dict[tuple[bool, int], tuple[Pass, ...]]:
        """The passes by whether their lanes are rows, and by these."""
        return {}

    def _passes_along(self, vector: int, lanes: int) -> tuple[Pass, ...]:
        key = vector >= 0, lanes
        if key not in self._passes_by_vector:
            sides = self.nest, self.passes
            self._passes_by_vector[key] = tuple(
                _pass(*sides, g, vector, lanes) for g in self.groups
            )
        return self._passes_by_vector[key]

    def _choice(self, vector: int, lanes: int, square: int, at_once: int = 0) -> _Choice:
        nest = self.nest
        behind = [i for i in (square, vector) if i >= 0]
        outer = (*(i for i in self._order if i not in behind), *behind)
        vectors = 1
        if vector >= 0 and square < 0 and (self._is_light or any(g.reduced for g in self.groups)):
            vectors = _side_by_side(nest.sizes[vector], lanes)
        vectors = at_once or vectors
        passes = self._passes_along(vector, lanes)
        part = Part(passes, outer, 0, 1, 1, vector, lanes, vectors, square, self._cached)
        part = part._replace(inside=interior(nest, self._held, part))
        done = row_work(nest, self._parts, part)
        filled = lanes if vector >= 0 else widest_lanes(part)
        registers = max(1, filled // self.machine.lanes(self._widest_bytes))
        return _Choice(
            part, replace(done, scalar=done.scalar * registers) if registers > 1 else done
        )


def _lanes(size: int, widest: int) -> int:
    """The narrowest vector that holds the loop, or the widest there is."""
    return min(widest, 1 << (size - 1).bit_length()) if size > 1 else 1


def _squares(nest: Nest, v: int, u: int) -> bool:
    """Whether squares serve these loops: where points are missing, no lane may stand for another.

    An element that all lanes share would be read though none of its points exists.
    """
    moved = turned(nest, v, u)
    shared = any(a.strides[v] == 0 for a in nest.accesses if a not in moved)
    return bool(moved) and not (nest.bounds and shared)


def _cached(nest: Nest, passes: Dependences, groups: list[Sweep]) -> tuple[int, ...]:
    """Stages that several passes over their loops need and that are dear to compute again."""
    shared: list[int] = []
    dear = [0] * len(nest.stages)
    for i, s in enumerate(nest.stages):
        inner = sum(
            dear[a]
            for a in stages_read(s.arguments)
            if a not in shared and nest.stages[a].loops == s.loops
        )
        dear[i] = 0 if s.combine else additions_of(s.body) + inner
        users = [g for g in groups if i in passes.evaluated(g)]
        loops = {g.inner | g.reduced for g in users}
        whole = all(frozenset(s.loops) & x == x for x in loops)
        if len(users) > 1 and len(loops) == 1 and whole and any(loops) and dear[i] > KEPT_COST:
            shared.append(i)
    return tuple(shared)


def _side_by_side(size: int, lanes: int) -> int:
    """Neighbouring vectors of one turn: as many as divide short rows, so that none is left over."""
    if size >= 2 * VECTORS * lanes:
        return VECTORS
    return next(n for n in (VECTORS, 2, 1) if n == 1 or size % (n * lanes) == 0)


def _pass(nest: Nest, passes: Dependences, group: Sweep, vector: int, widest: int) -> Pass:
    """The loops of a pass in order; with a vector loop of its own where lanes are no rows."""
    reads = [*passes.accesses(group), *(nest.stores[i].access for i in group.stores)]

    def order(loops: Iterable[int]) -> tuple[int, ...]:
        def step(i: int) -> int:
            return max((abs(a.strides[i]) for a in reads), default=0)

        return tuple(sorted(loops, key=lambda i: (-step(i), i)))

    along = -1
    candidates = [i for i in (*group.inner, *group.reduced) if nest.sizes[i] > 1]
    if vector < 0 and candidates:

        def badness(i: int) -> tuple[float, int]:
            size = nest.sizes[i]
            lanes = _lanes(size, widest)
            steps = [a.strides[i] for a in reads]
            strided = sum(s not in (0, 1) for s in steps)
            waste = -(-size // lanes) * lanes / size
            return (waste * (len(steps) + 1) / lanes + 2 * strided, -size)

        along = min(sorted(candidates), key=badness)
    inner = (*order(group.inner - {along}), *([along] if along in group.inner else []))
    reduced = (*order(group.reduced - {along}), *([along] if along in group.reduced else []))
    if vector >= 0:
        lanes, vectors = widest, 1
    else:
        lanes = _lanes(nest.sizes[along], widest) if along >= 0 else 1
        turns = nest.sizes[along] // lanes if along in group.reduced else 1
        vectors = min(VECTORS, max(1, turns))
    return Pass(group.stages, group.stores, inner, reduced, along, lanes, vectors)


def _items(nest: Nest, part: Part, work: Work) -> Part:
    """As many of the outer loops numbered, and the last of them in such blocks, as work asks for.

    Vectors and squares are not cut: blocks along their loops are multiples of them.
    """
    cost = work.scalar + work.loads + 4 * work.strided
    wanted = max(1, min(ITEMS, int(cost / ITEM_COST)))
    numbered, items, block = 0, 1, 1
    for loop in part.outer:
        if items >= wanted:
            break
        if part.square >= 0 and loop == part.vector:
            break
        size, grain = nest.sizes[loop], 1
        if loop == part.vector:
            grain = part.lanes * part.vectors
        elif loop == part.square:
            grain = part.lanes
        block = grain * max(1, size // grain * items // wanted)
        numbered, items = numbered + 1, items * -(-size // block)
        if block > grain:
            break
    return part._replace(numbered=numbered, block=block, items=items)
