"""First fit: place one buffer after another in the lowest gap it fits, in several orders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from eqsat.extract.place.problem import PlacementProblem

MOST_KEPT = 2_000  # buffers whose neighbours are all kept; beyond, they are found again each time
ROUNDS = 24  # of moving the highest buffers to the front


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


def placements(
    problem: PlacementProblem, pause: Callable[[], None] = lambda: None
) -> Iterator[list[int]]:
    """Offsets of every order, then of better orders while they improve; stop when satisfied.

    `pause` is called between buffers, and may raise.
    """
    overlapping = _neighbours(problem)
    best: tuple[int, list[int], list[int]] | None = None
    for order in _orders(problem):
        offsets = first_fit(problem, order, overlapping, pause)
        yield offsets
        height = problem.height(offsets)
        if best is None or height < best[0]:
            best = height, order, offsets
    assert best is not None
    _, order, offsets = best
    for _ in range(ROUNDS):
        order = _highest_first(problem, order, offsets)
        offsets = first_fit(problem, order, overlapping, pause)
        yield offsets


def _orders(problem: PlacementProblem) -> Iterator[list[int]]:
    every = range(len(problem.members))
    yield in_time(problem)
    for priority in priorities(problem).values():
        yield sorted(every, key=lambda i: (-priority[i], i))


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
    problem: PlacementProblem, priorities: Iterable[Sequence[float]], pause: Callable[[], None]
) -> Iterator[list[int]]:
    """Offsets of the order of each priority, higher first."""
    overlapping = _neighbours(problem)
    for priority in priorities:
        order = sorted(range(len(priority)), key=lambda i: (-priority[i], i))
        yield first_fit(problem, order, overlapping, pause)


def first_fit(
    problem: PlacementProblem,
    order: Sequence[int],
    overlapping: Callable[[int], Sequence[int]] | None = None,
    pause: Callable[[], None] = lambda: None,
) -> list[int]:
    """Every buffer, in this order, at the lowest offset that overlaps none placed before."""
    overlapping = overlapping or _neighbours(problem)
    sizes = problem.sizes
    offsets = [-1] * len(order)
    for i in order:
        pause()
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
    """The buffers that share a clique with a buffer."""
    if len(problem.members) > MOST_KEPT:
        return _found_again(problem)
    kept: list[list[int]] = [[] for _ in problem.members]
    live: list[int] = []
    for i in sorted(range(len(kept)), key=problem.first.__getitem__):
        live = [j for j in live if problem.last[j] > problem.first[i]]
        kept[i] += live
        for j in live:
            kept[j].append(i)
        live.append(i)
    return kept.__getitem__


def _found_again(problem: PlacementProblem) -> Callable[[int], Sequence[int]]:
    import numpy as np

    first, last = np.array(problem.first), np.array(problem.last)

    def overlapping(i: int) -> Sequence[int]:
        mask = (first < problem.last[i]) & (last > problem.first[i])
        mask[i] = False
        return np.nonzero(mask)[0].tolist()

    return overlapping
