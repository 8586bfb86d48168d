"""Dispatches with several results: two small groups that share a node or an operand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eqsat.extract.candidates.borders import SMALL
from eqsat.extract.candidates.groups import Candidate
from eqsat.extract.candidates.mergeprune import MergePrune
from eqsat.extract.candidates.pairs import MergePairs, MergePart
from eqsat.extract.candidates.pool import DevicePool
from eqsat.extract.candidates.space import order
from eqsat.extract.candidates.waits import Waits
from eqsat.extract.ragged import Ints, distinct
from eqsat.model.deadline import OutOfTime, tick
from eqsat.model.selection import TIME_LIMIT, Removed

AT_ONCE = 1 << 19  # pairs among which dominated ones are looked for

Key = tuple[frozenset[int], tuple[int, ...]]  # nodes, classes written


@dataclass(frozen=True)
class Merger(DevicePool):
    """Merges single-result groups of one pool."""

    @cached_property
    def removed(self) -> dict[str, Removed]:
        """What the vector limit removed while merging, largest per name."""
        return {}

    def cut_short(self, found: Sized) -> None:
        """The deadline has left merges out."""
        self.removed["merges"] = Removed("merges", len(found), len(found), TIME_LIMIT, "")

    def part(self, c: Candidate) -> MergePart:
        space = self.space
        makers: dict[int, int] = {}
        for m in sorted(c.members):
            for b in space.made[m]:
                makers.setdefault(b, m)
        ops = frozenset(m for m in c.members if space.is_op[m])
        touched = frozenset(space.buffer[r] for r in (*c.reads, *c.writes))
        value = space.value[c.writes[0]]
        return MergePart(c, frozenset(c.members), ops, makers, touched, value, self._readers(c))

    def _readers(self, c: Candidate) -> dict[int, tuple[int, int]]:
        """Per buffer read, also through a relaxed view: the first op (or fill) and operand."""
        space, nodes = self.space, self.space.egraph.nodes
        behind: dict[int, int] = {}
        for v in c.members:
            if nodes[v].op == "relax":
                behind.setdefault(space.result[v], space.operands[v][0])
        found: dict[int, tuple[int, int]] = {}
        for m in c.members:
            if space.kinds[m] != "view":
                for i, o in enumerate(space.operands[m]):
                    found.setdefault(o, (m, i))
                    seen = o
                    while behind.get(seen, seen) != seen:
                        seen = behind[seen]
                        found.setdefault(seen, (m, i))
        return found

    # ---- all merges of some groups ---------------------------------------------------------------
    def merges(self, grown: Sequence[Candidate]) -> list[Candidate]:
        """All legal merges of two of these groups, but those that another one dominates."""
        if not self.is_on:
            return []
        small = sorted(
            filter(self.is_small, grown), key=lambda c: (len(c.members), c.members, c.reads)
        )
        parts, found = [self.part(c) for c in small], dict[Key, Candidate]()
        prune = self.prune(parts)
        try:
            for one, two in self._paired(parts):
                leaders = np.arange(len(one)) if prune is None else prune.leaders(one, two)
                for n in np.flatnonzero(leaders == np.arange(len(one))).tolist():
                    tick()
                    self.merge(found, parts[one[n]], parts[two[n]])
        except OutOfTime:
            self.cut_short(found)
        return list(found.values())

    def _paired(self, parts: Sequence[MergePart]) -> Iterator[tuple[Ints, Ints]]:
        """Pairs of parts that may merge, by what they share: many at once, and there each once."""
        pairs = self.pairs(parts)
        sides = (self.nodes_inside, self.around_node), (self.operands, self.around_operand)
        for shared_by, around in sides:
            waiting: list[Ints] = []
            buckets: dict[int, list[int]] = {}
            for n, p in enumerate(parts):
                for key in shared_by(p.candidate):
                    buckets.setdefault(key, []).append(n)
            for key, bucket in sorted(buckets.items()):
                tick()
                one, two = around(pairs, bucket, key)
                waiting.append(one * len(parts) + two)
                if sum(map(len, waiting)) > AT_ONCE:
                    yield _each_once(waiting, len(parts))
                    waiting = []
            if waiting:
                yield _each_once(waiting, len(parts))

    @property
    def is_on(self) -> bool:
        return self.legality.fusion.multi_result or self.legality.fusion.siblings

    def is_small(self, c: Candidate) -> bool:
        """Whether a group may be part of a merge."""
        is_op = self.space.is_op
        return len(c.writes) == 1 and sum([is_op[m] for m in c.members]) <= SMALL

    def nodes_inside(self, c: Candidate) -> list[int]:
        """The ops that a part computes inside, if groups that share one may merge."""
        if not self.legality.fusion.multi_result:
            return []
        space, sink = self.space, (self.space.buffer[c.writes[0]],)
        return [m for m in c.members if space.is_op[m] and space.made[m] != sink]

    def operands(self, c: Candidate) -> list[int]:
        """The buffers that a part reads, weights apart, if groups that share one may merge."""
        if not self.legality.fusion.siblings:
            return []
        found = dict.fromkeys([self.space.buffer[r] for r in c.reads])
        return [b for b in found if b not in self.pool.resident]

    @cached_property
    def waits(self) -> Waits:
        return Waits(self.pool)

    def pairs(self, parts: Sequence[MergePart]) -> MergePairs:
        return MergePairs(self.space, self.legality, self.waits, parts)

    def prune(self, parts: Sequence[MergePart]) -> MergePrune | None:
        """What tells dominated merges of these parts; None if all merges have to be made."""
        if not MergePrune.may_ask(self.pool, self.costs):
            return None
        return MergePrune(self.pool, self.costs, parts)

    def around_node(self, pairs: MergePairs, bucket: Sequence[int], _: int) -> tuple[Ints, Ints]:
        """All pairs of these parts that may merge, which compute one node."""
        return pairs.found(bucket, apart=False)

    def around_operand(
        self, pairs: MergePairs, bucket: Sequence[int], operand: int
    ) -> tuple[Ints, Ints]:
        """All pairs of these parts that may merge, which read one buffer."""
        one, two = pairs.found(bucket, apart=True)
        parts, fine = pairs.parts, np.ones(len(one), dtype=bool)
        for k, (i, j) in enumerate(zip(one.tolist(), two.tolist(), strict=True)):
            tick()
            fine[k] = self._may_be_siblings(operand, parts[i], parts[j])
        return one[fine], two[fine]

    def _may_be_siblings(self, operand: int, a: MergePart, b: MergePart) -> bool:
        first, second = sorted((a.at[operand], b.at[operand]))
        unfused = self.legality.unfused(first, second)
        if unfused is None or unfused[1] is None:
            return True
        if self._joined(a, b) is not None:
            known = self.removed.get(unfused[1].what)
            if known is None or known.bytes < unfused[1].bytes:
                self.removed[unfused[1].what] = unfused[1]
        return False

    def merge(self, found: dict[Key, Candidate], a: MergePart, b: MergePart) -> Key | None:
        """Add both groups as one dispatch, unless these nodes were merged before.

        None if that is no dispatch.
        """
        writes = tuple(sorted((*a.candidate.writes, *b.candidate.writes)))
        key = (a.nodes | b.nodes, writes)
        if key not in found:
            joined = self._joined(a, b)
            if joined is None:
                return None
            found[key] = joined
        return key

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
