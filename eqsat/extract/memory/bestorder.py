"""The order of least peak of chosen dispatches: exact per block where the search ends.

Dispatches are plain integers here. Elsewhere it is the best order that was looked at, with a bound.

Peak over a chain of blocks is the worst of (block peak + carried bytes), so blocks are solved one
by one, and only as far as the worst of them asks for. Inside a block: bottleneck shortest path
over sets of finished dispatches (downsets). A ready dispatch that needs no more than the peak known
so far, and leaves no more bytes live than before, is run at once: in any completion it can be
moved to the front without making a later moment worse.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np

from eqsat.extract.choice.columns import Answer, Columns
from eqsat.model.deadline import is_over
from eqsat.model.sets import bits, mask, sum_bits, topological


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
        """The last of some dispatches: none of them waits for these."""
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


EFFORT = 600_000  # states times dispatches: fewer states in blocks of many dispatches


@dataclass(frozen=True)
class Order:
    """A permutation of the dispatches, its peak, and a proven lower bound for all orders."""

    order: tuple[int, ...]
    peak_bytes: int
    bound_bytes: int

    @property
    def is_proven(self) -> bool:
        return self.peak_bytes <= self.bound_bytes


@dataclass(frozen=True)
class _Downset:
    """A set of finished dispatches and how it was reached."""

    done: int
    ready: int
    live: int
    peak: int  # worst moment on the way
    path: tuple[int, ...]  # dispatches since `before`
    before: _Downset | None

    def order(self) -> list[int]:
        parts, state = [], self
        while state is not None:
            parts.append(state.path)
            state = state.before
        return [i for part in reversed(parts) for i in part]


def best_order(work: DispatchGraph, states: int = 20_000) -> Order:
    """The order of least peak; `states`: sets of finished dispatches that are looked at per block.

    The deadline it is under ends it with the best order so far. ValueError if dispatches wait for
    each other.
    """
    whole = list(blocks(work))
    downsets = [_greedy(b) for b in whole]
    floor = max((b.floor for b in whole), default=0)
    for k in sorted(range(len(whole)), key=lambda k: -downsets[k].peak):
        block, best = whole[k], downsets[k]
        if best.peak > floor and not is_over():
            few = min(states, EFFORT // len(block.needs) + 1)
            downsets[k], bound = _least(block, best, max(floor, block.floor), few)
            floor = max(floor, bound)
    order = tuple(
        b.dispatches[i] for b, best in zip(whole, downsets, strict=True) for i in best.order()
    )
    peak = peak_bytes(work, order)
    return Order(order, peak, min(peak, work.fixed_bytes + floor))


def in_best_order(choice: Columns, columns: Sequence[int]) -> Answer | None:
    """The columns in the order of least peak that is found; None if they wait for each other."""
    try:
        best = best_order(graph_of(choice, columns))
    except ValueError:
        return None
    return Answer(tuple(columns[i] for i in best.order), best.peak_bytes, best.bound_bytes)


def in_some_order(choice: Columns, columns: Sequence[int]) -> Answer | None:
    """An answer in any order that the columns have, which takes no search."""
    work = graph_of(choice, columns)
    try:
        order = topological(work.direct)
    except ValueError:
        return None
    return Answer(tuple(columns[i] for i in order), peak_bytes(work, order))


def as_listed(choice: Columns, columns: Sequence[int]) -> Answer:
    """The columns in the order in which they are given; ValueError if that is none."""
    return Answer(tuple(columns), peak_bytes(graph_of(choice, columns), range(len(columns))))


def _least(block: DispatchBlock, best: _Downset, floor: int, states: int) -> tuple[_Downset, int]:
    """(best state found, bound); peaks hold the carried bytes and are `floor` at least."""
    downset, bound = _search(block, best, floor, states)
    if downset.peak > bound:
        beam = _beam(block, floor)
        downset = downset if beam is None or downset.peak <= beam.peak else beam
    return downset, min(bound, downset.peak)


def _begin(block: DispatchBlock, floor: int) -> _Downset:
    ready = sum(1 << i for i, needs in enumerate(block.needs) if not needs)
    live = block.carried + block.start
    return _Downset(0, ready, live, max(floor, live), (), None)


def _run(block: DispatchBlock, state: _Downset, dispatch: int) -> _Downset:
    """The state after one more dispatch."""
    done, ready = state.done | 1 << dispatch, state.ready & ~(1 << dispatch)
    for i in block.following[dispatch]:
        if not block.needs[i] & ~done:
            ready |= 1 << i
    top = state.live + block.adds[dispatch]
    live = top - block.freed(dispatch, done)
    return _Downset(done, ready, live, max(state.peak, top), (dispatch,), state)


def _settled(block: DispatchBlock, state: _Downset) -> _Downset:
    """The state after all dispatches that can only help; its path leads from `state.before`."""
    before, path = state.before, list(state.path)
    moved = True
    while moved:
        moved = False
        for i in bits(state.ready):
            if state.live + block.adds[i] > state.peak:
                continue
            following = _run(block, state, i)
            if following.live <= state.live:
                state, moved = following, True
                path.append(i)
    return _Downset(state.done, state.ready, state.live, state.peak, tuple(path), before)


def _search(block: DispatchBlock, best: _Downset, floor: int, states: int) -> tuple[_Downset, int]:
    """Bottleneck shortest path over downsets, cheapest peak first, deepest first among equals."""
    everything = (1 << len(block.needs)) - 1
    first = _settled(block, _begin(block, floor))
    heap = [(first.peak, -first.done.bit_count(), first.live, first.done, first)]
    seen = {first.done: first.peak}
    for _ in range(states):
        if not heap:
            return best, best.peak
        if is_over():
            break
        peak, _, _, done, state = heapq.heappop(heap)
        if done == everything:
            return state, peak
        if seen[done] < peak:
            continue
        for i in bits(state.ready):
            if max(peak, state.live + block.adds[i]) >= best.peak:
                continue
            new = _settled(block, _run(block, state, i))
            if new.peak < seen.get(new.done, best.peak):
                seen[new.done] = new.peak
                heapq.heappush(heap, (new.peak, -new.done.bit_count(), new.live, new.done, new))
    return best, min((key[0] for key in heap), default=best.peak)


def _beam(block: DispatchBlock, floor: int) -> _Downset | None:
    """The best of a few states per length, by peak and then by live bytes; None if out of time."""
    states = [_settled(block, _begin(block, floor))]
    everything = (1 << len(block.needs)) - 1
    best: _Downset | None = None
    while states:
        following: dict[int, _Downset] = {}
        for s in states:
            if is_over():
                return best
            if s.done == everything:
                best = s if best is None or s.peak < best.peak else best
                continue
            for i in bits(s.ready):
                new = _settled(block, _run(block, s, i))
                other = following.get(new.done)
                if other is None or new.peak < other.peak:
                    following[new.done] = new
        # sets kept per length where the search does not end
        states = heapq.nsmallest(64, following.values(), key=lambda s: (s.peak, s.live, s.done))
    return best


def _greedy(block: DispatchBlock) -> _Downset:
    """The better of two rules: least bytes left live, and least bytes at the moment.

    Out of time: as the dispatches are numbered.
    """
    begin = _begin(block, 0)

    def left(s: _Downset) -> tuple[int, int]:
        return (s.live, s.peak)

    def now(s: _Downset) -> tuple[int, int]:
        return (s.peak, s.live)

    def finish(rule: object) -> _Downset:
        state = begin
        while state.ready:
            ready = islice(bits(state.ready), 1) if is_over() else bits(state.ready)
            nexts: Iterable[_Downset] = (_run(block, state, i) for i in ready)
            state = min(nexts, key=rule)  # type: ignore[arg-type]
        return state

    return min((finish(left), finish(now)), key=lambda s: s.peak)
