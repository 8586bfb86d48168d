"""Dispatches with several results: two small groups that share a node or an operand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

from eqsat.extract.costs import Costs
from eqsat.extract.groups import Candidate, order
from eqsat.extract.pool import Pool
from eqsat.model.selection import Removed

SMALL = 3  # members of a group that may be merged with another
PAIRS = 400  # merges tried per shared node or operand, smallest groups first


@dataclass(frozen=True)
class Merger:
    """Merges single-result groups of one pool."""

    pool: Pool
    costs: Costs

    @cached_property
    def removed(self) -> dict[str, Removed]:
        """What the vector limit removed while merging, largest per name."""
        return {}

    def counted(self, c: Candidate) -> tuple[int, ...]:
        """Members that are ops: no views, no fills."""
        kinds = self.pool.space.kinds
        return tuple(m for m in c.members if kinds[m] not in ("leaf", "view"))

    def merged(self, singles: Iterable[Candidate]) -> list[Candidate]:
        """All legal merges the target's `multi_result` and `siblings` allow."""
        fusion = self.pool.legality.fusion
        small = [c for c in singles if len(c.writes) == 1 and len(self.counted(c)) <= SMALL]
        small.sort(key=lambda c: (len(c.members), c.members, c.reads))
        found: dict[tuple[tuple[int, ...], tuple[int, ...]], Candidate] = {}
        if fusion.multi_result:
            for a, b in self._sharing_node(small):
                self._keep(found, self._merge(a, b))
        if fusion.siblings:
            for operand, a, b in self._sharing_operand(small):
                if self._may_be_siblings(operand, a, b):
                    self._keep(found, self._merge(a, b))
        return list(found.values())

    def _keep(
        self, found: dict[tuple[tuple[int, ...], tuple[int, ...]], Candidate], c: Candidate | None
    ) -> None:
        if c is not None:
            found.setdefault((c.members, tuple(sorted(c.writes))), c)

    def _pairs(
        self, by: dict[int, list[Candidate]], what: str
    ) -> Iterator[tuple[int, Candidate, Candidate]]:
        for key in sorted(by):
            tried = 0
            for a, b in combinations(by[key], 2):
                if self.pool.space.value[a.writes[0]] == self.pool.space.value[b.writes[0]]:
                    continue
                tried += 1
                if tried > PAIRS:
                    name = f"merges around {what}{key}"
                    self.removed[name] = Removed(name, tried, PAIRS, "candidates", "")
                    break
                yield key, a, b

    def _sharing_node(self, small: list[Candidate]) -> Iterator[tuple[Candidate, Candidate]]:
        by: dict[int, list[Candidate]] = {}
        for c in small:
            sink = self.pool.space.buffer[c.writes[0]]
            for m in self.counted(c):
                if self.costs.made_by(m) != (sink,):
                    by.setdefault(m, []).append(c)
        for _, a, b in self._pairs(by, "node "):
            yield a, b

    def _sharing_operand(
        self, small: list[Candidate]
    ) -> Iterator[tuple[int, Candidate, Candidate]]:
        by: dict[int, list[Candidate]] = {}
        for c in small:
            for r in c.reads:
                b = self.pool.space.buffer[r]
                if b not in self.pool.resident:
                    by.setdefault(b, []).append(c)
        for operand, a, b in self._pairs(by, "c"):
            if not set(self.counted(a)) & set(self.counted(b)):
                yield operand, a, b

    def _reader(self, c: Candidate, operand: int) -> tuple[int, int]:
        space = self.pool.space
        return next(
            (m, i)
            for m in c.members
            if space.kinds[m] != "view"
            for i, o in enumerate(space.operands[m])
            if o == operand or self._sees(c, o) == operand
        )

    def _sees(self, c: Candidate, buffer: int) -> int | None:
        """The buffer behind a relaxed view inside a group."""
        nodes, space = self.pool.space.egraph.nodes, self.pool.space
        views = (m for m in c.members if nodes[m].op == "relax")
        return next(
            (space.operands[v][0] for v in views if space.buffer[nodes[v].eclass] == buffer), None
        )

    def _may_be_siblings(self, operand: int, a: Candidate, b: Candidate) -> bool:
        first, second = sorted((self._reader(a, operand), self._reader(b, operand)))
        unfused = self.pool.legality.unfused(first, second)
        if unfused is None or unfused[1] is None:
            return True
        if self._merge(a, b) is not None:
            known = self.removed.get(unfused[1].what)
            if known is None or known.bytes < unfused[1].bytes:
                self.removed[unfused[1].what] = unfused[1]
        return False

    def _crosses(self, a: Candidate, b: Candidate) -> bool:
        """Whether one group computes what the other reads or writes."""
        made = {o for m in a.members for o in self.costs.made_by(m)}
        return not made.isdisjoint(self.pool.space.buffer[c] for c in (*b.reads, *b.writes))

    def _merge(self, a: Candidate, b: Candidate) -> Candidate | None:
        """Both groups as one dispatch; None if they contradict each other or it grows too big."""
        pool, space = self.pool, self.pool.space
        nodes = set(a.members) | set(b.members)
        if self._crosses(a, b) or self._crosses(b, a):
            return None
        makers: dict[int, int] = {}
        for m in sorted(nodes):
            for o in self.costs.made_by(m):
                if makers.setdefault(o, m) != m and space.kinds[m] != "view":
                    return None
        reads = tuple({space.buffer[r]: r for r in (*b.reads, *a.reads)}.values())
        members = order(pool, nodes)
        merged = replace(a, members=members, reads=reads, writes=(*a.writes, *b.writes))
        counted = self.counted(merged)
        fusion = pool.legality.fusion
        computed = space.computes(counted)
        if any(space.consumers.get(space.value[w], frozenset()) <= computed for w in merged.writes):
            return None  # a result nobody outside needs
        roots = sum(pool.legality.is_root(m) for m in counted)
        if len(counted) > fusion.members or roots > fusion.roots:
            return None
        if len(reads) + len(merged.writes) > fusion.operands:
            return None
        exposable = tuple(dict.fromkeys((*a.exposable, *b.exposable)))
        time_ps = self.costs.group_ps(members, reads, list(merged.writes))
        return replace(merged, exposable=exposable, time_ps=time_ps)
