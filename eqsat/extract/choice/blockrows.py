"""Rows of a relaxation of the short e-graph → rows that hold for sums over all equal blocks.

A variable of block `TWO` becomes the sum S of those of all blocks from 2 to N - 2, `count` of them.
The row of a thing k (a buffer, a value, a number) in block j of the whole program is

    A · x_j + B · x_{j+1} >= c     (or <=, or =; with terms that belong to no block)

for 1 <= j <= N - 2, and the short program has those of blocks 1 and N - 2, with x_2 in the one and
x_{N-1} in the other. All of them added up are

    A · x_1 + B · S  +  A · S + B · x_{N-1} >= (count + 1) · c

so the two rows are added, the second with `count` times its side and its terms of no block. It is a
sum of rows that every answer of the whole program keeps, however much its blocks differ, so what
is bounded under it holds for all of them. A row of a thing of no block has all blocks in it: there
S is put in place. A row that has no partner, as ends of a program may be irregular, is weakened:
its terms of block `TWO` stay only where S, which is at least each of its summands, makes it no
tighter. A claim that columns of block `TWO` make of a level of the last block (a layout may be made
a block before its value) stands for those of all blocks before, each at most a level of its own: S
is at most the levels of block `TWO` and this one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eqsat.extract.blocks import NOWHERE, ONE, TWO
from eqsat.extract.choice.columns import Columns
from eqsat.extract.choice.rows import NOBODY, Key, KeyedRows, RowTable
from eqsat.extract.ragged import Ints, Mask, Ragged, starts

BUFFERS = frozenset({"root", "written", "buffer level", "buffer claim"})
CLAIMS = frozenset({"buffer claim", "value claim"})
LEVELS = ("buffer level", "value level")


@dataclass(frozen=True)
class _BlockLater:
    """The keys of rows one block later."""

    choice: Columns

    def key(self, key: Key) -> Key | None:
        name, about, who = key
        b = self.choice.facts.blocks
        assert b is not None
        of = b.number if name == "number" else b.buffer if name in BUFFERS else b.value
        there = int(of[about])
        claims = who if who == NOBODY else int(b.number[who]) if who >= 0 else self._column(who)
        return None if there < 0 or claims == -1 else (name, there, claims)

    def is_within(self, key: Key) -> bool:
        """Whether the level in a row of a claim is of block `TWO`, so one of each summand."""
        name, about, _ = key
        b = self.choice.facts.blocks
        assert b is not None
        return name not in CLAIMS or int(b.level[about]) == TWO

    def _column(self, who: int) -> int:
        image = int(self.choice.image_row[-1 - who])
        return -1 if image < 0 else -1 - image


def summed_over_blocks(
    choice: Columns, rows: Sequence[KeyedRows], owned: Ints, most: Ints
) -> tuple[RowTable, np.ndarray]:
    """The rows of the sums, and how large each variable may be.

    Variables are the columns, then a level for each buffer or value of `owned`.
    """
    blocks = choice.facts.blocks
    assert blocks is not None
    level = np.concatenate([choice.last, blocks.level[owned]])
    table = RowTable.stacked([r.table for r in rows])
    keys = [key for r in rows for key in r]
    in_one, in_two = (table.terms.any(level[table.terms.index] == at) for at in (ONE, TWO))
    pairs = _paired(keys, in_one, in_two, _BlockLater(choice))
    sums = _Sums(table, level, blocks.count)
    stays = ~in_two
    stays[pairs.same] = True
    parts = [_taken(table, np.flatnonzero(stays)), sums.added(pairs.first, pairs.second)]
    levels = _Levels.of(rows, choice)
    behind = _ints([levels.behind(keys[i]) for i in pairs.open.tolist()])
    before = _ints([levels.before(keys[i]) for i in pairs.last.tolist()])
    parts.append(sums.with_level(pairs.open, behind, blocks.count + 1))
    has_row = before >= 0
    parts.append(sums.with_level(pairs.last[has_row], before[has_row], blocks.count))
    alone = np.concatenate([pairs.alone, pairs.last[~has_row]])
    parts += [sums.weakened(alone, side) for side in (-1.0, 1.0)]
    return RowTable.stacked(parts), most * np.where(level == TWO, blocks.count, 1)


@dataclass(frozen=True)
class _Levels:
    """Of claims: the variable of the level one block behind or before theirs; -1: there is none."""

    place: dict[tuple[str, int], int]  # by kind and what it is of
    later: dict[str, Ints]

    @staticmethod
    def of(rows: Sequence[KeyedRows], choice: Columns) -> _Levels:
        blocks = choice.facts.blocks
        assert blocks is not None
        owned = [(_kind(r.name), at) for r in rows if r.name in LEVELS for at in r.about.tolist()]
        place = {key: len(choice) + i for i, key in enumerate(owned)}
        return _Levels(place, {"buffer": blocks.buffer, "value": blocks.value})

    def behind(self, key: Key) -> int:
        kind = _kind(key[0])
        return self.place.get((kind, int(self.later[kind][key[1]])), -1) if key[0] in CLAIMS else -1

    def before(self, key: Key) -> int:
        kind = _kind(key[0])
        places = np.flatnonzero(self.later[kind] == key[1])
        return self.place.get((kind, int(places[0])), -1) if len(places) else -1


def _kind(name: str) -> str:
    return name.split(maxsplit=1)[0]


@dataclass(frozen=True)
class _Pairs:
    """Rows that touch block `TWO`.

    `same`: of things of no block. Pairs, of which a first one of -1 is a row that says nothing;
    `open`: those of which the second one says nothing, and `last`: claims of the last block of
    which the first one does, but for its level; `alone`: those without a partner.
    """

    same: Ints
    first: Ints
    second: Ints
    open: Ints
    last: Ints
    alone: Ints


def _paired(keys: Sequence[Key], in_one: Mask, in_two: Mask, later: _BlockLater) -> _Pairs:
    number = {key: i for i, key in enumerate(keys)}
    there = [later.key(key) for key in keys]
    after = [-1 if key is None else number.get(key, -1) for key in there]
    before = {j: i for i, j in enumerate(after) if j not in (-1, i)}
    same, pairs, open_, last, alone, done = [], [], [], [], [], set[int]()
    touching = np.flatnonzero(in_two).tolist()
    for i in touching:
        j = after[i]
        if j == i:
            same.append(i)
            done.add(i)
        elif in_one[i] and j >= 0 and not in_one[j]:
            pairs.append((i, j))
            done |= {i, j}
    for i in (i for i in touching if i not in done):
        # at most so many: a row without columns says nothing
        k, is_upper = before.get(i, -1), keys[i][0] in (CLAIMS | {"number", "written"})
        if in_one[i] and after[i] < 0 and is_upper:
            open_.append(i)
        elif not in_one[i] and (not in_two[k] if k >= 0 else is_upper):
            if later.is_within(keys[i]):
                pairs.append((-1, i))
            else:
                last.append(i)
        else:
            alone.append(i)
    first, second = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return _Pairs(_ints(same), first, second, _ints(open_), _ints(last), _ints(alone))


def _ints(numbers: Sequence[int]) -> Ints:
    return np.array(numbers, dtype=np.int64)


@dataclass(frozen=True)
class _Sums:
    """Rows added up over blocks; `level`: per variable its block."""

    table: RowTable
    level: Ints
    count: int

    def added(self, first: Ints, second: Ints) -> RowTable:
        """Each first row and `count` times the sides and the terms of no block of the second."""
        some = np.flatnonzero(first >= 0)
        one, two = _taken(self.table, first[some]), _taken(self.table, second)
        scale = np.where(self.level[two.terms.index] == NOWHERE, float(self.count), 1.0)
        low, high = two.low * self.count, two.high * self.count
        low[some] += one.low
        high[some] += one.high
        rows = np.concatenate([two.terms.rows, some[one.terms.rows]])
        order = np.argsort(rows, kind="stable")
        index = np.concatenate([two.terms.index, one.terms.index])[order]
        value = np.concatenate([two.value * scale, one.value])[order]
        counts = np.bincount(rows, minlength=len(second))
        return RowTable(low, high, Ragged(starts(counts), index), value)

    def with_level(self, rows: Ints, level: Ints, times: int) -> RowTable:
        """So many rows of which all but these say nothing but a level (-1: nor that), which is no
        less than nothing."""
        taken = _taken(self.table, rows)
        some = np.flatnonzero(level >= 0)
        more = Ragged(np.zeros(len(rows) + 1, dtype=np.int64), level[:0])
        if len(some):
            more = Ragged.grouped(some, level[some], len(rows))
        at = np.concatenate([taken.terms.rows, more.rows])
        order = np.argsort(at, kind="stable")
        index = np.concatenate([taken.terms.index, more.index])[order]
        scale = np.where(self.level[taken.terms.index] == NOWHERE, float(times), 1.0)
        value = np.concatenate([taken.value * scale, np.full(len(more.index), -1.0)])[order]
        low, high = taken.low * times, taken.high * times
        return RowTable(low, high, Ragged(taken.terms.start + more.start, index), value)

    def weakened(self, rows: Ints, side: float) -> RowTable:
        """The lower (-1) or upper (1) side of rows, without what the sums make tighter there."""
        taken = _taken(self.table, rows)
        dropped = (self.level[taken.terms.index] == TWO) & (taken.value * side > 0)
        left = ~dropped
        terms = taken.terms.where(left)
        open_ = np.full(len(rows), math.inf)
        low, high = (taken.low, open_) if side < 0 else (-open_, taken.high)
        is_stated = np.isfinite(low if side < 0 else high) & (terms.counts > 0)
        return _taken(RowTable(low, high, terms, taken.value[left]), np.flatnonzero(is_stated))


def _taken(table: RowTable, rows: Ints) -> RowTable:
    places = Ragged(table.terms.start, np.arange(len(table.terms.index))).take(rows)
    terms = Ragged(places.start, table.terms.index[places.index])
    return RowTable(table.low[rows], table.high[rows], terms, table.value[places.index])
