"""Merges of all small groups: around nodes that look alike in several blocks once, then copied.

What two groups make together depends on these groups, and on who else needs what they write. So
where the small groups around one node are those around another, so many blocks later, and others
need what they write in the same way, their merges are copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from eqsat.extract.candidates.copies import Book
from eqsat.extract.candidates.groups import Candidate
from eqsat.extract.candidates.merge import Key, Merger
from eqsat.extract.candidates.mergeprune import MergePrune
from eqsat.extract.candidates.pairs import Pairs
from eqsat.extract.candidates.shifted import Shifted
from eqsat.model.deadline import OutOfTime
from eqsat.model.shift import chained

Around = Callable[["_Parts", Sequence[int], Mapping[Key, Candidate], int], dict[Key, Candidate]]
NODE, BUFFER = 0, 2  # fields of `Images`


class Small(NamedTuple):
    """A small group: a direct candidate, so many blocks later."""

    direct: int
    blocks: int


class Shared(NamedTuple):
    """What small groups share: a node or a buffer, and its block.

    `sign` is equal where these groups are the same ones, so many blocks later. None: no shift.
    """

    key: int
    block: int
    small: tuple[Small, ...]
    sign: bytes | None


class _Parts(NamedTuple):
    """Small groups as parts of merges, by number."""

    number: dict[Small, int]
    pairs: Pairs
    prune: MergePrune | None


def add_merges(merger: Merger, book: Book, direct: Sequence[int]) -> None:
    """Add all legal merges of these candidates and their copies to the book."""
    if not merger.is_on:
        return
    work = _Merging(merger, book)
    try:
        work.add(direct)
    except OutOfTime:
        merger.cut_short(work.found)
    work.write()


class _Merging:
    """All merges of one device's groups."""

    def __init__(self, merger: Merger, book: Book):
        self.merger, self.book = merger, book
        self.found: dict[Key, Candidate] = {}  # direct ones
        self.copied: dict[tuple[Key, int], None] = {}

    def add(self, direct: Sequence[int]) -> None:
        merger, book = self.merger, self.book
        small = [i for i in direct if merger.is_small(book.direct[i])]
        sides = (
            (merger.nodes_inside, self._around_node, NODE),
            (merger.operands, self._around_operand, BUFFER),
        )
        for keys_of, around, table in sides:
            keys = [(i, key) for i in small for key in keys_of(book.direct[i])]
            if keys:
                self._add_side(np.array(keys, np.int64), around, table)

    def _around_node(
        self, parts: _Parts, bucket: Sequence[int], known: Mapping[Key, Candidate], _: int
    ) -> dict[Key, Candidate]:
        return self.merger.around_node(parts.pairs, parts.prune, bucket, known)

    def _around_operand(
        self, parts: _Parts, bucket: Sequence[int], known: Mapping[Key, Candidate], operand: int
    ) -> dict[Key, Candidate]:
        return self.merger.around_operand(parts.pairs, bucket, known, operand)

    def _add_side(self, keys: np.ndarray, around: Around, table: int) -> None:
        """Merges by what groups share: nodes, or buffers (`table` of the images)."""
        first: dict[bytes, Shared] = {}  # of those that look alike
        direct, copies = [], []
        for shared in self._around(keys, table):
            known = shared if shared.sign is None else first.setdefault(shared.sign, shared)
            if known is shared:
                direct.append(shared)
            else:
                copies.append((known.key, shared.block - known.block))
        parts = self._parts(direct)
        merges: dict[int, dict[Key, Candidate]] = {}
        try:
            for shared in direct:
                bucket = [parts.number[s] for s in shared.small]
                found = around(parts, bucket, self.found, shared.key)
                merges[shared.key] = found
                self.found |= found
        finally:
            for source, blocks in copies:
                self.copied |= dict.fromkeys((k, blocks) for k in merges.get(source, ()))

    def _parts(self, direct: Iterable[Shared]) -> _Parts:
        """The groups around these, the smallest first."""
        small = {s: self._candidate(s) for s in {s for shared in direct for s in shared.small}}
        order = sorted(
            small, key=lambda s: (len(small[s].members), small[s].members, small[s].reads)
        )
        parts = [self.merger.part(small[s]) for s in order]
        number = {s: n for n, s in enumerate(order)}
        return _Parts(number, self.merger.pairs(parts), self.merger.prune(parts))

    def _candidate(self, small: Small) -> Candidate:
        (found,) = self.book.moved([self.book.direct[small.direct]], small.blocks)
        return found

    # ---- what is shared ------------------------------------------------------------------------
    def _around(self, keys: np.ndarray, table: int) -> Iterator[Shared]:
        """Nodes or buffers that two small groups share at least."""
        direct, key, blocks = self._everywhere(keys, table)
        shifted = self.book.shifted
        rows, chains = [key, direct, blocks], None
        if shifted is not None:
            chains = _chains(shifted, table)
            rows = [key, direct, blocks - chains[key, 1], self._used(shifted, direct, blocks)]
        order = np.lexsort(tuple(reversed(rows)))
        rows = np.stack(rows[1:])[:, order]
        direct, key, blocks = direct[order], key[order], blocks[order]
        ends = np.flatnonzero(np.append(key[1:] != key[:-1], True)) + 1
        for begin, end in pairwise([0, *ends.tolist()]):
            if end - begin < 2:
                continue
            this, part = int(key[begin]), slice(begin, end)
            small = map(Small, direct[part].tolist(), blocks[part].tolist())
            if chains is None:
                yield Shared(this, 0, tuple(small), None)
                continue
            head, block = chains[this].tolist()
            sign = head.to_bytes(8, "little") + rows[:, part].tobytes()
            yield Shared(this, block, tuple(small), sign)

    def _everywhere(self, keys: np.ndarray, table: int) -> tuple[np.ndarray, ...]:
        """(direct candidate, key, blocks) of direct groups and of their copies."""
        book = self.book
        found = [(keys[:, 0], keys[:, 1], np.zeros(len(keys), np.int64))]
        if book.shifted is not None:
            run_of = np.zeros(len(book.direct), np.int64)
            by: dict[int, list[int]] = {}
            for n, run in enumerate(book.runs):
                run_of[run.begin : run.end] = n
                for k in run.blocks:
                    by.setdefault(k, []).append(n)
            for k in sorted(by):
                part = keys[np.isin(run_of[keys[:, 0]], by[k])]
                image = np.array(book.shifted.images(k)[table])
                found.append((part[:, 0], image[part[:, 1]], np.full(len(part), k)))
        return tuple(map(np.concatenate, zip(*found, strict=True)))

    def _used(self, shifted: Shifted, direct: np.ndarray, blocks: np.ndarray) -> np.ndarray:
        """Per small group a number: what it writes is used alike where these are equal."""
        value = self.merger.space.value
        written = np.array([value[c.writes[0]] for c in self.book.direct])
        found = np.empty(len(direct), np.int64)
        for k in np.unique(blocks).tolist():
            at = blocks == k
            image = np.array(shifted.images(k).value)
            found[at] = shifted.uses[image[written[direct[at]]]]
        return found

    # ---- what was found ------------------------------------------------------------------------
    def write(self) -> None:
        """Add all that was found to the book."""
        begin = len(self.book.direct)
        number = {key: begin + n for n, key in enumerate(self.found)}
        self.book.add(list(self.found.values()))
        self.book.pairs += [(number[key], blocks) for key, blocks in self.copied]
        for blocks in dict.fromkeys(blocks for _, blocks in self.copied):
            self._add_refused(blocks)

    def _add_refused(self, blocks: int) -> None:
        """What a limit has refused was refused so many blocks later, too."""
        merger, shifted = self.merger, self.book.shifted
        assert shifted is not None, "there are copies"
        image = shifted.images(blocks).node
        for name, node in list(merger.refused.items()):
            if image[node] >= 0:
                what = merger.space.name(image[node])
                merger.removed.setdefault(what, replace(merger.removed[name], what=what))


def _chains(shifted: Shifted, table: int) -> np.ndarray:
    """Per node or buffer: the head of its chain of images, and how far it is from it."""
    return np.array(chained(shifted.once[table][:-1]), np.int64)
