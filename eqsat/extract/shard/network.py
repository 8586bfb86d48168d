"""ChoiceGraph → arrays for machine code: costs of a graph, usages over the steps that matter."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from eqsat.extract.shard.presolve import ChoiceGraph, Usage
from eqsat.model.sharding import FORBIDDEN


@dataclass(frozen=True)
class Network:
    """`graph` and `pieces` are the arguments of compiled functions.

    graph: offsets of strategies per node; ends of edges, sorted; offsets of their costs; costs
    row-major and column-major; first edge to the right per node; first one to the left, in the list
    of those; offsets of the messages to the first end, and to the second.
    pieces: first piece per node; first step and the one behind the last; offsets of usages; usages.
    A node's pieces do not overlap. `base` is what is used in each step whatever is chosen.
    """

    costs: np.ndarray  # per strategy, int64
    graph: tuple[np.ndarray, ...]
    pieces: tuple[np.ndarray, ...]
    base: np.ndarray
    limit: int

    @property
    def offsets(self) -> np.ndarray:
        return self.graph[0]

    @property
    def node_of_piece(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.pieces[0]))


def network(reduced: ChoiceGraph) -> Network:
    """The arrays of a reduced problem. What is forbidden costs more than everything else."""
    offsets = _offsets([len(c) for c in reduced.costs])
    costs = np.concatenate([*reduced.costs, np.zeros(0, np.int64)])
    steps = _busiest(reduced.usages)
    base, pieces = _pieces(reduced, steps)
    return Network(costs, _graph(reduced, offsets), pieces, base, reduced.limit)


def _offsets(sizes: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)


def _graph(reduced: ChoiceGraph, offsets: np.ndarray) -> tuple[np.ndarray, ...]:
    never = forbidden_cost(reduced)
    keys = sorted(reduced.edges)
    matrices = [np.minimum(reduced.edges[k], never) for k in keys]
    first = np.array([i for i, _ in keys], np.int64)
    second = np.array([j for _, j in keys], np.int64)
    nothing = np.zeros(0, np.int64)
    sizes = np.diff(offsets)
    nodes = np.arange(len(offsets))
    to_left = np.argsort(second, kind="stable")
    return (
        offsets,
        first,
        second,
        _offsets([m.size for m in matrices]),
        np.concatenate([nothing, *(m.ravel() for m in matrices)]),
        np.concatenate([nothing, *(m.T.ravel() for m in matrices)]),
        np.searchsorted(first, nodes),
        np.searchsorted(second[to_left], nodes),
        to_left,
        _offsets(list(sizes[first])),
        _offsets(list(sizes[second])),
    )


def forbidden_cost(reduced: ChoiceGraph) -> int:
    """More than any two allowed choices differ by."""
    spans = [int(c.max()) - int(c.min()) for c in reduced.costs]
    for m in reduced.edges.values():
        fine = m[m < FORBIDDEN]
        spans.append(int(fine.max()) - int(fine.min()) + abs(int(fine.max())))
    return sum(spans) + 1


def _busiest(usages: list[list[Usage]]) -> np.ndarray:
    """Steps at which a set of live usages is not part of another step's: something begins there,
    and the next thing to happen is that something ends."""
    live = [(lower, upper) for own in usages for lower, upper, u in own if u.max() > 0]
    begins = {lower for lower, _ in live}
    ends = {upper for _, upper in live}
    found: list[int] = []
    last = None
    for step in sorted(begins | ends):
        if step in ends and last is not None:
            found.append(last)
            last = None
        if step in begins:
            last = step
    return np.array(found, np.int64)


def _pieces(reduced: ChoiceGraph, steps: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """What is used anyway, and pieces of what depends on choices, in positions of `steps`."""
    change = np.zeros(len(steps) + 1, np.int64)
    start, lower, upper, rows = [0], [], [], []
    for own in reduced.usages:
        changes: dict[int, np.ndarray] = defaultdict(lambda: np.int64(0))  # type: ignore[arg-type]
        places = np.searchsorted(steps, [(a, b) for a, b, _ in own]).tolist()
        for (a, b), (_, _, usage) in zip(places, own, strict=True):
            least = usage.min()
            if a < b:
                change[a] += least
                change[b] -= least
            if a < b and usage.max() > least:
                changes[a] = changes[a] + (usage - least)
                changes[b] = changes[b] - (usage - least)
        times = sorted(changes)
        now = np.int64(0)
        for a, b in itertools.pairwise(times):
            now = now + changes[a]
            if len(rows) > start[-1] and upper[-1] == a and (rows[-1] == now).all():
                upper[-1] = b
            elif now.any():
                lower.append(a)
                upper.append(b)
                rows.append(now)
        start.append(len(rows))
    numbers = [np.array(x, np.int64) for x in (start, lower, upper)]
    flat = np.concatenate([np.zeros(0, np.int64), *rows])
    return change[:-1].cumsum(), (*numbers, _offsets([len(r) for r in rows]), flat)
