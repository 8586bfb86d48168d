"""Structure of the class graph: strongly connected components, connected parts, dominators."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from eqsat.dag.problem import Derivation
from eqsat.model.sets import union_find

Graph = Mapping[int, Iterable[int]]


def successors(classes: Mapping[int, Iterable[Derivation]]) -> dict[int, set[int]]:
    """Per class all classes that some option of it needs."""
    return {c: set().union(*(o.children for o in options)) for c, options in classes.items()}


def strong_components(graph: Graph) -> list[list[int]]:
    """Strongly connected components, children first (Tarjan 1972, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    open_: dict[int, None] = {}
    components: list[list[int]] = []
    for start in graph:
        if start in index:
            continue
        work: list[tuple[int, Iterator[int]]] = [_enter(start, graph, index, low, open_)]
        while work:
            v, rest = work[-1]
            fresh = _advance(v, rest, index, low, open_)
            if fresh is not None:
                work.append(_enter(fresh, graph, index, low, open_))
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[v])
            if low[v] == index[v]:
                components.append(_leave(v, open_))
    return components


def _enter(
    v: int, graph: Graph, index: dict[int, int], low: dict[int, int], open_: dict[int, None]
) -> tuple[int, Iterator[int]]:
    index[v] = low[v] = len(index)
    open_[v] = None
    return v, iter(graph[v])


def _advance(
    v: int, rest: Iterator[int], index: dict[int, int], low: dict[int, int], open_: dict[int, None]
) -> int | None:
    """The next successor not seen before, if there is one."""
    for w in rest:
        if w not in index:
            return w
        if w in open_:
            low[v] = min(low[v], index[w])
    return None


def _leave(v: int, open_: dict[int, None]) -> list[int]:
    part = []
    while True:
        w, _ = open_.popitem()
        part.append(w)
        if w == v:
            return part


def connected_parts(graph: Graph) -> list[list[int]]:
    """Classes that have nothing to do with each other, apart; each part sorted."""
    number = {c: n for n, c in enumerate(graph)}
    pairs = ((number[c], number[d]) for c, below in graph.items() for d in below)
    parts: dict[int, list[int]] = {}
    for c, part in zip(graph, union_find(len(number), pairs), strict=True):
        parts.setdefault(part, []).append(c)
    return [sorted(part) for part in parts.values()]


def dominators(classes: Mapping[int, Iterable[Derivation]]) -> dict[int, int]:
    """Per class a bit set (by class number) of what every acyclic way to provide it provides.

    The greatest solution of need(c) = {c} ∪ ⋂ over options of ⋃ over children of need(child): by
    induction over the height of a derivation it holds for all of them. Every class has to be
    derivable.
    """
    parents: dict[int, set[int]] = {c: set() for c in classes}
    graph = successors(classes)
    for c, below in graph.items():
        for d in below:
            parents[d].add(c)
    everything = (1 << (max(classes, default=0) + 1)) - 1
    need = dict.fromkeys(classes, everything)
    order = [c for part in strong_components(graph) for c in part]
    queue, queued = deque(order), set(order)
    while queue:
        c = queue.popleft()
        queued.discard(c)
        common = need[c]
        bit = 1 << c
        for o in classes[c]:
            union = bit
            for d in o.children:
                union |= need[d]
            common &= union
            if common == bit:
                break
        if common != need[c]:
            need[c] = common
            fresh = parents[c] - queued
            queue.extend(sorted(fresh))
            queued |= fresh
    return need
