"""Dispatches with several results: two small groups that share a node or an operand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from eqsat.extract.candidates.costs import Costs
from eqsat.extract.candidates.groups import Candidate, order
from eqsat.extract.candidates.legality import Legality
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.model.deadline import OutOfTime, tick
from eqsat.model.selection import CAP, TIME_LIMIT, Removed

SMALL = 3  # members of a group that may be merged with another
PAIRS = 20_000  # merges tried per shared node or operand, smallest groups first

Key = tuple[frozenset[int], tuple[int, ...]]  # nodes, classes written


@dataclass(frozen=True, eq=False)
class _Part:
    """A small group that may become part of a merge, with what merging asks of it."""

    candidate: Candidate
    nodes: frozenset[int]
    ops: frozenset[int]  # without views and fills
    makers: dict[int, int]  # buffer -> the node that computes it; the first if several do
    touched: frozenset[int]  # buffers it reads or writes from outside
    value: int  # that of its result
    at: dict[int, tuple[int, int]]  # buffer -> the first op that reads it, and as which operand


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

    def _part(self, c: Candidate) -> _Part:
        space = self.space
        makers: dict[int, int] = {}
        for m in sorted(c.members):
            for b in space.made[m]:
                makers.setdefault(b, m)
        ops = frozenset(m for m in c.members if space.is_op[m])
        touched = frozenset(space.buffer[r] for r in (*c.reads, *c.writes))
        value = space.value[c.writes[0]]
        return _Part(c, frozenset(c.members), ops, makers, touched, value, self._readers(c))

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

    def _merge_all(self, found: dict[Key, Candidate], parts: list[_Part]) -> None:
        fusion = self.legality.fusion
        if fusion.multi_result:
            for _, a, b in self._pairs(self._by_node(parts), "node "):
                self._merge(found, a, b)
        if fusion.siblings:
            for operand, a, b in self._pairs(self._by_operand(parts), "c"):
                if a.ops.isdisjoint(b.ops) and self._may_be_siblings(operand, a, b):
                    self._merge(found, a, b)

    def _pairs(self, by: dict[int, list[_Part]], what: str) -> Iterator[tuple[int, _Part, _Part]]:
        for key in sorted(by):
            tried = 0
            tick()
            for a, b in combinations(by[key], 2):
                if a.value == b.value:
                    continue
                tried += 1
                if tried > PAIRS:
                    name = f"merges around {what}{key}"
                    self.removed[name] = Removed(name, tried, PAIRS, CAP, "")
                    break
                yield key, a, b

    def _by_node(self, parts: list[_Part]) -> dict[int, list[_Part]]:
        """Parts by the ops they compute inside."""
        by: dict[int, list[_Part]] = {}
        for p in parts:
            sink = (self.space.buffer[p.candidate.writes[0]],)
            for m in p.candidate.members:
                if m in p.ops and self.space.made[m] != sink:
                    by.setdefault(m, []).append(p)
        return by

    def _by_operand(self, parts: list[_Part]) -> dict[int, list[_Part]]:
        """Parts by the buffers they read, weights apart."""
        by: dict[int, list[_Part]] = {}
        for p in parts:
            for r in p.candidate.reads:
                b = self.space.buffer[r]
                if b not in self.pool.resident:
                    by.setdefault(b, []).append(p)
        return by

    def _may_be_siblings(self, operand: int, a: _Part, b: _Part) -> bool:
        first, second = sorted((a.at[operand], b.at[operand]))
        unfused = self.legality.unfused(first, second)
        if unfused is None or unfused[1] is None:
            return True
        if self._joined(a, b) is not None:
            known = self.removed.get(unfused[1].what)
            if known is None or known.bytes < unfused[1].bytes:
                self.removed[unfused[1].what] = unfused[1]
        return False

    def _merge(self, found: dict[Key, Candidate], a: _Part, b: _Part) -> None:
        """Add both groups as one dispatch, unless these nodes were merged before."""
        writes = tuple(sorted((*a.candidate.writes, *b.candidate.writes)))
        key = (a.nodes | b.nodes, writes)
        joined = None if key in found else self._joined(a, b)
        if joined is not None:
            found[key] = joined

    def _agree(self, a: _Part, b: _Part) -> bool:
        """Neither computes what the other reads or writes, and both compute alike."""
        one, two = a.makers, b.makers
        if not (a.touched.isdisjoint(two) and b.touched.isdisjoint(one)):
            return False
        kinds = self.space.kinds
        return all(
            one[o] == two[o] or kinds[max(one[o], two[o])] == "view"
            for o in (one.keys() & two.keys())
        )

    def _joined(self, a: _Part, b: _Part) -> Candidate | None:
        """Both groups as one dispatch; None if they contradict each other or it grows too big."""
        if not self._agree(a, b):
            return None
        legality, space, ops = self.legality, self.space, a.ops | b.ops
        fusion, buffer = legality.fusion, space.buffer
        one, two = a.candidate, b.candidate
        writes = (*one.writes, *two.writes)
        reads = tuple({buffer[r]: r for r in (*two.reads, *one.reads)}.values())
        roots = sum(legality.is_root(m) for m in ops)
        if len(ops) > fusion.members or roots > fusion.roots:
            return None
        if len(reads) + len(writes) > fusion.operands:
            return None
        computed, nobody = space.computes(ops), frozenset[int]()
        if any(space.consumers.get(space.value[w], nobody) <= computed for w in writes):
            return None  # a result nobody outside needs
        members = order(space, a.nodes | b.nodes)
        if roots and legality.crowds(legality.roots_inside(members)):
            return None
        exposable = tuple(dict.fromkeys((*one.exposable, *two.exposable)))
        price = self.costs.price(members, reads, writes)
        return Candidate(members, reads, writes, exposable, *price)
