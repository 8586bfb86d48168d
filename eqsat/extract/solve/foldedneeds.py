"""Must-analysis once per block class (see `freetable.needs`): what is needed, relative to a block.

What every way to provide a buffer holds is kept as numbers so many blocks from the buffer, for few
blocks, and as numbers that belong to no block or to the first or last one. If that follows from
itself for one of each class, it does in every block, so it holds; what lies farther is forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eqsat.extract.chains import PARTS
from eqsat.extract.ragged import Ints, Mask, Ragged, counted, distinct, starts
from eqsat.extract.solve.classes import Classes, FoldedTable
from eqsat.extract.solve.freetable import WORD, by_level, rounds, until_settled

REACH = 2  # blocks before and behind, within which it is known what is needed
PLANES = 2 * REACH + 1


@dataclass(frozen=True)
class FoldedNeeds:
    """`near` [rows, planes, words], `fixed` [rows, words]: what a row's option holds or needs held.

    A plane is so many blocks from the row's `anchor`. impossible: rows that are in no answer.
    """

    bits: _Bits
    anchor: Ints
    near: np.ndarray
    fixed: np.ndarray
    impossible: Mask

    def ask(self, row: Ints, number: Ints, place: Ints, moves: Mask) -> Mask:
        """Whether rows need a number of this class; if it `moves`, that at this place."""
        bit = self.bits.fixed[number]
        word = self.fixed[row, np.maximum(bit, 0) // WORD]
        found = (bit >= 0) & _bit(word, bit)
        plane, near = place - self.anchor[row] + REACH, self.bits.near[number]
        there = moves & (plane >= 0) & (plane < PLANES) & (near >= 0)
        rows = np.flatnonzero(there & ~found)
        words = self.near[row[rows], plane[rows], near[rows] // WORD]
        found[rows] = _bit(words, near[rows])
        return found


@dataclass(frozen=True)
class _Bits:
    """Per class of numbers: its bit among those that move, and among those that are one; or -1.

    Classes of a chain share the bit among those that move.
    """

    near: Ints
    fixed: Ints

    @staticmethod
    def of(numbers: Classes, used: Ints) -> _Bits:
        """Of the numbers that are used, as elements."""
        count = len(numbers.sizes)
        near, fixed = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
        held = distinct(numbers.of[used])
        alone = held[~numbers.is_inner[held]]
        fixed[alone] = np.arange(len(alone))
        moving = distinct(numbers.of[used[numbers.moves[used]]])
        chains, _ = counted(moving // PARTS)
        near[moving] = np.searchsorted(chains, moving // PARTS)
        return _Bits(near, fixed)

    @property
    def words(self) -> tuple[int, int]:
        near, fixed = (int(b.max(initial=0)) // WORD + 1 for b in (self.near, self.fixed))
        return near, fixed


def _bit(words: np.ndarray, bit: Ints) -> Mask:
    return (words >> (np.maximum(bit, 0) % WORD).astype(np.uint64) & np.uint64(1)).astype(bool)


def folded_needs(folded: FoldedTable) -> FoldedNeeds:
    """The greatest fixpoint, from what nothing is known to be provided without."""
    return _Analysis(folded).found()


class _Analysis:
    """`held`: per class of buffers, what every way to provide it holds; the last is no buffer."""

    def __init__(self, folded: FoldedTable):
        self.folded = folded
        self.table, self.classes = folded.table, folded.buffers
        self.bits = _Bits.of(folded.numbers, distinct(self.table.exclusive.index))
        self.anchor = _anchor(self.table.writes, self.classes)
        near, fixed = self.bits.words
        self.split = PLANES * near
        self.own = self._own()
        self.held = np.full((len(self.classes.sizes) + 1, self.split + fixed), ~np.uint64(0))
        self.held[-1] = 0

    def _own(self) -> np.ndarray:
        """Per row the bits of the numbers it holds."""
        rows, numbers = self.table.exclusive, self.folded.numbers
        of, words = numbers.of[rows.index], self.bits.words
        plane = numbers.place[rows.index] - self.anchor[rows.rows] + REACH
        near, fixed = self.bits.near[of], self.bits.fixed[of]
        is_near = (near >= 0) & (plane >= 0) & (plane < PLANES)
        found = np.zeros((len(rows), self.split + words[1]), dtype=np.uint64)
        for there, bit, base in (
            (is_near, near, plane * words[0]),
            (fixed >= 0, fixed, np.full(len(fixed), self.split)),
        ):
            at = np.flatnonzero(there)
            value = np.left_shift(np.uint64(1), (bit[at] % WORD).astype(np.uint64))
            np.bitwise_or.at(found, (rows.rows[at], base[at] + bit[at] // WORD), value)
        return found

    def found(self) -> FoldedNeeds:
        coarse = self.folded.coarse
        _, level = rounds(coarse, np.ones(len(coarse), dtype=bool))
        writers = _entries(coarse.writes, len(self.classes.sizes))
        steps = [_ClassRound.of(self, writers, b) for b in by_level(level)]
        until_settled(steps, lambda step: step.meet(self))
        before = self.before(np.arange(len(coarse)))
        needed = before | self.own
        near = needed[:, : self.split].reshape(len(coarse), PLANES, self.bits.words[0])
        impossible = np.any(before & self.own, axis=1)
        return FoldedNeeds(self.bits, self.anchor, near, needed[:, self.split :], impossible)

    def before(self, rows: Ints) -> np.ndarray:
        """Per row what is held in every way to provide all it reads."""
        reads = self.table.reads.take(rows)
        part = self.moved(self.held[self.classes.of[reads.index]], reads.index, rows[reads.rows])
        found = np.zeros((len(rows), self.held.shape[1]), dtype=np.uint64)
        some = np.flatnonzero(reads.counts)
        if len(some):
            found[some] = np.bitwise_or.reduceat(part, reads.start[:-1][some])
        return found

    def moved(
        self, bits: np.ndarray, buffers: Ints, rows: Ints, *, back: bool = False
    ) -> np.ndarray:
        """Bits of buffers as seen from rows that read or write them; back: the other way round.

        A buffer that does not move is not so many blocks from an option that is in several.
        """
        blocks = self.classes.place[buffers] - self.anchor[rows]
        lost = ~self.classes.moves[buffers] & (self.folded.count[rows] > 1)
        return self._rolled(bits, -blocks if back else blocks, lost)

    def _rolled(self, bits: np.ndarray, blocks: Ints, lost: Mask) -> np.ndarray:
        """The bits as they are seen so many blocks before; what is lost is unknown."""
        found, width = bits, self.split // PLANES
        lost = lost | (np.abs(blocks) >= PLANES)
        moved = np.flatnonzero(lost | (blocks != 0))
        if not len(moved):
            return found
        found = bits.copy()
        found[lost, : self.split] = 0
        for k in distinct(blocks[moved][~lost[moved]]).tolist():
            rows = np.flatnonzero((blocks == k) & ~lost)
            planes = np.zeros((len(rows), self.split), dtype=np.uint64)
            if k > 0:
                planes[:, k * width :] = bits[rows, : self.split - k * width]
            else:
                planes[:, : k * width] = bits[rows, -k * width : self.split]
            found[rows, : self.split] = planes
        return found


def _anchor(writes: Ragged, classes: Classes) -> Ints:
    """Per row the block of the first thing it writes that moves."""
    found = np.zeros(len(writes), dtype=np.int64)
    moving = writes.where(classes.moves[writes.index])
    some = np.flatnonzero(moving.counts)
    found[some] = classes.place[moving.index[moving.start[:-1][some]]]
    return found


@dataclass(frozen=True)
class _ClassRound:
    """Classes of buffers of one round, and who writes them."""

    classes: Ints
    start: Ints
    rows: Ints
    buffers: Ints

    @staticmethod
    def of(analysis: _Analysis, writers: Ragged, classes: Ints) -> _ClassRound:
        writes, places = analysis.table.writes, writers.take(classes)
        rows = writes.rows[places.index]
        return _ClassRound(classes, places.start, rows, writes.index[places.index])

    def meet(self, analysis: _Analysis) -> bool:
        """Narrow what these buffers are known to need; whether that is less now."""
        made = analysis.before(self.rows) | analysis.own[self.rows]
        seen = analysis.moved(made, self.buffers, self.rows, back=True)
        new = np.bitwise_and.reduceat(seen, self.start[:-1]) & analysis.held[self.classes]
        if np.array_equal(new, analysis.held[self.classes]):
            return False
        analysis.held[self.classes] = new
        return True


def _entries(rows: Ragged, count: int) -> Ragged:
    """Per number below `count`: the places in `index` that have it."""
    return Ragged(
        starts(np.bincount(rows.index, minlength=count)), np.argsort(rows.index, kind="stable")
    )
