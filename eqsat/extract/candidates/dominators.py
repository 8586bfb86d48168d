"""Dominators: values every answer computes, those before a value, and those lost for others.

Values are AND/OR dominators over logical values. Without a cut per needed value CP-SAT does not
prove layout graphs (decision 26). Where a needed value may be cut out of another one, what
computes it is often next to free, and all the work lies behind; there a cut runs through that.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from eqsat.extract.candidates.space import MOVING
from eqsat.model.deadline import OutOfTime, tick
from eqsat.model.sets import by_key, mask, sum_bits

if TYPE_CHECKING:
    from eqsat.extract.candidates.pool import Pool


def derivations(pool: Pool) -> dict[int, list[frozenset[int]]]:
    """Per value: the values each node reads that computes it anew (conversions do not)."""
    value, operands = pool.space.value, pool.space.operands
    return by_key((v, frozenset([value[o] for o in operands[i]])) for i, v in _makers(pool))


def _makers(pool: Pool) -> Iterator[tuple[int, int]]:
    """(node, value it computes anew)."""
    space = pool.space
    for nodes in pool.producers.values():
        for i in nodes:
            if space.kinds[i] in MOVING:
                continue
            reads = {space.value[c] for c in space.egraph.nodes[i].children}
            yield from (
                (i, space.value[c]) for c in space.outputs[i] if space.value[c] not in reads
            )


def necessity(pool: Pool) -> dict[int, int]:
    """Per value that is computed at run time: the values every derivation computes, as bits.

    need(v) = {v} ∪ ⋂ over nodes of v, ⋃ over operands u of need(u): the greatest fixpoint.
    """
    ahead = {pool.space.value[b] for b in pool.ahead}
    every_way = pool.derivations
    ways = {v: w for v, w in every_way.items() if not pool.space.is_source(v) and v not in ahead}
    return necessary(ways)


def necessary(ways: Mapping[int, Sequence[frozenset[int]]]) -> dict[int, int]:
    """`necessity`, given what each way to compute a value reads."""
    everything = sum(1 << v for v in ways)
    need = dict.fromkeys(ways, everything)
    changed = True
    while changed:
        changed = False
        for v, options in ways.items():
            tick()
            new = everything
            for reads in options:
                new &= union(need, reads)
            new |= 1 << v
            if new != need[v]:
                need[v], changed = new, True
    return need


def needed_values(pool: Pool) -> tuple[int, ...]:
    """Values every derivation of the roots computes at run time, ascending."""
    need = pool.necessity
    total = union(need, frozenset(pool.space.value[r] for r in pool.space.roots))
    return tuple(v for v in sorted(need) if total >> v & 1)


def union(need: dict[int, int], values: Iterable[int]) -> int:
    """The union of the needs of these values, as bits."""
    total = 0
    for v in values:
        total |= need.get(v, 0)
    return total


# ---- the ops behind --------------------------------------------------------------------------
LIGHT = ("elementwise", "move")  # kinds that are looked through


def served_values(pool: Pool) -> dict[int, frozenset[int]]:
    """Per node: needed values of which every answer holds this node or another one that is there.

    To compute a value is to hold one of its nodes. A light one of these reads values that are
    computed, too: for one that is not needed by itself its own nodes stand there instead, and so
    on. That ends, as each is computed before what reads it. Values of which nothing was replaced
    are left out: `needed_values` says as much.
    """
    served: dict[int, set[int]] = {}
    below = _replaced(pool)
    for v in pool.needed:
        seen = _behind(below, v)
        nodes = {node for w in seen for node, u in below[w] if u is None}
        for node in nodes if len(seen) > 1 else ():
            served.setdefault(node, set()).add(v)
    return {node: frozenset(values) for node, values in served.items()}


def served_by(pool: Pool, members: Iterable[int], written: Iterable[int]) -> frozenset[int]:
    """Needed values that an option serves: it has a node for them, and they stay or come out.

    Where a dispatch is cut out of a larger product, only what it writes need be computed, at its
    price; so a product of which other values are cut counts for those alone. Every answer has an
    option that serves a needed v: the one that computes v does if the node lies in it. If not, it
    reads a value that stands in place of v. What writes that one is asked in the same way, and so
    on; so the last one writes such a value (`values_behind`), and holds the node.

    written: values that it writes.
    """
    nobody, shown, members = frozenset[int](), frozenset(written), tuple(members)
    computed = pool.space.computes(members)
    held = frozenset().union(*(pool.served.get(m, nobody) for m in members))
    return frozenset(v for v in held if v in computed or not shown.isdisjoint(pool.behind[v]))


def values_behind(pool: Pool) -> dict[int, frozenset[int]]:
    """Per value computed at run time: itself, and those that stand in its place (see above)."""
    below = _replaced(pool)
    return {v: _behind(below, v) for v in below}


Below = Mapping[int, Sequence[tuple[int, int | None]]]


def _behind(below: Below, value: int) -> frozenset[int]:
    tick()
    seen, waiting = {value}, [value]
    while waiting:
        news = {u for _, u in below[waiting.pop()] if u is not None} - seen
        seen |= news
        waiting += sorted(news)
    return frozenset(seen)


def _replaced(pool: Pool) -> dict[int, list[tuple[int, int | None]]]:
    """Per value: its nodes, and what is looked at in place of a light one: a value that it reads.

    That is the first one computed at run time and not needed by itself. None: there is none.
    """
    space, alternatives = pool.space, dict[int, list[tuple[int, int | None]]]()
    ways, needed = pool.necessity.keys(), frozenset(pool.needed)
    for node, v in _makers(pool):
        reads = [space.value[c] for c in space.egraph.nodes[node].children]
        open_ = (u for u in reads if u in ways and u not in needed and u != v)
        below = next(open_, None) if space.kinds[node] in LIGHT else None
        alternatives.setdefault(v, []).append((node, below))
    return alternatives


# ---- what one dispatch alone computes ------------------------------------------------------------
def owned_values(pool: Pool) -> frozenset[int]:
    """Values that one dispatch alone may compute, whichever of their nodes it holds.

    Not those that are there from the start, or may be.
    """
    space, legality = pool.space, pool.legality
    owned, again = set[int](), {space.value[b] for b in pool.ahead}
    for n, v in _makers(pool):
        is_once = not space.is_source(v) and legality.value_number(v) in legality.exclusive((n,))
        (owned if is_once else again).add(v)
    return frozenset(owned - again)


# ---- what is lost for others ---------------------------------------------------------------------
# What a dispatch computes and keeps to itself is lost, if none may compute it again. Of a value
# that is cut into slices a dispatch may compute one slice alone, and so half of the work; but then
# nobody can compute the other slice. Such a column is in no answer, yet the relaxation would add up
# two halves.
@dataclass(frozen=True)
class Lost:
    """Asked about values of one pool."""

    pool: Pool

    @cached_property
    def once(self) -> frozenset[int]:
        return owned_values(self.pool)

    @cached_property
    def _known(self) -> dict[tuple[frozenset[int], frozenset[int]], bool]:
        return {}

    def leaves_a_way(self, lost: frozenset[int], written: frozenset[int]) -> bool:
        """Whether all results may be computed without these values of `once`, given written ones.

        A value is lost, too, if each way to compute it reads a lost one. That is the least fixpoint
        over all nodes, so what it calls lost no dispatch can compute; more may be.
        """
        key = lost, written
        if key not in self._known:
            self._known[key] = self._leaves(set(lost), written)
        return self._known[key]

    def _leaves(self, lost: set[int], written: frozenset[int]) -> bool:
        space, ways, nobody = self.pool.space, self.pool.derivations, frozenset[int]()
        waiting = list(lost)
        while waiting:
            for w in space.consumers.get(waiting.pop(), nobody):
                if w == -1:
                    return False
                if w in lost or w in written or w not in ways or w in self._there:
                    continue
                if not any(lost.isdisjoint(reads) for reads in ways[w]):
                    lost.add(w)
                    waiting.append(w)
        return True

    @cached_property
    def _there(self) -> frozenset[int]:
        """Values that may be there without being computed in the run."""
        space = self.pool.space
        ahead = {space.value[b] for b in self.pool.ahead}
        return frozenset(ahead.union(v for v in set(space.value) if space.is_source(v)))


# ---- what has to be computed before --------------------------------------------------------------
@dataclass(frozen=True)
class Waits:
    """Asked about values of one pool.

    Only values that one dispatch alone may compute count: who computes such a value and waits for
    another that needs it (`necessity`) waits for itself.
    """

    pool: Pool

    def among(self, values: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """(i, j): every way to values[i] computes values[j], as one dispatch alone may do."""
        pairs: list[tuple[int, int]] = []
        for i, v in enumerate(values):
            before = self.pool.necessity.get(v, 0) & self._owned & ~(1 << v)
            if before:
                pairs += [(i, j) for j, u in enumerate(values) if before >> u & 1]
        return tuple(pairs)

    def for_itself(self, computed: Iterable[int], reads: Iterable[int]) -> bool:
        """Whether a dispatch that computes these values waits for itself by what it reads.

        Every way to a value that it reads computes one of its own, which no other one may compute.
        """
        owned, value = sum_bits(1 << v for v in computed) & self._owned, self.pool.space.value
        return bool(owned) and any([self.pool.necessity.get(value[b], 0) & owned for b in reads])

    @cached_property
    def _owned(self) -> int:
        """`owned_values` as bits."""
        return mask(owned_values(self.pool))


# ---- prices of it --------------------------------------------------------------------------------
# Prices of nodes in, picoseconds that any choice of them takes out. Values are computed by one of
# their nodes each, so the results take at least what the cheapest nodes of the values take that
# every derivation computes, and in addition the dearest chain of what these nodes cost more: the
# admissible maximum of planning (Bonet and Geffner, AIJ 2001), after a share of every cost was
# counted. Nothing is enumerated.
class PricedWay(NamedTuple):
    """One way to a value: its own picoseconds, and the values that it needs."""

    cost_ps: float
    reads: frozenset[int]


PricedWays = Mapping[int, Sequence[PricedWay]]  # per value; what is there from the start has none


def least_ps(ways: PricedWays, results: Collection[int]) -> float:
    """Picoseconds that every derivation of the results takes at the least."""
    needed = needed_of(ways, results)
    base = {v: min(w.cost_ps for w in ways[v]) for v in needed if v in ways}
    left = {v: [w._replace(cost_ps=w.cost_ps - base.get(v, 0.0)) for w in ways[v]] for v in ways}
    try:
        longest = _longest(left)
    except OutOfTime:
        longest = {}
    return math.fsum(base.values()) + max((longest.get(v, 0.0) for v in results), default=0.0)


def needed_of(ways: PricedWays, results: Collection[int]) -> frozenset[int]:
    """The values that every derivation of the results needs, the results among them."""
    need = necessary({v: [w.reads for w in of_value] for v, of_value in ways.items()})
    total = union(need, results)
    return frozenset(v for v in need if total >> v & 1)


def _longest(ways: PricedWays) -> dict[int, float]:
    """Per value the cost of its dearest chain at the least, by Knuth's form of Dijkstra's search.

    Values without ways are there, and cost nothing.
    """
    readers: dict[int, list[tuple[int, int]]] = {}
    missing: dict[tuple[int, int], int] = {}
    longest: dict[int, float] = {}
    waiting: list[tuple[float, int]] = []
    for v, of_value in ways.items():
        for i, way in enumerate(of_value):
            open_ = [r for r in way.reads if r in ways]
            missing[v, i] = len(open_)
            for r in open_:
                readers.setdefault(r, []).append((v, i))
            if not open_:
                heapq.heappush(waiting, (way.cost_ps, v))
    while waiting:
        tick()
        cost, v = heapq.heappop(waiting)
        if v in longest:
            continue
        longest[v] = cost
        for reader, i in readers.get(v, ()):
            missing[reader, i] -= 1
            if not missing[reader, i]:  # the last of its operands is the dearest
                heapq.heappush(waiting, (cost + ways[reader][i].cost_ps, reader))
    return longest
