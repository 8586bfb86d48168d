"""Lifetimes → placement problems as plain integers, one per group of buffers that share time.

Two buffers conflict if and only if some maximal set of buffers that are live at once (a maximal
clique of the interval graph) holds both; cliques are in the order of time, so a buffer is in a
contiguous range of them. Everything after this file sees only these ranges and sizes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


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
    found: list[tuple[int, ...]] = []
    grew = False
    for _, begins, i in events:
        if begins:
            live.add(i)
            grew = True
            continue
        if grew:
            found.append(tuple(sorted(live)))
            grew = False
        live.discard(i)
    return tuple(found)
