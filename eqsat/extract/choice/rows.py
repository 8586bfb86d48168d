"""The rows of a choice, stated once: for its linear relaxation, and for CP-SAT.

Variables are x[j], whether column j is chosen, and *levels*: y[b], how many of the columns that
write buffer b are chosen (one at most), and z[v], how many of those that write the first layout of
value v (several where v is computed again). With W(b), R(b) the columns that write and read b, N(n)
those that hold exclusive number n:

    (1) root        Σ x[W(r)] = 1                       each root r
    (2) needed      Σ x[columns that compute v] ≥ 1     each value v that every answer computes
        served      Σ x[columns that serve v] ≥ 1       (`candidates.cover`)
    (3) number      Σ x[N(n)] ≤ 1                       each exclusive number n
        written     Σ x[W(b)] ≤ 1                       each buffer b
    (4) level       y[b] ≤ Σ x[W(b)]                    each buffer b that is read
        claim       Σ x[R(b) ∩ N(n)] + Σ x[w ∈ W(b): w needs somebody else to hold n] ≤ y[b]
                    and the same with W(c) for N(n), each buffer c
    (5) the same for z[v]: what writes a layout of v, reads none and computes v, if v is not there
        from the start
    (6) either      x[j] + x[w] ≤ 1                     weight that j keeps, w makes in the run
    (7) barred      Σ x[some] ≤ most                    what was found to be no answer
    (8) forced      see `_forced`; alike: see `_alike`

(4) is what makes the relaxation tight. Of the readers that hold one number at most one is chosen,
and it is never chosen with a writer that needs somebody else to hold that number (`legal.py`); so
such a set as a whole is at most the level. (5) keeps layouts from being converted in a circle: of
the layouts of a value somebody writes the first one and reads none of them, after the cuts of
arborescences (Edmonds 1967). Where several write it, whoever is first needs no other holder, so
there is one more of them than of those that do. Other circles, as of some of them, are cut where
they occur (`legal.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.extract.blocks import ONE, TWO
from eqsat.extract.choice.columns import Columns
from eqsat.extract.choice.legal import Must, must
from eqsat.extract.ragged import Ints, Mask, Ragged, contains, counted, distinct
from eqsat.model.deadline import tick
from eqsat.model.sets import by_key


def choice_rows(choice: Columns) -> tuple[list[KeyedRows], Ints, Ints]:
    """(rows (1) to (5), what each level is of, how many levels' writers there may be).

    Variables are the columns, then the levels in the order in which they are returned.
    """
    facts, does = choice.facts, _done_once(choice)
    necessary = must(choice, does)
    keyed = [KeyedRows.of("root", facts.roots, sums(choice.writers.take(facts.roots), 1, 1))]
    for name, of, values in (
        ("needed", choice.computes, facts.needed),
        ("served", choice.serves, facts.served),
    ):
        rows = sums(of.turned(facts.span).take(values), 1, math.inf)
        keyed.append(KeyedRows.of(name, values, rows))
    keyed += _exclusions(choice)
    count, most, owned = len(choice), [], []
    for name, owners, writers, readers in (_of_buffers(choice), _of_values(choice)):
        tick()
        claims, owner, who = _claims(does, necessary, writers, readers)
        level = count + np.arange(len(writers))
        rows = at_most(Ragged(np.arange(len(level) + 1), level), writers)
        keyed.append(KeyedRows.of(f"{name} level", owners, rows))
        rows = at_most(claims, Ragged(np.arange(len(claims) + 1), level[owner]))
        keyed.append(KeyedRows.of(f"{name} claim", owners[owner], rows, who))
        is_one = _hold_one(writers, choice.exclusive) if name == "value" else True
        most.append(np.where(is_one, 1, np.maximum(writers.counts, 1)))
        owned.append(owners)
        count += len(level)
    return keyed, np.concatenate(owned), np.concatenate(most)


def _exclusions(choice: Columns) -> list[KeyedRows]:
    """(3): sets of columns of which at most one is chosen."""
    numbers = distinct(choice.exclusive.index)
    dense = Ragged(choice.exclusive.start, np.searchsorted(numbers, choice.exclusive.index))
    holders = dense.turned(len(numbers))
    least = 1 if choice.facts.blocks is None else 0  # rows of one column have partners of several
    several = np.flatnonzero(holders.counts > least)
    buffers = np.flatnonzero((choice.writers.counts > least) & ~choice.facts.is_root)
    return [
        KeyedRows.of("number", numbers[several], sums(holders.take(several), -math.inf, 1)),
        KeyedRows.of("written", buffers, sums(choice.writers.take(buffers), -math.inf, 1)),
    ]


# ---- levels: (name, what each is of, writers, readers) -------------------------------------------
Levels = tuple[str, Ints, Ragged, Ragged]


def _of_buffers(choice: Columns) -> Levels:
    """Buffers somebody reads: who writes each, one of them at most, and who reads it."""
    is_read, blocks = choice.readers.counts > 0, choice.facts.blocks
    if blocks is not None:  # the level of the same buffer one block later as well
        later = blocks.buffer[is_read]
        is_read[later[later >= 0]] = True
    buffers = np.flatnonzero(is_read)
    return "buffer", buffers, choice.writers.take(buffers), choice.readers.take(buffers)


def _of_values(choice: Columns) -> Levels:
    """(5): values somebody reads a layout of, and who may write the first layout of each.

    Without those of which the rows would say no more than those of their only layout.
    """
    facts, span = choice.facts, choice.facts.span
    used = np.flatnonzero(choice.readers.counts + choice.writers.counts)
    whole = Ragged.grouped(facts.value_of[used], used, span)
    values = np.flatnonzero(whole.counts)
    sets = whole.take(values)
    written, read = _sides(choice, sets)
    computed = values[written.index] + written.rows * span
    is_made = contains(choice.computes.pairs(span), computed)
    first = is_made | facts.is_source[values[written.index]]
    writers, readers = written.where(first).turned(len(sets)), read.turned(len(sets))
    needed = (readers.counts > 0) & ~_is_one_buffer(choice, sets, writers.counts)
    if facts.blocks is not None:  # the same value in all later blocks as well
        more = needed
        while more.any():
            more = np.isin(values, facts.blocks.value[values[needed]]) & ~needed
            needed |= more
    left = np.flatnonzero(needed)
    return "value", values[left], writers.take(left), readers.take(left)


def _sides(choice: Columns, sets: Ragged) -> tuple[Ragged, Ragged]:
    """Per column: the sets of which it writes a buffer and reads none, and those it reads."""
    of_buffer, count = sets.turned(choice.facts.span), max(len(sets), 1)
    read = choice.reads.spread(of_buffer).distinct()
    written = choice.writes.spread(of_buffer).distinct()
    return written.where(~contains(read.pairs(count), written.pairs(count))), read


def _is_one_buffer(choice: Columns, sets: Ragged, writers: Ints) -> Mask:
    """Per set: whether it is one layout, and all who write that are among so many writers."""
    only = sets.index[sets.start[:-1]]
    return (sets.counts == 1) & (choice.writers.counts[only] == writers)


# ---- claims --------------------------------------------------------------------------------------
def _done_once(choice: Columns) -> Ragged:
    """Per column: numbers of what it does and no other chosen one does.

    That is to hold an exclusive number, and to write a buffer, where its writers do not share a
    number anyway: they may all be copies of an op that may be computed again. Of equal blocks only
    the numbers, as it is these that have images (`blockrows`).
    """
    held = choice.exclusive
    if choice.facts.blocks is not None:
        return held
    span = int(held.index.max(initial=0)) + 1
    written = choice.writes.where(~_hold_one(choice.writers, held)[choice.writes.index])
    return held.joined(Ragged(written.start, written.index + span))


def _hold_one(sets: Ragged, held: Ragged) -> Mask:
    """Per set of columns: whether these hold one number in common: one is chosen at most."""
    span = int(held.index.max(initial=0)) + 1
    pairs, count = counted(np.sort(sets.spread(held).pairs(span)))
    shares = np.zeros(len(sets), dtype=bool)
    shares[pairs[count == sets.counts[pairs // span]] // span] = True
    return shares


def _claims(
    does: Ragged, necessary: Must, writers: Ragged, readers: Ragged
) -> tuple[Ragged, Ints, Ints]:
    """(columns of which one is chosen at most, the level that is at least that, who claims it).

    does: per column what is done once. Who claims it is a number of these, or a column as
    -1 - column.
    """
    held = does.take(readers.index)
    owner, number, column = readers.rows[held.rows], held.index, readers.index[held.rows]
    span = int(does.index.max(initial=0)) + 1
    pairs = distinct(owner * span + number)
    of, number_of = pairs // span, pairs % span
    others = writers.take(of)
    more = others.where(necessary.ask(others.index, number_of[others.rows]))
    keys = np.concatenate([owner * span + number, pairs[more.rows]])
    claims = np.searchsorted(pairs, keys)
    sets = Ragged.grouped(claims, np.concatenate([column, more.index]), len(pairs))
    alone = np.flatnonzero(does.counts[readers.index] == 0)
    single = readers.index[alone]
    sets = Ragged.stacked([sets, Ragged(np.arange(len(alone) + 1), single)])
    owners = np.concatenate([of, readers.rows[alone]])
    left = largest_claims(sets, owners, len(does))
    return sets.take(left), owners[left], np.concatenate([number_of, -1 - single])[left]


def largest_claims(claims: Ragged, owners: Ints, columns: int) -> Ints:
    """Claims that no other one of the same owner contains, ascending."""
    from scipy.sparse import csr_matrix

    if not len(claims):
        return np.arange(0)
    keys = owners[claims.rows] * columns + claims.index
    places = distinct(keys)
    parts = np.ones(len(keys), dtype=np.int32), np.searchsorted(places, keys), claims.start
    matrix = csr_matrix(parts, shape=(len(claims), len(places)))
    tick()
    common = (matrix @ matrix.T).tocoo()
    i, j, sizes = common.row, common.col, claims.counts
    larger = (sizes[j] > sizes[i]) | ((sizes[j] == sizes[i]) & (j < i))
    gone = i[(common.data == sizes[i]) & larger]
    is_largest = np.ones(len(claims), dtype=bool)
    is_largest[gone] = False
    return np.flatnonzero(is_largest)


def cliques_of(choice: Columns, columns: Ints) -> list[tuple[int, ...]]:
    """Sets of these columns of which at most one is chosen, that hold all of them together."""
    held, some = choice.exclusive.tuples, columns.tolist()
    holders = by_key((n, i) for i in some for n in held[i])
    sets: list[frozenset[int]] = []
    cliques: list[tuple[int, ...]] = []
    for clique in sorted({tuple(h) for h in holders.values()}, key=lambda c: (-len(c), c)):
        tick()
        members = frozenset(clique)
        if not any(members <= other for other in sets):
            sets.append(members)
            cliques.append(clique)
    return [*cliques, *((i,) for i in some if not held[i])]


# ---- equal blocks --------------------------------------------------------------------------------
def alike_rows(choice: Columns) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(8) As many of the one as of the other: columns of the equal blocks in the middle.

    Not in a relaxation, which is about all blocks, however much they differ (`blockrows`).
    """
    if choice.facts.blocks is None:
        return []
    by: dict[int, tuple[list[int], list[int]]] = {}
    for i in np.flatnonzero(choice.last == ONE).tolist():
        by.setdefault(int(choice.image[i]), ([], []))[0].append(i)
    for i in np.flatnonzero(choice.last == TWO).tolist():
        by.setdefault(int(choice.key[i]), ([], []))[1].append(i)
    return [(tuple(one), tuple(other)) for one, other in by.values()]


# ---- rows as arrays ------------------------------------------------------------------------------
NOBODY = -(1 << 40)  # in place of who claims, in rows that are no claims
Key = tuple[str, int, int]


@dataclass(frozen=True)
class RowTable:
    """low <= Σ value · variable <= high, row by row."""

    low: np.ndarray
    high: np.ndarray
    terms: Ragged
    value: np.ndarray  # per term

    def matrix(self, variables: int) -> Any:
        from scipy.sparse import csr_matrix

        parts = (self.value, self.terms.index, self.terms.start)
        matrix = csr_matrix(parts, shape=(len(self.low), variables), dtype=float, copy=True)
        matrix.sum_duplicates()  # in place
        return matrix

    @staticmethod
    def stacked(parts: Sequence[RowTable]) -> RowTable:
        """One below the other."""
        return RowTable(
            np.concatenate([p.low for p in parts]),
            np.concatenate([p.high for p in parts]),
            Ragged.stacked([p.terms for p in parts]),
            np.concatenate([p.value for p in parts]),
        )


@dataclass(frozen=True)
class KeyedRows:
    """Rows, and what each is about: a buffer, value or number, and who claims it."""

    name: str
    about: Ints
    who: Ints
    table: RowTable

    @staticmethod
    def of(name: str, about: Ints, table: RowTable, who: Ints | None = None) -> KeyedRows:
        return KeyedRows(name, about, np.full(len(about), NOBODY) if who is None else who, table)

    def __iter__(self) -> Iterator[Key]:
        for about, who in zip(self.about.tolist(), self.who.tolist(), strict=True):
            yield self.name, about, who


@dataclass
class RowList:
    """low <= Σ coefficient · variable <= high, collected row by row."""

    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    start: list[int] = field(default_factory=lambda: [0])
    index: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)

    def add(self, low: float, high: float, plus: Iterable[int], minus: Iterable[int] = ()) -> None:
        """low <= Σ plus - Σ minus <= high."""
        self.index += plus
        self.value += [1.0] * (len(self.index) - len(self.value))
        self.index += minus
        self.value += [-1.0] * (len(self.index) - len(self.value))
        self.start.append(len(self.index))
        self.low.append(low)
        self.high.append(high)

    def table(self) -> RowTable:
        terms = Ragged(np.array(self.start), np.array(self.index, dtype=np.int64))
        return RowTable(np.array(self.low), np.array(self.high), terms, np.array(self.value))


def sums(terms: Ragged, low: float, high: float) -> RowTable:
    """low <= Σ terms <= high, row by row."""
    count = len(terms)
    sides = np.full(count, low, dtype=float), np.full(count, high, dtype=float)
    return RowTable(*sides, terms, np.ones(len(terms.index)))


def at_most(plus: Ragged, minus: Ragged) -> RowTable:
    """Σ plus - Σ minus <= 0, row by row."""
    rows = np.concatenate([plus.rows, minus.rows])
    order = np.argsort(rows, kind="stable")
    signs = np.concatenate([np.ones(len(plus.index)), -np.ones(len(minus.index))])
    terms = Ragged(plus.start + minus.start, np.concatenate([plus.index, minus.index])[order])
    sides = np.full(len(plus), -math.inf), np.zeros(len(plus))
    return RowTable(*sides, terms, signs[order])
