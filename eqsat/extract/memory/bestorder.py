"""The order of least peak: exact per block where the search ends, else its best with a bound.

Peak over a chain of blocks is the worst of (block peak + carried bytes), so blocks are solved one
by one, and only as far as the worst of them asks for. Inside a block: bottleneck shortest path
over sets of finished dispatches (downsets). A ready dispatch that needs no more than the peak known
so far, and leaves no more bytes live than before, is run at once: in any completion it can be
moved to the front without making a later moment worse.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from eqsat.extract.choice.columns import Answer, Columns
from eqsat.extract.memory.dispatchgraph import (
    DispatchBlock,
    DispatchGraph,
    blocks,
    graph_of,
    peak_bytes,
)
from eqsat.model.deadline import is_over
from eqsat.model.sets import bits
from eqsat.model.topological import topological

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
    """The same in any order that they have, which takes no search."""
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
