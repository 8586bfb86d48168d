"""Merges of all small groups: around nodes that look alike in several blocks once, then copied.

What two groups make together depends on these groups, and on who else needs what they write. So
where the small groups around one node are those around another, so many blocks later, and others
need what they write in the same way, their merges are copies. Around what all blocks share, such as
a table that all layers read, groups fall into families that look alike (`families`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from eqsat.extract.candidates.copies import Book
from eqsat.extract.candidates.families import Around, Families, Shared, Small
from eqsat.extract.candidates.groups import Candidate
from eqsat.extract.candidates.merge import Key, Merger
from eqsat.extract.candidates.mergeprune import MergePrune
from eqsat.extract.candidates.pairs import MergePairs
from eqsat.extract.candidates.shifted import Shifted
from eqsat.extract.ragged import Ints, distinct
from eqsat.model.deadline import OutOfTime, tick
from eqsat.model.shift import chained

PairsOf = Callable[[MergePairs, Sequence[int], int], tuple[Ints, Ints]]
NODE, BUFFER = 0, 2  # fields of `Images`
AT_ONCE = 1 << 19  # pairs among which dominated ones are looked for


class _MergeParts(NamedTuple):
    """Small groups as parts of merges, by number."""

    number: dict[Small, int]
    pairs: MergePairs
    prune: MergePrune | None


class _Paired(NamedTuple):
    """MergePairs of parts, and around which thing each was found."""

    shared: Ints
    one: Ints
    two: Ints


def add_merges(merger: Merger, book: Book, direct: Sequence[int]) -> None:
    """Add all legal merges of these candidates and their copies to the book.

    Without those that another one dominates, block by block.
    """
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
        self.copied: dict[Key, frozenset[int]] = {}  # where else these are

    def add(self, direct: Sequence[int]) -> None:
        merger, book = self.merger, self.book
        small = [i for i in direct if merger.is_small(book.direct[i])]
        sides = (
            (merger.nodes_inside, merger.around_node, NODE),
            (merger.operands, merger.around_operand, BUFFER),
        )
        for keys_of, pairs_of, table in sides:
            keys = [(i, key) for i in small for key in keys_of(book.direct[i])]
            if keys:
                self._add_side(np.array(keys, np.int64), pairs_of, table)

    def _add_side(self, keys: np.ndarray, pairs_of: PairsOf, table: int) -> None:
        """Merges by what groups share: nodes, or buffers (`table` of the images)."""
        first: dict[bytes, int] = {}  # of those that look alike: which is direct
        direct: list[Shared] = []
        blocks: list[list[int]] = []  # per direct one: where its copies are
        for shared in self._around(keys, table):
            tick()
            known = (
                len(direct) if shared.sign is None else first.setdefault(shared.sign, len(direct))
            )
            if known == len(direct):
                direct.append(shared)
                blocks.append([])
            else:
                blocks[known].append(shared.block - direct[known].block)
        parts = self._parts(direct)
        for paired in self._paired(parts, direct, pairs_of):
            self._make(parts, paired, [frozenset(b) for b in blocks])

    def _parts(self, direct: Iterable[Shared]) -> _MergeParts:
        """The groups around these, the smallest first."""
        small = {s: self._candidate(s) for s in {s for shared in direct for s in shared.small}}
        order = sorted(
            small, key=lambda s: (len(small[s].members), small[s].members, small[s].reads)
        )
        parts = [self.merger.part(small[s]) for s in order]
        number = {s: n for n, s in enumerate(order)}
        return _MergeParts(number, self.merger.pairs(parts), self.merger.prune(parts))

    def _candidate(self, small: Small) -> Candidate:
        (found,) = self.book.moved([self.book.direct[small.direct]], small.blocks)
        return found

    # ---- pairs and what they make ----------------------------------------------------------------
    def _paired(
        self, parts: _MergeParts, direct: Sequence[Shared], pairs_of: PairsOf
    ) -> Iterator[_Paired]:
        """All pairs, of several things that groups share at once; each pair there once."""
        waiting: list[_Paired] = []
        for n, shared in enumerate(direct):
            bucket = [parts.number[s] for s in shared.small]
            one, two = pairs_of(parts.pairs, bucket, shared.key)
            common = np.isin(one, bucket[: shared.common]) & np.isin(two, bucket[: shared.common])
            one, two = one[~common], two[~common]
            waiting.append(_Paired(np.full(len(one), n), one, two))
            if sum(len(p.one) for p in waiting) > AT_ONCE:
                yield _Paired(*map(np.concatenate, zip(*waiting, strict=True)))
                waiting.clear()
        if waiting:
            yield _Paired(*map(np.concatenate, zip(*waiting, strict=True)))

    def _make(self, parts: _MergeParts, paired: _Paired, blocks: Sequence[frozenset[int]]) -> None:
        """Merge all pairs but the dominated ones, and note where copies of them are."""
        key = paired.one * len(parts.number) + paired.two
        pairs = distinct(key)
        one, two = pairs // len(parts.number), pairs % len(parts.number)
        there = [frozenset[int]()] * len(pairs)
        for at, n in zip(np.searchsorted(pairs, key).tolist(), paired.shared.tolist(), strict=True):
            there[at] |= blocks[n]
        leaders = np.arange(len(pairs))
        if parts.prune is not None:
            leaders = parts.prune.leaders(one, two)
        listed = parts.pairs.parts
        for n, leader in enumerate(leaders.tolist()):
            if leader != n and there[n] <= there[leader]:
                continue  # wherever this one is, the other one is as well
            tick()
            merge = self.merger.merge(self.found, listed[one[n]], listed[two[n]])
            if merge is not None and there[n]:
                self.copied[merge] = self.copied.get(merge, there[n]) | there[n]

    # ---- what is shared ------------------------------------------------------------------------
    def _around(self, keys: np.ndarray, table: int) -> Iterator[Shared]:
        """Nodes or buffers that two small groups share at least."""
        direct, key, blocks = self._everywhere(keys, table)
        shifted = self.book.shifted
        rows, chains, families = [key, direct, blocks], None, None
        if shifted is not None:
            chains = _chains(shifted, table)
            families = Families(self.merger, self.book, shifted)
            rows = [key, direct, blocks - chains[key, 1], families.used(direct, blocks)]
        order = np.lexsort(tuple(reversed(rows)))
        rows = np.stack(rows[1:])[:, order]
        direct, key, blocks = direct[order], key[order], blocks[order]
        ends = np.flatnonzero(np.append(key[1:] != key[:-1], True)) + 1
        for begin, end in pairwise([0, *ends.tolist()]):
            if end - begin < 2:
                continue
            this, part = int(key[begin]), slice(begin, end)
            around = Around(this, direct[part], blocks[part])
            if chains is None or families is None or shifted is None:
                yield Shared(this, 0, around.small(), None)
            elif shifted.once[table][this] == this:
                yield from families.of(around)
            else:
                head, block = chains[this].tolist()
                sign = head.to_bytes(8, "little") + rows[:, part].tobytes()
                yield Shared(this, block, around.small(), sign + families.waits(around))

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

    # ---- what was found ------------------------------------------------------------------------
    def write(self) -> None:
        """Add all that was found to the book."""
        begin = len(self.book.direct)
        number = {key: begin + n for n, key in enumerate(self.found)}
        self.book.add(list(self.found.values()))
        for key, blocks in self.copied.items():
            self.book.copied[number[key]] = blocks
        for blocks in sorted(frozenset().union(*self.copied.values())):
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
