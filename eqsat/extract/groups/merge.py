"""Dispatches with several results: two small groups that share a node or an operand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eqsat.extract.candidates.pool import DevicePool
from eqsat.extract.candidates.space import order
from eqsat.extract.groups.borders import SMALL
from eqsat.extract.groups.grow import Candidate
from eqsat.extract.groups.pairs import MergePairs, MergePart
from eqsat.extract.ragged import Ints, distinct
from eqsat.model.deadline import OutOfTime, tick
from eqsat.model.selection import TIME_LIMIT, Removed

AT_ONCE = 1 << 19  # pairs of which each is told once

Key = tuple[frozenset[int], tuple[int, ...]]  # nodes, classes written


@dataclass(frozen=True)
class Merger(DevicePool):
    """Merges single-result groups of one pool."""

    @cached_property
    def removed(self) -> dict[str, Removed]:
        """What the vector limit removed while merging, largest per name."""
        return {}

    def part(self, c: Candidate) -> MergePart:
        space = self.space
        makers: dict[int, int] = {}
        for m in sorted(c.members):
            for b in space.made[m]:
                makers.setdefault(b, m)
        ops = frozenset(m for m in c.members if space.is_op[m])
        touched = frozenset(space.buffer[r] for r in (*c.reads, *c.writes))
        value = space.value[c.writes[0]]
        return MergePart(c, frozenset(c.members), ops, makers, touched, value)

    # ---- all merges of some groups ---------------------------------------------------------------
    def merges(self, grown: Sequence[Candidate]) -> list[Candidate]:
        """All legal merges of two of these groups."""
        fusion, wanted = self.legality.fusion, self.pool.merged
        if not (fusion.multi_result or fusion.siblings):
            return []
        small = sorted(filter(self.is_small, grown), key=lambda c: (len(c.members), c[:2]))
        parts, found = [self.part(c) for c in small], dict[Key, Candidate]()
        try:
            for one, two in self._paired(parts):
                for i, j in zip(one.tolist(), two.tolist(), strict=True):
                    tick()
                    a, b = parts[i], parts[j]
                    if wanted is None or self.space.computes(a.ops | b.ops) in wanted:
                        self.merge(found, a, b)
        except OutOfTime:
            self.removed["merges"] = Removed("merges", len(found), len(found), TIME_LIMIT, "")
        return list(found.values())

    def _paired(self, parts: Sequence[MergePart]) -> Iterator[tuple[Ints, Ints]]:
        """Pairs of parts that may merge, by what they share: many at once, and there each once."""
        pairs = MergePairs(self.pool, parts)
        for shared_by, apart in ((self._nodes_inside, False), (self._operands, True)):
            waiting: list[Ints] = []
            buckets: dict[int, list[int]] = {}
            for n, p in enumerate(parts):
                for key in shared_by(p.candidate):
                    buckets.setdefault(key, []).append(n)
            for key, bucket in sorted(buckets.items()):
                tick()
                one, two = pairs.found(bucket, apart=apart)
                if apart and self.legality.target.limits.vector_bytes is not None:
                    several = zip(one.tolist(), two.tolist(), strict=True)
                    fits = [self._may_be_siblings(key, parts[i], parts[j]) for i, j in several]
                    one, two = one[np.array(fits, bool)], two[np.array(fits, bool)]
                waiting.append(one * len(parts) + two)
                if sum(map(len, waiting)) > AT_ONCE:
                    yield _each_once(waiting, len(parts))
                    waiting = []
            if waiting:
                yield _each_once(waiting, len(parts))

    def is_small(self, c: Candidate) -> bool:
        """Whether a group may be part of a merge."""
        is_op = self.space.is_op
        return len(c.writes) == 1 and sum([is_op[m] for m in c.members]) <= SMALL

    def _nodes_inside(self, c: Candidate) -> list[int]:
        """The ops that a part computes inside, if groups that share one may merge."""
        if not self.legality.fusion.multi_result:
            return []
        space, sink = self.space, (self.space.buffer[c.writes[0]],)
        return [m for m in c.members if space.is_op[m] and space.made[m] != sink]

    def _operands(self, c: Candidate) -> list[int]:
        """The buffers that a part reads, weights apart, if groups that share one may merge."""
        if not self.legality.fusion.siblings:
            return []
        found = dict.fromkeys([self.space.buffer[r] for r in c.reads])
        return [b for b in found if b not in self.pool.resident]

    def _may_be_siblings(self, operand: int, a: MergePart, b: MergePart) -> bool:
        tick()
        readers = self.legality.readers
        first, second = sorted([readers(p.candidate.members)[operand][0] for p in (a, b)])
        unfused = self.legality.unfused(first, second)
        if unfused is None or unfused[1] is None:
            return True
        if self._joined(a, b) is not None:
            known = self.removed.get(unfused[1].what)
            if known is None or known.bytes < unfused[1].bytes:
                self.removed[unfused[1].what] = unfused[1]
        return False

    def merge(self, found: dict[Key, Candidate], a: MergePart, b: MergePart) -> None:
        """Add both groups as one dispatch if that is one; these nodes may be merged already."""
        writes = tuple(sorted((*a.candidate.writes, *b.candidate.writes)))
        key = (a.nodes | b.nodes, writes)
        joined = self._joined(a, b) if key not in found else None
        if joined is not None:
            found[key] = joined

    def _joined(self, a: MergePart, b: MergePart) -> Candidate | None:
        """A pair of groups as one dispatch; None if their roots crowd."""
        legality, space, ops = self.legality, self.space, a.ops | b.ops
        buffer, one, two = space.buffer, a.candidate, b.candidate
        writes = (*one.writes, *two.writes)
        reads = tuple({buffer[r]: r for r in (*two.reads, *one.reads)}.values())
        members = order(space, a.nodes | b.nodes)
        has_roots = any(map(legality.is_root, ops))
        makers = a.makers | b.makers
        if has_roots and legality.count_inside(makers) > legality.fusion.roots:
            return None
        if has_roots and legality.crowds(legality.roots_inside(members)):
            return None
        staged = {b for m in legality.in_front(members) for b in space.made[m]}
        if not staged.isdisjoint(map(buffer.__getitem__, writes)):
            return None
        shown = dict.fromkeys((*one.exposable, *two.exposable))
        exposable = tuple([c for c in shown if buffer[c] not in staged])
        price = self.costs.stated(members, reads, writes)
        return Candidate(members, reads, writes, exposable, *price)


def _each_once(keys: Sequence[Ints], parts: int) -> tuple[Ints, Ints]:
    found = distinct(np.concatenate(keys))
    return found // parts, found % parts
