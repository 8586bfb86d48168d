"""Chosen dispatches as plain integers, their blocks, and what an order of them is worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eqsat.extract.choice.columns import Columns
from eqsat.model.deadline import is_over
from eqsat.model.sets import bits, mask, sum_bits
from eqsat.model.topological import topological


@dataclass(frozen=True)
class DispatchGraph:
    """Dispatches that run one after the other; each reads and writes buffers.

    A buffer is live from the dispatch that writes it to the last one that reads it, both included.
    What is live all the time (arguments, results, weights) is in `fixed_bytes`; such a buffer has
    no bytes here, or no dispatch writes it.
    """

    reads: tuple[tuple[int, ...], ...]
    writes: tuple[tuple[int, ...], ...]
    nbytes: Mapping[int, int]
    fixed_bytes: int = 0

    @cached_property
    def size(self) -> int:
        return len(self.writes)

    @cached_property
    def writer(self) -> dict[int, int]:
        """Per buffer: the dispatch that writes it."""
        return {b: i for i, written in enumerate(self.writes) for b in written}

    @cached_property
    def readers(self) -> dict[int, int]:
        """Per written buffer: the dispatches that read it, as bits."""
        readers = dict.fromkeys(self.writer, 0)
        for i, read in enumerate(self.reads):
            for b in read:
                if b in readers:
                    readers[b] |= 1 << i
        return readers

    @cached_property
    def before(self) -> tuple[int, ...]:
        """Per dispatch: those that must run before it, as bits.

        ValueError if dispatches wait for each other.
        """
        before: dict[int, int] = {}
        for i in topological(self.direct):
            before[i] = sum_bits(before[p] | 1 << p for p in self.direct[i])
        return tuple(before[i] for i in range(self.size))

    @cached_property
    def direct(self) -> list[set[int]]:
        """Per dispatch: those whose results it reads."""
        return [
            {self.writer[b] for b in read if b in self.writer} - {i}
            for i, read in enumerate(self.reads)
        ]

    @cached_property
    def after(self) -> tuple[int, ...]:
        """Per dispatch: those that must run after it, as bits."""
        after = [0] * self.size
        for i in reversed(topological(self.direct)):
            for p in self.direct[i]:
                after[p] |= after[i] | 1 << i
        return tuple(after)


def graph_of(choice: Columns, columns: Sequence[int]) -> DispatchGraph:
    """The dispatches of some columns, as they are numbered."""
    facts, rows = choice.facts, np.array(columns, dtype=np.int64)
    reads, writes = ([side.tuples[i] for i in columns] for side in (choice.reads, choice.writes))
    used = {b for side in (reads, writes) for of in side for b in of}
    nbytes = {b: int(facts.temporary[b]) for b in sorted(used)}
    resident = np.unique(choice.resident.take(rows).index)
    fixed = facts.fixed_bytes + int(facts.kept_bytes[resident].sum())
    return DispatchGraph(tuple(reads), tuple(writes), nbytes, fixed)


def peak_bytes(work: DispatchGraph, order: Sequence[int]) -> int:
    """Bytes at the worst dispatch of an order; ValueError if it reads what is not there yet."""
    place = {i: n for n, i in enumerate(order)}
    if sorted(place) != list(range(work.size)) or len(order) != work.size:
        raise ValueError("an order names every dispatch once")
    change: Counter[int] = Counter()
    for b, w in work.writer.items():
        ends = [place[r] for r in bits(work.readers[b])]
        if any(place[w] >= e for e in ends):
            raise ValueError(f"buffer {b} is read before it is written")
        change[place[w]] += work.nbytes[b]
        change[max(ends, default=place[w]) + 1] -= work.nbytes[b]
    live = worst = 0
    for n in sorted(change):
        live += change[n]
        worst = max(worst, live)
    return work.fixed_bytes + worst


@dataclass(frozen=True)
class DispatchBlock:
    """Dispatches between two that everything is before or after; numbered from 0 here.

    `carried` bytes are live during all of it; `start` bytes at its begin only, until the last
    reader. Per buffer: `sizes`, the block's `readers` as bits, and whether it `stays` to the end.
    """

    dispatches: tuple[int, ...]  # their numbers in the whole
    needs: tuple[int, ...]  # per dispatch: those before it in the block, as bits
    later: tuple[int, ...]  # and those after it
    touches: tuple[tuple[int, ...], ...]  # per dispatch: buffers it reads or writes
    adds: tuple[int, ...]  # per dispatch: bytes it writes
    sizes: tuple[int, ...]
    readers: tuple[int, ...]
    stays: tuple[bool, ...]
    makers: tuple[int, ...]  # per buffer: the dispatch that writes it, -1 if it is there before
    carried: int
    start: int

    @cached_property
    def following(self) -> tuple[tuple[int, ...], ...]:
        """Per dispatch: those that wait for it and for nobody that waits for it, too.

        Whoever gets ready behind it is among these.
        """
        following: list[list[int]] = [[] for _ in self.needs]
        for i, needs in enumerate(self.needs):
            for p in self._last(needs):
                following[p].append(i)
        return tuple(tuple(f) for f in following)

    @cached_property
    def _ascends(self) -> bool:
        """Whether every dispatch has a higher number than those before it."""
        return not any(needs >> i for i, needs in enumerate(self.needs))

    def _last(self, needs: int) -> list[int]:
        """Those of some dispatches that none of them waits for."""
        if not self._ascends:
            return bits(needs & ~sum_bits(self.needs[p] for p in bits(needs)))
        final = []
        while needs:
            last = needs.bit_length() - 1
            final.append(last)
            needs &= ~(self.needs[last] | 1 << last)
        return final[::-1]

    def freed(self, dispatch: int, done: int) -> int:
        """Bytes that are no longer needed once `dispatch` is among `done`."""
        return sum(
            self.sizes[b]
            for b in self.touches[dispatch]
            if not self.stays[b] and not self.readers[b] & ~done
        )

    @cached_property
    def floor(self) -> int:
        """Bytes some dispatch sees in every order: what is written before it and read later."""
        worst = 0
        for i in range(len(self.needs)):
            if is_over():
                break  # the others could only raise it
            worst = max(worst, self._forced(i, self.later[i] | 1 << i))
        return self.carried + worst

    def _forced(self, dispatch: int, later: int) -> int:
        before = self.needs[dispatch]
        return self.adds[dispatch] + sum(
            size
            for size, readers, stays, maker in zip(
                self.sizes, self.readers, self.stays, self.makers, strict=True
            )
            if maker != dispatch
            and (maker == -1 or before >> maker & 1)
            and (stays or readers & later)
        )


def blocks(work: DispatchGraph) -> list[DispatchBlock]:
    """Cut behind every dispatch that all others must run before or after; in execution order.

    The peak of an order that keeps the blocks apart is that of its worst block, and every order
    does: a dispatch of one block is before or after the cut.
    """
    everything, done = (1 << work.size) - 1, 0
    cuts = [
        i
        for i in range(work.size)
        if work.before[i].bit_count() + work.after[i].bit_count() == work.size - 1
    ]
    cuts.sort(key=lambda i: work.before[i].bit_count())
    place = {b: n for n, b in enumerate(work.writer)}
    parts = []
    there: list[int] = []  # written before the block, and read in it or later
    for upto in [*(work.before[i] | 1 << i for i in cuts), everything]:
        inside = upto & ~done
        if inside:
            written = [b for i in bits(inside) for b in work.writes[i] if work.writer[b] == i]
            there = sorted({*there, *written}, key=place.__getitem__)
            parts.append(_block(work, done, inside, there))
            done = upto
            there = [b for b in there if work.readers[b] & ~done]
    return parts


def _numbered(whole: Sequence[int], inside: int, number: Mapping[int, int]) -> tuple[int, ...]:
    """Per dispatch of a block some others, as bits; without those outside, numbered as in it."""
    first = next(iter(number))
    if inside == ((1 << len(number)) - 1) << first:  # they follow each other
        return tuple((whole[i] & inside) >> first for i in number)
    return tuple(mask(number[p] for p in bits(whole[i] & inside)) for i in number)


def _block(work: DispatchGraph, done: int, inside: int, there: Sequence[int]) -> DispatchBlock:
    """The block of the dispatches `inside`; `there` are the buffers that are live in it."""
    dispatches = tuple(bits(inside))
    number = {i: n for n, i in enumerate(dispatches)}
    later = ((1 << work.size) - 1) & ~(done | inside)
    before, after = (_numbered(of, inside, number) for of in (work.before, work.after))
    sizes, readers, stays, makers = [], [], [], []
    touches: list[list[int]] = [[] for _ in dispatches]
    carried = start = 0
    for b in there:
        w, read, size = work.writer[b], work.readers[b], work.nbytes[b]
        is_before, is_read_later = bool(done >> w & 1), bool(read & later)
        if is_before and is_read_later:
            carried += size
        if later >> w & 1 or not size or (is_before and (is_read_later or not read & inside)):
            continue
        start += size if is_before else 0
        local_reads = tuple(number[r] for r in bits(read & inside))
        for i in {*local_reads, *(() if is_before else (number[w],))}:
            touches[i].append(len(sizes))
        sizes.append(size)
        readers.append(mask(local_reads))
        stays.append(is_read_later)
        makers.append(-1 if is_before else number[w])
    adds = tuple(sum(work.nbytes[b] for b in work.writes[i]) for i in dispatches)
    return DispatchBlock(
        dispatches, before, after, tuple(map(tuple, touches)), adds, tuple(sizes),
        tuple(readers), tuple(stays), tuple(makers), carried, start,
    )  # fmt: skip
