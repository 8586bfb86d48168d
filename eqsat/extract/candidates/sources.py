"""Sources of columns: candidates in arrays, their prices, what every answer owes, and dominance.

A column that another one dominates is in no best answer, whatever its order; of one kernel there is
one column.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from eqsat.extract.blocks import ONE, TWO, own_key
from eqsat.extract.candidates.dominators import Lost
from eqsat.extract.candidates.pool import Pool, kept_rows, originals_held
from eqsat.extract.candidates.space import MOVING, Space
from eqsat.extract.choice.columns import BlockImages, ChoiceFacts, Columns
from eqsat.extract.choice.linear import OWN, TIE_BREAK, Time, moved_bytes, tie
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.groups.grow import Candidate
from eqsat.extract.ragged import Ints, Mask, Ragged, counted, distinct, numbered_sets, starts
from eqsat.model.control import Control
from eqsat.model.deadline import tick
from eqsat.model.generic import Generic
from eqsat.model.goal import Goal
from eqsat.model.selection import Group
from eqsat.model.sets import WORD

EXTRAS = 2  # inner values a group may write beside its results, the program's results apart


def group_of(
    costs: Costs, c: Candidate, buffers: Iterable[int], time_ps: int, step: int = 0
) -> Group:
    """A candidate that writes these buffers as a group of a selection."""
    space, pipeline = costs.space, costs.of(c.members).pipeline_of(c.members)
    written = frozenset(buffers)
    extra = tuple(w for w in c.exposable if space.buffer[w] in written)
    return Group(c.members, c.reads, (*extra, *c.writes), time_ps, step, pipeline)


@dataclass(frozen=True)
class Sources:
    """Candidates of one pool, with their prices and the goals that their columns add to."""

    pool: Pool
    costs: Costs
    candidates: CandidateTable
    goals: Mapping[str, Goal]

    @cached_property
    def space(self) -> Space:
        return self.pool.space

    @cached_property
    def lost(self) -> Lost:
        return Lost(self.pool)

    @cached_property
    def moved(self) -> tuple[int, ...]:
        """Per node: bytes a conversion moves."""
        egraph = self.space.egraph
        return tuple(moved_bytes(egraph, n) for n in range(len(egraph.nodes)))

    @cached_property
    def tied(self) -> tuple[int, ...]:
        """Per node: what it adds to the tie-break."""
        egraph, target = self.space.egraph, self.costs.target
        return tuple(tie(egraph, target, n, m) for n, m in enumerate(self.moved))

    @cached_property
    def has_loops(self) -> bool:
        return any(isinstance(n.attr, Control) for n in self.space.egraph.nodes)


# ---- candidates column by column -----------------------------------------------------------------
PARTS = ("members", "reads", "writes", "exposable")  # what candidates are, as numbers


@dataclass(frozen=True)
class CandidateTable:
    """Candidates as arrays, row by row."""

    candidates: Sequence[Candidate]
    prices: type = np.int64  # of arrays: `object` where sums of prices may need more bits

    def __len__(self) -> int:
        return len(self.candidates)

    def __getitem__(self, number: int) -> Candidate:
        return self.candidates[number]

    @property
    def of_any_size(self) -> CandidateTable:
        """With Python's own numbers as prices."""
        return CandidateTable(self.candidates, object)

    @cached_property
    def columns(self) -> dict[str, Ragged]:
        """By name (`PARTS`)."""
        tick()
        return {name: Ragged.of([getattr(c, name) for c in self.candidates]) for name in PARTS}

    @cached_property
    def time_ps(self) -> Ints:
        return np.array([c.time_ps for c in self.candidates], dtype=self.prices)

    @cached_property
    def slack_ps(self) -> Ints:
        return np.array([c.slack_ps for c in self.candidates], dtype=self.prices)

    def part(self, numbers: Ints) -> Listed:
        """These of them."""
        return Listed(self, numbers)


@dataclass(frozen=True)
class Listed:
    """Some candidates of a table, numbered from 0."""

    whole: CandidateTable
    numbers: Ints

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, number: int) -> Candidate:
        return self.whole[int(self.numbers[number])]

    @property
    def prices(self) -> type:
        return self.whole.prices

    def column(self, name: str) -> Ragged:
        """Of each of them, by name (`PARTS`)."""
        return self.whole.columns[name].take(self.numbers)

    @property
    def time_ps(self) -> Ints:
        return self.whole.time_ps[self.numbers]

    @property
    def slack_ps(self) -> Ints:
        return self.whole.slack_ps[self.numbers]


# ---- times that need a plan ----------------------------------------------------------------------
def with_plan_times(sources: Sources, choice: Columns, rows: Ints) -> Columns:
    """The columns with the planned times of some.

    OverflowError if sums of them are too large for arrays.
    """
    rows = rows[~choice.is_asked[rows]]
    owners, extras = choice.candidate[rows], choice.extras.take(rows)
    time_ps = asked_ps(sources.costs, sources.candidates, owners, extras)
    time_ps = time_ps * sources.space.times_in(choice.last[rows])
    is_short = choice.adds.dtype != object
    # sums in arrays of 64 bits, with some room
    if is_short and int(time_ps.max(initial=0)) * len(sources.space.buffer) >= 2**62:
        raise OverflowError("times of dispatches")
    adds, is_asked = choice.adds.copy(), choice.is_asked.copy()
    is_asked[rows] = True
    for at in (i for i, g in enumerate(sources.goals.values()) if isinstance(g, Time)):
        adds[rows, at] = time_ps
    return replace(choice, adds=adds, is_asked=is_asked)


def asked_ps(
    costs: Costs, candidates: CandidateTable | Listed, owners: Ints, extras: Ragged
) -> Ints:
    """Picoseconds of each candidate's dispatch that also writes `extras`, by its plan."""
    time_ps = np.empty(len(owners), dtype=candidates.prices)
    ps_of: dict[tuple[int, ...], int] = {}
    for i, number in enumerate(owners.tolist()):
        tick()
        key = (number, *extras[i].tolist())
        if key not in ps_of:
            c = candidates[number]
            ps_of[key] = costs.of(c.members).wider_ps(c, key[1:])
        time_ps[i] = ps_of[key]
    return time_ps


# ---- what every answer owes ----------------------------------------------------------------------
def choice_facts(pool: Pool, linear: tuple[str, ...]) -> ChoiceFacts:
    """Facts of every answer, whatever the candidates."""
    space = pool.space
    computed = [r for r in space.roots if r not in pool.held]
    held = [r for r in space.roots if r in pool.resident]
    originals = originals_held(pool)
    always = (*held, *computed, *(b for b in originals if b not in held))
    nbytes = np.array(space.sizes, dtype=np.int64)
    nbytes[[*originals, *held]] = 0
    source = np.zeros(len(space.buffer), dtype=bool)
    source[[v for v in set(space.value) if space.is_source(v)]] = True
    source[[space.value[b] for b in pool.held | pool.resident]] = True
    return ChoiceFacts(
        linear,
        nbytes,
        space.input_bytes + sum(space.nbytes(b) * space.times(b) for b in always),
        roots=np.array(computed, dtype=np.int64),
        needed=np.array(pool.needed, dtype=np.int64),
        served=np.array(sorted(frozenset().union(*pool.served.values())), dtype=np.int64),
        value_of=np.array(space.value, dtype=np.int64),
        is_source=source,
        times=np.array([space.times(c) for c in range(len(space.buffer))], dtype=np.int64),
        weight_rows=kept_rows(pool),
        blocks=_blocks(pool),
    )


def _blocks(pool: Pool) -> BlockImages | None:
    """Where buffers and values are among equal blocks; None: the e-graph stands for itself."""
    rolled = pool.space.rolled
    if rolled is None:
        return None
    later = pool.space.later
    numbers = [later.number(n) for n in range(len(later.node) + len(later.value))]
    return BlockImages(
        level=np.array(rolled.level, dtype=np.int64),
        buffer=np.array(later.buffer, dtype=np.int64),
        value=np.array(later.value, dtype=np.int64),
        number=np.array(numbers, dtype=np.int64),
        count=rolled.count,
    )


def column_images(space: Space, members: Ragged, buffers: Sequence[Ragged], last: Ints) -> Ints:
    """Per column the row of the same column one block later; -1 if there is none.

    buffers: those that a column reads, keeps and writes. last: the last block that it touches.
    """
    images = np.full(len(last), -1, dtype=np.int64)
    inner = np.flatnonzero((last == ONE) | (last == TWO))
    sides = (of.take(inner).tuples for of in (members, *buffers))
    parts = list(zip(*sides, strict=True))
    place = {own_key(*p): i for p, i in zip(parts, inner.tolist(), strict=True)}
    for p, i in zip(parts, inner.tolist(), strict=True):
        if last[i] == ONE:
            images[i] = place.get(space.later.key(*p), -1)
    return images


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
