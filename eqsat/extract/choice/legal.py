"""Legality of columns without rows and without a solver: must-analysis, circles, greedy answers.

The must-analysis says what every derivation has done. Each column does some things itself (holds
exclusive numbers, makes items of memory). What it reads was written before, by one of the writers:
so all that each of these has done before is done. That is the meet over the writers of a buffer and
the union over what is read, the greatest fixpoint, as no derivation waits for itself. Things are
bits of words, so a choice of 100,000 columns takes a second.

Columns that wait for each other are no answer: they are cut, with all others of their kind, where
they occur.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

import numpy as np

from eqsat.extract.blocks import ONE, TWO
from eqsat.extract.choice.columns import Barred, Columns
from eqsat.extract.ragged import Ints, Mask, Ragged, counted, distinct, starts
from eqsat.model.deadline import OutOfTime, tick, whatever_it_takes
from eqsat.model.sets import WORD

Words = np.ndarray  # of uint64, a row of bits each


@dataclass(frozen=True)
class Must:
    """Things as bits: what a column does (`does`), and what is done before it in every answer.

    `numbers` ascend; the place of a thing is its bit. `until`: per buffer, what is done when it is
    written. What nothing can write has every bit.
    """

    numbers: Ints
    does: Words  # [columns, words]
    before: Words
    until: Words  # [buffers, words]

    @property
    def contradicts(self) -> Mask:
        """Per column: whether what it does itself, once at most, is always done before it."""
        return np.any(self.before & self.does, axis=1)

    def ask(self, column: Ints, number: Ints) -> Mask:
        """Pair by pair: whether the column does a thing, or needs somebody to have done it."""
        bit = np.searchsorted(self.numbers, number)
        word = self.before[column, bit // WORD] | self.does[column, bit // WORD]
        return (word >> (bit % WORD).astype(np.uint64) & np.uint64(1)).astype(bool)


def needed_numbers(choice: Columns) -> Must:
    """Exclusive numbers that every way to provide what a column reads holds."""
    return must(choice, choice.exclusive)


def must(choice: Columns, does: Ragged) -> Must:
    """does: per column the things it does itself."""
    numbers = distinct(does.index)
    done, span = _bits(does, numbers), choice.facts.span
    until = np.full((span + 1, done.shape[1]), ~np.uint64(0))
    until[span] = 0  # what columns without reads read
    last = np.full(len(choice), span)
    reads = choice.reads.joined(Ragged(np.arange(len(choice) + 1), last))
    _, level = rounds(choice, np.ones(len(choice), dtype=bool))
    steps = [_Round.of(choice, reads, b) for b in _by_level(level)]
    changed = True
    while changed:
        changed = False
        for step in steps:
            tick()
            changed |= step.meet(until, done)
    before = np.bitwise_or.reduceat(until[reads.index], reads.start[:-1]) if len(choice) else done
    return Must(numbers, done, before, until[:-1])


def rounds(choice: Columns, possible: Mask) -> tuple[Ints, Ints]:
    """Per column and per buffer: the round in which it is first there; -1: never.

    A round reads what came before it.
    """
    missing = choice.reads.counts.copy()
    column = np.full(len(choice), -1, dtype=np.int64)
    buffer = np.full(choice.facts.span, -1, dtype=np.int64)
    ready, now = np.flatnonzero(possible & (missing == 0)), 0
    while len(ready):
        tick()
        column[ready] = now
        written = choice.writes.take(ready).index
        news = distinct(written[buffer[written] < 0])
        buffer[news] = now
        now += 1
        hit, times = counted(np.sort(choice.readers.take(news).index))
        missing[hit] -= times
        ready = hit[(missing[hit] == 0) & possible[hit]]
    return column, buffer


def presolved(choice: Columns, *, in_both: bool = True) -> Ints:
    """Columns that some answer may need, ascending; nobody misses the others.

    in_both: of equal blocks a column stays where either of the same two does, as rows of sums over
    blocks are about both.
    """
    rows = np.arange(len(choice))
    for _ in range(8):  # each takes columns away, or it was the last
        small = choice.take(rows)
        useful = _useful(small, ~needed_numbers(small).contradicts)
        if in_both and choice.facts.blocks is not None:
            useful = in_either(useful, small.image_row)
        if len(useful) == len(rows):
            break
        rows = rows[useful]
    return rows


def _useful(choice: Columns, possible: Mask) -> Ints:
    """Of the possible ones those whose reads can be written, and that a root may be made from."""
    level, _ = rounds(choice, possible)
    can = level >= 0
    useful = np.zeros(len(choice), dtype=bool)
    wanted = np.zeros(choice.facts.span, dtype=bool)
    waiting = choice.facts.roots
    wanted[waiting] = True
    while len(waiting):
        tick()
        writers = choice.writers.take(waiting).index
        news = distinct(writers[can[writers] & ~useful[writers]])
        useful[news] = True
        read = choice.reads.take(news).index
        waiting = distinct(read[~wanted[read]])
        wanted[waiting] = True
    return np.flatnonzero(useful)


def in_either(rows: Ints, image: Ints) -> Ints:
    """Rows that are kept, ascending, and the same ones of the other block."""
    mask = np.zeros(len(image), dtype=bool)
    mask[rows] = True
    first = np.flatnonzero(image >= 0)
    both = mask[first] | mask[image[first]]
    mask[first] |= both
    mask[image[first]] |= both
    return np.flatnonzero(mask)


def mirrored(rows: Ints, image: Ints) -> Ints:
    """Rows that are kept, ascending, where of each pair of the same options the first one says."""
    mask = np.zeros(len(image), dtype=bool)
    mask[rows] = True
    first = np.flatnonzero(image >= 0)
    mask[image[first]] = mask[first]
    return np.flatnonzero(mask)


def _bits(rows: Ragged, numbers: Ints) -> Words:
    words = max(-(-len(numbers) // WORD), 1)
    packed = np.zeros(len(rows) * words, dtype=np.uint64)
    bit = np.searchsorted(numbers, rows.index)
    place = rows.rows * words + bit // WORD
    value = np.left_shift(np.uint64(1), (bit % WORD).astype(np.uint64))
    cells, counts = counted(place)  # numbers of a row ascend
    if len(cells):
        packed[cells] = np.bitwise_or.reduceat(value, starts(counts)[:-1])
    return packed.reshape(len(rows), words)


def _by_level(level: Ints) -> list[Ints]:
    """Buffers that something writes, in rounds."""
    order = np.argsort(level, kind="stable")
    order = order[level[order] >= 0]
    return np.split(order, np.flatnonzero(np.diff(level[order])) + 1) if len(order) else []


@dataclass(frozen=True)
class _Round:
    """Buffers of one round: who writes them, and what these read."""

    buffers: Ints
    writers: Ragged
    reads: Ragged

    @staticmethod
    def of(choice: Columns, reads: Ragged, buffers: Ints) -> _Round:
        writers = choice.writers.take(buffers)
        return _Round(buffers, writers, reads.take(writers.index))

    def meet(self, until: Words, does: Words) -> bool:
        """Narrow what is done when these buffers are written; whether that is less now."""
        union = np.bitwise_or.reduceat(until[self.reads.index], self.reads.start[:-1])
        union |= does[self.writers.index]
        new = np.bitwise_and.reduceat(union, self.writers.start[:-1])
        new &= until[self.buffers]
        if np.array_equal(new, until[self.buffers]):
            return False
        until[self.buffers] = new
        return True


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
    """Keys a column blocks: numbers, and buffers with a minus and one off."""
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
