"""Merges that another merge dominates, found before any of them is made.

A merge of two parts has the members, reads and exclusive numbers of both, each once, and its price
is the sum of theirs: what both parts read is read once, and what both compute runs as often as in
the part where it runs more often. It dominates another merge that writes the same and computes the
same values if it reads and holds no more, shows all that others may want of what the other one
shows, and takes no longer in traffic, in arithmetic and in conversions, so whatever is written
besides. So every option of the other one is dominated by one of its own (`dominance`), and no
answer misses it. Not asked where a merge may still be refused, or its price is no such sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np

from eqsat.extract.candidates.dominance import Looked, bits_of
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.choice.linear import OTHERS, OWN, moved_bytes, tie
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.groups.pairs import MergePart
from eqsat.extract.ragged import Ints, Ragged, contains, distinct, numbered_sets
from eqsat.model.control import Control

KINDS = ("elementwise", "reduction", "contraction", "conversion", "move", "leaf", "view")
PARTS_OF_PS = 1 << 10  # arithmetic is compared to such a part of a picosecond
MOST = 1 << 58  # such parts of an op: of larger sums arrays have no room


class _Merges(NamedTuple):
    """Facts of some merges, row by row: the sum over both parts, what they share counted once."""

    writes: Ragged  # buffers
    computes: Ragged  # values
    reads: Ragged  # buffers
    held: Ragged  # exclusive numbers
    shown: Ragged  # inner buffers that may be written besides
    costs: Ints  # [merges, 3]: traffic, arithmetic, what is laid out anew
    ties: Ints
    ops: Ints


class _Work(NamedTuple):
    """Per part its busy ops, and what each takes there."""

    places: Ragged
    op: Ints
    work: Ints

    @classmethod
    def of(cls, parts: Sequence[Mapping[int, int]]) -> Self:
        ops = Ragged.of([tuple(p) for p in parts])
        work = np.array([w for p in parts for w in p.values()], dtype=np.int64)
        return cls(Ragged(ops.start, np.arange(len(ops.index))), ops.index, work)

    def of_both(self, one: Ints, two: Ints) -> Ints:
        """Per pair of parts: the sum over ops, of those that both have the larger one."""
        there = self.places.take(one).joined(self.places.take(two))
        rows, op, work = there.rows, self.op[there.index], self.work[there.index]
        order = np.lexsort((work, op, rows))
        rows, op, work = rows[order], op[order], work[order]
        last = np.ones(len(rows), dtype=bool)
        last[:-1] = (rows[1:] != rows[:-1]) | (op[1:] != op[:-1])
        return Ragged.grouped(rows[last], work[last], len(one)).sums(work[last])


class MergePrune:
    """Asked about pairs of these parts, of a target that prices by a roofline."""

    def __init__(self, pool: Pool, costs: Costs, parts: Sequence[MergePart]):
        self.space, self.costs, self.legality = pool.space, costs, pool.legality
        space, found = pool.space, [p.candidate for p in parts]
        buffer, exclusive = space.buffer, pool.legality.exclusive
        self._reads = Ragged.of([frozenset([buffer[r] for r in c.reads]) for c in found])
        self._held = Ragged.of([exclusive(c.members) for c in found])
        self._shown = Ragged.of([frozenset([buffer[e] for e in c.exposable]) for c in found])
        self._computes = Ragged.of([space.computes(p.ops) for p in parts])
        self._ops = Ragged.of([sorted(p.ops) for p in parts])
        self._sink = np.array([buffer[c.writes[0]] for c in found], dtype=np.int64)
        self._is_sum = np.array([self._adds_up(p) for p in parts], dtype=bool)
        both = zip(parts, self._is_sum.tolist(), strict=True)
        works = [self._work(p) if is_sum else {} for p, is_sum in both]
        self._busy = _Work.of(works)
        calls = [{m: w for m, w in work.items() if m in costs.calls} for work in works]
        self._calls = _Work.of(calls)
        handed = [costs.handed(c.members) for c in found]
        self._handed = Ragged.of([frozenset(h) for h in handed])
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

    def _adds_up(self, part: MergePart) -> bool:
        """Whether its prices add up, and whoever is found as its pair makes a dispatch with it."""
        space, costs, legality = self.space, self.costs, self.legality
        fusion, members = legality.fusion, part.candidate.members
        has_limits = legality.target.pipelines or fusion.output_reductions or fusion.staged
        if has_limits and any(map(legality.is_root, part.ops)):
            return False
        if any(space.kinds[m] not in KINDS for m in members):
            return False
        if any(isinstance(space.egraph.nodes[m].attr, Control) for m in members):
            return False
        handed = costs.handed(members).items()
        if any(costs.class_ps[b] != ps for b, ps in handed):
            return False  # seen in a layout of other bytes
        return costs.gathered.gathers.isdisjoint(members)

    def _work(self, part: MergePart) -> dict[int, int]:
        """Arithmetic per op, run as often as here."""
        costs, runs = self.costs, self.costs.runs(part.candidate.members)
        every = {m: round(costs.compute_ps(m, runs[m]) * PARTS_OF_PS) for m in part.ops}
        return {m: min(work, MOST) for m, work in every.items() if work}

    def leaders(self, one: Ints, two: Ints) -> Ints:
        """Per pair of parts: the pair whose merge dominates theirs, or itself. Leaders stay."""
        found = np.arange(len(one))
        rows = np.flatnonzero(self._is_sum[one] & self._is_sum[two])
        if len(rows) < 2:
            return found
        for gone, leader in self._dominated(self._merged(one[rows], two[rows])):
            found[rows[gone]] = rows[leader]
        return found

    def _merged(self, one: Ints, two: Ints) -> _Merges:
        def both(of: Ragged) -> Ragged:
            return of.take(one).joined(of.take(two)).distinct()

        reads, ops, handed = both(self._reads), both(self._ops), both(self._handed)
        handed_ps = handed.sums(self._class_ps[handed.index])
        traffic = reads.sums(self._class_ps[reads.index]) + 2 * handed_ps
        traffic += self._class_ps[self._sink[one]] + self._class_ps[self._sink[two]]
        busy, called = self._busy.of_both(one, two), self._calls.of_both(one, two)
        waits = called + handed_ps * PARTS_OF_PS  # what is handed on hides behind nothing else
        busy = np.where(handed_ps > 0, np.maximum(busy, waits), busy)
        moved = ops.sums(self._moved_ps[ops.index])
        sinks = np.stack([self._sink[one], self._sink[two]], axis=1).reshape(-1)
        return _Merges(
            Ragged(np.arange(0, 2 * len(one) + 1, 2), sinks).distinct(),
            both(self._computes),
            reads,
            both(self._held),
            both(self._shown),
            np.stack([traffic, busy, moved], axis=1),
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
        by_cost = (merges.ties, *merges.costs.T)
        order = np.lexsort((merges.ops, needs, *by_cost, bucket))
        sides = [r.take(order) for r in (merges.reads, merges.held, hidden)]
        looked = Looked(bucket[order], bits_of(sides, bucket[order]), merges.costs[order])
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
