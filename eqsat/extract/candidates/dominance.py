"""Columns that cannot be part of any best answer, whatever its order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from eqsat.extract.candidates.sources import CandidateTable
from eqsat.extract.choice.columns import Columns
from eqsat.extract.choice.linear import OWN, TIE_BREAK
from eqsat.extract.ragged import Ints, Mask, Ragged, counted, distinct, numbered_sets, starts
from eqsat.model.bitsets import WORD
from eqsat.model.deadline import tick

OTHERS = [*OWN].index(TIE_BREAK) + 1  # time comes first, and ties do not make a dispatch better
PAIRS = 4_000_000  # of columns and words that are compared at once
LARGE = 64  # columns of a bucket that is looked at alone, and so many of its first at once


@dataclass(frozen=True)
class Pruned:
    """`kept` rows ascending; per dropped row (`dropped`) a kept one that is no worse (`by`)."""

    kept: Ints
    dropped: Ints
    by: Ints


def undominated(table: Columns, candidates: CandidateTable) -> Pruned:
    """Drop a column if another writes the same, needs and blocks no more, and is as good.

    In the order in which a bucket's columns are looked at an earlier one is as fast, and of equals
    the one of fewest needs, reads and ops is kept. Small buckets go on at once: the first column
    that is left of each is kept, and what it dominates is dropped. Of a large one many go at once.
    """
    bucket = numbered_sets(table.writes)
    of = table.candidate
    sizes = [candidates.columns[name].counts[of] for name in ("members", "reads")]
    needs = table.reads.counts + table.resident.counts + table.exclusive.counts
    goals = [_ranked(table.adds[:, k]) for k in range(table.adds.shape[1])]
    order = np.lexsort((*sizes, needs, *goals[::-1], bucket))
    kept, dropped, by = [order[:0]], [order[:0]], [order[:0]]
    for rows in _batches(bucket[order]):
        tick()
        left = order[rows[0] : rows[1]]
        needs = [p.take(left) for p in (table.reads, table.resident, table.exclusive)]
        looked = Looked(bucket[left], bits_of(needs, bucket[left]), table.adds[left][:, OTHERS:])
        for first, gone, leader in looked.at():
            kept.append(left[first])
            dropped.append(left[gone])
            by.append(left[leader])
    return Pruned(np.sort(np.concatenate(kept)), np.concatenate(dropped), np.concatenate(by))


def _ranked(values: Ints) -> Ints:
    """In the order of these values, in 64 bits."""
    return np.unique(values, return_inverse=True)[1] if values.dtype == object else values


def _batches(bucket: Ints) -> Iterator[tuple[int, int]]:
    """Ranges of ascending rows, of whole buckets; a large bucket has many needs and goes alone."""
    _, counts = counted(bucket)
    ends = np.cumsum(counts)
    first = 0
    for at, end in enumerate(ends.tolist()):
        if at + 1 == len(ends) or int(ends[at + 1]) - first > PAIRS // WORD:
            yield first, end
            first = end


def bits_of(parts: Sequence[Ragged], bucket: Ints) -> Ints:
    """Per column what it needs, of each kind, as bits of words; numbered by bucket."""
    span = 1 + max(int(p.index.max(initial=0)) for p in parts)
    option = np.concatenate([p.rows for p in parts])
    item = np.concatenate([p.index + k * span for k, p in enumerate(parts)])
    keys = bucket[option] * (len(parts) * span) + item
    items = distinct(keys)
    first = np.searchsorted(items // (len(parts) * span), bucket)  # of the option's bucket
    bit = np.searchsorted(items, keys) - first[option]
    words = int(bit.max(initial=0)) // WORD + 1
    found = np.zeros((len(bucket), words), dtype=np.uint64)
    order = np.lexsort((bit, option))
    option, bit = option[order], bit[order]
    value = np.left_shift(np.uint64(1), (bit % WORD).astype(np.uint64))
    place = option * words + bit // WORD
    cells, counts = counted(place)
    if len(cells):
        found.reshape(-1)[cells] = np.bitwise_or.reduceat(value, starts(counts)[:-1])
    return found


@dataclass(frozen=True)
class Looked:
    """Columns in the order in which they are looked at, bucket by bucket.

    What it yields are places: kept, dropped, and by which one each of those was.
    """

    bucket: Ints
    needs: Ints  # [options, words]
    costs: Ints  # [options, goals]

    def at(self) -> Iterator[tuple[Ints, Ints, Ints]]:
        _, counts = counted(self.bucket)
        first = starts(counts)
        is_large = counts > LARGE
        yield from self._in_rounds(np.flatnonzero(~np.repeat(is_large, counts)))
        for at in np.flatnonzero(is_large).tolist():
            yield from self._in_blocks(np.arange(first[at], first[at + 1]))

    def _in_rounds(self, left: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
        """All buckets at once, by the first column that is left of each."""
        while len(left):
            tick()
            _, counts = counted(self.bucket[left])
            first = starts(counts)[:-1]
            leader = np.repeat(left[first], counts)
            is_first = np.zeros(len(left), dtype=bool)
            is_first[first] = True
            worse = ~((self.needs[leader] & ~self.needs[left]).any(axis=1))
            worse &= (self.costs[leader] <= self.costs[left]).all(axis=1) & ~is_first
            yield left[first], left[worse], leader[worse]
            left = left[~worse & ~is_first]

    def _in_blocks(self, left: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
        """One bucket, by so many columns at once: those no earlier one dominates are kept."""
        while len(left):
            tick()
            first, rest = left[:LARGE], left[LARGE:]
            better = self._no_worse(first, first)
            by = np.arange(len(first))
            for i in range(len(first)):
                if by[i] == i:
                    later = i + 1 + np.flatnonzero(better[i, i + 1 :])
                    by[later[by[later] == later]] = i
            is_kept = by == np.arange(len(first))
            kept = first[is_kept]
            yield kept, first[~is_kept], first[by[~is_kept]]
            better = self._no_worse(kept, rest)
            worse = better.any(axis=0)
            yield kept[:0], rest[worse], kept[better[:, worse].argmax(axis=0)]
            left = rest[~worse]

    def _no_worse(self, ones: Ints, others: Ints) -> Mask:
        """[ones, others]: whether one needs and costs no more than another."""
        found = np.ones((len(ones), len(others)), dtype=bool)
        if not len(others):
            return found
        for word in self.needs.T:
            found &= (word[ones][:, None] & ~word[others]) == 0
        for cost in self.costs.T:
            if cost[ones].max() > cost[others].min():
                found &= cost[ones][:, None] <= cost[others]
        return found
