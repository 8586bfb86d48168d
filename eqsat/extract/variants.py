"""Candidates become options: which of their inner values they also write, and when they run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from eqsat.extract.costs import Costs
from eqsat.extract.cover import entries, needed_values
from eqsat.extract.groups import Candidate
from eqsat.extract.linear import added
from eqsat.extract.pool import Pool
from eqsat.extract.space import Moment, Space
from eqsat.model.goal import Goal
from eqsat.model.selection import Group

BEGIN: Moment = (-1, 0, 0, -(1 << 30))
EXTRAS = 2  # inner values a group may write beside its results, the program's results apart


@dataclass(frozen=True)
class Variant:
    """A candidate with the buffers it writes, at a moment."""

    candidate: Candidate
    moment: Moment
    adds: tuple[int, ...]  # to each linear goal
    reads: frozenset[int]  # those that are not there from the start
    resident: frozenset[int]
    writes: tuple[int, ...]
    exclusive: frozenset[int]
    is_conversion: bool

    @property
    def key(self) -> tuple[Moment, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """A total order: first by time, then by what it is."""
        return (self.moment, self.writes, self.candidate.members, self.candidate.reads)


def group_of(
    space: Space, c: Candidate, buffers: Iterable[int], time_ps: int, step: int = 0
) -> Group:
    """A candidate that writes these buffers as a group of a selection."""
    written = frozenset(buffers)
    extra = tuple(w for w in c.exposable if space.buffer[w] in written)
    return Group(c.members, c.reads, (*extra, *c.writes), time_ps, step)


@dataclass(frozen=True)
class Variants:
    """The options of all candidates of one pool."""

    pool: Pool
    costs: Costs
    candidates: tuple[Candidate, ...]
    goals: Mapping[str, Goal]

    def found(self) -> list[Variant]:
        return [v for c in self.candidates for v in self._of(c)]

    def _of(self, c: Candidate) -> list[Variant]:
        space, pool = self.pool.space, self.pool
        reads = frozenset(space.buffer[r] for r in c.reads)
        sinks = tuple(dict.fromkeys(space.buffer[w] for w in c.writes))
        if not reads.isdisjoint(sinks):
            return []
        exclusive, computed = pool.legality.exclusive(c.members), space.computes(c.members)
        convert = all(space.kinds[m] in ("conversion", "view", "leaf") for m in c.members)
        found = []
        for extra in self._extra_sets(c, sinks, computed):
            writes = (*sinks, *extra)
            if not self._serves_all(exclusive, writes, computed):
                continue
            adds = self._adds(group_of(space, c, writes, self._time_ps(c, extra)))
            sides = (reads - pool.held, reads & pool.resident, writes, exclusive)
            found += [
                Variant(c, m, adds, *sides, convert) for m in self._moments(c, writes, convert)
            ]
        return found

    def _time_ps(self, c: Candidate, extra: tuple[int, ...]) -> int:
        """With the traffic of what is written besides."""
        space = self.pool.space
        return c.time_ps + sum(self.costs.traffic_ps(space.nbytes(b)) for b in extra)

    def _adds(self, group: Group) -> tuple[int, ...]:
        sides = self.pool.space.egraph, self.pool.legality.target
        return tuple(added(name, goal, *sides, group) for name, goal in self.goals.items())

    @cached_property
    def _read(self) -> frozenset[int]:
        """Buffers some candidate or the caller reads."""
        space = self.pool.space
        reads = {space.buffer[r] for c in self.candidates for r in c.reads}
        return frozenset(reads | set(space.roots))

    def _extra_sets(
        self, c: Candidate, sinks: tuple[int, ...], computed: frozenset[int]
    ) -> list[tuple[int, ...]]:
        """What a group may write beside its results: values the caller or other values need.

        None, one, two, or all results of the program that are computed inside (and one more).
        """
        space, fusion = self.pool.space, self.pool.legality.fusion
        room = fusion.operands - len(c.reads) - len(sinks)
        if not fusion.multi_result or room <= 0:
            return [()]
        useful = {
            space.buffer[e]
            for e in c.exposable
            if not space.consumers.get(space.value[e], frozenset()) <= computed
        }
        extras = sorted((useful & self._read).difference(sinks))
        roots = tuple(b for b in extras if b in space.roots)
        sets = [s for size in range(EXTRAS + 1) for s in combinations(extras, size)]
        if len(roots) > EXTRAS:
            sets += [roots, *(tuple(sorted({*roots, b})) for b in extras if b not in roots)]
        return [s for s in sets if len(s) <= room and self._has_readers((*sinks, *s), computed)]

    def _has_readers(self, writes: tuple[int, ...], computed: frozenset[int]) -> bool:
        """A value is not written in more layouts than there are others that need it."""
        space = self.pool.space
        layouts = Counter(space.value[b] for b in writes)
        wanted = Counter(space.value[r] for r in space.roots)
        return all(
            n == 1 or n <= wanted[v] + len(space.consumers.get(v, frozenset()) - computed - {-1})
            for v, n in layouts.items()
        )

    def _serves_all(
        self, exclusive: frozenset[int], writes: tuple[int, ...], computed: frozenset[int]
    ) -> bool:
        """Whether nobody outside is left without a value that is computed here and only here."""
        owned = {self._values[n] for n in exclusive if n in self._values}
        written = {self.pool.space.value[b] for b in writes}
        return all(v in written or self._outside.get(v, frozenset()) <= computed for v in owned)

    @cached_property
    def needed(self) -> tuple[int, ...]:
        """Values every answer computes."""
        return needed_values(self.pool)

    @cached_property
    def _values(self) -> dict[int, int]:
        """Per exclusive number that stands for a value: the value (see `Legality.exclusive`)."""
        return {self.pool.legality.value_number(v): v for v in self.pool.space.positions}

    @cached_property
    def _outside(self) -> dict[int, frozenset[int]]:
        """Per value: needed values that can only be computed from it; -1 is the caller."""
        found: dict[int, set[int]] = {}
        ways = entries(self.pool)
        for w in self.needed:
            for v in frozenset.intersection(*ways[w]):
                found.setdefault(v, set()).add(w)
        for r in self.pool.space.roots:
            found.setdefault(self.pool.space.value[r], set()).add(-1)
        return {v: frozenset(f) for v, f in found.items()}

    def _moments(self, c: Candidate, writes: tuple[int, ...], convert: bool) -> list[Moment]:
        """When a group runs: conversions at every level right after their value.

        Others at the first moment of a value they write that comes after all they read.
        """
        space, pool = self.pool.space, self.pool
        if convert:
            return self._conversion_moments(space.value[writes[0]])
        known = [space.earliest(space.buffer[r], pool.held) or BEGIN for r in c.reads]
        after = max(known, default=BEGIN)
        options = [m for b in writes for m in self._own_moments(space.value[b]) if m > after]
        return [min(options)] if options else []

    def _own_moments(self, value: int) -> list[Moment]:
        space = self.pool.space
        sub = -1 if space.is_source(value) else 0
        return [(p, d, t, sub) for p, d, t, _ in space.positions.get(value, ())]

    def _conversion_moments(self, value: int) -> list[Moment]:
        space = self.pool.space
        count = space.levels(value)
        subs = range(-count, 0) if space.is_source(value) else range(1, count + 1)
        return [(p, d, t, s) for p, d, t, _ in space.positions.get(value, ()) for s in subs]
