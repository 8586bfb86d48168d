"""Merges that another merge dominates, found before any of them is made.

A merge of two parts has the members, reads and exclusive numbers of both, each once. It dominates
another one that writes the same and computes the same values if it reads and holds no more, shows
all that others may want of what the other one shows, and takes no longer, whatever is written
besides. The last is certain where its arithmetic hides behind its traffic: then its time is traffic
and a launch, and the other's is no less. It reads no more, so it has room for as many results; it
holds no more, so it owes no more; and without a contraction or reduction nothing crowds it. So
every option of the other one is dominated by one of its own (`dominance`), and no answer misses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from eqsat.extract.candidates.dominance import Looked, bits_of
from eqsat.extract.candidates.pairs import MergePart
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.choice.linear import OTHERS, OWN, moved_bytes, tie
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.ragged import Ints, Ragged, contains, distinct, numbered_sets
from eqsat.model.control import Control

UNKNOWN = -1  # arithmetic that is not known to hide behind traffic
KINDS = ("elementwise", "conversion", "move", "leaf")  # of nodes whose prices add up


class _Merges(NamedTuple):
    """Facts of some merges, row by row: the sum over both parts, what they share counted once."""

    writes: Ragged  # buffers
    computes: Ragged  # values
    reads: Ragged  # buffers
    held: Ragged  # exclusive numbers
    shown: Ragged  # inner buffers that may be written besides
    traffic_ps: Ints
    cost_ps: Ints  # with what is laid out anew
    ties: Ints
    ops: Ints

    def take(self, rows: Ints) -> _Merges:
        return _Merges(
            self.writes.take(rows),
            self.computes.take(rows),
            self.reads.take(rows),
            self.held.take(rows),
            self.shown.take(rows),
            self.traffic_ps[rows],
            self.cost_ps[rows],
            self.ties[rows],
            self.ops[rows],
        )


class MergePrune:
    """Asked about pairs of these parts, of a target that prices by a roofline."""

    def __init__(self, pool: Pool, costs: Costs, parts: Sequence[MergePart]):
        self.space, self.costs = pool.space, costs
        space, found = pool.space, [p.candidate for p in parts]
        buffer, exclusive = space.buffer, pool.legality.exclusive
        self._reads = Ragged.of([frozenset([buffer[r] for r in c.reads]) for c in found])
        self._held = Ragged.of([exclusive(c.members) for c in found])
        self._shown = Ragged.of([frozenset([buffer[e] for e in c.exposable]) for c in found])
        self._computes = Ragged.of([space.computes(p.ops) for p in parts])
        self._ops = Ragged.of([p.ops for p in parts])
        self._sink = np.array([buffer[c.writes[0]] for c in found], dtype=np.int64)
        self._compute_ps = np.array([self._most_ps(c.members) for c in found], dtype=np.int64)
        nodes, graph = space.egraph.nodes, space.egraph
        self._class_ps = np.array(costs.class_ps, dtype=np.int64)
        self._moved_ps = np.array(costs.relayout_ps, dtype=np.int64)
        ties = [tie(n, moved_bytes(graph, i)) for i, n in enumerate(nodes)]
        self._ties = np.array(ties, dtype=np.int64)

    @staticmethod
    def may_ask(pool: Pool, costs: Costs) -> bool:
        """Whether one merge may stand for another: what is asked for is known, and adds up."""
        known = pool.asked <= {*OWN, *OTHERS} and not pool.keeps_all
        return known and not costs.target.is_planned

    def _most_ps(self, members: Iterable[int]) -> int:
        """Arithmetic of a part at the most, in any merge; UNKNOWN where prices do not add up.

        No body runs more often than the largest of the part: what a part computes inside is read
        by its own members alone, or by those that both parts have.
        """
        space, costs, members = self.space, self.costs, tuple(members)
        for m in members:
            attr = space.egraph.nodes[m].attr
            if space.kinds[m] not in KINDS or isinstance(attr, Control):
                return UNKNOWN
        if not costs.gathered.gathers.isdisjoint(members):
            return UNKNOWN
        runs = max(costs.iterations[m] for m in members)
        return sum(int(costs.compute_ps(m, runs)) + 1 for m in members)

    def leaders(self, one: Ints, two: Ints) -> Ints:
        """Per pair of parts: the pair whose merge dominates theirs, or itself. Leaders stay."""
        found, most = np.arange(len(one)), self._compute_ps
        rows = np.flatnonzero((most[one] != UNKNOWN) & (most[two] != UNKNOWN))
        if len(rows) < 2:
            return found
        merges = self._merged(one[rows], two[rows])
        hides = np.flatnonzero(most[one[rows]] + most[two[rows]] < merges.traffic_ps)
        rows, merges = rows[hides], merges.take(hides)
        for gone, leader in self._dominated(merges):
            found[rows[gone]] = rows[leader]
        return found

    def _merged(self, one: Ints, two: Ints) -> _Merges:
        def both(of: Ragged) -> Ragged:
            return of.take(one).joined(of.take(two)).distinct()

        reads, ops = both(self._reads), both(self._ops)
        traffic = reads.sums(self._class_ps[reads.index])
        traffic += self._class_ps[self._sink[one]] + self._class_ps[self._sink[two]]
        sinks = np.stack([self._sink[one], self._sink[two]], axis=1).reshape(-1)
        return _Merges(
            Ragged(np.arange(0, 2 * len(one) + 1, 2), sinks).distinct(),
            both(self._computes),
            reads,
            both(self._held),
            both(self._shown),
            traffic,
            traffic + ops.sums(self._moved_ps[ops.index]),
            ops.sums(self._ties[ops.index]),
            ops.counts,
        )

    def _dominated(self, merges: _Merges) -> Iterator[tuple[Ints, Ints]]:
        """(Some that are dominated, by which); of equals the one that converts least stays."""
        span = len(self.space.buffer)
        what = merges.writes.joined(merges.computes.mapped(np.arange(span, 2 * span)))
        bucket = numbered_sets(what)
        hidden = self._hidden(merges, bucket)
        needs = merges.reads.counts + merges.held.counts + hidden.counts
        order = np.lexsort((merges.ops, needs, merges.ties, merges.cost_ps, bucket))
        sides = [r.take(order) for r in (merges.reads, merges.held, hidden)]
        costs = merges.cost_ps[order, None]
        looked = Looked(bucket[order], bits_of(sides, bucket[order]), costs)
        for _, gone, leader in looked.at():
            yield order[gone], order[leader]

    def _hidden(self, merges: _Merges, bucket: Ints) -> Ragged:
        """Per merge: what others of its bucket show and it does not, if it may be needed."""
        span = len(self.space.buffer)
        shown = distinct(bucket[merges.shown.rows] * span + merges.shown.index)
        first = np.zeros(int(bucket.max(initial=-1)) + 1, dtype=np.int64)
        first[bucket] = np.arange(len(bucket))
        consumers, value, nobody = self.space.consumers, self.space.value, frozenset[int]()
        inside = [frozenset(merges.computes[i].tolist()) for i in first.tolist()]
        wanted = [
            not consumers.get(value[b], nobody) <= inside[n]
            for n, b in zip((shown // span).tolist(), (shown % span).tolist(), strict=True)
        ]
        shown = shown[np.array(wanted, dtype=bool)]
        every = Ragged.grouped(shown // span, shown % span, len(first)).take(bucket)
        own = merges.shown.pairs(span)
        return every.where(~contains(np.sort(own), every.pairs(span)))
