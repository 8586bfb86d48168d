"""The placement search: first fit in several orders, then depth-first search, on plain integers.

Two buffers conflict if and only if some maximal set of buffers that are live at once (a maximal
clique of the interval graph) holds both; cliques are in the order of time, so a buffer is in a
contiguous range of them. Everything after `problems` sees only these ranges and sizes. First fit
places one buffer after another; `depthfirst` proves.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from eqsat.model.deadline import (
    INTERRUPTED,
    OUT_OF_MEMORY,
    OUT_OF_TIME,
    OutOfTime,
    Stop,
    elapsed,
    seconds_left,
    tick,
    until,
    whatever_it_takes,
)
from eqsat.model.diag import fail
from eqsat.model.sharding import Lifetime, Placement

if TYPE_CHECKING:
    from eqsat.extract.place.depthfirst import Searcher


@dataclass(frozen=True)
class PlacementProblem:
    """`members` are indices of the request; every other tuple has one entry per member.

    Buffer i is in the cliques `first[i] <= c < last[i]`; sizes are in multiples of `unit` bytes,
    `steps` is how long each is live.
    """

    members: tuple[int, ...]
    first: tuple[int, ...]
    last: tuple[int, ...]
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    unit: int
    cliques: tuple[tuple[int, ...], ...]

    @cached_property
    def loads(self) -> tuple[int, ...]:
        """Units live in every clique."""
        return tuple(sum(self.sizes[i] for i in c) for c in self.cliques)

    @cached_property
    def bound(self) -> int:
        """Units live at the worst moment: no placement is lower."""
        return max(self.loads)

    def height(self, offsets: Sequence[int]) -> int:
        """Units up to the highest top."""
        return max(o + s for o, s in zip(offsets, self.sizes, strict=True))


def problems(times: Sequence[tuple[int, int]], sizes: Sequence[int]) -> list[PlacementProblem]:
    """One problem per group of buffers connected in time; buffers of no bytes are in none.

    times: per buffer its first step and the step behind its last.
    """
    order = sorted((i for i, s in enumerate(sizes) if s), key=lambda i: (times[i], i))
    groups: list[list[int]] = []
    end = 0
    for i in order:
        if not groups or times[i][0] >= end:
            groups.append([])
            end = times[i][1]
        groups[-1].append(i)
        end = max(end, times[i][1])
    return [_problem(sorted(g), times, sizes) for g in groups]


def _problem(
    group: list[int], times: Sequence[tuple[int, int]], sizes: Sequence[int]
) -> PlacementProblem:
    cliques = _maximal_cliques([times[i] for i in group])
    first = [len(cliques)] * len(group)
    last = [0] * len(group)
    for c, clique in enumerate(cliques):
        for i in clique:
            first[i] = min(first[i], c)
            last[i] = c + 1
    unit = math.gcd(*(sizes[i] for i in group))
    scaled = tuple(sizes[i] // unit for i in group)
    steps = tuple(times[i][1] - times[i][0] for i in group)
    return PlacementProblem(tuple(group), tuple(first), tuple(last), scaled, steps, unit, cliques)


def _maximal_cliques(times: list[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
    """Live sets at the steps where a buffer ends and one had begun since the last such step."""
    events = sorted(
        [(upper, 0, i) for i, (_, upper) in enumerate(times)]
        + [(lower, 1, i) for i, (lower, _) in enumerate(times)]
    )
    live: set[int] = set()
    cliques: list[tuple[int, ...]] = []
    grew = False
    for _, begins, i in events:
        if begins:
            live.add(i)
            grew = True
            continue
        if grew:
            cliques.append(tuple(sorted(live)))
            grew = False
        live.discard(i)
    return tuple(cliques)


# ---- first fit -----------------------------------------------------------------------------------
def priorities(problem: PlacementProblem) -> dict[str, list[float]]:
    """Static orders that place hard instances, higher first: total, width, area, size, span.

    The total is the load of the fullest clique that a buffer is in, the width its steps, the
    span its cliques. Powers of ten make the orders lexicographic (as in MiniMalloc, ASPLOS 2024).
    """
    loads, sizes = problem.loads, problem.sizes
    spans = list(zip(problem.first, problem.last, strict=True))
    width = _scaled(problem.steps)
    size = _scaled(sizes)
    total = _scaled([max(loads[a:b]) for a, b in spans])
    area = [w * z for w, z in zip(width, size, strict=True)]
    share = [(b - a) / len(loads) for a, b in spans]
    rows = list(zip(total, width, area, strict=True))
    return {
        "total-width-area": [t * 1e4 + w * 100 + a for t, w, a in rows],
        "span-size": [s * z for s, z in zip(share, size, strict=True)],
        "span": share,
        "size": size,
        "width-area": [w * 1e4 + a for _, w, a in rows],
        "area": area,
        "width": width,
        "total-area-width": [t * 1e4 + a * 100 + w for t, w, a in rows],
    }


def _scaled(values: Sequence[int]) -> list[float]:
    most = max(values)
    return [v / most for v in values]


def placements(problem: PlacementProblem) -> Iterator[list[int]]:
    """Offsets of every order, then of better orders while they improve; stop when satisfied."""
    overlapping = _neighbours(problem)
    orders = [in_time(problem), *map(highest_ranked_first, priorities(problem).values())]
    tried: list[tuple[int, list[int], list[int]]] = []
    for order in orders:
        offsets = first_fit(problem, order, overlapping)
        tried.append((problem.height(offsets), order, offsets))
        yield offsets
    _, order, offsets = min(tried, key=lambda t: t[0])
    for _ in range(24):
        order = _highest_first(problem, order, offsets)
        offsets = first_fit(problem, order, overlapping)
        yield offsets


def highest_ranked_first(priority: Sequence[float]) -> list[int]:
    """The buffers in order, the highest priority first."""
    return sorted(range(len(priority)), key=lambda i: (-priority[i], i))


def in_time(problem: PlacementProblem) -> list[int]:
    """The buffers as they come to live, the largest first."""
    every = range(len(problem.members))
    return sorted(every, key=lambda i: (problem.first[i], -problem.sizes[i]))


def _highest_first(problem: PlacementProblem, order: list[int], offsets: list[int]) -> list[int]:
    """The buffers with the highest tops move to the front: they were placed too late."""
    height = problem.height(offsets)
    highest = {i for i in order if offsets[i] + problem.sizes[i] == height}
    return [i for i in order if i in highest] + [i for i in order if i not in highest]


def in_priority_order(
    problem: PlacementProblem, priorities: Iterable[Sequence[float]]
) -> Iterator[list[int]]:
    """Offsets of the order of each priority, higher first."""
    overlapping = _neighbours(problem)
    for priority in priorities:
        yield first_fit(problem, highest_ranked_first(priority), overlapping)


def first_fit(
    problem: PlacementProblem,
    order: Sequence[int],
    overlapping: Callable[[int], Sequence[int]] | None = None,
) -> list[int]:
    """Every buffer, in this order, at the lowest offset that overlaps none placed before."""
    overlapping = overlapping or _neighbours(problem)
    sizes = problem.sizes
    offsets = [-1] * len(order)
    for i in order:
        tick()
        taken = sorted(
            (offsets[j], offsets[j] + sizes[j]) for j in overlapping(i) if offsets[j] >= 0
        )
        at = 0
        for low, high in taken:
            if low - at >= sizes[i]:
                break
            at = max(at, high)
        offsets[i] = at
    return offsets


def _neighbours(problem: PlacementProblem) -> Callable[[int], Sequence[int]]:
    """The buffers that share a clique with a buffer; those of 2,000 of them are remembered."""
    import numpy as np

    first, last = np.array(problem.first), np.array(problem.last)

    @lru_cache(2_000)
    def overlapping(i: int) -> Sequence[int]:
        mask = (first < problem.last[i]) & (last > problem.first[i])
        mask[i] = False
        return np.nonzero(mask)[0].tolist()

    return overlapping


@dataclass
class _Arena:
    """Buffers connected in time, their best placement so far, and what is proven about it."""

    problem: PlacementProblem
    offsets: list[int]
    height: int  # in units, as `bound`
    bound: int
    searcher: Searcher | None = None

    def take(self, offsets: list[int]) -> None:
        height = self.problem.height(offsets)
        if height < self.height:
            self.offsets, self.height = offsets, height

    @property
    def height_bytes(self) -> int:
        return self.height * self.problem.unit

    @property
    def bound_bytes(self) -> int:
        return self.bound * self.problem.unit


@dataclass
class _PlacementSearch:
    capacity: int | None
    seed: int
    stop: Stop
    groups: list[_Arena] = field(default_factory=list)

    # ---- what is known --------------------------------------------------------------------
    @property
    def bound(self) -> int:
        return max((g.bound_bytes for g in self.groups), default=0)

    @property
    def height(self) -> int:
        return max((g.height_bytes for g in self.groups), default=0)

    @property
    def goal(self) -> int:
        """Bytes that are low enough: all other groups need not be lower than the worst bound."""
        return self.bound if self.capacity is None else max(self.capacity, self.bound)

    @property
    def is_impossible(self) -> bool:
        return self.capacity is not None and self.bound > self.capacity

    def open(self) -> list[_Arena]:
        """Groups that are too high, the highest first; none if nothing can fit any more."""
        if self.is_impossible:
            return []
        goal = self.goal
        open_groups = [g for g in self.groups if g.height_bytes > goal]
        return sorted(open_groups, key=lambda g: (-g.height_bytes, g.problem.members))

    def target(self, group: _Arena) -> int:
        """The height in units that is low enough for this group; at least its bound."""
        return max(group.bound, self.goal // group.problem.unit)

    # ---- stages ---------------------------------------------------------------------------
    def first_fit(self) -> None:
        goal = self.goal
        for group in self.groups:
            for offsets in placements(group.problem):
                group.take(offsets)
                if group.height_bytes <= goal:
                    break
                tick()

    def shaken(self) -> None:
        """First fit in orders near the static ones: what these miss, one of those mostly finds."""
        for group in self.open():
            turns = min(2_500 // len(group.problem.members), 60)  # as long for any size
            noisy = (p for t in range(turns) for p in self.noisy(group.problem, t))
            for offsets in in_priority_order(group.problem, noisy):
                group.take(offsets)
                if group.height <= self.target(group):
                    break

    def thorough(self) -> None:
        """Rounds of growing limits until every group is proven, low enough, or time is over.

        The depth-first search recurses once per buffer: not of too many.
        """
        turn = 0
        while groups := [g for g in self.open() if len(g.problem.members) <= 4_000]:
            for group in groups:
                self.round(group, turn)
                tick()
            turn += 1

    def round(self, group: _Arena, turn: int) -> None:
        """The height that is wanted, then, in every third round, by bisection lower ones than the
        best."""
        nodes = int(2_500 * 1.5 ** min(turn, 60))  # beyond that no search ends by it
        self.attempt(group, self.target(group), turn, nodes)
        if self.capacity is not None or turn % 3:
            return
        low = self.target(group) + 1
        while low < group.height:
            middle = (low + group.height - 1) // 2
            if not self.attempt(group, middle, turn, nodes):
                low = middle + 1
            low = max(low, group.bound)

    def attempt(self, group: _Arena, height: int, turn: int, nodes: int) -> bool:
        """Is there a placement of this height? Depth-first by many priorities; True if found."""
        searcher = self.searcher(group)
        for priority in self.varied(group.problem, turn):
            for largest_first in (False, True):
                tick()
                with self.ends(searcher.stop):
                    offsets = searcher.search(priority, height, nodes, largest_first)
                if offsets:
                    group.take(offsets)
                    return True
                if offsets is not None:
                    group.bound = max(group.bound, height + 1)
                    return False
        return False

    def searcher(self, group: _Arena) -> Searcher:
        from eqsat.extract.place.depthfirst import Searcher

        if group.searcher is None:
            p = group.problem
            group.searcher = Searcher(p.first, p.last, p.sizes, self.seed)
        return group.searcher

    def varied(self, problem: PlacementProblem, turn: int) -> Iterator[list[float]]:
        """Static priorities in every second round, as they repeat; noisy ones in all but one."""
        if turn % 2 == 0:
            yield from priorities(problem).values()
        if turn:
            yield from self.noisy(problem, turn)

    def noisy(self, problem: PlacementProblem, turn: int) -> Iterator[list[float]]:
        """Each static priority with noise, others in every turn."""
        import numpy as np

        random = np.random.default_rng((self.seed, turn))
        for priority in priorities(problem).values():
            noise = random.normal(0, random.random(), len(priority))
            yield (np.array(priority) * np.exp(noise)).tolist()

    def may_compile(self) -> bool:
        """Whether there is time for the machine code of the depth-first search, if it is not made.

        Nothing can stop its compiler, which takes 15 seconds on a busy machine.
        """
        from eqsat.extract.place.depthfirst import is_compiled

        return is_compiled() or seconds_left() > 15.0

    @contextmanager
    def ends(self, call: Callable[[], None]) -> Iterator[None]:
        """`call` at the deadline, or when a stop is requested."""
        timer = threading.Timer(seconds_left(), call)
        timer.daemon = True
        timer.start()
        try:
            with self.stop.calls(call):
                yield
        finally:
            timer.cancel()


def place(
    buffers: Sequence[Lifetime],
    *,
    capacity: int | None = None,
    seconds: float = 60.0,
    seed: int = 0,
    stop: Stop | None = None,
    quick: bool = False,
) -> Placement:
    """The lowest placement, or with a capacity in bytes the first one that fits it.

    quick: heuristics only, for placements by the way. The answer depends on the clock only where
    `stop` says `time`. EqsatError E904 (our bug) if the checker objects.
    """
    deadline = elapsed() + seconds
    stop = stop or Stop()
    search = _PlacementSearch(capacity, seed, stop)
    with whatever_it_takes():
        for p in problems([(b.lower, b.upper) for b in buffers], [b.size for b in buffers]):
            offsets = first_fit(p, in_time(p))
            search.groups.append(_Arena(p, offsets, p.height(offsets), p.bound))
        stop.has_answer = True
        with until(deadline, stop):
            ended = _run(search, quick)
    return _checked(buffers, search, ended)


def _run(search: _PlacementSearch, quick: bool) -> str:
    """Why the search ended."""
    try:
        if not search.is_impossible:
            search.first_fit()
            if not quick and search.open() and search.may_compile():
                search.thorough()
            else:
                search.shaken()
                return "work" if quick else OUT_OF_TIME
    except OutOfTime:
        return INTERRUPTED if search.stop.is_requested else OUT_OF_TIME
    except MemoryError:
        return OUT_OF_MEMORY
    return "work"


def _checked(buffers: Sequence[Lifetime], search: _PlacementSearch, ended: str) -> Placement:
    offsets = [0] * len(buffers)
    for g in search.groups:
        for i, o in zip(g.problem.members, g.offsets, strict=True):
            offsets[i] = o * g.problem.unit
    height, bound = search.height, search.bound
    status = _status(height, bound, search.capacity)
    if status in ("optimal", "infeasible"):
        ended = "proof"
    elif status == "feasible" and search.capacity is not None:
        ended = "capacity"
    placement = Placement(tuple(offsets), height, bound, status, ended)
    faults = placement.faults(buffers)
    if faults:
        raise fail("E904", f"the placement is wrong: {'; '.join(faults[:3])}", exit_code=4)
    return placement


def _status(height: int, bound: int, capacity: int | None) -> str:
    if capacity is not None and bound > capacity:
        return "infeasible"
    if capacity is not None and height > capacity:
        return "unknown"
    return "optimal" if height == bound else "feasible"
