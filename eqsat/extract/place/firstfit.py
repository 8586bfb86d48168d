"""Placement problems as plain integers, and first fit: one buffer after another, in several orders.

Two buffers conflict if and only if some maximal set of buffers that are live at once (a maximal
clique of the interval graph) holds both; cliques are in the order of time, so a buffer is in a
contiguous range of them. Everything after `problems` sees only these ranges and sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from eqsat.model.deadline import tick


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
