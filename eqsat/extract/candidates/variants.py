"""Candidates become options: which of their inner values they also write, and when they run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from eqsat.extract.candidates.costs import UNASKED, Costs
from eqsat.extract.candidates.cover import entries
from eqsat.extract.candidates.groups import Candidate
from eqsat.extract.candidates.places import BEGIN, Places
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Moment, Space
from eqsat.extract.solve.linear import (
    Dispatches,
    Relayout,
    Ties,
    Time,
    added,
    kernels,
    moved_bytes,
    tie,
)
from eqsat.model.control import Control
from eqsat.model.deadline import tick
from eqsat.model.goal import Goal
from eqsat.model.selection import Group

if TYPE_CHECKING:
    from eqsat.extract.candidates.copies import Copies

EXTRAS = 2  # inner values a group may write beside its results, the program's results apart


class Variant(NamedTuple):
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
    costs: Costs, c: Candidate, buffers: Iterable[int], time_ps: int, step: int = 0
) -> Group:
    """A candidate that writes these buffers as a group of a selection."""
    space, pipeline = costs.space, costs.of(c.members).pipeline_of(c.members)
    written = frozenset(buffers)
    extra = tuple(w for w in c.exposable if space.buffer[w] in written)
    return Group(c.members, c.reads, (*extra, *c.writes), time_ps, step, pipeline)


@dataclass(frozen=True)
class Variants:
    """The options of all candidates of one pool, or those of them that are left."""

    pool: Pool
    costs: Costs
    candidates: tuple[Candidate, ...]
    goals: Mapping[str, Goal]
    options: tuple[Variant, ...] | None = None  # if answers hold no others
    copies: Copies | None = None  # of the candidates, in other blocks

    @cached_property
    def stated(self) -> dict[str, Any]:
        """What all of the options were made into already."""
        return {}

    @cached_property
    def space(self) -> Space:
        return self.pool.space

    @property
    def every(self) -> tuple[Candidate, ...]:
        """The candidates and their copies, as objects."""
        more = () if self.copies is None else self.copies.of(self.candidates)
        return (*self.candidates, *more)

    def found(self, places: Places) -> list[Variant]:
        """Every option at every moment it may run."""
        return [
            Variant(v.candidate, m, *v[2:])
            for v in self.timeless
            for m in places.moments(v.candidate, v.reads, v.writes, v.is_conversion)
        ]

    @cached_property
    def timeless(self) -> tuple[Variant, ...]:
        """The options without regard to when they run; each is at the begin."""
        if self.options is not None:
            return self.options
        return tuple(v for c in self.every for v in self._of(c))

    def _of(self, c: Candidate) -> list[Variant]:
        tick()
        space, pool = self.space, self.pool
        reads = frozenset([space.buffer[r] for r in c.reads])
        sinks = tuple(dict.fromkeys([space.buffer[w] for w in c.writes]))
        if not reads.isdisjoint(sinks):
            return []
        exclusive, computed = pool.legality.exclusive(c.members), space.computes(c.members)
        convert = not computed and self._is_conversion(c)
        owed = self._owed(exclusive, computed)
        sides = self._sides(reads)
        fixed = self._fixed(c)
        found = []
        for extra in self._extra_sets(c, sinks, computed):
            writes = (*sinks, *extra)
            if owed and not owed <= {space.value[b] for b in writes}:
                continue
            adds = self._adds(c, writes, self._time_ps(c, extra), fixed)
            found += [Variant(c, BEGIN, adds, *s, writes, exclusive, convert) for s in sides]
        return found

    def _sides(self, reads: frozenset[int]) -> list[tuple[frozenset[int], frozenset[int]]]:
        """What is read of this run's, and of the weights; of some of them it may be either."""
        pool = self.pool
        run, kept = reads - pool.held - pool.optional, reads & pool.resident
        optional = sorted(reads & pool.optional)
        sets = [frozenset(s) for n in range(len(optional) + 1) for s in combinations(optional, n)]
        return [(run | made, kept - made) for made in sets]

    def _is_conversion(self, c: Candidate) -> bool:
        kinds = self.space.kinds
        return all(kinds[m] in ("conversion", "view", "leaf") for m in c.members)

    def _time_ps(self, c: Candidate, extra: tuple[int, ...]) -> int:
        """With what is written besides."""
        is_stated = not extra and c.time_ps != UNASKED
        return c.time_ps if is_stated else self.costs.of(c.members).wider_ps(c, extra)

    @cached_property
    def moved(self) -> tuple[int, ...]:
        """Per node: bytes a conversion moves."""
        egraph = self.space.egraph
        return tuple(moved_bytes(egraph, n) for n in range(len(egraph.nodes)))

    @cached_property
    def tied(self) -> tuple[int, ...]:
        """Per node: what it adds to the tie-break."""
        return tuple(tie(n, m) for n, m in zip(self.space.egraph.nodes, self.moved, strict=True))

    @cached_property
    def has_loops(self) -> bool:
        return any(isinstance(n.attr, Control) for n in self.space.egraph.nodes)

    def _fixed(self, c: Candidate) -> dict[type, int]:
        """What a dispatch adds to our own goals whatever it writes."""
        return {
            Relayout: sum([self.moved[m] for m in c.members]),
            Ties: sum([self.tied[m] for m in c.members]),
            Dispatches: kernels(self.space.egraph, c.members) if self.has_loops else 1,
        }

    def _adds(
        self, c: Candidate, writes: tuple[int, ...], time_ps: int, fixed: Mapping[type, int]
    ) -> tuple[int, ...]:
        """What a dispatch adds to each goal; our own are known without asking them."""
        found = []
        for name, goal in self.goals.items():
            if isinstance(goal, Time):
                found.append(time_ps)
            elif type(goal) in fixed:
                found.append(fixed[type(goal)])
            else:
                group = group_of(self.costs, c, writes, time_ps)
                sides = self.space.egraph, self.pool.legality.target
                found.append(added(name, goal, *sides, group))
        return tuple(found)

    @cached_property
    def read(self) -> frozenset[int]:
        """Buffers some candidate or the caller reads."""
        space = self.pool.space
        reads = {space.buffer[r] for c in self.every for r in c.reads}
        return frozenset(reads | set(space.roots))

    def _extra_sets(
        self, c: Candidate, sinks: tuple[int, ...], computed: frozenset[int]
    ) -> list[tuple[int, ...]]:
        """What a group may write beside its results: values the caller or other values need.

        None, one, two, or all results of the program that are computed inside (and one more).
        """
        fusion = self.pool.legality.of(c.members).fusion
        space, nobody = self.space, frozenset[int]()
        room = fusion.operands - len(c.reads) - len(sinks)
        if not fusion.multi_result or room <= 0:
            return [()]
        consumers, value = space.consumers, space.value
        useful = {
            space.buffer[e] for e in c.exposable if not consumers.get(value[e], nobody) <= computed
        }
        extras = sorted((useful & self.read).difference(sinks))
        if not extras:
            return [()] if self._has_readers(sinks, computed) else []
        roots = tuple(b for b in extras if b in self._roots)
        sets = [s for size in range(EXTRAS + 1) for s in combinations(extras, size)]
        if len(roots) > EXTRAS:
            sets += [roots, *(tuple(sorted({*roots, b})) for b in extras if b not in roots)]
        return [s for s in sets if len(s) <= room and self._has_readers((*sinks, *s), computed)]

    @cached_property
    def _roots(self) -> frozenset[int]:
        return frozenset(self.space.roots)

    @cached_property
    def wanted(self) -> Counter[int]:
        """Per value: how many results of the program it is."""
        return Counter(self.space.value[r] for r in self.space.roots)

    def _has_readers(self, writes: tuple[int, ...], computed: frozenset[int]) -> bool:
        """A value is not written in more layouts than there are others that need it."""
        space = self.space
        values = [space.value[b] for b in writes]
        if len(set(values)) == len(values):
            return True
        layouts, wanted = Counter(values), self.wanted
        return all(
            n == 1 or n <= wanted[v] + len(space.consumers.get(v, frozenset()) - computed - {-1})
            for v, n in layouts.items()
        )

    def _owed(self, exclusive: frozenset[int], computed: frozenset[int]) -> frozenset[int]:
        """Values it must write: computed here and only here, and somebody outside needs them."""
        values, outside, nobody = self._values, self.outside, frozenset[int]()
        owned = [values[n] for n in exclusive if n in values]
        return frozenset([v for v in owned if not outside.get(v, nobody) <= computed])

    @property
    def needed(self) -> tuple[int, ...]:
        """Values every answer computes."""
        return self.pool.needed

    @cached_property
    def _values(self) -> dict[int, int]:
        """Per exclusive number that stands for a value: the value (see `Legality.exclusive`)."""
        return {self.pool.legality.value_number(v): v for v in self.pool.space.positions}

    @cached_property
    def outside(self) -> dict[int, frozenset[int]]:
        """Per value: needed values that can only be computed from it; -1 is the caller."""
        found: dict[int, set[int]] = {}
        ways = entries(self.pool)
        for w in self.needed:
            for v in frozenset.intersection(*ways[w]):
                found.setdefault(v, set()).add(w)
        for r in self.pool.space.roots:
            found.setdefault(self.pool.space.value[r], set()).add(-1)
        return {v: frozenset(f) for v, f in found.items()}
