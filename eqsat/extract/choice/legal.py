"""Whether columns are an answer of a choice, asked without its rows and without a solver.

Columns that wait for each other are none: they are cut, with all others of their kind, where they
occur. And a greedy answer, which takes no solver either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

import numpy as np

from eqsat.extract.blocks import ONE, TWO
from eqsat.extract.choice.columns import Barred, Columns
from eqsat.extract.choice.must import rounds
from eqsat.extract.ragged import Ints, Mask
from eqsat.model.deadline import OutOfTime, tick, whatever_it_takes


def is_legal(choice: Columns, columns: Sequence[int]) -> bool:
    """Whether they keep every rule of the choice, budgets and the order aside."""
    written = _all(choice.writes.tuples, columns)
    there = set(written)
    needed = {*choice.facts.roots.tolist(), *_all(choice.reads.tuples, columns)}
    resident, held = (
        set(_all(choice.resident.tuples, columns)),
        _all(choice.exclusive.tuples, columns),
    )
    once = len(there) == len(written) and len(set(held)) == len(held) and resident.isdisjoint(there)
    return once and needed <= there and _is_alike(choice, columns) and _is_forced(choice, columns)


def _all(rows: Sequence[tuple[int, ...]], columns: Iterable[int]) -> list[int]:
    return [n for i in columns for n in rows[i]]


def _is_alike(choice: Columns, columns: Sequence[int]) -> bool:
    """Whether both of the equal blocks in the middle hold the same."""
    if choice.facts.blocks is None:
        return True
    keys = {int(choice.key[i]) for i in columns}
    images = {int(choice.image[i]) for i in columns if choice.last[i] == ONE}
    return images == {int(choice.key[i]) for i in columns if choice.last[i] == TWO} <= keys


def _is_forced(choice: Columns, columns: Sequence[int]) -> bool:
    if choice.forced is None:
        return True
    useful = set(pruned(choice, columns))
    wanted = {*choice.facts.roots.tolist(), *_all(choice.reads.tuples, useful)}
    return any(i in useful and not wanted.isdisjoint(b) for i, b in choice.forced)


def pruned(choice: Columns, columns: Sequence[int]) -> tuple[int, ...]:
    """Without columns that no root needs, in their order; no goal gets worse.

    Of equal blocks in the middle both keep what one of them needs: block `TWO` stands for several,
    and what the last of these does not need the others do.
    """
    writer = {b: i for i in columns for b in choice.writes.tuples[i]}
    same = _same_of_other(choice, columns)
    useful: set[int] = set()
    waiting = choice.facts.roots.tolist()
    while waiting:
        i = writer.get(waiting.pop())
        if i is not None and i not in useful:
            useful.add(i)
            waiting += choice.reads.tuples[i]
            waiting += choice.writes.tuples[same[i]] if i in same else ()
    return tuple(i for i in columns if i in useful)


def _same_of_other(choice: Columns, columns: Iterable[int]) -> dict[int, int]:
    """Per column of one of the equal blocks in the middle: the same one of the other."""
    if choice.facts.blocks is None:
        return {}
    place = {int(choice.key[i]): i for i in columns}
    ones = ((i, place.get(int(choice.image[i]))) for i in columns if choice.last[i] == ONE)
    pairs = [(i, j) for i, j in ones if j is not None]
    return dict(pairs) | {j: i for i, j in pairs}


def circle(choice: Columns, columns: Sequence[int]) -> Barred | None:
    """Columns that wait for each other, and all that could be in their places; None: none do.

    One place is filled by whoever reads one buffer of the circle and writes the next. A buffer has
    one writer, so of n places n - 1 are filled at most.
    """
    reads, writes = choice.reads.tuples, choice.writes.tuples
    writer = {b: i for i in columns for b in writes[i]}
    before = {i: [writer[b] for b in reads[i] if b in writer and writer[b] != i] for i in columns}
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        round_trip = error.args[1][:-1]  # each writes what the next one reads
    else:
        return None
    pairs = zip(round_trip, [*round_trip[1:], round_trip[0]], strict=True)
    handed = [min(b for b in reads[j] if writer.get(b) == i) for i, j in pairs]
    places = [
        sorted(set(choice.readers[read].tolist()) & set(choice.writers[written].tolist()))
        for read, written in zip([handed[-1], *handed[:-1]], handed, strict=True)
    ]
    return tuple(i for place in places for i in place), len(places) - 1


# ---- a greedy answer -----------------------------------------------------------------------------
# After extraction-gym's greedy-DAG extractor: a way to write a buffer is the *set* of options it
# needs, so sharing is counted once. Ways made of one-op dispatches only are kept beside the
# cheapest ones: they never contradict each other, so there is an answer whenever one-op dispatches
# can give one.
@dataclass(frozen=True)
class _Joined:
    """Options (a bit each) that together write some buffer; `blocked` is what they exclude."""

    cost: int
    chosen: int
    blocked: int


_NOTHING = _Joined(0, 0, 0)
_Table = dict[int, list[_Joined]]


class _Tables:
    """Tables of the greedy search; one pass over the options in step order."""

    def __init__(self, choice: Columns, singles: frozenset[int], goal: str):
        self.choice = choice
        self.singles = singles
        self.costs: list[int] = choice.coefficients("time").tolist()
        if goal in choice.facts.linear and goal != "time":  # time decides between equals
            first = choice.coefficients(goal).tolist()
            # one unit of another goal counts as so many picoseconds
            self.costs = [10**12 * a + b for a, b in zip(first, self.costs, strict=True)]
        sides = list(zip(choice.exclusive.tuples, choice.writes.tuples, strict=True))
        keys = dict.fromkeys(k for numbers, writes in sides for k in _keys(numbers, writes))
        bit = {k: 1 << i for i, k in enumerate(keys)}
        self.blocks = [sum(bit[k] for k in _keys(*side)) for side in sides]
        self.best: _Table = {}
        self.plain: _Table = {}

    def join(self, a: _Joined, b: _Joined) -> _Joined | None:
        """Both ways together, shared options once; None if they contradict each other."""
        if a.chosen.bit_count() < b.chosen.bit_count():
            a, b = b, a
        cost, blocked, rest = a.cost, a.blocked, b.chosen & ~a.chosen
        while rest:
            low = rest & -rest
            i = low.bit_length() - 1
            if self.blocks[i] & blocked:
                return None
            cost, blocked, rest = cost + self.costs[i], blocked | self.blocks[i], rest ^ low
        return _Joined(cost, a.chosen | b.chosen, blocked)

    def all_of(self, buffers: tuple[int, ...], table: _Table) -> _Joined | None:
        """Ways of several buffers together; the first that fits, for each in turn."""
        total = _NOTHING
        for b in buffers:
            joined = (self.join(total, way) for way in table.get(b, ()))
            fits = next((way for way in joined if way is not None), None)
            if fits is None:
                return None
            total = fits
        return total

    def step(self, columns: Ints) -> None:
        """Columns of one round: they read what earlier rounds wrote."""
        news: list[tuple[_Table, int, _Joined]] = []
        for i in columns.tolist():
            tick()
            reads = self.choice.reads.tuples[i]
            tables = [self.best, self.plain] if i in self.singles else [self.best]
            for table in tables:
                way = self.all_of(reads, table)
                if way is None and table is self.best:
                    way = self.all_of(reads, self.plain)
                whole = way and self.join(way, _Joined(self.costs[i], 1 << i, self.blocks[i]))
                if whole:
                    news += [(table, b, whole) for b in self.choice.writes.tuples[i]]
        for table, b, way in news:
            ways = table.setdefault(b, [])
            ways.append(way)
            ways.sort(key=lambda w: (w.cost, w.chosen))
            del ways[3 if table is self.best else 1 :]  # kept per buffer

    def answers(self) -> list[tuple[int, ...]]:
        """Legal answers found, the mixed one and the one of one-op dispatches."""
        answers = []
        for table in (self.best, self.plain):
            way = self.all_of(tuple(self.choice.facts.roots.tolist()), table)
            if way:
                chosen = [i for i in range(len(self.costs)) if way.chosen >> i & 1]
                answers.append(pruned(self.choice, chosen))
        return [a for a in answers if is_legal(self.choice, a)]


def _keys(numbers: tuple[int, ...], writes: tuple[int, ...]) -> list[int]:
    """What a column blocks: numbers, and buffers with a minus and one off."""
    return [*numbers, *(-1 - b for b in writes)]


def greedy(choice: Columns, singles: Ints, goal: str) -> list[tuple[int, ...]]:
    """Columns of legal answers, without regard to budgets; `singles` are those with one op each.

    Where the deadline it is under ends the search: the answer of one-op dispatches alone.
    """
    try:
        search = _Tables(choice, frozenset(singles.tolist()), goal)
        level, _ = rounds(choice, _is_worth_it(choice))
        for now in range(int(level.max(initial=-1)) + 1):
            search.step(np.flatnonzero(level == now))
        return search.answers()
    except OutOfTime:
        plain = plain_columns(choice, singles)
        return [] if plain is None else [plain]


def _is_worth_it(choice: Columns) -> Mask:
    """Per column: whether it neither makes nor reads in the run what may be there for nothing."""
    idle = np.zeros(choice.facts.span, dtype=bool)
    idle[choice.either] = True
    sides = (choice.reads, choice.writes)
    return ~(sides[0].any(idle[sides[0].index]) | sides[1].any(idle[sides[1].index]))


def plain_columns(choice: Columns, singles: Ints) -> tuple[int, ...] | None:
    """One-op dispatches, for each buffer the first that can write it; None if that is no answer."""
    possible = np.zeros(len(choice), dtype=bool)
    possible[singles] = True
    with whatever_it_takes():
        level, _ = rounds(choice, possible & _is_worth_it(choice))
    there = np.flatnonzero(level >= 0)
    writer: dict[int, int] = {}
    for i in there[np.lexsort((choice.writes.counts[there], level[there]))].tolist():
        for b in choice.writes.tuples[i]:
            writer.setdefault(b, i)
    chosen = pruned(choice, sorted(set(writer.values())))
    return chosen if is_legal(choice, chosen) else None
