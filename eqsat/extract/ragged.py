"""Rows of whole numbers, of any length each, as two arrays: what loops over options are made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise

import numpy as np

Ints = np.ndarray  # of int64
Mask = np.ndarray  # of bool


@dataclass(frozen=True)
class Ragged:
    """Row r holds `index[start[r]:start[r + 1]]`; numbers are not negative."""

    start: Ints
    index: Ints

    # ---- how rows come about -----------------------------------------------------------------
    @staticmethod
    def of(rows: Sequence[Sequence[int]] | Sequence[frozenset[int]]) -> Ragged:
        """Rows as they are listed."""
        counts = np.fromiter(map(len, rows), np.int64, len(rows))
        total = int(counts.sum())
        return Ragged(starts(counts), np.fromiter(chain.from_iterable(rows), np.int64, total))

    @staticmethod
    def grouped(rows: Ints, index: Ints, count: int) -> Ragged:
        """Numbers by the row each belongs to, in the order they come."""
        order = np.argsort(rows, kind="stable")
        return Ragged(starts(np.bincount(rows, minlength=count)), index[order])

    @staticmethod
    def sets(rows: Ints, index: Ints, count: int) -> Ragged:
        """These rows with every number once, ascending."""
        span = int(index.max(initial=0)) + 1
        keys = distinct(rows * span + index)
        return Ragged(starts(np.bincount(keys // span, minlength=count)), keys % span)

    @staticmethod
    def stacked(parts: Iterable[Ragged]) -> Ragged:
        """Rows below rows."""
        tables = list(parts)
        counts = np.concatenate([p.counts for p in tables])
        return Ragged(starts(counts), np.concatenate([p.index for p in tables]))

    # ---- what they are -----------------------------------------------------------------------
    def __len__(self) -> int:
        return len(self.start) - 1

    @cached_property
    def counts(self) -> Ints:
        return np.diff(self.start)

    @cached_property
    def rows(self) -> Ints:
        """Per number: its row."""
        return np.repeat(np.arange(len(self)), self.counts)

    @cached_property
    def tuples(self) -> list[tuple[int, ...]]:
        """Row by row, for walks over a few of them."""
        start, index = self.start.tolist(), self.index.tolist()
        return [tuple(index[a:b]) for a, b in pairwise(start)]

    def __getitem__(self, row: int) -> Ints:
        return self.index[self.start[row] : self.start[row + 1]]

    def __iter__(self) -> Iterator[Ints]:
        return (self[r] for r in range(len(self)))

    def pairs(self, span: int) -> Ints:
        """(row, number) as one number each; `span` is more than any number."""
        return self.rows * span + self.index

    # ---- rows made of rows -------------------------------------------------------------------
    def take(self, rows: Ints) -> Ragged:
        """These rows, in this order."""
        counts = self.counts[rows]
        start = starts(counts)
        at = np.arange(start[-1]) + np.repeat(self.start[rows] - start[:-1], counts)
        return Ragged(start, self.index[at])

    def part(self, begin: int, end: int) -> Ragged:
        """Rows [begin, end)."""
        start = self.start[begin : end + 1]
        return Ragged(start - start[0], self.index[start[0] : start[-1]])

    def mapped(self, table: Ints) -> Ragged:
        """Every number replaced by that of a table."""
        return Ragged(self.start, table[self.index])

    def where(self, mask: Mask) -> Ragged:
        """Without the numbers whose place in `index` says False."""
        return Ragged(starts(np.bincount(self.rows[mask], minlength=len(self))), self.index[mask])

    def spread(self, table: Ragged) -> Ragged:
        """Every number replaced by a row of a table."""
        taken = table.take(self.index)
        return Ragged(taken.start[self.start], taken.index)

    def distinct(self) -> Ragged:
        """Every number once a row, ascending."""
        return Ragged.sets(self.rows, self.index, len(self))

    def joined(self, other: Ragged) -> Ragged:
        """Row by row the numbers of both."""
        rows = np.concatenate([self.rows, other.rows])
        return Ragged.grouped(rows, np.concatenate([self.index, other.index]), len(self))

    def turned(self, count: int) -> Ragged:
        """Per number below `count`: the rows that hold it, ascending."""
        return Ragged.grouped(self.index, self.rows, count)

    # ---- what they say -----------------------------------------------------------------------
    def any(self, mask: Mask) -> Mask:
        """Per row: whether any of its numbers has a place in `index` that says True."""
        return np.bincount(self.rows[mask], minlength=len(self)) > 0

    def all(self, mask: Mask) -> Mask:
        """Per row: whether all of its numbers have a place in `index` that says True."""
        return ~self.any(~mask)

    def sums(self, values: Ints) -> Ints:
        """Per row: the sum over its numbers, of whole values per place in `index`."""
        total = np.concatenate([np.zeros(1, values.dtype), np.cumsum(values)])
        return total[self.start[1:]] - total[self.start[:-1]]


def starts(counts: Ints) -> Ints:
    """Where rows of these lengths start, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def distinct(keys: Ints) -> Ints:
    """Every number once, ascending. np.unique hashes them, which takes ten times as long."""
    ordered = np.sort(keys)
    return (
        ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered
    )


def counted(keys: Ints) -> tuple[Ints, Ints]:
    """Ascending numbers, each once, and how often it is there."""
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else keys
    return keys[first], np.diff(np.concatenate([first, [len(keys)]]))


def numbered_sets(rows: Ragged) -> Ints:
    """Per row a number; equal sets, of ascending numbers, have equal ones."""
    numbers = np.zeros(len(rows), dtype=np.int64)
    span = int(rows.index.max(initial=0)) + 2
    for k in range(int(rows.counts.max(initial=0))):
        longer = rows.counts > k
        at = rows.start[:-1][longer] + k
        keys = numbers * span
        keys[longer] += rows.index[at] + 1
        numbers = np.searchsorted(distinct(keys), keys)
    return numbers


def contains(keys: Ints, asked: Ints) -> Mask:
    """Per number asked about: whether it is among the keys, which ascend."""
    if not len(keys):
        return np.zeros(len(asked), dtype=bool)
    at = np.searchsorted(keys, asked)
    return keys[np.minimum(at, len(keys) - 1)] == asked
