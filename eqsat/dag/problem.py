"""DAG extraction as plain integers: SerializedEGraph → Problem, and what presolve makes of it.

Also the structure of its class graph: strong components, connected parts, dominators.

DAG cost: the sum of the costs of the distinct e-nodes that are reachable from the roots when every
class on the way has one chosen node; the choices must not form a cycle.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from eqsat.model.serialized import SerializedEGraph
from eqsat.model.sets import by_key, union_find


@dataclass(frozen=True, slots=True)
class Derivation:
    """A way to provide a class: what it costs, which classes it needs.

    `origins`: the nodes of the file it stands for (presolve joins nodes into one option).
    """

    cost: int
    children: frozenset[int]
    origins: tuple[int, ...]


Classes = dict[int, list[Derivation]]


@dataclass(frozen=True)
class Reduced:
    """Options per class and the classes to provide; the answer costs `base` more.

    `fixed` are nodes of the file that are chosen whenever their class is reached. `needs` holds for
    a class what every acyclic way to provide it provides too, itself included (empty: not known).
    """

    classes: Mapping[int, tuple[Derivation, ...]]
    roots: frozenset[int]
    base: int = 0
    fixed: tuple[int, ...] = ()
    needs: Mapping[int, frozenset[int]] = field(default_factory=dict)

    @property
    def negative(self) -> bool:
        return any(o.cost < 0 for options in self.classes.values() for o in options)

    @property
    def size(self) -> int:
        """The number of options."""
        return sum(map(len, self.classes.values()))


@dataclass(frozen=True)
class Problem:
    """A whole e-graph as integers; costs are exact multiples of 1 / `scale`."""

    whole: Reduced
    scale: int
    eclass: tuple[int, ...]  # class of every node of the file
    names: tuple[str, ...]  # of the classes
    options: Mapping[int, Derivation]  # by node; nodes of infinite cost have none
    nodes: tuple[str, ...]  # names


Selection = Mapping[int, Derivation]  # class → chosen option


def build_problem(egraph: SerializedEGraph) -> Problem:
    """The integers of an e-graph; nodes with an infinite cost do not exist."""
    names = tuple(dict.fromkeys(n.eclass for n in egraph.nodes))
    index = {name: i for i, name in enumerate(names)}
    eclass = tuple(index[n.eclass] for n in egraph.nodes)
    distinct = {n.cost for n in egraph.nodes if n.cost is not None}
    scale = math.lcm(*(cost.denominator for cost in distinct))
    scaled = {cost: int(cost * scale) for cost in distinct}
    classes: Classes = {c: [] for c in range(len(names))}
    for i, n in enumerate(egraph.nodes):
        if n.cost is not None:
            children = frozenset(eclass[c] for c in n.children)
            classes[eclass[i]].append(Derivation(scaled[n.cost], children, (i,)))
    frozen = {c: tuple(options) for c, options in classes.items()}
    whole = Reduced(frozen, frozenset(index[r] for r in egraph.roots))
    options = {o.origins[0]: o for ways in frozen.values() for o in ways}
    return Problem(whole, scale, eclass, names, options, tuple(n.name for n in egraph.nodes))


def derivable(classes: Mapping[int, Iterable[Derivation]]) -> dict[int, int]:
    """The classes that some finite choice provides → the round in which they are first found."""
    waiting: dict[int, list[tuple[int, int]]] = {}
    missing: list[int] = []
    now: list[int] = []
    round_of: dict[int, int] = {}
    for c, options in classes.items():
        for o in options:
            if not o.children and c not in round_of:
                round_of[c] = 0
                now.append(c)
            for d in o.children:
                waiting.setdefault(d, []).append((len(missing), c))
            missing.append(len(o.children))
    for level in range(1, len(classes) + 1):
        after = []
        for d in now:
            for o, c in waiting.get(d, ()):
                missing[o] -= 1
                if missing[o] == 0 and c not in round_of:
                    round_of[c] = level
                    after.append(c)
        now = after
    return round_of


def reached(selection: Selection, roots: Iterable[int]) -> list[int]:
    """Classes that the chosen options lead to from the roots."""
    seen = set(roots)
    stack = list(seen)
    while stack:
        fresh = selection[stack.pop()].children - seen
        seen |= fresh
        stack += fresh
    return sorted(seen)


def dag_cost(selection: Selection, roots: Iterable[int]) -> int:
    """The sum over the reachable classes."""
    return sum(selection[c].cost for c in reached(selection, roots))


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
    parts = by_key(zip(union_find(len(number), pairs), graph, strict=True))
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
