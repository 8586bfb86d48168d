"""Dispatches with several results: two small groups that share a node or an operand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from eqsat.extract.candidates.costs import Costs
from eqsat.extract.candidates.groups import Candidate, order
from eqsat.extract.candidates.legality import Legality
from eqsat.extract.candidates.pairs import Pairs, Part
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.model.deadline import OutOfTime
from eqsat.model.selection import TIME_LIMIT, Removed

SMALL = 3  # members of a group that may be merged with another

Key = tuple[frozenset[int], tuple[int, ...]]  # nodes, classes written


@dataclass(frozen=True)
class Merger:
    """Merges single-result groups of one pool."""

    pool: Pool
    costs: Costs
    device: str = ""  # whose dispatches these are, if there are several

    @cached_property
    def space(self) -> Space:
        return self.pool.space

    @cached_property
    def legality(self) -> Legality:
        return self.pool.legality.part(self.device)

    @cached_property
    def removed(self) -> dict[str, Removed]:
        """What the vector limit removed while merging, largest per name."""
        return {}

    def _part(self, c: Candidate) -> Part:
        space = self.space
        makers: dict[int, int] = {}
        for m in sorted(c.members):
            for b in space.made[m]:
                makers.setdefault(b, m)
        ops = frozenset(m for m in c.members if space.is_op[m])
        touched = frozenset(space.buffer[r] for r in (*c.reads, *c.writes))
        value = space.value[c.writes[0]]
        return Part(c, frozenset(c.members), ops, makers, touched, value, self._readers(c))

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

    def merged(self, singles: Iterable[Candidate]) -> list[Candidate]:
        """All legal merges the target's `multi_result` and `siblings` allow."""
        fusion, is_op = self.legality.fusion, self.space.is_op
        if not (fusion.multi_result or fusion.siblings):
            return []
        small = [
            c for c in singles if len(c.writes) == 1 and sum(is_op[m] for m in c.members) <= SMALL
        ]
        small.sort(key=lambda c: (len(c.members), c.members, c.reads))
        parts = [self._part(c) for c in small]
        found: dict[Key, Candidate] = {}
        try:
            self._merge_all(found, parts)
        except OutOfTime:
            self.removed["merges"] = Removed("merges", len(found), len(found), TIME_LIMIT, "")
        return list(found.values())

    def _merge_all(self, found: dict[Key, Candidate], parts: list[Part]) -> None:
        fusion, pairs = self.legality.fusion, Pairs(self.space, self.legality, parts)
        if fusion.multi_result:
            for _, bucket in sorted(self._by_node(parts).items()):
                for a, b in pairs.of(bucket, apart=False):
                    self._merge(found, a, b)
        if fusion.siblings:
            for operand, bucket in sorted(self._by_operand(parts).items()):
                for a, b in pairs.of(bucket, apart=True):
                    if self._may_be_siblings(operand, a, b):
                        self._merge(found, a, b)

    def _by_node(self, parts: list[Part]) -> dict[int, list[int]]:
        """Parts by the ops they compute inside."""
        by: dict[int, list[int]] = {}
        for at, p in enumerate(parts):
            sink = (self.space.buffer[p.candidate.writes[0]],)
            for m in p.candidate.members:
                if m in p.ops and self.space.made[m] != sink:
                    by.setdefault(m, []).append(at)
        return by

    def _by_operand(self, parts: list[Part]) -> dict[int, list[int]]:
        """Parts by the buffers they read, weights apart."""
        by: dict[int, list[int]] = {}
        for at, p in enumerate(parts):
            for b in dict.fromkeys([self.space.buffer[r] for r in p.candidate.reads]):
                if b not in self.pool.resident:
                    by.setdefault(b, []).append(at)
        return by

    def _may_be_siblings(self, operand: int, a: Part, b: Part) -> bool:
        first, second = sorted((a.at[operand], b.at[operand]))
        unfused = self.legality.unfused(first, second)
        if unfused is None or unfused[1] is None:
            return True
        if self._joined(a, b) is not None:
            known = self.removed.get(unfused[1].what)
            if known is None or known.bytes < unfused[1].bytes:
                self.removed[unfused[1].what] = unfused[1]
        return False

    def _merge(self, found: dict[Key, Candidate], a: Part, b: Part) -> None:
        """Add both groups as one dispatch, unless these nodes were merged before."""
        writes = tuple(sorted((*a.candidate.writes, *b.candidate.writes)))
        key = (a.nodes | b.nodes, writes)
        joined = None if key in found else self._joined(a, b)
        if joined is not None:
            found[key] = joined

    def _joined(self, a: Part, b: Part) -> Candidate | None:
        """A pair of groups as one dispatch; None if their roots crowd."""
        legality, space, ops = self.legality, self.space, a.ops | b.ops
        buffer, one, two = space.buffer, a.candidate, b.candidate
        writes = (*one.writes, *two.writes)
        reads = tuple({buffer[r]: r for r in (*two.reads, *one.reads)}.values())
        members = order(space, a.nodes | b.nodes)
        has_roots = any(map(legality.is_root, ops))
        if has_roots and legality.crowds(legality.roots_inside(members)):
            return None
        exposable = tuple(dict.fromkeys((*one.exposable, *two.exposable)))
        price = self.costs.price(members, reads, writes)
        return Candidate(members, reads, writes, exposable, *price)
