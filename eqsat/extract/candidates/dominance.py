"""Columns that cannot be part of any best answer, whatever its order; of one kernel one."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from eqsat.extract.blocks import ONE, TWO
from eqsat.extract.candidates.sources import CandidateTable
from eqsat.extract.candidates.space import MOVING, Space
from eqsat.extract.choice.columns import Columns
from eqsat.extract.choice.linear import OWN, TIE_BREAK
from eqsat.extract.ragged import Ints, Mask, Ragged, counted, distinct, numbered_sets, starts
from eqsat.model.deadline import tick
from eqsat.model.generic import Generic
from eqsat.model.sets import WORD

OTHERS = [*OWN].index(TIE_BREAK) + 1  # time comes first, and ties do not make a dispatch better
PAIRS = 4_000_000  # of columns and words that are compared at once


def undominated(table: Columns, candidates: CandidateTable) -> Ints:
    """Rows to keep, ascending: not one if another writes the same, needs and blocks no more, and
    is as good.

    In the order in which a bucket's columns are looked at an earlier one is as fast, and of equals
    the one of fewest needs, reads and ops is kept. Of equal blocks a column whose same one in the
    other block is gone is as good only as others of its kind: in answers whose blocks are alike it
    has no place, so what it stands for would be lost.
    """
    bucket = numbered_sets(table.writes)
    of = table.candidate
    sizes = [candidates.columns[name].counts[of] for name in ("members", "reads")]
    needs = table.reads.counts + table.resident.counts + table.exclusive.counts
    goals = [_ranked(table.adds[:, k]) for k in range(table.adds.shape[1])]
    order = np.lexsort((*sizes, needs, *goals[::-1], bucket))
    costs = np.column_stack([table.adds[:, OTHERS:], _is_alone(table)])
    leaders = [order[:0]]
    for begin, end in _batches(bucket[order]):
        rows = order[begin:end]
        needs = [p.take(rows) for p in (table.reads, table.resident, table.exclusive)]
        words = _bits_of(needs, bucket[rows])
        leaders.append(rows[_leaders(bucket[rows], words, costs[rows])])
    return np.sort(np.concatenate(leaders))


def _is_alone(table: Columns) -> Mask:
    """Per column, whether it is of one of two equal blocks and the same one of the other is not
    there."""
    alone = (table.last == ONE) | (table.last == TWO)
    if table.facts.blocks is None:
        return np.zeros(len(table), dtype=bool)
    first = np.flatnonzero(table.image_row >= 0)
    alone[first] = alone[table.image_row[first]] = False
    return alone


def _leaders(bucket: Ints, needs: Ints, costs: Ints) -> Ints:
    """Places of those that no earlier one of their bucket dominates; needs: [columns, words].

    All buckets at once: the first column that is left of each stays, and what it dominates goes.
    """
    leaders, left = [np.arange(0)], np.arange(len(bucket))
    while len(left):
        tick()
        _, counts = counted(bucket[left])
        first = left[starts(counts)[:-1]]
        leader = np.repeat(first, counts)
        is_worse = ~((needs[leader] & ~needs[left]).any(axis=1))
        is_worse &= (costs[leader] <= costs[left]).all(axis=1)  # a leader is no better than itself
        leaders.append(first)
        left = left[~is_worse]
    return np.concatenate(leaders)


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


def _bits_of(parts: Sequence[Ragged], bucket: Ints) -> Ints:
    """Per column what it needs, of each kind, as bits of words; numbered by bucket."""
    span = 1 + max(int(p.index.max(initial=0)) for p in parts)
    option = np.concatenate([p.rows for p in parts])
    item = np.concatenate([p.index + k * span for k, p in enumerate(parts)])
    keys = bucket[option] * (len(parts) * span) + item
    items = distinct(keys)
    first = np.searchsorted(items // (len(parts) * span), bucket)  # of the option's bucket
    bit = np.searchsorted(items, keys) - first[option]
    words = int(bit.max(initial=0)) // WORD + 1
    bits = np.zeros((len(bucket), words), dtype=np.uint64)
    order = np.lexsort((bit, option))
    option, bit = option[order], bit[order]
    value = np.left_shift(np.uint64(1), (bit % WORD).astype(np.uint64))
    place = option * words + bit // WORD
    cells, counts = counted(place)
    if len(cells):
        bits.reshape(-1)[cells] = np.bitwise_or.reduceat(value, starts(counts)[:-1])
    return bits


# ---- columns that are one kernel: of each kind one is planned -----------------------------------
# Behind one op `Borders` leaves one group of each kind. But a buffer has as many ops that make it
# as layouts lead to it, and merges join what is behind several ops. So columns are compared as
# well: of those that read and write the same buffers and compute the same values by the same
# bodies, that of fewest conversions stands for its kernel (`borders.py` says what is not claimed).
def one_of_each_kernel(space: Space, table: Columns, candidates: CandidateTable) -> Ints:
    """Rows to keep, ascending.

    Columns of the input program stay, and so do those that have a time.
    """
    members = candidates.columns["members"].take(table.candidate)
    bodies = _counted_bodies(space, members)
    sides = [table.reads, table.resident, table.writes, table.exclusive, table.computes, bodies]
    sides += [_single(column) for column in table.adds[:, OTHERS:].T]
    kernel = numbered_sets(_joined(sides))
    is_own = np.array(space.is_own)[members.index]
    stays = members.all(is_own) | table.is_asked
    kernel = np.where(stays, len(table) + np.arange(len(table)), kernel)
    is_conversion = np.array([k == "conversion" for k in space.kinds])
    conversions = members.sums(is_conversion[members.index].astype(np.int64))
    order = np.lexsort((members.counts, conversions, kernel))
    first = np.concatenate([[True], kernel[order][1:] != kernel[order][:-1]])
    return np.sort(order[first[: len(order)]])


def _counted_bodies(space: Space, members: Ragged) -> Ragged:
    """Per column: what its members compute, with how often it has computed that before."""
    numbers: dict[Hashable, int] = {}
    of = np.array(
        [
            -1 if kind in MOVING else numbers.setdefault(_body(n.op, n.attr), len(numbers))
            for n, kind in zip(space.egraph.nodes, space.kinds, strict=True)
        ],
        dtype=np.int64,
    )
    computing = members.where(of[members.index] >= 0)
    rows, body = computing.rows, of[computing.index]
    order = np.lexsort((body, rows))
    rows, body = rows[order], body[order]
    begins = np.ones(len(rows), dtype=bool)
    begins[1:] = (rows[1:] != rows[:-1]) | (body[1:] != body[:-1])
    first = np.flatnonzero(begins)
    before = np.arange(len(rows)) - np.repeat(first, np.diff(np.append(first, len(rows))))
    span = int(before.max(initial=0)) + 1
    return Ragged.sets(rows, body * span + before, len(members))


def _body(op: str, attr: object) -> Hashable:
    return op, attr.yields if isinstance(attr, Generic) else None


def _single(column: Ints) -> Ragged:
    """A row of one number per column: equal for equal values."""
    _, number = np.unique(column, return_inverse=True)
    return Ragged(np.arange(len(column) + 1), number.astype(np.int64))


def _joined(sides: list[Ragged]) -> Ragged:
    """Row by row the numbers of all, apart from each other."""
    span = 1 + max(int(s.index.max(initial=0)) for s in sides)
    rows = np.concatenate([s.rows for s in sides])
    index = np.concatenate([s.index + k * span for k, s in enumerate(sides)])
    return Ragged.sets(rows, index, len(sides[0]))
