"""Depth-first search for a placement below a capacity, compiled by numba.

If anything fits, then also a placement in which no buffer can be lowered: there every buffer rests
on the floor or on the top of one that it overlaps in time. In the order of (offset, rank) each
buffer then lies on the highest top of the placed ones it shares a clique with, its *lowest offset*.
The search tries these orders, so a search that ends without an answer is a proof that none fits.
What prunes:

* a buffer may only be next if it lies lower than every waiting buffer's lowest top: that one could
  be lowered otherwise;
* a buffer that was passed over (its lowest offset is below the last one placed) has to rest on one
  that is still waiting, so its offset is at least the lowest top of those;
* per clique, what waits is a one-machine schedule with release times: its shortest makespan is the
  one by earliest release, and must not be above the capacity;
* what waits falls into groups that share no clique: each is searched alone;
* states that failed (what waits, at which lowest offsets, after which last place) are in a table.
  It holds 64-bit hashes, so a proof is one up to a collision (below 1e-12 for a billion states).

The limit is in nodes, so that an answer does not depend on the clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from eqsat.extract.machinecode import is_kept, machine_code


class Rectangles(NamedTuple):
    """The constant part: per buffer its range of cliques and size, a random odd number each."""

    first: np.ndarray
    last: np.ndarray
    size: np.ndarray
    random: np.ndarray


class DepthFirstState(NamedTuple):
    """The state of the search; `floor` is the top of what is placed, per clique.

    counters: nodes searched, how many there may be, and whether to stop.
    """

    rank: np.ndarray
    floor: np.ndarray
    offset: np.ndarray
    failed: np.ndarray
    counters: np.ndarray


@machine_code
def _groups(items, last, first):
    """Borders of the groups of items that share no clique; items are sorted by first clique."""
    borders = np.zeros(items.shape[0] + 1, np.int64)
    count = 1
    end = last[items[0]]
    for k in range(1, items.shape[0]):
        if first[items[k]] >= end:
            borders[count] = k
            count += 1
        end = max(end, last[items[k]])
    borders[count] = items.shape[0]
    return borders[: count + 1]


@machine_code
def _waiting(items, lowest, current, place, capacity, size, rank):
    """Which items come after the last one placed; empty if one cannot be below the capacity."""
    is_waiting = np.empty(items.shape[0], np.bool_)
    for k in range(items.shape[0]):
        i, at = items[k], lowest[k]
        if at + size[i] > capacity:
            return is_waiting[:0]
        is_waiting[k] = at > current or (at == current and rank[i] > place)
    return is_waiting


@machine_code
def _raised(items, lowest, k, instance):
    """Lowest offsets of all items but the k-th, when that lies on its own."""
    placed = items[k]
    begin, end = instance.first[placed], instance.last[placed]
    top = lowest[k] + instance.size[placed]
    raised = np.empty(items.shape[0] - 1, np.int64)
    for j in range(items.shape[0]):
        if j == k:
            continue
        i = items[j]
        overlaps = instance.first[i] < end and instance.last[i] > begin
        raised[j if j < k else j - 1] = max(lowest[j], top) if overlaps else lowest[j]
    return raised


@machine_code
def _earliest(items, lowest, waiting, instance, current, begin, end, capacity):
    """Lower bounds of the offsets: passed over items rest on one that lies at `current` or above.

    Of two lowest tops per clique, the item's own does not count.
    """
    size = instance.size
    n = items.shape[0]
    smallest = size[items].min()
    bounds = np.where(waiting, lowest, current + smallest)
    least = np.full(end - begin, capacity + 1, np.int64)
    second = least.copy()
    owner = np.full(end - begin, -1, np.int64)
    for k in range(n):
        i = items[k]
        top = bounds[k] + size[i]
        for c in range(instance.first[i] - begin, instance.last[i] - begin):
            if top < least[c]:
                second[c] = least[c]
                least[c] = top
                owner[c] = k
            elif top < second[c]:
                second[c] = top
    for k in range(n):
        if waiting[k]:
            continue
        i = items[k]
        support = capacity + 1
        for c in range(instance.first[i] - begin, instance.last[i] - begin):
            support = min(support, second[c] if owner[c] == k else least[c])
        bounds[k] = max(bounds[k], support)
    return bounds


@machine_code
def _overflows(items, bounds, instance, floor, begin, end, capacity):
    """Is there a clique whose items, by earliest release, end above the capacity?"""
    top = floor[begin:end].copy()
    for k in np.argsort(bounds):
        i = items[k]
        for c in range(instance.first[i] - begin, instance.last[i] - begin):
            top[c] = max(top[c], bounds[k]) + instance.size[i]
            if top[c] > capacity:
                return True
    return False


@machine_code
def _hash(items, lowest, current, place, random):
    """64 bits of what a state's future depends on."""
    h = np.uint64(0)
    for k in range(items.shape[0]):
        h += random[items[k]] * np.uint64(2 * lowest[k] + 1)
    h = h * np.uint64(0x9E3779B97F4A7C15)
    h ^= h >> np.uint64(29)
    h += np.uint64(current) * np.uint64(0xC2B2AE3D27D4EB4F)
    h += np.uint64(place + 1) * np.uint64(0x165667B19E3779F9)
    h *= np.uint64(0xBF58476D1CE4E5B9)
    h ^= h >> np.uint64(32)
    return h


@machine_code
def _next(items, lowest, waiting, instance, rank):
    """Items that may be next, the lowest first and by rank at one offset."""
    ceiling = np.int64(1) << np.int64(62)
    for k in range(items.shape[0]):
        ceiling = min(ceiling, lowest[k] + instance.size[items[k]])
    candidates = np.empty(items.shape[0], np.int64)
    keys = np.empty(items.shape[0], np.int64)
    count = 0
    for k in range(items.shape[0]):
        if waiting[k] and lowest[k] < ceiling:
            candidates[count] = k
            keys[count] = lowest[k] * instance.size.shape[0] + rank[items[k]]
            count += 1
    return candidates[:count][np.argsort(keys[:count])]


@machine_code
def _search(  # noqa: C901 - numba does not infer functions that call each other
    items, lowest, current, place, capacity, largest_first, instance, state
):
    """1: it fits, and `state.offset` is written; 0: nothing fits; -1: stopped; see the module.

    `current` and `place` are offset and rank of the last item placed.
    """
    n = items.shape[0]
    if n == 0:
        return 1
    first, last, size, floor = instance.first, instance.last, instance.size, state.floor
    borders = _groups(items, last, first)
    if borders.shape[0] > 2:
        before = floor.copy()
        lengths = np.diff(borders)
        for q in np.argsort(-lengths if largest_first else lengths, kind="mergesort"):
            low, high = borders[q], borders[q + 1]
            r = _search(
                items[low:high], lowest[low:high], current, place, capacity, largest_first,
                instance, state,
            )  # fmt: skip
            if r != 1:
                floor[:] = before
                return r
        return 1
    counters = state.counters
    counters[0] += 1
    if counters[0] > counters[1] or counters[2] != 0:
        return -1
    waiting = _waiting(items, lowest, current, place, capacity, instance.size, state.rank)
    if waiting.shape[0] == 0:
        return 0
    slot_key = _hash(items, lowest, current, place, instance.random)
    slot = np.int64(slot_key & np.uint64(state.failed.shape[0] - 1))
    if state.failed[slot] == slot_key:
        return 0
    begin, end = first[items[0]], last[items].max()
    bounds = lowest
    if not waiting.all():
        bounds = _earliest(items, lowest, waiting, instance, current, begin, end, capacity)
    if _overflows(items, bounds, instance, floor, begin, end, capacity):
        return 0
    rest = np.empty(n - 1, np.int64)
    for k in _next(items, lowest, waiting, instance, state.rank):
        i = items[k]
        rest[:k] = items[:k]
        rest[k:] = items[k + 1 :]
        before = floor[first[i] : last[i]].copy()
        floor[first[i] : last[i]] = lowest[k] + size[i]
        state.offset[i] = lowest[k]
        r = _search(
            rest, _raised(items, lowest, k, instance), lowest[k], state.rank[i], capacity,
            largest_first, instance, state,
        )  # fmt: skip
        if r == 1:
            return 1
        floor[first[i] : last[i]] = before
        if r < 0:
            return r
    state.failed[slot] = slot_key
    return 0


class Searcher:
    """One problem's arrays, for many searches."""

    def __init__(
        self, first: Sequence[int], last: Sequence[int], sizes: Sequence[int], seed: int
    ) -> None:
        n = len(sizes)
        odd = np.random.default_rng(seed).integers(1, 1 << 63, n).astype(np.uint64) | np.uint64(1)
        starts, ends, units = (np.array(x, np.int64) for x in (first, last, sizes))
        self.instance = Rectangles(starts, ends, units, odd)
        self.items = np.argsort(self.instance.first, kind="stable").astype(np.int64)
        self.counters = np.zeros(3, np.int64)
        self.failed = np.zeros(1 << 20, np.uint64)

    def stop(self) -> None:
        """Ends a search of another thread, and all later ones."""
        self.counters[2] = 1

    def search(
        self, priority: Sequence[float], capacity: int, nodes: int, largest_first: bool
    ) -> list[int] | None:
        """Offsets, none if nothing fits; None: not known after this many nodes.

        priority: per buffer; of buffers at one offset the higher one is tried first.
        """
        n = len(priority)
        rank = np.empty(n, np.int64)
        rank[np.argsort(-np.asarray(priority), kind="stable")] = np.arange(n)
        floor = np.zeros(int(self.instance.last.max()), np.int64)
        self.counters[:2] = 0, nodes
        self.failed[:] = 0
        state = DepthFirstState(rank, floor, np.zeros(n, np.int64), self.failed, self.counters)
        outcome = _started(
            self.items, np.zeros(n, np.int64), np.int64(0), np.int64(-1), np.int64(capacity),
            largest_first, self.instance, state,
        )  # fmt: skip
        return None if outcome < 0 else state.offset.tolist() if outcome else []


def is_compiled() -> bool:
    """Whether a search can begin at once."""
    return is_kept(_search)


def _started(*args: Any) -> Any:
    """`_search` of these; where an older version left machine code, it is made anew.

    numba reads whose arguments the code on disk is for before it asks how old that is, and fails if
    a type has another name today.
    """
    code: Any = _search
    try:
        return code(*args)
    except AttributeError:
        if code.stats.cache_path is None:
            raise
        for index in Path(code.stats.cache_path).glob(f"{Path(__file__).stem}.*.nbi"):
            index.unlink(missing_ok=True)
        return code(*args)
