"""Quick answers: Knuth's generalisation of Dijkstra's algorithm, with shared classes paid once.

Acyclic by construction: a class is settled after all children of its option. Every pass settles
the class that is cheapest by now, so a class has one option and sets of classes can be joined.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from eqsat.dag.problem import Derivation, Reduced, Selection, dag_cost, reached
from eqsat.model.sets import bits

Seconds = Callable[[], float]

MOST_WORK = 1_000_000  # of all passes together, in heap steps and members of sets


@dataclass(frozen=True)
class Waiting:
    """Tables of which options wait for which classes, made once for all passes over one problem."""

    options: list[tuple[int, Derivation]]
    waiting: dict[int, list[int]]
    leaves: list[int]


def waiting_of(reduced: Reduced) -> Waiting:
    """The tables that every pass reads."""
    options = [(c, o) for c, ways in sorted(reduced.classes.items()) for o in ways]
    waiting: dict[int, list[int]] = {c: [] for c in reduced.classes}
    for i, (_, o) in enumerate(options):
        for d in o.children:
            waiting[d].append(i)
    return Waiting(options, waiting, [i for i, (_, o) in enumerate(options) if not o.children])


def by_tree(tables: Waiting) -> dict[int, Derivation]:
    """The options of least tree cost."""
    key: dict[int, float] = {}
    chosen: dict[int, Derivation] = {}
    missing = [len(o.children) for _, o in tables.options]

    def entry(i: int) -> tuple[float, int]:
        o = tables.options[i][1]
        return max(o.cost, 0) + sum(key[d] for d in o.children), i

    heap = [entry(i) for i in tables.leaves]
    heapq.heapify(heap)
    while heap:
        total, i = heapq.heappop(heap)
        c, o = tables.options[i]
        if c in chosen:
            continue
        chosen[c], key[c] = o, total
        for j in tables.waiting[c]:
            missing[j] -= 1
            if missing[j] == 0 and tables.options[j][0] not in chosen:
                heapq.heappush(heap, entry(j))
    return chosen


def by_sets(
    tables: Waiting, prices: Mapping[int, float] | None = None
) -> tuple[dict[int, Derivation], int]:
    """The options whose set of classes is cheapest; also the work done."""
    cost: dict[int, float] = {}  # of the class alone
    total: dict[int, float] = {}  # of its set
    members: dict[int, int] = {}
    chosen: dict[int, Derivation] = {}
    missing = [len(o.children) for _, o in tables.options]
    work = 0

    def entry(i: int) -> tuple[float, int, float, int]:
        nonlocal work
        c, o = tables.options[i]
        option_cost = max(o.cost, 0) * (prices[c] if prices else 1)
        if not o.children:
            return option_cost, i, option_cost, 0
        largest = max(o.children, key=lambda d: (total[d], d))
        union, amount = members[largest], total[largest]
        for d in o.children:
            fresh = members[d] & ~union
            if fresh:
                new = bits(fresh)
                work += len(new)
                amount += sum(cost[e] for e in new)
                union |= fresh
        return amount + option_cost, i, option_cost, union

    heap = [entry(i) for i in tables.leaves]
    heapq.heapify(heap)
    while heap:
        amount, i, option_cost, union = heapq.heappop(heap)
        work += 1
        c, o = tables.options[i]
        if c in chosen:
            continue
        chosen[c], cost[c], total[c], members[c] = o, option_cost, amount, union | 1 << c
        for j in tables.waiting[c]:
            missing[j] -= 1
            if missing[j] == 0 and tables.options[j][0] not in chosen:
                heapq.heappush(heap, entry(j))
    return chosen, work


def cheap_choice(
    reduced: Reduced, seed: int, seconds: Seconds, passes: int = 40
) -> dict[int, Derivation]:
    """The best of several answers; the same for the same seed.

    The first two are plain. Then the classes of the best answer so far are made cheaper, and all
    prices are shaken a little, so that others come to share what is paid already. No pass starts
    when no `seconds` are left.
    """
    tables = waiting_of(reduced)
    best = _only(by_tree(tables), reduced.roots)
    chosen, work = by_sets(tables)
    best = _better(best, chosen, reduced.roots)
    shaken = random.Random(seed)
    done = 0
    for _ in range(passes):
        if done + work > MOST_WORK or seconds() <= 0:
            break
        factor = shaken.choice((0.0, 0.2, 0.5, 0.8))
        prices = {
            c: (factor if c in best else 1.0) + 0.3 * shaken.random() for c in reduced.classes
        }
        chosen, work = by_sets(tables, prices)
        done += work
        best = _better(best, chosen, reduced.roots)
    return best


def _only(chosen: Selection, roots: Iterable[int]) -> dict[int, Derivation]:
    return {c: chosen[c] for c in reached(chosen, roots)}


def _better(
    best: dict[int, Derivation], chosen: Selection, roots: Iterable[int]
) -> dict[int, Derivation]:
    if dag_cost(chosen, roots) < dag_cost(best, roots):
        return _only(chosen, roots)
    return best
