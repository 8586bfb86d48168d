"""What every derivation has done: one must-analysis, and what of a choice no answer can hold.

Each column does some things itself (holds exclusive numbers, makes items of memory). What it reads
was written before, by one of the writers: so all that each of these has done before is done. That
is the meet over the writers of a buffer and the union over what is read, the greatest fixpoint, as
no derivation waits for itself. Things are bits of words, so a choice of 100,000 columns takes a
second.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eqsat.extract.choice.columns import Columns
from eqsat.extract.ragged import Ints, Mask, Ragged, counted, distinct, starts
from eqsat.model.deadline import tick
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
