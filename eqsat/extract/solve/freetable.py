"""The extraction problem without an order as arrays, and what of it no answer can hold.

It says the same as `anyorder` and `presolve`, for problems of hundreds of thousands of options.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from eqsat.extract.ragged import Ints, Mask, Ragged, counted, distinct, starts
from eqsat.model.bitsets import WORD
from eqsat.model.deadline import tick

ROUNDS = 8  # each takes options away, or it was the last
S = TypeVar("S")


@dataclass(frozen=True)
class BlockTable:
    """Where options, buffers and values are, and what they are one block later; -1: nothing.

    `count`: how often what is in block `TWO` is there in the whole program.
    """

    last: Ints  # per option: the last block that it touches
    image: Ints  # per option: the same option one block later
    level: Ints  # per buffer or value
    buffer: Ints
    value: Ints
    number: Ints  # per exclusive number
    count: int

    def take(self, rows: Ints) -> BlockTable:
        """Of these options."""
        place = np.full(len(self.last) + 1, -1, dtype=np.int64)
        place[rows] = np.arange(len(rows))
        return replace(self, last=self.last[rows], image=place[self.image[rows]])


@dataclass(frozen=True)
class FreeTable:
    """Options as in an `AnyOrder` problem, row by row; buffers and values are below `span`."""

    adds: Ints  # [options, goals]
    reads: Ragged
    writes: Ragged
    exclusive: Ragged
    computes: Ragged
    serves: Ragged
    roots: Ints
    needed: Ints  # values every answer computes
    served: Ints  # values that something in every answer serves
    value_of: Ints  # per buffer
    is_source: Mask  # per value: it is there from the start, in some layout
    blocks: BlockTable | None = None  # of the short e-graph of a program of equal blocks

    def __len__(self) -> int:
        return len(self.reads)

    @property
    def span(self) -> int:
        return len(self.value_of)

    @cached_property
    def writers(self) -> Ragged:
        """Per buffer: options that write it."""
        return self.writes.turned(self.span)

    @cached_property
    def readers(self) -> Ragged:
        """Per buffer: options that read it."""
        return self.reads.turned(self.span)

    def take(self, rows: Ints) -> FreeTable:
        """The problem of these options, in this order."""
        return replace(
            self,
            adds=self.adds[rows],
            reads=self.reads.take(rows),
            writes=self.writes.take(rows),
            exclusive=self.exclusive.take(rows),
            computes=self.computes.take(rows),
            serves=self.serves.take(rows),
            blocks=None if self.blocks is None else self.blocks.take(rows),
        )


def presolved(table: FreeTable) -> Ints:
    """Options that some answer may need, ascending; nobody misses the others."""
    kept = np.arange(len(table))
    for _ in range(ROUNDS):
        small = table.take(kept)
        found = useful(small, ~needed_numbers(small).impossible)
        if len(found) == len(kept):
            break
        kept = kept[found]
    return kept


def useful(table: FreeTable, possible: Mask) -> Ints:
    """Of the possible ones those whose reads can be written, and that a result may be made from."""
    level, _ = rounds(table, possible)
    can = level >= 0
    found = np.zeros(len(table), dtype=bool)
    wanted = np.zeros(table.span, dtype=bool)
    waiting = table.roots
    wanted[waiting] = True
    while len(waiting):
        tick()
        writers = table.writers.take(waiting).index
        news = distinct(writers[can[writers] & ~found[writers]])
        found[news] = True
        read = table.reads.take(news).index
        waiting = distinct(read[~wanted[read]])
        wanted[waiting] = True
    return np.flatnonzero(found)


def rounds(table: FreeTable, possible: Mask) -> tuple[Ints, Ints]:
    """Per option and per buffer: the round in which it is first there; -1: never.

    A round reads what came before it.
    """
    missing = table.reads.counts.copy()
    option = np.full(len(table), -1, dtype=np.int64)
    buffer = np.full(table.span, -1, dtype=np.int64)
    ready, now = np.flatnonzero(possible & (missing == 0)), 0
    while len(ready):
        tick()
        option[ready] = now
        written = table.writes.take(ready).index
        news = distinct(written[buffer[written] < 0])
        buffer[news] = now
        now += 1
        hit, times = counted(np.sort(table.readers.take(news).index))
        missing[hit] -= times
        ready = hit[(missing[hit] == 0) & possible[hit]]
    return option, buffer


# ---- what must have been held ------------------------------------------------------------------
@dataclass(frozen=True)
class NeedTable:
    """Exclusive numbers as bits of words: what an option holds, and what somebody must hold for it.

    `needs`: the bits that an option holds, or that every way to provide what it reads holds.
    `impossible` options are in no answer.
    """

    numbers: Ints  # ascending; the place is the bit
    needs: np.ndarray  # [options, words]
    impossible: Mask

    def ask(self, option: Ints, number: Ints) -> Mask:
        """Pair by pair: whether the option needs the number."""
        bit = np.searchsorted(self.numbers, number)
        word = self.needs[option, bit // WORD]
        return (word >> (bit % WORD).astype(np.uint64) & np.uint64(1)).astype(bool)


def needed_numbers(table: FreeTable) -> NeedTable:
    """Must-analysis: the meet over the writers of a buffer, the union over reads.

    The greatest fixpoint, as no derivation waits for itself. What nothing can write needs all.
    """
    numbers = distinct(table.exclusive.index)
    own = _bits(table.exclusive, numbers)
    held = np.full((table.span + 1, own.shape[1]), ~np.uint64(0))
    held[table.span] = 0  # what options without reads read
    last = np.full(len(table), table.span)
    reads = table.reads.joined(Ragged(np.arange(len(table) + 1), last))
    _, level = rounds(table, np.ones(len(table), dtype=bool))
    steps = [_Round.of(table, reads, b) for b in by_level(level)]
    until_settled(steps, lambda step: step.meet(held, own))
    before = np.bitwise_or.reduceat(held[reads.index], reads.start[:-1]) if len(table) else own
    return NeedTable(numbers, before | own, np.any(before & own, axis=1))


def until_settled(steps: Sequence[S], meet: Callable[[S], bool]) -> None:
    """Take all steps again until none of them tells that it changed anything."""
    changed = True
    while changed:
        changed = False
        for step in steps:
            tick()
            changed |= meet(step)


def _bits(rows: Ragged, numbers: Ints) -> np.ndarray:
    words = max(-(-len(numbers) // WORD), 1)
    found = np.zeros(len(rows) * words, dtype=np.uint64)
    bit = np.searchsorted(numbers, rows.index)
    place = rows.rows * words + bit // WORD
    value = np.left_shift(np.uint64(1), (bit % WORD).astype(np.uint64))
    cells, counts = counted(place)  # numbers of a row ascend
    if len(cells):
        found[cells] = np.bitwise_or.reduceat(value, starts(counts)[:-1])
    return found.reshape(len(rows), words)


def by_level(level: Ints) -> list[Ints]:
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
    def of(table: FreeTable, reads: Ragged, buffers: Ints) -> _Round:
        writers = table.writers.take(buffers)
        return _Round(buffers, writers, reads.take(writers.index))

    def meet(self, held: np.ndarray, own: np.ndarray) -> bool:
        """Narrow what these buffers are known to need; whether that is less now."""
        union = np.bitwise_or.reduceat(held[self.reads.index], self.reads.start[:-1])
        union |= own[self.writers.index]
        new = np.bitwise_and.reduceat(union, self.writers.start[:-1])
        new &= held[self.buffers]
        if np.array_equal(new, held[self.buffers]):
            return False
        held[self.buffers] = new
        return True
