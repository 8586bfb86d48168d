"""Options of a table that cannot be part of any best answer, whatever its order (see `prune`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from eqsat.extract.candidates.prune import OTHERS
from eqsat.extract.candidates.table import OptionTable
from eqsat.extract.ragged import Ints, counted, distinct, numbered_sets, starts
from eqsat.model.deadline import tick

WORD = 64
PAIRS = 4_000_000  # of options and words that are compared at once


@dataclass(frozen=True)
class Pruned:
    """`kept` rows ascending; per dropped row (`dropped`) a kept one that is no worse (`by`)."""

    kept: Ints
    dropped: Ints
    by: Ints


def undominated(table: OptionTable) -> Pruned:
    """Drop an option if another writes the same, needs and blocks no more, and is as good.

    In the order in which a bucket's options are looked at an earlier one is as fast, and of equals
    the one of fewest needs, reads and ops is kept. All buckets go on at once: the first option that
    is left of each is kept, and what it dominates is dropped.
    """
    bucket = numbered_sets(table.writes)
    sizes = [c.counts[table.candidate] for c in (table.candidates.members, table.candidates.reads)]
    needs = table.reads.counts + table.resident.counts + table.exclusive.counts
    goals = [table.adds[:, k] for k in range(table.adds.shape[1])]
    order = np.lexsort((*sizes, needs, *goals[::-1], bucket))
    kept, dropped, by = [order[:0]], [order[:0]], [order[:0]]
    for rows in _batches(bucket[order]):
        tick()
        left = order[rows[0] : rows[1]]
        needs = _needs(table, left, bucket)
        costs = table.adds[left][:, OTHERS:]
        for first, gone, leader in _rounds(bucket[left], needs, costs):
            kept.append(left[first])
            dropped.append(left[gone])
            by.append(left[leader])
    return Pruned(np.sort(np.concatenate(kept)), np.concatenate(dropped), np.concatenate(by))


def _batches(bucket: Ints) -> Iterator[tuple[int, int]]:
    """Ranges of ascending rows, of whole buckets; a large bucket has many needs and goes alone."""
    _, counts = counted(bucket)
    ends = np.cumsum(counts)
    first = 0
    for at, end in enumerate(ends.tolist()):
        if at + 1 == len(ends) or int(ends[at + 1]) - first > PAIRS // WORD:
            yield first, end
            first = end


def _needs(table: OptionTable, rows: Ints, bucket: Ints) -> Ints:
    """Per option what it reads, keeps and holds alone, as bits of words; numbered by bucket."""
    parts = [p.take(rows) for p in (table.reads, table.resident, table.exclusive)]
    span = 1 + max(int(p.index.max(initial=0)) for p in parts)
    option = np.concatenate([p.rows for p in parts])
    item = np.concatenate([p.index + k * span for k, p in enumerate(parts)])
    own = bucket[rows]
    keys = own[option] * (3 * span) + item
    items = distinct(keys)
    first = np.searchsorted(items // (3 * span), own)  # of the option's bucket
    bit = np.searchsorted(items, keys) - first[option]
    words = int(bit.max(initial=0)) // WORD + 1
    found = np.zeros((len(rows), words), dtype=np.uint64)
    order = np.lexsort((bit, option))
    option, bit = option[order], bit[order]
    value = np.left_shift(np.uint64(1), (bit % WORD).astype(np.uint64))
    place = option * words + bit // WORD
    cells, counts = counted(place)
    if len(cells):
        found.reshape(-1)[cells] = np.bitwise_or.reduceat(value, starts(counts)[:-1])
    return found


def _rounds(bucket: Ints, needs: Ints, costs: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
    """(kept, dropped, by whom) per round, as places; options of a bucket are side by side."""
    left = np.arange(len(bucket))
    while len(left):
        tick()
        _, counts = counted(bucket[left])
        first = starts(counts)[:-1]
        leader = np.repeat(left[first], counts)
        is_first = np.zeros(len(left), dtype=bool)
        is_first[first] = True
        worse = ~((needs[leader] & ~needs[left]).any(axis=1))
        worse &= (costs[leader] <= costs[left]).all(axis=1) & ~is_first
        yield left[first], left[worse], leader[worse]
        left = left[~worse & ~is_first]
